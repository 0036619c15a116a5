"""Loaders that read a workload out of a bucket, each in a module of its own.

A module is imported only by ``far_reading.py``, in that loader's environment, and defines a class
``FarLoader``. Each is set up as its own documentation advises; what was chosen is at the top of the
module. Of several ways, the fastest on the machine counts; see ``far.py``.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from loaders import BATCH, Loader
from workloads import NUMBER, Record, Workload

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
"""What the SDKs sign with; the server does not look at it."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a loader's data set is.

    Attributes:
        folder: of the data set, where it is written before the server is asked for it.
        endpoint: of the server, ``http://…``.
        path: of ``folder`` there: the bucket, a slash, and a prefix.
        cache: for what a loader keeps on this machine.
        local_bytes: that it may keep there; all if ``None``.
    """

    folder: pathlib.Path
    endpoint: str
    path: str
    cache: pathlib.Path
    local_bytes: int | None = None

    @property
    def url(self) -> str:
        return f"{self.endpoint}/{self.path}"


class RemoteLoader(Loader):
    """Stores a workload in a folder, and reads it from the bucket that it is served as."""

    def __init__(self, workload: Workload, place: Place) -> None:
        super().__init__(workload, place.folder)
        self.place = place

    def connect(self) -> None:
        """Makes what a process needs once, whatever it opens, where there is such."""

    def numbers(self, batch: Any) -> Any:
        """Of a batch's records, int64 of its length."""
        return np.asarray(batch[NUMBER])

    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        assert (offset, shard, shards) == (0, 0, 1), "only whole epochs are measured"
        return self.read(way, seed)

    def read(self, way: str, seed: int) -> Iterator[Any]:
        """Batches of 32 of one shuffled epoch."""
        raise NotImplementedError

    def to_records(self, way: str, batch: Any) -> list[Record]:  # noqa: ARG002
        return records_of(self.workload, batch)


def loader_class(name: str) -> type[RemoteLoader]:
    kind: type[RemoteLoader] = importlib.import_module(f"far_loaders.{name}").FarLoader
    return kind


def batched(records: Iterator[Record], workload: Workload) -> Iterator[dict[str, Any]]:
    """Batches of 32, the last one smaller."""
    gathered: list[Record] = []
    for record in records:
        gathered.append(record)
        if len(gathered) == BATCH:
            yield collated(gathered, workload)
            gathered = []
    if gathered:
        yield collated(gathered, workload)


def collated(records: list[Record], workload: Workload) -> dict[str, Any]:
    """A batch of NumPy arrays; what varies is padded with zeros."""
    columns: dict[str, Any] = {}
    for name, field in workload.fields.items():
        values = [record[name] for record in records]
        if None not in field.shape:
            columns[name] = np.stack(values)
            continue
        lengths = [len(value) for value in values]
        columns[name] = padded = np.zeros((len(values), max(lengths)), field.dtype)
        for row, value, length in zip(padded, values, lengths, strict=True):
            row[:length] = value
    return columns


def records_of(workload: Workload, batch: dict[str, Any]) -> list[Record]:
    """The reverse of :func:`collated`; how long a record is, its number says."""
    columns = {name: np.asarray(batch[name]) for name in workload.fields}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for name, field in workload.fields.items():
        if None in field.shape:
            for record in records:
                length = len(workload.record(int(record[NUMBER]))[name])
                assert not record[name][length:].any(), "what pads a record is not zero"
                record[name] = record[name][:length]
    return records
