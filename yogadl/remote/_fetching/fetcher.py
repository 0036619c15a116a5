"""Who fetches: the threads of a process that ask for bytes, and what they ask for next.

What comes next, ``work_queue`` says. All of it is claimed first, so that no two threads or
processes fetch the same bytes; see ``sparse_file``.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from yogadl.per_process import PerProcess
from yogadl.remote._fetching.bulk_queue import BULK_CONNECTIONS, PAUSE_SECONDS
from yogadl.remote._fetching.crew import Crew
from yogadl.remote._fetching.given_back import GivenBack
from yogadl.remote._fetching.left_to_others import LOOK_SECONDS
from yogadl.remote._fetching.passing import Hold, Passing
from yogadl.remote._fetching.transfer import CutError, DiskError, EndedError, Transfer
from yogadl.remote._fetching.urgency import OVERTAKE_SECONDS, Urgency
from yogadl.remote._fetching.waiters import Waiter, Waiters
from yogadl.remote._fetching.work import Bulk, Range, RemoteFile, Small, Work, cells
from yogadl.remote._fetching.work_queue import WorkQueue

if TYPE_CHECKING:
    from yogadl.cache.traffic import Traffic
    from yogadl.remote._fetching.connections import Connections

_IDLE_SECONDS = 5.0
# That bulk is claimed is waited for for so long.
_CLAIM_SECONDS = 0.1
# Another process's bytes are looked for so often, and ours that are late.
_LOOK_SECONDS = 0.004
_LONGEST_LOOK = 0.1
# To see to what is waited for takes a thread at most one in so many seconds of a processor, but if
# it is done as seldom as this.
_LOOK_SHARE, _SELDOM_SECONDS = 20, 0.5

_log = logging.getLogger(__name__)


class Fetcher:
    """The threads of this process; see the module. Safe for threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._crew = Crew(self._mutex, self._run)
        self._arrived = Waiters()
        self._queue = WorkQueue()
        # Whether somebody waits to ask for more.
        self._is_full = False
        self._passing = Passing()
        self._given_back = GivenBack()
        self._has_told_disk = False
        self._urgency = Urgency(self._queue, self._crew.call)

    # Asking

    def want(self, ranges: Sequence[Range], bridge: int = 0, must_keep: bool = False) -> None:
        """Asks for ranges that are needed soon, in this order.

        Waits while very many are asked for already.

        Args:
            ranges: to ask for.
            bridge, must_keep: see ``Work``.
        """
        left = collections.deque(
            Work(file, *cells(start, stop), bridge=bridge, must_keep=must_keep)
            for file, start, stop in ranges
        )
        with self._arrived.waiting() as waiter:
            while not self._add_soon(left):
                # Nothing may arrive that makes room: what was read already is not fetched.
                waiter.wait(_LONGEST_LOOK)

    def _add_soon(self, left: collections.deque[Work]) -> bool:
        """Takes work that is needed soon from its beginning, as far as there is room; whether that
        was all."""
        with self._mutex:
            while left and self._queue.has_room():
                self._queue.soon.append(left.popleft())
                self._crew.call()
            self._is_full = bool(left)
        return not left

    def want_whole(self, bulk: Bulk) -> None:
        """Asks for ranges of which everything will be needed, some time."""
        with self._mutex:
            self._queue.bulk.add(bulk)
            # Those that find nothing yet are there for the first records.
            self._crew.call_many(BULK_CONNECTIONS)
        # What the first records are found by is among what is claimed first, by a thread, which
        # Ctrl-C does not end.
        until = time.monotonic() + _CLAIM_SECONDS
        with self._arrived.waiting() as waiter:
            while self._queue.bulk.is_unclaimed and (rest := until - time.monotonic()) > 0:
                waiter.wait(rest)

    def start_bulk(self) -> None:
        """Has bulk wait for first records no longer."""
        with self._mutex:
            self._start_bulk()

    def _start_bulk(self) -> None:
        if self._queue.bulk.start():
            self._crew.call_all()

    def has_bulk(self, traffic: Traffic) -> bool:
        """Whether any bulk is still to come of the files that have this traffic."""
        with self._mutex:
            return self._queue.bulk.has_any_of(traffic) or any(
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
                    self._arrived.wake_all()

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
        hold = Hold(ranges)
        with self._mutex:
            # Ctrl-C may end this anywhere.
            token = self._given_back.token(functools.partial(self._passing.let_go, hold))
            self._passing.hold(hold)
        again: list[Range] = []
        try:
            again = self.ensure(ranges, small)
            yield False
        finally:
            with self._mutex:
                if starts_bulk:
                    self._start_bulk()
                del token
                self._given_back.look()
                # Bulk brings it, too, and what else there is is read faster when none is in memory.
                self._passing.drop(again)
                if self._passing:
                    self._passing.drop_kept(ranges)
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
        started = time.monotonic()
        try:
            with self._arrived.waiting() as waiter:
                self._wait_for(lacking, small, waiter, again)
        finally:
            ranges[0][0].traffic.waited += time.monotonic() - started
        return again

    def _wait_for(
        self, lacking: list[Range], small: Small, waiter: Waiter, again: list[Range]
    ) -> None:
        """Waits for ranges that are not there; see :meth:`ensure`.

        Args:
            lacking, small: see there.
            waiter: to wait with.
            again: gets those that were asked for again.
        """
        started, pause, is_ours = time.monotonic(), _LOOK_SECONDS, True
        asked = dict.fromkeys(lacking, started)
        next_look, overtakes = started, started + OVERTAKE_SECONDS
        asks_again = small is Small.ASK_AGAIN
        while lacking:
            now = time.monotonic()
            with self._mutex:
                if asks_again:
                    # Now, so that bulk does not claim any of the others before they are asked for.
                    again += self._urgency.ask_again(lacking)
                    asks_again = False
                for file in {file for file, *_ in lacking}:
                    file.raise_failure(lacking, started)
                if now >= next_look:
                    spent = time.thread_time()
                    is_ours = self._urgency.hurry(lacking, small, asked)
                    if now >= overtakes:
                        overtakes = now + _LONGEST_LOOK
                        again += self._urgency.overtake(lacking, small)
                        if self._queue.urgent:
                            # Who was to call a thread for it may have been interrupted.
                            self._crew.start()
                    spent = time.thread_time() - spent
                    next_look = now + min(_LOOK_SHARE * spent, _SELDOM_SECONDS)
            waiter.wait(_LONGEST_LOOK if is_ours else pause)
            pause = min(2 * pause, _LONGEST_LOOK)
            lacking = [it for it in lacking if not it[0].pieces.has(*it[1:])]

    # Fetching

    def _use_room(self) -> None:
        """To be called when something was read, so that more may be fetched ahead."""
        if self._queue.lacks_room:
            self._queue.lacks_room = False
            for _ in range(min(len(self._queue.soon), BULK_CONNECTIONS)):
                self._crew.call()

    def _run(self) -> None:
        # Only who fetches needs it.
        from yogadl.remote._fetching.connections import Connections

        try:
            connections = Connections()
        except OSError as error:
            self._lack_memory(error)
            return
        try:
            with self._mutex:
                self._claim_bulk()
                self._crew.start_next()
            while self._do_next(connections):
                pass
        except BaseException:
            # Whatever it is, there may be another thread in its place.
            with self._mutex:
                self._crew.count -= 1
            raise
        finally:
            connections.close()

    def _claim_bulk(self) -> None:
        """Claims what comes first of bulk that was added, and tells who waits for that."""
        if self._queue.bulk.is_unclaimed:
            self._queue.bulk.claim()
            self._arrived.wake_all()

    def _lack_memory(self, error: OSError) -> None:
        """To be called by a thread for which there is no memory: the others do its work, if there
        are any, and who waits is told otherwise."""
        _log.debug("Cannot have one more thread: %s", error)
        with self._mutex:
            self._crew.count -= 1
            left: list[Work] = []
            if self._crew.count <= 0:
                left += self._queue.urgent
                self._queue.urgent.clear()
        for work in left:
            self._fail(work, error)

    def _do_next(self, connections: Connections) -> bool:
        """Does some work; ``False`` when there has been none for a while.

        In a function of its own, so that a file is let go of when its work is done.
        """
        work = self._take_work()
        if work is None:
            return False
        rest: int | None = None
        try:
            self._fetch(work, connections)
        except CutError as cut:
            rest = cut.at
        except EndedError:
            _log.debug("Nobody wants the rest of %s.", work.file.asked.name)
        except BaseException as error:
            # Who waits for it would wait for ever.
            self._fail(work, error)
        finally:
            self._finish(work, rest)
        return True

    def _take_work(self) -> Work | None:
        """What to do next, claimed; ``None`` when there has been nothing for a while."""
        with self._mutex:
            until, was_interrupted = time.monotonic() + _IDLE_SECONDS, False
            while True:
                self._given_back.look()
                self._claim_bulk()
                if self._queue.bulk.take_back():
                    self._crew.call_all()
                coming = (work.file for work in self._queue.bulk.beside())
                found = self._queue.take(self._passing.room(coming))
                if self._is_full and self._queue.has_room():
                    self._is_full = False
                    self._arrived.wake_all()
                if found is not None:
                    if was_interrupted:
                        # There may be as much for each of those that had nothing to do meanwhile.
                        self._crew.call_all()
                    return found
                was_interrupted = self._queue.bulk.is_interrupted
                if was_interrupted:
                    self._crew.rest(PAUSE_SECONDS)
                    continue
                rest = until - time.monotonic()
                if rest <= 0:
                    self._passing.let_go_of_ended(or_kept=True)
                    # The last one stays for what is in memory until its file is closed, and as long
                    # as others are fetching what may be left to it.
                    if self._crew.count > 1 or not (self._passing or self._queue.bulk.left):
                        self._crew.count -= 1
                        return None
                    until, rest = until + _IDLE_SECONDS, _IDLE_SECONDS
                self._crew.rest(min(rest, LOOK_SECONDS) if self._queue.bulk.left else rest)

    def _fetch(self, work: Work, connections: Connections) -> None:
        if work.file.ended.is_set():
            raise EndedError
        # Who has claimed some bytes may be about to write them, right or wrong: nobody else does,
        # since those that are there may be compared as a whole, and then nobody looks again.
        is_kept = work.is_claimed and work.file.space.take(work.stop - work.start)
        if (work.is_bulk or work.must_keep) and not is_kept:
            with self._mutex:
                self._queue.bulk.end(work.bulk)
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
            self._drop_kept(work)
        except CutError:
            self._drop_kept(work)
            raise
        except DiskError as error:
            level = logging.DEBUG if self._has_told_disk else logging.WARNING
            self._has_told_disk = True
            _log.log(level, "%s cannot be written to: %s", work.file.pieces.path, str(error))
            work.file.space.is_full()
            if not (work.is_bulk or work.must_keep):
                self._transfer(work, connections, is_kept=False)

    def _drop_kept(self, work: Work) -> None:
        """Lets go of what is in memory of what is kept now, or it waits there to be read."""
        # Who adds more of it sees that it is kept.
        if not work.file.pieces.memory:
            return
        with self._mutex:
            self._passing.drop_kept([(work.file, work.start, work.stop)])

    def _transfer(self, work: Work, connections: Connections, is_kept: bool) -> None:
        transfer = Transfer(work, is_kept, self._tell_arrived)
        transfer.run(connections, self._urgency.lateness.answered)
        if not is_kept:
            with self._mutex:
                # Who was asked first may have brought it meanwhile, and who waited for it be gone.
                if not work.file.pieces.is_kept(work.start, work.stop):
                    passing = (work.file, work.start, work.stop)
                    self._passing.add(passing, transfer.memory)
                    self._passing.drop_kept([passing])

    def _tell_arrived(self) -> None:
        with self._mutex:
            self._arrived.wake_all()

    def _fail(self, work: Work, error: BaseException) -> None:
        with self._mutex:
            if work.is_bulk:
                self._queue.bulk.end(work.bulk)
            elif work.is_claimed or not self._queue.is_being_fetched(
                work.file, work.start, work.stop, is_claimed=True
            ):
                work.file.note_failure(work.start, work.stop, error)
            self._arrived.wake_all()

    def _finish(self, work: Work, rest: int | None) -> None:
        """Lets go of some work; ``rest`` is where what is to be fetched later begins, if any is."""
        with self._mutex:
            self._queue.flying.discard(work)
            work.file.traffic.requests += work.requests
            work.file.traffic.nbytes += work.nbytes
            self._urgency.lateness.brought_bytes += work.nbytes
            if work.is_bulk:
                self._queue.bulk.note_end(work)
                # There may be more connections now than when it began.
                for _ in range(self._queue.bulk.free() - 1):
                    self._crew.call()
            if work.is_claimed:
                work.file.pieces.release(work.start, work.stop, work.is_bulk)
            if rest is not None:
                # What is claimed would be passed over.
                self._queue.bulk.put_back(work, rest)
            self._arrived.wake_all()


fetcher = PerProcess(Fetcher)
"""That of this process."""
