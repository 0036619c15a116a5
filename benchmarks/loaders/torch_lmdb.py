"""A map-style torch data set over LMDB, with torch's ``DataLoader``.

As LMDB's and torch's documentation advise: the environment is opened by the process that reads it,
read-only, without locks and without read-ahead, as reads are random; values are buffers, not
copies, decoded by NumPy without pickle; ``__getitems__`` fetches a batch at once and
``collate_fn`` makes tensors of it. ``workers2`` has two persistent worker processes. ``plain0`` is
a data set as most are written, with a ``__getitem__`` that makes tensors of one value, and torch's
own collating.

Values are written without pickle too, a thousand in a transaction, which does not wait for the
disk: the file is synced once, as those of the others are.
"""

from __future__ import annotations

import itertools
import math
import pathlib
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import lmdb
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from workloads import Field, Record, Workload

from loaders import BATCH, Loader, Unsupported

MAP_SIZE = 1 << 40
PER_TRANSACTION = 1000
LARGE = 1 << 14
WORKERS = {"workers0": 0, "workers2": 2, "plain0": 0}
LENGTHS = "lengths"


class _Codec:
    """Values are the static fields, one after another, and then the one that varies, if any."""

    def __init__(self, workload: Workload) -> None:
        self.fields = workload.fields
        self.static = {name: field for name, field in self.fields.items() if field.is_static}
        self.varying = [name for name in self.fields if name not in self.static]
        self.row = np.dtype([(name, f.dtype, f.shape) for name, f in self.static.items()])

    def encode(self, record: dict[str, Any]) -> bytes:
        parts = [record[name] for name in (*self.static, *self.varying)]
        return b"".join(part if isinstance(part, bytes) else part.tobytes() for part in parts)

    def collate(self, values: list[Any]) -> dict[str, Any]:
        """A batch: stacked tensors, padded ones with their ``lengths``, lists of ``bytes``."""
        if not self.varying and self.row.itemsize < LARGE:
            rows = np.frombuffer(bytearray().join(values), self.row)
        else:
            rows = [np.frombuffer(value, self.row, 1)[0] for value in values]
            rows = np.array(rows, self.row) if self.varying else rows
        columns: dict[str, Any] = {}
        for name in self.fields:
            if name in self.varying:
                rests = [value[self.row.itemsize :] for value in values]
                columns |= self._varying(name, self.fields[name], rests)
            elif isinstance(rows, list):
                columns[name] = torch.from_numpy(np.stack([row[name] for row in rows]))
            else:
                columns[name] = torch.from_numpy(np.ascontiguousarray(rows[name]))
        return columns

    def _varying(self, name: str, field: Field, values: list[Any]) -> dict[str, Any]:
        if field.dtype == "bytes":
            return {name: [bytes(value) for value in values]}
        arrays = [np.frombuffer(value, field.dtype) for value in values]
        lengths = [len(array) for array in arrays]
        padded = np.zeros((len(arrays), max(lengths)), field.dtype)
        for row, array in zip(padded, arrays, strict=True):
            row[: len(array)] = array
        return {name: torch.from_numpy(padded), LENGTHS: torch.tensor(lengths)}


class _Records(Dataset[Any]):
    def __init__(self, path: str, count: int) -> None:
        self._path = path
        self._count = count
        self._environment: Any = None

    def __len__(self) -> int:
        return self._count

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if self._environment is None:
            self._environment = lmdb.open(self._path, readonly=True, lock=False, readahead=False)
            self._read = self._environment.begin(buffers=True).get
        read = self._read
        return [read(index.to_bytes(8, "big")) for index in indices]

    def close(self) -> None:
        """Before a fork: LMDB's environments are not to be inherited."""
        if self._environment is not None:
            del self._read
            self._environment.close()
            self._environment = None


class _Items(Dataset[Any]):
    """The same by single records, which are views of the values."""

    def __init__(self, records: _Records, codec: _Codec) -> None:
        self._records = records
        self._fields = []
        for name, field in codec.static.items():
            dtype, start = codec.row.fields[name][:2]
            self._fields.append((name, dtype.base, start, field.shape))

    def __getitem__(self, index: int) -> dict[str, Any]:
        (value,) = self._records.__getitems__([index])
        record: dict[str, Any] = {}
        for name, dtype, start, shape in self._fields:
            array = np.frombuffer(value, dtype, math.prod(shape), start)
            record[name] = torch.from_numpy(array.reshape(shape))
        return record


class _Order(Sampler[int]):
    """A seeded random order, of one shard, from an offset on."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.place = (0, 0, 0, 1)

    def __iter__(self) -> Iterator[int]:
        seed, offset, shard, shards = self.place
        indices = torch.arange(shard, self._count, shards)
        order = torch.randperm(len(indices), generator=torch.Generator().manual_seed(seed))
        return iter(indices[order[offset:]].tolist())


class PeerLoader(Loader):
    ways = tuple(WORKERS)

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        self._codec = _Codec(workload)
        self._loaders: dict[str, Any] = {}

    @classmethod
    def version(cls) -> str:
        return f"torch {metadata.version('torch')}, LMDB {metadata.version('lmdb')}"

    @property
    def _path(self) -> str:
        return str(self.directory / "lmdb")

    def write_records(self, records: Iterator[Record]) -> None:
        """By transactions of many records, of which none waits for the disk."""
        items = (
            (number.to_bytes(8, "big"), self._codec.encode(record))
            for number, record in enumerate(records)
        )
        with lmdb.open(self._path, map_size=MAP_SIZE, sync=False) as environment:
            for _ in range(0, self.workload.count, PER_TRANSACTION):
                with environment.begin(write=True) as transaction:
                    some = itertools.islice(items, PER_TRANSACTION)
                    transaction.cursor().putmulti(some, append=True)

    def open(self) -> None:
        self._records = _Records(self._path, self.workload.count)
        self._order = _Order(self.workload.count)

    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        self._order.place = (seed, offset, shard, shards)
        if way not in self._loaders:
            self._records.close()
            data: Dataset[Any] = self._records
            if is_plain := way == "plain0":
                if self._codec.varying:
                    raise Unsupported("torch's own collating stacks values of one shape only")
                data = _Items(self._records, self._codec)
                # Tensors over memory that is not to be written to, which nobody does.
                warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self._loaders[way] = DataLoader(
                data,
                batch_size=BATCH,
                sampler=self._order,
                num_workers=WORKERS[way],
                persistent_workers=WORKERS[way] > 0,
                collate_fn=None if is_plain else self._codec.collate,
            )
        return iter(self._loaders[way])

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        columns = {
            name: value.numpy() if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }
        lengths = columns.pop(LENGTHS, None)
        names = list(columns)
        records = [
            dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        if lengths is not None:
            (name,) = self._codec.varying
            for record, length in zip(records, lengths, strict=True):
                record[name] = record[name][:length]
        return records

    def close(self) -> None:
        for loader in self._loaders.values():
            workers = getattr(loader, "_iterator", None)
            if workers is not None:
                workers._shutdown_workers()
        self._loaders = {}
