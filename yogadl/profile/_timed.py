"""Readers that measure: how long the disk takes for the records, and how long decoding them."""

from __future__ import annotations

import contextlib
import copy
import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from yogadl.cache.columns import Column
from yogadl.cache.reader import CacheFile
from yogadl.cache.record_reader import RecordReader
from yogadl.dataref._epochs import Epochs
from yogadl.errors import UnsupportedTypeError
from yogadl.legacy.reader import LegacyCacheFile
from yogadl.orders import Order
from yogadl.profile._meter import Clock

Array = np.ndarray[Any, Any]


@dataclass
class _Spent:
    """Seconds spent, and those of them during which a consumer waited."""

    busy: float = 0.0
    awaited: float = 0.0


@dataclass
class _Work:
    """What one thread of the loader did."""

    disk: _Spent = field(default_factory=_Spent)
    decoding: _Spent = field(default_factory=_Spent)
    records: int = 0


class LoadTimer:
    """The times of the loader's threads. Each has its own; a lock could be locked in a fork."""

    def __init__(self, clock: Clock, waited: Callable[[float], float]) -> None:
        self._clock = clock
        self._waited = waited
        self._threads: dict[int, _Work] = {}

    def touch(self, buffer: Array, starts: Array, sizes: Array) -> None:
        """Waits until some records are in memory.

        Args:
            buffer: the file, uint8.
            starts, sizes: of the records' values in it, int64 ``[n]`` each.
        """
        pages = _pages(starts, sizes)
        work = self._work()
        with self._counted(work.disk):
            buffer.take(pages)
        work.records += len(starts)

    def decoding(self) -> contextlib.AbstractContextManager[None]:
        return self._counted(self._work().decoding)

    def sums(self) -> tuple[_Spent, _Spent, int]:
        """Disk, decoding and records of all threads."""
        works = list(self._threads.values())
        disk, decoding = _Spent(), _Spent()
        for work in works:
            for total, part in ((disk, work.disk), (decoding, work.decoding)):
                total.busy += part.busy
                total.awaited += part.awaited
        return disk, decoding, sum(work.records for work in works)

    def _work(self) -> _Work:
        return self._threads.setdefault(threading.get_ident(), _Work())

    @contextlib.contextmanager
    def _counted(self, spent: _Spent) -> Iterator[None]:
        started = self._clock()
        waited = self._waited(started)
        try:
            yield
        finally:
            ended = self._clock()
            spent.busy += ended - started
            spent.awaited += max(0.0, self._waited(ended) - waited)


def _pages(starts: Array, sizes: Array) -> Array:
    """The offsets of all pages in which some values lie, int64."""
    first = starts // mmap.PAGESIZE
    counts = np.where(sizes > 0, (starts + sizes - 1) // mmap.PAGESIZE - first + 1, 0)
    ends = np.cumsum(counts)
    steps = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    pages: Array = (np.repeat(first, counts) + steps) * mmap.PAGESIZE
    return pages


class TimedFile(CacheFile):
    """An open file that measures its reads."""

    def __init__(self, reader: CacheFile, loader: LoadTimer) -> None:
        vars(self).update(vars(reader))  # as copy.copy does
        self._plain = copy.copy(reader)
        self._loader = loader

    def lookup(self, positions: Array) -> Array:
        # After this, TensorFlow reads the records itself.
        self._touch(positions)
        with self._loader.decoding():
            return self._plain.lookup(positions)

    def read_columns(
        self, positions: Array, out: Sequence[Array] | None = None, spans: bool = False
    ) -> list[Column]:
        self._touch(positions)
        with self._loader.decoding():
            return self._plain.read_columns(positions, out, spans)

    def _touch(self, positions: Array) -> None:
        entries = self._entries(positions)
        starts, sizes = entries["offset"].astype("i8"), entries["length"].astype("i8")
        self._loader.touch(self.buffer, starts, sizes)


class TimedLegacyFile(LegacyCacheFile):
    """An open file of yogadl 0.1.4 that measures its reads."""

    def __init__(self, reader: LegacyCacheFile, loader: LoadTimer) -> None:
        vars(self).update(vars(reader))
        self._plain = copy.copy(reader)
        self._loader = loader

    def read_columns(
        self, positions: Array, out: Sequence[Array] | None = None, spans: bool = False
    ) -> list[Column]:
        if self._buffer is not None:
            buffer = np.frombuffer(self._buffer, "u1")
            self._loader.touch(buffer, self._offsets[positions], self._sizes[positions])
        with self._loader.decoding():
            return self._plain.read_columns(positions, out, spans)


class TimedReader(RecordReader):
    """Any other reader, such as one over several data sets, as one that measures its reads."""

    def __init__(self, reader: RecordReader, loader: LoadTimer) -> None:
        self._plain = copy.copy(reader)
        self._loader = loader
        self.spec = reader.spec

    def __copy__(self) -> TimedReader:
        return TimedReader(self._plain, self._loader)

    def __len__(self) -> int:
        return len(self._plain)

    @property
    def content_id(self) -> str:
        return self._plain.content_id

    def tokens(self, positions: Array) -> Array:
        return self._plain.tokens(positions)

    @property
    def record_bytes(self) -> int:
        return self._plain.record_bytes

    def read_columns(
        self, positions: Array, out: Sequence[Array] | None = None, spans: bool = False
    ) -> list[Column]:
        with self._loader.decoding():
            return self._plain.read_columns(positions, out, spans)

    def read_record(self, position: int) -> Any:
        with self._loader.decoding():
            return self._plain.read_record(position)

    @property
    def lends_rows(self) -> bool:
        return self._plain.lends_rows

    def are_cached(self, positions: Array) -> bool:
        return self._plain.are_cached(positions)

    def announce(self, positions: Array) -> None:
        self._plain.announce(positions)

    def announce_all(self) -> None:
        self._plain.announce_all()

    def forget(self, start: int, stop: int) -> None:
        self._plain.forget(start, stop)

    def close(self) -> None:
        self._plain.close()


class TimedEpochs(Epochs):
    """The epochs of a stream, with the same place in them, by a reader that measures."""

    def __init__(self, epochs: Epochs, loader: LoadTimer) -> None:
        reader = epochs.reader()
        # The place is in objects that both have.
        vars(self).update(vars(epochs))
        self._loader = loader
        self._reader: RecordReader
        if isinstance(reader, CacheFile):
            self._reader = TimedFile(reader, loader)
        elif isinstance(reader, LegacyCacheFile):
            self._reader = TimedLegacyFile(reader, loader)
        else:
            self._reader = TimedReader(reader, loader)

    def reader(self) -> RecordReader:
        super().reader()
        return self._reader

    def moved_to(self, order: Order, epoch: int, offset: int) -> Epochs:
        return TimedEpochs(super().moved_to(order, epoch, offset), self._loader)

    def __getstate__(self) -> Any:
        raise UnsupportedTypeError("a profiled stream cannot be pickled; pickle the one it is of")
