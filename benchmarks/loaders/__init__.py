"""The loaders that are compared, each in a module of its own that imports its library.

A module is imported only by ``measure.py``, in that loader's environment.
"""

from __future__ import annotations

import abc
import pathlib
from collections.abc import Iterator
from typing import Any

from workloads import Workload

BATCH = 32


class Unsupported(Exception):  # noqa: N818
    """What a loader cannot do, in words for the report."""


class Loader(abc.ABC):
    """One way to store a workload and to read it again.

    Attributes:
        directory: where the loader keeps the data set; empty before :meth:`write`.
        ways: the names of its ways to read an epoch; the first is its best.
        writes: the names of its methods that write; what the first has written is read.
    """

    ways: tuple[str, ...] = ("batches",)
    writes: tuple[str, ...] = ("write",)

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        self.workload = workload
        self.directory = directory

    @classmethod
    @abc.abstractmethod
    def version(cls) -> str:
        """The library's name and version, such as ``"FFCV 1.0.2"``."""

    @abc.abstractmethod
    def write(self) -> None:
        """Stores every record of the workload; returns when they are readable."""

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
