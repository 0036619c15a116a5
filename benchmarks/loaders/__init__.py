"""The loaders that are compared, each in a module of its own that imports its library.

A module is imported only by ``measure.py``, in that loader's environment.
"""

from __future__ import annotations

import abc
import pathlib
from collections.abc import Iterator
from typing import Any

import workloads
from workloads import Record, Workload

BATCH = 32

ARRAYS = ("arrays", "arrow")
"""The ways to write what is in memory as arrays."""


class Unsupported(Exception):  # noqa: N818
    """What a loader cannot do, in words for the report."""


class Loader(abc.ABC):
    """One way to store a workload and to read it again.

    Attributes:
        directory: where the loader keeps the data set; empty before it is written.
        ways: the names of its ways to read an epoch; the first is its best.
        writes: its ways to write, each a method ``write_<way>``; what the first writes is read.
        arrays: the records as :func:`workloads.columns` makes them, for ways of ``ARRAYS``.
    """

    ways: tuple[str, ...] = ("batches",)
    writes: tuple[str, ...] = ("generator", "arrays")
    arrays: dict[str, Any]

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        self.workload = workload
        self.directory = directory

    @classmethod
    @abc.abstractmethod
    def version(cls) -> str:
        """The library's name and version, such as ``"FFCV 1.0.2"``."""

    def prepare(self, way: str) -> None:
        """Has in memory what a way to write takes. This is not measured."""
        if way in ARRAYS:
            self.arrays = workloads.columns(self.workload)
        else:
            # The first record makes what the others are cut from.
            next(self.workload.records())

    def write_generator(self) -> None:
        """Stores every record of a generator; returns when they are readable.

        Raises:
            Unsupported: it takes no generators.
        """
        self.write_records(self.workload.records())

    def write_arrays(self) -> None:
        """The same from arrays in memory: as they are if the loader takes such, else row by row."""
        self.write_records(workloads.rows(self.arrays))

    def write_records(self, records: Iterator[Record]) -> None:
        """Stores records, in a loader whose ways to write differ in nothing else."""
        raise NotImplementedError

    @abc.abstractmethod
    def open(self) -> None:
        """Makes the stored data set ready to be read, as a training script would, once."""

    @abc.abstractmethod
    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        """Batches of 32 of one shuffled epoch, in the loader's own batch type; the last may be
        smaller.

        Args:
            way: one of ``ways``.
            seed: of the shuffle.
            offset: records to skip at the start of the epoch, by the cheapest means there is.
            shard, shards: read only this shard of so many, by the cheapest means there is.

        Raises:
            Unsupported: there is no means.
        """

    @abc.abstractmethod
    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:
        """The records of a batch as flat dicts of NumPy values and ``bytes``, for checking."""

    def close(self) -> None:  # noqa: B027
        """Ends worker processes and threads, if there are any."""
