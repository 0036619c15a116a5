"""MosaicML Streaming: MDS shards, read by ``StreamingDataset``.

As Streaming's documentation advises: fixed-size columns by their dtype and shape; a local data set
with ``shuffle=True`` and its default algorithm, and the ``batch_size`` told to it; its
``StreamingDataLoader``. Offsets are its ``load_state_dict``; its shards are the ranks of a
distributed run, which one process cannot be alone. There are no worker processes, as a data set
that has been read cannot be handed to them, and one process is faster.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import pathlib
import sys
import types
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
import torch
from workloads import Field, Record, Workload

from loaders import BATCH, Loader, Unsupported

LENGTHS = "lengths"


def _import_streaming() -> Any:
    """``streaming``, which imports torchvision for data sets that are not used here.

    Where torchvision does not fit torch's CPU build, empty modules stand in for it.
    """
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        names = ("torchvision", "torchvision.datasets", "torchvision.transforms")
        for name in (*names, "torchvision.transforms.functional"):
            module: Any = types.ModuleType(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            module.VisionDataset = object
            module.to_tensor = None
            sys.modules[name] = module
    return importlib.import_module("streaming")


streaming = _import_streaming()


def _column(field: Field) -> str:
    if field.dtype == "bytes":
        return "bytes"
    if not field.shape:
        return "uint8" if field.dtype == "bool" else field.dtype
    if not field.is_static:
        return f"ndarray:{field.dtype}"
    return f"ndarray:{field.dtype}:{','.join(str(length) for length in field.shape)}"


class _Collate:
    """torch's default, with values of varying length padded and byte strings in lists."""

    def __init__(self, fields: dict[str, Field]) -> None:
        self._fields = fields

    def __call__(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for name, field in self._fields.items():
            values = [record[name] for record in records]
            if field.dtype == "bytes":
                columns[name] = values
            elif field.is_static and field.shape:
                columns[name] = torch.from_numpy(np.stack(values))
            elif field.is_static:
                columns[name] = torch.from_numpy(np.array(values, field.dtype))
            else:
                tensors = [torch.from_numpy(value.copy()) for value in values]
                columns[LENGTHS] = torch.tensor([len(tensor) for tensor in tensors])
                columns[name] = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)
        return columns


class PeerLoader(Loader):
    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        self._dataset: Any = None

    @classmethod
    def version(cls) -> str:
        return f"MosaicML Streaming {metadata.version('mosaicml-streaming')}"

    @property
    def _path(self) -> str:
        return str(self.directory / "mds")

    def write_records(self, records: Iterator[Record]) -> None:
        fields = self.workload.fields
        columns = {name: _column(field) for name, field in fields.items()}
        flags = [name for name, field in fields.items() if field.dtype == "bool"]
        with streaming.MDSWriter(out=self._path, columns=columns) as writer:
            for record in records:
                for name in flags:
                    record[name] = np.uint8(record[name])
                writer.write(record)

    def open(self) -> None:
        streaming.base.util.clean_stale_shared_memory()
        self._dataset = streaming.StreamingDataset(
            local=self._path, shuffle=True, batch_size=BATCH, shuffle_seed=0
        )

    def epoch(
        self,
        way: str,  # noqa: ARG002
        *,
        seed: int,
        offset: int = 0,
        shard: int = 0,  # noqa: ARG002
        shards: int = 1,
    ) -> Iterator[Any]:
        if shards > 1:
            raise Unsupported("its ranks are a torch.distributed group of as many processes")
        dataset = self._dataset
        # The order is that of an epoch's number, which is the seed.
        dataset.next_epoch = 0
        dataset.load_state_dict(
            {
                "epoch": seed,
                "sample_in_epoch": offset,
                "num_canonical_nodes": 1,
                "shuffle_seed": 0,
                "initial_physical_nodes": 1,
            }
        )
        collate = _Collate(self.workload.fields)
        return iter(streaming.StreamingDataLoader(dataset, batch_size=BATCH, collate_fn=collate))

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        columns = {
            name: value.numpy() if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }
        lengths = columns.pop(LENGTHS, None)
        rows = zip(*columns.values(), strict=True)
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        if lengths is not None:
            for record, length in zip(records, lengths, strict=True):
                for name, field in self.workload.fields.items():
                    if None in field.shape:
                        record[name] = record[name][:length]
        return records

    def close(self) -> None:
        self._dataset = None
