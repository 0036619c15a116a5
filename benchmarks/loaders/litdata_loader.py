"""LitData: chunks made by ``optimize``, read by ``StreamingDataset``.

As LitData's documentation advises: ``optimize`` with ``chunk_bytes="64MB"`` and, from arrays, as
many workers as cores; a generator is what one worker makes of one input. It is read by
``StreamingDataset(shuffle=True)``, which shuffles the chunks and the records of each, and a
``StreamingDataLoader``. Offsets are its ``state_dict``; shards are ranks of its distributed
environment, which get whole batches only. ``workers2`` has two worker processes.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
import torch
from litdata import StreamingDataLoader, StreamingDataset, optimize
from torch.utils.data import default_collate
from workloads import Field, Record, Workload

from loaders import BATCH, Loader

WORKERS = {"workers0": 0, "workers2": 2}
LENGTHS = "lengths"


def _exact(work: Workload, record: Record) -> Record:
    """A record as LitData's serializers keep it exactly: numbers of other dtypes are arrays."""
    for name, field in work.fields.items():
        if field.dtype in ("int64", "bool") and not field.shape:
            record[name] = record[name].item()
        elif field.dtype != "bytes":
            record[name] = np.asarray(record[name])
    return record


class _Row:
    """A row of arrays, which workers have from the process that they are forks of."""

    def __init__(self, work: Workload, arrays: dict[str, Any]) -> None:
        self.work = work
        self.arrays = arrays

    def __call__(self, number: int) -> Record:
        return _exact(self.work, {name: array[number] for name, array in self.arrays.items()})


class _Generate:
    """All records, of one input."""

    def __init__(self, work: Workload) -> None:
        self.work = work

    def __call__(self, _input: int) -> Iterator[Record]:
        for record in self.work.records():
            yield _exact(self.work, record)


class _Collate:
    """torch's default, with values of varying length padded and byte strings in lists."""

    def __init__(self, fields: dict[str, Field]) -> None:
        self.fields = fields

    def __call__(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for name in records[0]:
            values = [record[name] for record in records]
            if None in self.fields[name].shape:
                tensors = [torch.as_tensor(value) for value in values]
                columns[LENGTHS] = torch.tensor([len(tensor) for tensor in tensors])
                columns[name] = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)
            elif self.fields[name].dtype == "bytes":
                columns[name] = [bytes(value) for value in values]
            else:
                columns[name] = default_collate(values)
        return columns


class PeerLoader(Loader):
    ways = tuple(WORKERS)

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        self._varying = [name for name, f in workload.fields.items() if None in f.shape]

    @classmethod
    def version(cls) -> str:
        return f"LitData {metadata.version('litdata')}"

    @property
    def _path(self) -> str:
        return str(self.directory / "optimized")

    def write_generator(self) -> None:
        self._optimize(_Generate(self.workload), [0], 1)

    def write_arrays(self) -> None:
        numbers = list(range(self.workload.count))
        self._optimize(_Row(self.workload, self.arrays), numbers, os.cpu_count() or 1)

    def _optimize(self, make: Any, inputs: list[int], workers: int) -> None:
        caches = self.directory / "caches"
        os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(caches / "chunks")
        os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(caches / "data")
        optimize(
            fn=make,
            inputs=inputs,
            output_dir=self._path,
            chunk_bytes="64MB",
            num_workers=workers,
            start_method="fork",
            verbose=False,
        )

    def open(self) -> None:
        pass

    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        # LitData takes its rank from the environment, as it is when a data set is made.
        os.environ.update(WORLD_SIZE=str(shards), GLOBAL_RANK=str(shard))
        dataset = StreamingDataset(
            self._path,
            cache_dir=str(self.directory / "caches" / "reading"),
            shuffle=True,
            drop_last=False,
            seed=seed,
        )
        loader = StreamingDataLoader(
            dataset,
            batch_size=BATCH,
            num_workers=WORKERS[way],
            collate_fn=_Collate(self.workload.fields),
        )
        if offset:
            state = loader.state_dict()
            state.update(current_epoch=1, num_samples_yielded=offset)
            state["dataset"].update(
                current_epoch=1, num_samples_yielded=offset, sample_in_epoch=offset
            )
            loader.load_state_dict(state)
        return iter(loader)

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
                for name in self._varying:
                    record[name] = record[name][:length]
        return records
