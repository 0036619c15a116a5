"""Who fetches: the threads of a process that ask for bytes, and what they ask for next.

There are three kinds of work. What somebody waits for comes first; then what the orders of streams
say is needed next; then, in large pieces, the rest of what will be wanted as a whole. All of it is
claimed first, so that no two threads or processes fetch the same bytes; see ``_sparse_file``.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from yogadl.backoff import Backoff
from yogadl.cache.traffic import Traffic
from yogadl.errors import CacheReplacedError, ClosedError, StoreError
from yogadl.per_process import PerProcess
from yogadl.remote._object import ChangedError, RemoteObject
from yogadl.remote._sparse_file import CELL, SparseFile

if TYPE_CHECKING:
    from yogadl.remote._http import Connections

CONNECTIONS = 64
"""Threads of a process, each with a connection."""

_BULK_CONNECTIONS = 32
BULK_BYTES = 8 << 20
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
# What another process has claimed and not brought for so long is fetched here as well.
_OTHERS_SECONDS = 5.0
_QUEUED = 4096
# Until the first records have been asked for, or for so long, bulk has but a few connections.
_HOLD_SECONDS = 0.5
_HELD_CONNECTIONS = 8
# What is fetched and not kept waits in so many bytes of memory, or twice what is read at once.
_PASSING_BYTES = 64 << 20
_FAILURES = 64

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
        failures: the last ranges that could not be had: start, stop, when, and why.
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
    failures: collections.deque[tuple[int, int, float, BaseException]] = field(
        default_factory=lambda: collections.deque(maxlen=_FAILURES)
    )
    is_alone: bool = False
    again: int = 0


@dataclass(eq=False)
class _Work:
    """A range of a file to fetch."""

    file: RemoteFile
    start: int
    stop: int
    # What it comes from, if that is bulk.
    bulk: Iterator[Range] | None = None
    # Otherwise it is asked for though somebody else is at it, who is late.
    is_claimed: bool = True
    progressed: float = 0.0
    requests: int = 0
    nbytes: int = 0

    @property
    def is_bulk(self) -> bool:
        return self.bulk is not None

    def touches(self, file: RemoteFile, start: int, stop: int) -> bool:
        """Whether it brings any bytes of a range."""
        return self.file.pieces is file.pieces and self.start < stop and start < self.stop


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
        self._held_bytes = 0
        self._has_told_disk = False
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

    @contextlib.contextmanager
    def holding(
        self, ranges: Sequence[Range], starts_bulk: bool = False, is_last_use: bool = True
    ) -> Iterator[bool]:
        """Waits until the bytes of some ranges are there, and has them stay until they are read.

        Args:
            ranges, starts_bulk: see :meth:`ensure`.
            is_last_use: what is only in memory need not stay there.

        Yields:
            Whether all of it was there already, and stays in any case.

        Raises:
            YogadlError: see :meth:`ensure`.
        """
        if not self._passing and all(
            file.pieces.is_kept(start, stop) for file, start, stop in ranges
        ):
            yield True
            return
        nbytes = sum(stop - start for _, start, stop in ranges)
        with self._mutex:
            self._held_bytes += nbytes
            for file, start, stop in ranges:
                file.pieces.hold(start, stop)
        try:
            self.ensure(ranges, starts_bulk)
            yield False
        finally:
            with self._mutex:
                self._held_bytes -= nbytes
                for file, start, stop in ranges:
                    file.pieces.let_go(start, stop)
                    if is_last_use:
                        file.pieces.drop(start, stop)

    def ensure(self, ranges: Sequence[Range], starts_bulk: bool = False) -> bool:
        """Waits until the bytes of some ranges are there; returns whether that was needed.

        Args:
            ranges: to wait for.
            starts_bulk: bulk need not wait for anything but these.

        Raises:
            CacheReplacedError: what they are of is gone, or another.
            StoreError: some of them cannot be had.
            ClosedError: what they are of was closed meanwhile.
        """
        lacking = [wanted for wanted in ranges if not wanted[0].pieces.has(*wanted[1:])]
        if not lacking:
            return False
        started, pause = time.monotonic(), _LOOK_SECONDS
        with self._mutex:
            try:
                while lacking:
                    is_ours = True
                    for file, start, stop in lacking:
                        _raise_failure(file, start, stop, started)
                        is_ours &= self._hurry(file, *_cells(start, stop), started)
                    if starts_bulk and self._holds_bulk_until:
                        self._holds_bulk_until = 0.0
                        self._idle = 0
                        self._wake.notify_all()
                    self._arrived.wait(_LONGEST_LOOK if is_ours else pause)
                    pause = min(2 * pause, _LONGEST_LOOK)
                    lacking = [it for it in lacking if not it[0].pieces.has(*it[1:])]
            finally:
                ranges[0][0].traffic.waited += time.monotonic() - started
        return True

    def _hurry(self, file: RemoteFile, start: int, stop: int, since: float) -> bool:
        """Has what is missing of a range fetched next; whether all is under way in this process.

        Args:
            file, start, stop: the range.
            since: when it began to be waited for.
        """
        now = time.monotonic()
        missing = file.pieces.missing(start, stop)
        if missing:
            if not any(work.file is file and work.start == start for work in self._urgent):
                self._urgent.append(_Work(file, start, stop))
                self._start_thread()
            is_late = now - since > _OTHERS_SECONDS
        else:
            late = now - self._late_seconds()
            flying = [work for work in self._flying if work.touches(file, start, stop)]
            is_late = any(work.progressed < late for work in flying)
        if is_late and not self._has_second(file, start, stop):
            for first, last in _lacking(file.pieces, start, stop):
                self._urgent.append(_Work(file, first, last, is_claimed=False))
                self._start_thread()
        return not missing

    def _has_second(self, file: RemoteFile, start: int, stop: int) -> bool:
        return any(
            not work.is_claimed and work.touches(file, start, stop)
            for work in (*self._urgent, *self._flying)
        )

    def _late_seconds(self) -> float:
        known = sorted(self._latencies)
        if len(known) < _LATENCIES // 8:
            return 4 * _LATE_SECONDS
        return max(_LATE_SECONDS, _LATE_TIMES * known[int(0.95 * len(known))])

    # Fetching

    def _start_thread(self) -> None:
        self._wake.notify()
        if self._idle:
            # It is woken for this work, and the next work needs another.
            self._idle -= 1
        elif self._threads < CONNECTIONS:
            try:
                threading.Thread(target=self._run, name="yogadl fetch", daemon=True).start()
            except RuntimeError:
                # The system has no more, and those that there are do it, if there are any.
                if not self._threads:
                    raise
                return
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
                    self._let_go_of_ended()
                    return None
                self._idle += 1
                if not self._wake.wait(rest):
                    self._idle = max(0, self._idle - 1)

    def _candidates(self) -> Iterator[_Work]:
        while self._urgent:
            work = self._urgent.popleft()
            if work.is_claimed:
                yield from self._claimed(work, self._urgent)
            else:
                yield work
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
            try:
                found = next(self._bulk[0], None)
            except OSError as error:
                # Who reads the records meets it, too.
                _log.debug("Cannot fetch as a whole: %s", error)
                found = None
            if found is None or found[0].ended.is_set():
                self._bulk.popleft()
            else:
                file, start, stop = found
                self._bulk_work = _Work(file, *_cells(start, stop), self._bulk[0])
        return self._bulk_work is not None

    def _end_bulk(self, bulk: Iterator[Range] | None) -> None:
        """Leaves the rest of it to be fetched when it is needed."""
        self._bulk = collections.deque(other for other in self._bulk if other is not bulk)
        if self._bulk_work is not None and self._bulk_work.bulk is bulk:
            self._bulk_work = None

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
            yield _Work(file, first, end, work.bulk)

    def _fetch(self, work: _Work, connections: Connections) -> None:
        is_kept = work.file.space.take(work.stop - work.start)
        if work.is_bulk and not is_kept:
            with self._mutex:
                self._end_bulk(work.bulk)
            return
        try:
            self._transfer(work, connections, is_kept)
        except (StoreError, ChangedError) as error:
            self._fail(work, error)
        except _DiskError as error:
            level = logging.DEBUG if self._has_told_disk else logging.WARNING
            self._has_told_disk = True
            _log.log(level, "%s cannot be written to: %s", work.file.pieces.path, error)
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
        most = _PASSING_BYTES + 2 * self._held_bytes
        while self._passing_bytes > most and len(self._passing) > 1:
            other, first, last = self._passing.popleft()
            self._passing_bytes -= last - first
            other.pieces.drop(first, last)

    def _let_go_of_ended(self) -> None:
        """Lets go of what is in memory of files that nobody reads any more."""
        for passing in [it for it in self._passing if it[0].ended.is_set()]:
            self._passing.remove(passing)
            file, start, stop = passing
            self._passing_bytes -= stop - start
            file.pieces.drop(start, stop)

    def _fail(self, work: _Work, error: BaseException) -> None:
        with self._mutex:
            if work.is_bulk:
                self._end_bulk(work.bulk)
            elif work.is_claimed or not self._is_flying_claimed(work):
                failure = (work.start, work.stop, time.monotonic(), error)
                work.file.failures.append(failure)
            self._arrived.notify_all()

    def _is_flying_claimed(self, work: _Work) -> bool:
        return any(
            other.is_claimed and other.touches(work.file, work.start, work.stop)
            for other in self._flying
        )

    def _finish(self, work: _Work) -> None:
        with self._mutex:
            self._flying.discard(work)
            work.file.traffic.requests += work.requests
            work.file.traffic.nbytes += work.nbytes
            if work.is_claimed:
                work.file.pieces.release(work.start, work.stop)
            self._arrived.notify_all()


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


def _raise_failure(file: RemoteFile, start: int, stop: int, since: float) -> None:
    """Raises why a range could not be had, if that was found after it was first waited for."""
    name = file.asked.name
    if file.ended.is_set():
        raise ClosedError(f"{name} was closed while it was read; fetch it again")
    for first, last, when, error in file.failures:
        if first < stop and start < last and when >= since:
            if isinstance(error, ChangedError):
                raise CacheReplacedError(
                    f"{name} was replaced or deleted while it was read: {error}; fetch it again"
                ) from error
            raise error


fetcher = PerProcess(Fetcher)
"""That of this process."""
