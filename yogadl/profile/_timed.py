"""Measuring a reader: how long the disk takes for the records, and how long decoding them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from yogadl.cache.mapping import Extents
from yogadl.cache.record_reader import RecordReader
from yogadl.dataref._epochs import Readable
from yogadl.errors import UnsupportedTypeError
from yogadl.profile._meter import Clock


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

    @contextlib.contextmanager
    def reading(self, extents: Sequence[Extents], count: int) -> Iterator[None]:
        """See ``Observer.reading``. Touches the pages first, so that what follows is decoding."""
        work = self._work()
        for extent in extents:
            with self._counted(work.disk):
                extent.touch()
        with self._counted(work.decoding):
            yield
        work.records += count

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


class TimedRef:
    """A data set whose reader tells a timer what it reads. Safe for threads; cannot be pickled."""

    def __init__(self, dataref: Readable, loader: LoadTimer) -> None:
        self._dataref = dataref
        self._reader = dataref.reader.observed_by(loader)

    @property
    def reader(self) -> RecordReader:
        self._dataref.reader  # noqa: B018 # raises once that is closed
        return self._reader

    def __repr__(self) -> str:
        return repr(self._dataref)

    def __reduce__(self) -> Any:
        raise UnsupportedTypeError("a profiled stream cannot be pickled; pickle the one it is of")
