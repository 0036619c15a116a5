"""Grain over one ArrayRecord file, with records as plain bytes.

As Grain's documentation advises: the file is written with ``group_size:1``, for random access, and
without compression, as of all loaders; a
``MapDataset`` is sliced for shards and offsets, which costs nothing, shuffled, and batched by a
``batch_fn`` that decodes a batch at once; ``to_iter_dataset`` reads it with two threads, fewer
than the default, as ``ReadOptions`` are to be fitted to the machine. Worker processes of
``mp_prefetch`` are slower here.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from workloads import Record, Workload

from loaders import BATCH, Loader

THREADS = 2
BUFFER = 64


class _Codec:
    """Values are the static fields, one after another, and then the one that varies, if any."""

    def __init__(self, workload: Workload) -> None:
        fields = workload.fields
        self.static = [name for name, field in fields.items() if field.is_static]
        self.varying = {name: field for name, field in fields.items() if name not in self.static}
        self.row = np.dtype([(n, fields[n].dtype, fields[n].shape) for n in self.static])

    def encode(self, record: dict[str, Any]) -> bytes:
        parts = [record[name] for name in (*self.static, *self.varying)]
        return b"".join(part if isinstance(part, bytes) else part.tobytes() for part in parts)

    def decode(self, values: Any) -> dict[str, Any]:
        """A batch: stacked arrays; lists of what varies."""
        if not self.varying:
            rows = np.frombuffer(b"".join(values), self.row)
        else:
            rows = np.frombuffer(b"".join(v[: self.row.itemsize] for v in values), self.row)
        batch: dict[str, Any] = {name: rows[name] for name in self.static}
        for name, field in self.varying.items():
            rests = [value[self.row.itemsize :] for value in values]
            is_bytes = field.dtype == "bytes"
            batch[name] = rests if is_bytes else [np.frombuffer(r, field.dtype) for r in rests]
        return batch


class PeerLoader(Loader):
    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        self._codec = _Codec(workload)
        self._iterator: Any = None

    @classmethod
    def version(cls) -> str:
        return f"Grain {metadata.version('grain')}"

    @property
    def _path(self) -> str:
        return str(self.directory / "data.array_record")

    def write_records(self, records: Iterator[Record]) -> None:
        writer = ArrayRecordWriter(self._path, "group_size:1,uncompressed")
        for record in records:
            writer.write(self._codec.encode(record))
        writer.close()

    def open(self) -> None:
        self._source = grain.sources.ArrayRecordDataSource([self._path])

    def epoch(
        self,
        way: str,  # noqa: ARG002
        *,
        seed: int,
        offset: int = 0,
        shard: int = 0,
        shards: int = 1,
    ) -> Iterator[Any]:
        dataset = grain.MapDataset.source(self._source)[shard::shards].shuffle(seed=seed)[offset:]
        dataset = dataset.batch(BATCH, batch_fn=self._codec.decode)
        threads = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=BUFFER)
        batches = dataset.to_iter_dataset(threads)
        self.close()
        self._iterator = iter(batches)
        return self._iterator

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]

    def close(self) -> None:
        if self._iterator is not None and hasattr(self._iterator, "close"):
            self._iterator.close()
        self._iterator = None
