"""Who fetches: the threads of a process that ask for bytes, and what they ask for next.

There are three kinds of work. What somebody waits for comes first; then what the orders of streams
say is needed next; then, in large pieces, the rest of what will be wanted as a whole. All of it is
claimed first, so that no two threads or processes fetch the same bytes; see ``_sparse_file``.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from yogadl.backoff import Backoff
from yogadl.cache.traffic import Traffic
from yogadl.errors import StoreError
from yogadl.per_process import PerProcess
from yogadl.remote._object import ChangedError, RemoteObject
from yogadl.remote._sparse_file import CELL, SparseFile

if TYPE_CHECKING:
    from yogadl.remote._http import Connections

CONNECTIONS = 64
"""Threads of a process, each with a connection."""

_BULK_CONNECTIONS = 32
BULK_BYTES = 4 << 20
# What streams need next is asked for at so many connections beside bulk, if it is that large.
_BESIDE_BULK = 16
_LARGE_BYTES = 64 << 10
# Bulk that may be fetched in part twice is not cut up by what is there in so small pieces.
_BRIDGED_BYTES = 16 << 10
_IDLE_SECONDS = 5.0
# Another process's bytes are looked for so often, and ours that are late.
_LOOK_SECONDS = 0.004
_LONGEST_LOOK = 0.1
# A request is late, and made again, after so many times what nearly all take; but not before.
_LATE_TIMES = 3.0
_LATE_SECONDS = 0.25
_LATENCIES = 128
_QUEUED = 4096
# Until the first records have been asked for, or for so long, bulk has but a few connections.
_HOLD_SECONDS = 0.5
_HELD_CONNECTIONS = 16
# What is fetched and not kept waits in so many bytes of memory, or twice what is read at once.
_PASSING_BYTES = 64 << 20

_log = logging.getLogger(__name__)


class Space(Protocol):
    """Room on the local disk."""

    def take(self, nbytes: int) -> bool:
        """Whether so many bytes may be written, which then count as used."""

    def is_full(self) -> None:
        """The disk has none left, whatever was thought."""


@dataclass(eq=False)
class RemoteFile:
    """A file that is fetched: what is there of it, and where it comes from.

    Attributes:
        asked: where it comes from.
        size: of it, in bytes.
        pieces: what is there.
        traffic: where to count.
        failures: of ranges that nobody was told of yet.
        is_alone: whether bulk of it may bring some bytes again that are there, in small pieces
            between others that are not: a hundredth of the file at most.
        space: says whether there is room to keep so many bytes more.
        ended: set when nobody can want anything of it any more.
    """

    asked: RemoteObject
    size: int
    pieces: SparseFile
    traffic: Traffic
    space: Space
    ended: threading.Event
    failures: list[tuple[int, int, BaseException]] = field(default_factory=list)
    is_alone: bool = False
    again: int = 0


@dataclass(eq=False)
class _Work:
    """A range of a file to fetch."""

    file: RemoteFile
    start: int
    stop: int
    is_bulk: bool = False
    # Asked for though somebody else is at it, who is late.
    is_second: bool = False
    has_second: bool = False
    progressed: float = 0.0
    requests: int = 0
    nbytes: int = 0


class _EndedError(Exception):
    """Nobody wants it any more."""


class _DiskError(Exception):
    """The local disk does not take what is to be kept."""


Range = tuple[RemoteFile, int, int]


class Fetcher:
    """The threads of this process; see the module. Safe for threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._wake = threading.Condition(self._mutex)
        self._arrived = threading.Condition(self._mutex)
        self._urgent: collections.deque[_Work] = collections.deque()
        self._soon: collections.deque[_Work] = collections.deque()
        self._bulk: collections.deque[Iterator[Range]] = collections.deque()
        self._bulk_work: _Work | None = None
        # What a stream waits for at its very beginning comes first.
        self._holds_bulk_until: float | None = None
        # What is in memory, oldest first, and how much of it there may be.
        self._passing: collections.deque[Range] = collections.deque()
        self._passing_bytes = 0
        self._passing_limit = _PASSING_BYTES
        self._flying: set[_Work] = set()
        self._threads = 0
        self._idle = 0
        self._latencies: collections.deque[float] = collections.deque(maxlen=_LATENCIES)

    # Asking

    def want(self, ranges: Sequence[Range]) -> None:
        """Asks for ranges that are needed soon, in this order.

        Waits while very many are asked for already.
        """
        with self._mutex:
            for file, start, stop in ranges:
                while len(self._soon) >= _QUEUED:
                    self._arrived.wait()
                self._soon.append(_Work(file, *_cells(start, stop)))
                self._start_thread()

    def want_whole(self, ranges: Iterator[Range]) -> None:
        """Asks for ranges of which everything will be needed, some time; quick to iterate over."""
        with self._mutex:
            self._bulk.append(ranges)
            if self._holds_bulk_until is None:
                self._holds_bulk_until = time.monotonic() + _HOLD_SECONDS
            for _ in range(_BULK_CONNECTIONS):
                self._start_thread()

    def ensure(self, ranges: Sequence[Range], starts_bulk: bool = False) -> bool:
        """Waits until the bytes of some ranges are there; returns whether that was needed.

        Args:
            ranges: to wait for.
            starts_bulk: bulk need not wait for anything but these.

        Raises:
            StoreError, ChangedError, OSError: some of them cannot be had.
        """
        lacking = [wanted for wanted in ranges if not wanted[0].pieces.has(*wanted[1:])]
        if not lacking:
            return False
        started, pause = time.monotonic(), _LOOK_SECONDS
        wanted_bytes = sum(stop - start for _, start, stop in ranges)
        with self._mutex:
            self._passing_limit = max(self._passing_limit, 2 * wanted_bytes)
            for file, start, stop in lacking:
                # What failed before this call may not fail now.
                file.failures = [it for it in file.failures if it[1] <= start or stop <= it[0]]
            try:
                while lacking:
                    is_ours = True
                    for file, start, stop in lacking:
                        _raise_failure(file, start, stop)
                        is_ours &= self._hurry(file, *_cells(start, stop))
                    if starts_bulk and self._holds_bulk_until:
                        self._holds_bulk_until = 0.0
                        self._wake.notify_all()
                    self._arrived.wait(_LONGEST_LOOK if is_ours else pause)
                    pause = min(2 * pause, _LONGEST_LOOK)
                    lacking = [it for it in lacking if not it[0].pieces.has(*it[1:])]
            finally:
                ranges[0][0].traffic.waited += time.monotonic() - started
        return True

    def _hurry(self, file: RemoteFile, start: int, stop: int) -> bool:
        """Has what is missing of a range fetched next; whether all is under way in this process."""
        missing = file.pieces.missing(start, stop)
        if missing:
            if not any(work.file is file and work.start == start for work in self._urgent):
                self._urgent.append(_Work(file, start, stop))
                self._start_thread()
            return False
        now = time.monotonic()
        for work in self._flying:
            if (
                work.file.pieces is file.pieces
                and work.start < stop
                and start < work.stop
                and not work.has_second
                and now - work.progressed > self._late_seconds()
            ):
                work.has_second = True
                for first, last in _lacking(file.pieces, start, stop):
                    self._urgent.append(_Work(file, first, last, is_second=True))
                    self._start_thread()
        return True

    def _late_seconds(self) -> float:
        known = sorted(self._latencies)
        if len(known) < _LATENCIES // 8:
            return 4 * _LATE_SECONDS
        return max(_LATE_SECONDS, _LATE_TIMES * known[int(0.95 * len(known))])

    # Fetching

    def _start_thread(self) -> None:
        if self._idle:
            self._wake.notify()
        elif self._threads < CONNECTIONS:
            try:
                threading.Thread(target=self._run, name="yogadl fetch", daemon=True).start()
            except RuntimeError:
                # The system has no more; those that run go on.
                if not self._threads:
                    raise
            else:
                self._threads += 1

    def _run(self) -> None:
        # Only who fetches needs it.
        from yogadl.remote._http import Connections

        connections = Connections()
        try:
            while self._do_next(connections):
                pass
        finally:
            connections.close()

    def _do_next(self, connections: Connections) -> bool:
        """Does some work; ``False`` when there has been none for a while.

        In a function of its own, so that a file is let go of when its work is done.
        """
        work = self._take_work()
        if work is None:
            return False
        try:
            self._fetch(work, connections)
        except _EndedError:
            _log.debug("Nobody wants the rest of %s.", work.file.asked.name)
        except BaseException as error:
            # Who waits for it would wait for ever.
            self._fail(work, error)
        finally:
            self._finish(work)
        return True

    def _take_work(self) -> _Work | None:
        """What to do next, claimed; ``None`` when there has been nothing for a while."""
        with self._mutex:
            until = time.monotonic() + _IDLE_SECONDS
            while True:
                for found in self._candidates():
                    found.progressed = time.monotonic()
                    self._flying.add(found)
                    return found
                rest = until - time.monotonic()
                if rest <= 0:
                    self._threads -= 1
                    return None
                self._idle += 1
                self._wake.wait(rest)
                self._idle -= 1

    def _candidates(self) -> Iterator[_Work]:
        while self._urgent:
            work = self._urgent.popleft()
            if work.is_second:
                yield work
            else:
                yield from self._claimed(work, self._urgent)
        bulk = sum(work.is_bulk for work in self._flying)
        if not self._has_bulk() or len(self._flying) - bulk < _BESIDE_BULK:
            while self._soon and (not self._has_bulk() or _is_large(self._soon[0])):
                if len(self._soon) == _QUEUED:
                    self._arrived.notify_all()
                yield from self._claimed(self._soon.popleft(), self._soon)
        is_held = self._holds_bulk_until is not None and time.monotonic() < self._holds_bulk_until
        most = _HELD_CONNECTIONS if is_held else _BULK_CONNECTIONS
        while bulk < most and self._has_bulk():
            yield from self._next_bulk()

    def _has_bulk(self) -> bool:
        """Whether there is bulk work; it begins with ``_bulk_work``."""
        while self._bulk_work is None and self._bulk:
            found = next(self._bulk[0], None)
            if found is None or found[0].ended.is_set():
                self._bulk.popleft()
            else:
                file, start, stop = found
                self._bulk_work = _Work(file, *_cells(start, stop), is_bulk=True)
        return self._bulk_work is not None

    def _claimed(self, work: _Work, queue: collections.deque[_Work]) -> Iterator[_Work]:
        """What is to be fetched of some work, if that is anything; the rest waits in its queue."""
        file = work.file
        if file.ended.is_set():
            return
        for start, stop in file.pieces.missing(work.start, work.stop)[:1]:
            end = file.pieces.claim(start, stop)
            if stop < work.stop and end == stop:
                queue.appendleft(_Work(file, stop, work.stop))
            if end > start:
                yield _Work(file, start, end)

    def _next_bulk(self) -> Iterator[_Work]:
        """The next large piece, if the next bytes of the bulk work have one."""
        work = self._bulk_work
        assert work is not None
        file, first = work.file, work.start
        if file.ended.is_set():
            self._bulk_work = None
            return
        work.start = min(first + BULK_BYTES, work.stop)
        is_bridged = file.is_alone and file.again < file.size // 100
        missing = file.pieces.missing(first, work.start, _BRIDGED_BYTES if is_bridged else 0)
        if missing:
            first, last = missing[0]
            if is_bridged:
                file.again += file.pieces.count(first, last)
            end = file.pieces.claim(first, last)
            if end > first and last < work.start:
                work.start = end
        else:
            end = first
        # What another process is fetching is left to it.
        if work.start >= work.stop:
            self._bulk_work = None
        if end > first:
            yield _Work(file, first, end, is_bulk=True)

    def _fetch(self, work: _Work, connections: Connections) -> None:
        is_kept = _has_room(work)
        if work.is_bulk and not is_kept:
            with self._mutex:
                self._bulk.clear()
                self._bulk_work = None
            return
        try:
            self._transfer(work, connections, is_kept)
        except (StoreError, ChangedError) as error:
            self._fail(work, error)
        except _DiskError as error:
            _log.warning("%s cannot be written to: %s", work.file.pieces.path, error)
            work.file.space.is_full()
            if not work.is_bulk:
                self._fetch_into_memory(work, connections)

    def _fetch_into_memory(self, work: _Work, connections: Connections) -> None:
        try:
            self._transfer(work, connections, is_kept=False)
        except (StoreError, ChangedError) as error:
            self._fail(work, error)

    def _transfer(self, work: _Work, connections: Connections, is_kept: bool) -> None:
        """Fetches a range, however often the connection breaks.

        Raises:
            StoreError, ChangedError: it cannot be had.
            _DiskError: it cannot be written.
        """
        file, pieces = work.file, work.file.pieces
        at, pauses = work.start, Backoff(stop=file.ended)
        memory = bytearray(0 if is_kept else work.stop - work.start)

        def take(offset: int, data: memoryview) -> None:
            nonlocal at
            before, at = at, offset + len(data)
            if file.ended.is_set():
                raise _EndedError
            if is_kept:
                try:
                    pieces.write(offset, data)
                    # A cell that is whole now began in this answer, or in one before it.
                    pieces.mark(before, at)
                except OSError as error:
                    raise _DiskError(error.strerror) from error
            else:
                memory[offset - work.start : at - work.start] = data
            work.progressed = time.monotonic()
            work.nbytes += len(data)
            if is_kept and (not work.is_bulk or at == work.stop):
                with self._mutex:
                    self._arrived.notify_all()

        while at < work.stop:
            before = at
            # A cell is marked as a whole, so it is fetched as a whole.
            at = at // CELL * CELL
            work.requests += 1
            try:
                connections.read(file.asked, file.size, at, work.stop, take)
                self._latencies.append(connections.first_byte)
            except StoreError as error:
                if at > before:
                    pauses.progressed()
                if not pauses.waits(error):
                    raise
        if not is_kept:
            with self._mutex:
                pieces.pass_on(work.start, bytes(memory))
                self._pass_on(file, work.start, work.stop)

    def _pass_on(self, file: RemoteFile, start: int, stop: int) -> None:
        """Lets go of what was in memory for longest, if there is too much."""
        self._passing.append((file, start, stop))
        self._passing_bytes += stop - start
        while self._passing_bytes > self._passing_limit and len(self._passing) > 1:
            other, first, last = self._passing.popleft()
            self._passing_bytes -= last - first
            other.pieces.drop(first, last)

    def used(self, ranges: Sequence[Range]) -> None:
        """Some records were read: lets go of them, as far as they were in memory."""
        for file, start, stop in ranges:
            if file.pieces.has_passing:
                with self._mutex:
                    file.pieces.drop(start, stop)

    def _fail(self, work: _Work, error: BaseException) -> None:
        with self._mutex:
            if not work.is_second and not work.is_bulk:
                work.file.failures.append((work.start, work.stop, error))
            self._arrived.notify_all()

    def _finish(self, work: _Work) -> None:
        with self._mutex:
            self._flying.discard(work)
            work.file.traffic.requests += work.requests
            work.file.traffic.nbytes += work.nbytes
            if not work.is_second:
                work.file.pieces.release(work.start, work.stop)
            self._arrived.notify_all()


def _has_room(work: _Work) -> bool:
    """Whether what is fetched may be kept."""
    try:
        return work.file.space.take(work.stop - work.start)
    except OSError as error:
        _log.warning("Nothing more is kept in %s: %s", work.file.pieces.path.parent, error)
        return False


def _is_large(work: _Work) -> bool:
    """Whether a request costs little beside what it brings."""
    return work.stop - work.start >= _LARGE_BYTES


def _cells(start: int, stop: int) -> tuple[int, int]:
    return start // CELL * CELL, -(-stop // CELL) * CELL


def _lacking(pieces: SparseFile, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The cells of a range that are not there, as one range if there are any."""
    there = [pieces.has(at, at + CELL) for at in range(start, stop, CELL)]
    if not all(there):
        yield start + there.index(False) * CELL, stop - there[::-1].index(False) * CELL


def _raise_failure(file: RemoteFile, start: int, stop: int) -> None:
    """Raises why a range cannot be had, once."""
    for failure in file.failures:
        if failure[0] < stop and start < failure[1]:
            file.failures.remove(failure)
            raise failure[2]


fetcher = PerProcess(Fetcher)
"""That of this process."""
