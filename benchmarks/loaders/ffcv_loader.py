"""FFCV: one ``.beton`` file, decoded by compiled code.

As FFCV's performance guide advises for data that fits in memory: ``os_cache=True`` with
``OrderOption.RANDOM``, and as many workers as cores. Scalars are its ``IntField`` and
``FloatField``, which are stored as 64 bits and converted back; arrays are ``NDArrayField``.
Values of varying length are ``BytesField``: batches of them are padded to the longest one of the
data set, and a field of lengths comes with them.

It is written by as many processes as cores, from arrays that are looked up by index; it takes no
generators.

FFCV decodes into a few buffers in turn, so a batch lasts until the next one is asked for.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
import torch
from ffcv.fields import BytesField, FloatField, IntField, NDArrayField
from ffcv.fields.basics import FloatDecoder, IntDecoder
from ffcv.fields.bytes import BytesDecoder
from ffcv.fields.ndarray import NDArrayDecoder
from ffcv.loader import Loader as FFCVLoader
from ffcv.transforms import Convert, Squeeze, ToTensor, View
from ffcv.traversal_order import Random
from ffcv.writer import DatasetWriter
from workloads import Field, Workload

from loaders import BATCH, Loader

LENGTH = "length"


def _torch_dtype(dtype: str) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


class _Source:
    """The rows of arrays as tuples, by index, as ``DatasetWriter`` wants them."""

    def __init__(self, workload: Workload, arrays: dict[str, Any]) -> None:
        self.workload = workload
        self.arrays = arrays

    def __len__(self) -> int:
        return self.workload.count

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        values: list[Any] = []
        for name, field in self.workload.fields.items():
            value = self.arrays[name][index]
            if not field.is_static:
                value = np.frombuffer(value, np.uint8)
                values.append(len(value))
            values.append(value)
        return tuple(values)


class _Order(Random):
    """FFCV's random order of a part of the data set: a ``TraversalOrder`` of our own.

    ``Loader(indices=…)`` would do the same, but every new ``Loader`` compiles its code again.
    """

    def __init__(self) -> None:
        """Made before the loader, which calls it with itself."""
        self.part = (0, 0, 1)

    def __call__(self, loader: FFCVLoader) -> _Order:
        super().__init__(loader)
        self.all_indices = self.indices
        return self

    def sample_order(self, epoch: int) -> np.ndarray[Any, Any]:
        offset, shard, shards = self.part
        self.indices = self.all_indices[shard::shards]
        return super().sample_order(epoch)[offset:]


class PeerLoader(Loader):
    writes = ("arrays",)

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        self._iterator: Any = None

    @classmethod
    def version(cls) -> str:
        return f"FFCV {metadata.version('ffcv')}"

    def _ffcv_field(self, field: Field) -> Any:
        if not field.is_static:
            return BytesField()
        if field.shape:
            return NDArrayField(np.dtype(field.dtype), field.shape)
        return FloatField() if np.dtype(field.dtype).kind == "f" else IntField()

    def _names(self) -> list[str]:
        """The fields of the file, in order: a length comes before what varies."""
        names = []
        for name, field in self.workload.fields.items():
            names += [name] if field.is_static else [f"{name}.{LENGTH}", name]
        return names

    @property
    def _path(self) -> str:
        return str(self.directory / "data.beton")

    def write_arrays(self) -> None:
        fields: dict[str, Any] = {}
        for name in self._names():
            field = self.workload.fields.get(name)
            fields[name] = IntField() if field is None else self._ffcv_field(field)
        writer = DatasetWriter(self._path, fields, num_workers=os.cpu_count())
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            writer.from_indexed_dataset(_Source(self.workload, self.arrays))

    def open(self) -> None:
        self._order = _Order()
        self._loader = FFCVLoader(
            self._path,
            batch_size=BATCH,
            num_workers=os.cpu_count(),
            os_cache=True,
            order=self._order,
            drop_last=False,
            pipelines={name: self._pipeline(name) for name in self._names()},
        )
        # The code of a loader is compiled by its first batch.
        next(self.epoch(self.ways[0], seed=0))

    def _pipeline(self, name: str) -> list[Any]:
        field = self.workload.fields.get(name)
        if field is None:
            return [IntDecoder(), ToTensor(), Squeeze(1)]
        if not field.is_static:
            view = [] if field.dtype == "bytes" else [View(_torch_dtype(field.dtype))]
            return [BytesDecoder(), ToTensor(), *view]
        if field.shape:
            return [NDArrayDecoder(), ToTensor()]
        decoder = FloatDecoder() if np.dtype(field.dtype).kind == "f" else IntDecoder()
        converted = [] if field.dtype == decoder.dtype else [Convert(_torch_dtype(field.dtype))]
        return [decoder, ToTensor(), Squeeze(1), *converted]

    def epoch(
        self,
        way: str,  # noqa: ARG002
        *,
        seed: int,
        offset: int = 0,
        shard: int = 0,
        shards: int = 1,
    ) -> Iterator[Any]:
        self.close()
        self._order.part = (offset, shard, shards)
        self._loader.next_epoch = seed
        self._iterator = iter(self._loader)
        return self._iterator

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        columns = {name: column.numpy() for name, column in zip(self._names(), batch, strict=True)}
        records = []
        for row in range(len(batch[0])):
            record: dict[str, Any] = {}
            for name, field in self.workload.fields.items():
                value = columns[name][row]
                if not field.is_static:
                    itemsize = value.dtype.itemsize
                    value = value[: columns[f"{name}.{LENGTH}"][row] // itemsize]
                    value = value.tobytes() if field.dtype == "bytes" else value.copy()
                elif field.shape:
                    value = value.copy()
                record[name] = value
            records.append(record)
        return records

    def close(self) -> None:
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None
