"""Who fetches: the threads of a process that ask for bytes, and what they ask for next.

What comes next, ``_queue`` says. All of it is claimed first, so that no two threads or processes
fetch the same bytes; see ``_sparse_file``.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from yogadl.per_process import PerProcess
from yogadl.remote._passing import Passing
from yogadl.remote._queue import BULK_CONNECTIONS, QUEUED, WorkQueue
from yogadl.remote._sparse_file import CELL, SparseFile
from yogadl.remote._transfer import CutError, DiskError, EndedError, Transfer
from yogadl.remote._work import Bulk, Range, RemoteFile, Small, Work, cells

if TYPE_CHECKING:
    from yogadl.cache.traffic import Traffic
    from yogadl.remote._http import Connections

CONNECTIONS = 80
"""Threads of a process, each with a connection."""

_IDLE_SECONDS = 5.0
# Another process's bytes are looked for so often, and ours that are late.
_LOOK_SECONDS = 0.004
_LONGEST_LOOK = 0.1
# A request is late, and made again, after so many times what nearly all take; but not before.
_LATE_TIMES = 3.0
_LATE_SECONDS = 0.25
# Where more than this share of all bytes came late, it is this machine that is busy, and to ask
# again makes it worse: what is as late as this then is.
_RARE, _LATER_TIMES = 0.005, 4
_LATENCIES = 128
# What another process has claimed and not brought for so long is fetched here as well.
_OTHERS_SECONDS = 5.0
# And then what others claim of the file is, for so long: who has stopped has claimed much.
_OTHERS_LATE_SECONDS = 60.0
# Whether bulk is late with what somebody waits for is looked at after so long.
_OVERTAKE_SECONDS = 0.25
# Of what is left to bulk, whether somebody has claimed it is looked at so often.
_UNCLAIMED_SECONDS = 0.5

_log = logging.getLogger(__name__)


class Fetcher:
    """The threads of this process; see the module. Safe for threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._wake = threading.Condition(self._mutex)
        self._arrived = threading.Condition(self._mutex)
        self._queue = WorkQueue()
        self._passing = Passing()
        self._has_told_disk = False
        self._threads = 0
        # By one another, so that who asks need not wait until all have started.
        self._to_start = 0
        self._idle = 0
        self._latencies: collections.deque[float] = collections.deque(maxlen=_LATENCIES)
        # That came, and that were asked for once more.
        self._brought_bytes = 0
        self._again_bytes = 0

    # Asking

    def want(self, ranges: Sequence[Range], bridge: int = 0, must_keep: bool = False) -> None:
        """Asks for ranges that are needed soon, in this order.

        Waits while very many are asked for already.

        Args:
            ranges: to ask for.
            bridge, must_keep: see ``Work``.
        """
        with self._mutex:
            for file, start, stop in ranges:
                while len(self._queue.soon) >= QUEUED:
                    self._arrived.wait()
                work = Work(file, *cells(start, stop), bridge=bridge, must_keep=must_keep)
                self._queue.soon.append(work)
                self._start_thread()

    def want_whole(self, bulk: Bulk) -> None:
        """Asks for ranges of which everything will be needed, some time."""
        with self._mutex:
            self._queue.add_bulk(bulk)
            idle = min(self._idle, BULK_CONNECTIONS)
            for _ in range(idle):
                self._start_thread()
            self._to_start = BULK_CONNECTIONS - idle
            self._start_next()

    def has_bulk(self, traffic: Traffic) -> bool:
        """Whether any bulk is still to come of the files that have this traffic."""
        with self._mutex:
            return self._queue.has_bulk(traffic) or any(
                work.is_bulk and work.file.traffic is traffic for work in self._queue.flying
            )

    @contextlib.contextmanager
    def claiming(self, file: RemoteFile, start: int, stop: int) -> Iterator[int]:
        """Keeps all others from fetching a range meanwhile; yields where what is claimed ends."""
        with self._mutex:
            is_ours = file.pieces.is_claimed(start, stop)
            end = start if is_ours else file.pieces.claim(start, stop)
        try:
            yield end
        finally:
            if end > start:
                with self._mutex:
                    file.pieces.release(start, end)
                    self._arrived.notify_all()

    @contextlib.contextmanager
    def holding(
        self,
        ranges: Sequence[Range],
        starts_bulk: bool = False,
        dropped: Sequence[Range] = (),
        small: Small = Small.ASK,
    ) -> Iterator[bool]:
        """Waits until the bytes of some ranges are there, and has them stay until they are read.

        Args:
            ranges, small: see :meth:`ensure`.
            starts_bulk: bulk need not wait for anything but these, and until they are read: of what
                comes meanwhile, threads keep each other waiting.
            dropped: what need not stay of it afterwards if it is only in memory.

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
            self._passing.held_bytes += nbytes
            for file, start, stop in ranges:
                file.pieces.memory.hold(start, stop)
        again: list[Range] = []
        try:
            again = self.ensure(ranges, small)
            yield False
        finally:
            with self._mutex:
                if starts_bulk and self._queue.start_bulk():
                    self._idle = 0
                    self._wake.notify_all()
                self._passing.held_bytes -= nbytes
                for file, start, stop in ranges:
                    file.pieces.memory.let_go(start, stop)
                # Bulk brings it, too, and what else there is is read faster when none is in memory.
                self._passing.drop(again)
                if self._passing:
                    self._passing.note_read(ranges)
                    self._passing.drop(dropped)
                    self._queue.skip(dropped)
                    self._use_room()

    def discard(self, ranges: Sequence[Range]) -> None:
        """Has some ranges fetched again, whoever holds them, since what came is not right.

        Raises:
            FileSystemError: see ``SparseFile.discard``.
        """
        with self._mutex:
            self._passing.discard(ranges)
        for file, start, stop in ranges:
            file.pieces.discard(start, stop)

    def ensure(self, ranges: Sequence[Range], small: Small = Small.ASK) -> list[Range]:
        """Waits until the bytes of some ranges are there.

        Args:
            ranges: to wait for.
            small: what becomes of those that bulk will bring, too.

        Returns:
            Those that were asked for again, and so may be in memory as well.

        Raises:
            CacheReplacedError: what they are of is gone, or another.
            StoreError: some of them cannot be had.
            ClosedError: what they are of was closed meanwhile.
        """
        lacking = [wanted for wanted in ranges if not wanted[0].pieces.has(*wanted[1:])]
        again: list[Range] = []
        if not lacking:
            return again
        started, pause = time.monotonic(), _LOOK_SECONDS
        asked = dict.fromkeys(lacking, started)
        overtakes = started + _OVERTAKE_SECONDS
        with self._mutex:
            try:
                if small is Small.ASK_AGAIN:
                    # Now, so that bulk does not claim any of the others before they are asked for.
                    again = self._ask_again(lacking)
                while lacking:
                    is_ours = True
                    for wanted in lacking:
                        file, start, stop = wanted[0], *cells(*wanted[1:])
                        file.raise_failure(start, stop, started)
                        if small is Small.WAIT and self._is_left_to_bulk(wanted, asked):
                            is_ours = False
                            continue
                        is_ours &= self._hurry(file, start, stop, asked[wanted])
                    if time.monotonic() >= overtakes:
                        overtakes = time.monotonic() + _LONGEST_LOOK
                        again += self._overtake(lacking, small)
                    self._arrived.wait(_LONGEST_LOOK if is_ours else pause)
                    pause = min(2 * pause, _LONGEST_LOOK)
                    lacking = [it for it in lacking if not it[0].pieces.has(*it[1:])]
            finally:
                ranges[0][0].traffic.waited += time.monotonic() - started
        return again

    def _ask_again(self, ranges: Sequence[Range]) -> list[Range]:
        """Asks for small ranges that are in flight in bulk, of which much may come before them.

        Returns:
            Those that it asked for.
        """
        again: list[Range] = []
        for file, *where in ranges:
            pieces, (start, stop) = file.pieces, cells(*where)
            if not self._queue.is_much(file, start, stop) or pieces.has(start, stop):
                continue
            if not pieces.missing(start, stop) or pieces.others_have(start, stop):
                self._queue.urgent.append(Work(file, start, stop, is_claimed=False))
                self._start_thread()
                again.append((file, start, stop))
        return again

    def _overtake(self, lacking: Sequence[Range], small: Small) -> list[Range]:
        """Has ranges come before bulk that is late with them; those that are asked for again."""
        again: list[Range] = []
        for file, *where in lacking:
            start, stop = cells(*where)
            is_first = small is Small.ASK_AGAIN
            if is_first and self._has_second(file, start, stop):
                continue
            if is_first and self._queue.overtakes_bulk(file, start, stop):
                self._queue.urgent.append(Work(file, start, stop, is_claimed=False))
                self._start_thread()
                again.append((file, start, stop))
            else:
                self._queue.cut_bulk(file, start, stop)
        return again

    def _is_left_to_bulk(self, wanted: Range, asked: dict[Range, float]) -> bool:
        """Whether bulk is to bring a range, and nobody who has claimed it is late with it.

        Args:
            wanted: the range.
            asked: since when others may have asked for ranges, which is changed.
        """
        file, start, stop = wanted[0], *cells(*wanted[1:])
        if not (self._queue.is_coming(file, start, stop) and file.pieces.missing(start, stop)):
            return False
        now = time.monotonic()
        may_be_late = now < file.others_are_late
        if may_be_late or now - asked[wanted] > _UNCLAIMED_SECONDS:
            if not file.pieces.others_have(start, stop):
                asked[wanted] = now
            elif may_be_late:
                return False
        return now - asked[wanted] <= _OTHERS_SECONDS

    def _hurry(self, file: RemoteFile, start: int, stop: int, since: float) -> bool:
        """Has what is missing of a range fetched next; whether all is under way in this process.

        Args:
            file, start, stop: the range.
            since: when it began to be waited for.
        """
        now = time.monotonic()
        missing = file.pieces.missing(start, stop)
        if missing:
            urgent = self._queue.urgent
            if self._queue.hurry(file, start, stop):
                self._start_thread()
            elif not any(work.file is file and work.start == start for work in urgent):
                urgent.append(Work(file, start, stop))
                self._start_thread()
            if is_late := now - since > _OTHERS_SECONDS:
                file.others_are_late = now + _OTHERS_LATE_SECONDS
            elif now < file.others_are_late:
                is_late = file.pieces.others_have(start, stop)
        else:
            late = now - self._late_seconds()
            flying = [work for work in self._queue.flying if work.touches(file, start, stop)]
            is_late = any(work.progressed < late for work in flying)
        if is_late and not self._has_second(file, start, stop):
            for first, last in _lacking(file.pieces, start, stop):
                self._again_bytes += last - first
                self._queue.urgent.append(Work(file, first, last, is_claimed=False))
                self._start_thread()
        return not missing

    def _has_second(self, file: RemoteFile, start: int, stop: int) -> bool:
        return self._queue.is_being_fetched(file, start, stop, is_claimed=False) or any(
            not work.is_claimed and work.touches(file, start, stop) for work in self._queue.urgent
        )

    def _late_seconds(self) -> float:
        known = sorted(self._latencies)
        if len(known) < _LATENCIES // 8:
            late = 4 * _LATE_SECONDS
        else:
            late = max(_LATE_SECONDS, _LATE_TIMES * known[int(0.95 * len(known))])
        is_rare = self._again_bytes <= _RARE * self._brought_bytes
        return late if is_rare else _LATER_TIMES * late

    # Fetching

    def _use_room(self) -> None:
        """To be called when something was read, so that more may be fetched ahead."""
        if self._queue.lacks_room:
            self._queue.lacks_room = False
            for _ in range(min(len(self._queue.soon), BULK_CONNECTIONS)):
                self._start_thread()

    def _start_thread(self) -> None:
        self._wake.notify()
        if self._idle:
            # It is woken for this work, and the next work needs another.
            self._idle -= 1
        else:
            self._start_new()

    def _start_next(self) -> None:
        if self._to_start > 0:
            self._to_start -= 1
            self._start_new()

    def _start_new(self) -> None:
        if self._threads >= CONNECTIONS:
            return
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

        with self._mutex:
            self._start_next()
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
        except CutError as cut:
            with self._mutex:
                self._queue.put_back(work, cut.at)
        except EndedError:
            _log.debug("Nobody wants the rest of %s.", work.file.asked.name)
        except BaseException as error:
            # Who waits for it would wait for ever.
            self._fail(work, error)
        finally:
            self._finish(work)
        return True

    def _take_work(self) -> Work | None:
        """What to do next, claimed; ``None`` when there has been nothing for a while."""
        with self._mutex:
            until = time.monotonic() + _IDLE_SECONDS
            while True:
                was_full = len(self._queue.soon) >= QUEUED
                found = self._queue.take(self._passing.room())
                if was_full and len(self._queue.soon) < QUEUED:
                    self._arrived.notify_all()
                if found is not None:
                    return found
                rest = until - time.monotonic()
                if rest <= 0:
                    self._passing.let_go_of_ended()
                    # The last one stays for what is in memory until its file is closed.
                    if self._threads > 1 or not self._passing:
                        self._threads -= 1
                        return None
                    until, rest = until + _IDLE_SECONDS, _IDLE_SECONDS
                self._idle += 1
                if not self._wake.wait(rest):
                    self._idle = max(0, self._idle - 1)

    def _fetch(self, work: Work, connections: Connections) -> None:
        # Who has claimed some bytes may be about to write them, right or wrong: nobody else does,
        # since those that are there may be compared as a whole, and then nobody looks again.
        is_kept = work.is_claimed and work.file.space.take(work.stop - work.start)
        if (work.is_bulk or work.must_keep) and not is_kept:
            with self._mutex:
                self._queue.end_bulk(work.bulk)
            return
        if not is_kept:
            self._transfer(work, connections, is_kept=False)
            return
        try:
            self._keep(work, connections)
        finally:
            work.file.space.written(work.stop - work.start)

    def _keep(self, work: Work, connections: Connections) -> None:
        try:
            self._transfer(work, connections, is_kept=True)
            with self._mutex:
                # Or some of it still waits there until somebody reads it.
                self._passing.drop([(work.file, work.start, work.stop)])
        except DiskError as error:
            level = logging.DEBUG if self._has_told_disk else logging.WARNING
            self._has_told_disk = True
            _log.log(level, "%s cannot be written to: %s", work.file.pieces.path, str(error))
            work.file.space.is_full()
            if not (work.is_bulk or work.must_keep):
                self._transfer(work, connections, is_kept=False)

    def _transfer(self, work: Work, connections: Connections, is_kept: bool) -> None:
        transfer = Transfer(work, is_kept, self._tell_arrived)
        transfer.run(connections, self._latencies.append)
        if not is_kept:
            with self._mutex:
                # Who was asked first may have brought it meanwhile, and who waited for it be gone.
                if not work.file.pieces.is_kept(work.start, work.stop):
                    self._passing.add((work.file, work.start, work.stop), transfer.memory)

    def _tell_arrived(self) -> None:
        with self._mutex:
            self._arrived.notify_all()

    def _fail(self, work: Work, error: BaseException) -> None:
        with self._mutex:
            if work.is_bulk:
                self._queue.end_bulk(work.bulk)
            elif work.is_claimed or not self._queue.is_being_fetched(
                work.file, work.start, work.stop, is_claimed=True
            ):
                failure = (work.start, work.stop, time.monotonic(), error)
                work.file.failures.append(failure)
            self._arrived.notify_all()

    def _finish(self, work: Work) -> None:
        with self._mutex:
            self._queue.flying.discard(work)
            work.file.traffic.requests += work.requests
            work.file.traffic.nbytes += work.nbytes
            self._brought_bytes += work.nbytes
            if work.is_bulk:
                self._queue.note_end(work)
                # There may be more connections now than when it began.
                for _ in range(self._queue.free_for_bulk() - 1):
                    self._start_thread()
            if work.is_claimed:
                work.file.pieces.release(work.start, work.stop, work.is_bulk)
            self._arrived.notify_all()


def _lacking(pieces: SparseFile, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The cells of a range that are not there, as one range if there are any."""
    there = [pieces.has(at, at + CELL) for at in range(start, stop, CELL)]
    if not all(there):
        yield start + there.index(False) * CELL, stop - there[::-1].index(False) * CELL


fetcher = PerProcess(Fetcher)
"""That of this process."""
