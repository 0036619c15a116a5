"""What a process asks for, and waits for: bytes of files that are fetched.

Each server has threads of its own that fetch from it; see ``desk``.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Sequence

from yogadl.cache.traffic import Traffic
from yogadl.per_process import PerProcess
from yogadl.remote._fetching.bulk_queue import BULK_CONNECTIONS
from yogadl.remote._fetching.desk import Desk, Office
from yogadl.remote._fetching.passing import Hold
from yogadl.remote._fetching.urgency import OVERTAKE_SECONDS
from yogadl.remote._fetching.waiters import Waiter
from yogadl.remote._fetching.work import Bulk, Range, RemoteFile, Small, Work, cells

# That bulk is claimed is waited for for so long.
_CLAIM_SECONDS = 0.1
# Another process's bytes are looked for so often, and ours that are late.
_LOOK_SECONDS = 0.004
_LONGEST_LOOK = 0.1
# To see to what is waited for takes a thread at most one in so many seconds of a processor, but if
# it is done as seldom as this.
_LOOK_SHARE, _SELDOM_SECONDS = 20, 0.5


class Fetcher:
    """See the module. Safe for threads.

    Attributes:
        office: what it shares with the threads.
    """

    def __init__(self) -> None:
        self.office = Office()
        self._mutex = self.office.mutex

    def _desk(self, file: RemoteFile) -> Desk:
        return self.office.desk(file.server)

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
        with self.office.arrived.waiting() as waiter:
            while not self._add_soon(left):
                # Nothing may arrive that makes room: what was read already is not fetched.
                waiter.wait(_LONGEST_LOOK)

    def _add_soon(self, left: collections.deque[Work]) -> bool:
        """Takes work that is needed soon from its beginning, as far as there is room; whether that
        was all."""
        with self._mutex:
            while left:
                desk = self._desk(left[0].file)
                desk.is_full = not desk.queue.has_room()
                if desk.is_full:
                    return False
                desk.queue.soon.append(left.popleft())
                desk.crew.call()
        return True

    def want_whole(self, bulk: Bulk, server: str) -> None:
        """Asks for ranges of which everything will be needed, some time, from one server."""
        with self._mutex:
            desk = self.office.desk(server)
            desk.queue.bulk.add(bulk)
            # Those that find nothing yet are there for the first records.
            desk.crew.call_many(BULK_CONNECTIONS)
        # What the first records are found by is among what is claimed first, by a thread, which
        # Ctrl-C does not end.
        until = time.monotonic() + _CLAIM_SECONDS
        with self.office.arrived.waiting() as waiter:
            while desk.queue.bulk.is_unclaimed and (rest := until - time.monotonic()) > 0:
                waiter.wait(rest)

    def start_bulk(self) -> None:
        """Has bulk wait for first records no longer."""
        with self._mutex:
            self._start_bulk()

    def _start_bulk(self) -> None:
        for desk in self.office.desks.values():
            if desk.queue.bulk.start():
                desk.crew.call_all()

    def has_bulk(self, traffic: Traffic) -> bool:
        """Whether any bulk is still to come of the files that have this traffic."""
        with self._mutex:
            queues = [desk.queue for desk in self.office.desks.values()]
            return any(queue.bulk.has_any_of(traffic) for queue in queues) or any(
                work.is_bulk and work.file.traffic is traffic
                for queue in queues
                for work in queue.flying
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
                    self.office.arrived.wake_all()

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
        office, passing = self.office, self.office.passing
        if not passing and all(file.pieces.is_kept(start, stop) for file, start, stop in ranges):
            yield True
            return
        hold = Hold(ranges)
        with self._mutex:
            # Ctrl-C may end this anywhere.
            token = office.given_back.token(functools.partial(passing.let_go, hold))
            passing.hold(hold)
        again: list[Range] = []
        try:
            again = self.ensure(ranges, small)
            yield False
        finally:
            with self._mutex:
                if starts_bulk:
                    self._start_bulk()
                del token
                office.given_back.look()
                # Bulk brings it, too, and what else there is is read faster when none is in memory.
                passing.drop(again)
                if passing:
                    passing.drop_kept(ranges)
                    passing.note_read(ranges)
                    passing.drop(dropped)
                    for desk in office.desks.values():
                        desk.queue.skip(dropped)
                        desk.use_room()

    def discard(self, ranges: Sequence[Range]) -> None:
        """Has some ranges fetched again, whoever holds them, since what came is not right.

        Raises:
            FileSystemError: see ``SparseFile.discard``.
        """
        with self._mutex:
            self.office.passing.discard(ranges)
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
            with self.office.arrived.waiting() as waiter:
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
        looks_for_others = started
        asks_again = small is Small.ASK_AGAIN
        while lacking:
            now = time.monotonic()
            with self._mutex:
                desks = self._by_desk(lacking)
                if asks_again:
                    # Now, so that bulk does not claim any of the others before they are asked for.
                    again += (it for desk, some in desks for it in desk.urgency.ask_again(some))
                    asks_again = False
                for file in {file for file, *_ in lacking}:
                    file.raise_failure(lacking, started)
                if now >= next_look:
                    spent = time.thread_time()
                    is_ours = True
                    for desk, some in desks:
                        is_ours &= desk.urgency.hurry(some, small, asked)
                    if now >= overtakes:
                        overtakes = now + _LONGEST_LOOK
                        for desk, some in desks:
                            again += desk.overtake(some, small)
                    spent = time.thread_time() - spent
                    next_look = now + min(_LOOK_SHARE * spent, _SELDOM_SECONDS)
            waiter.wait(_LONGEST_LOOK if is_ours else pause)
            pause = min(2 * pause, _LONGEST_LOOK)
            now = time.monotonic()
            if now < looks_for_others:
                lacking = [it for it in lacking if not it[0].pieces.is_known(*it[1:])]
                continue
            # Each takes a call of the system, after which a thread waits for the interpreter.
            lacking = [it for it in lacking if not it[0].pieces.has(*it[1:])]
            looks_for_others = now + (_LONGEST_LOOK if is_ours else _LOOK_SECONDS)

    def _by_desk(self, ranges: Iterable[Range]) -> list[tuple[Desk, list[Range]]]:
        """Ranges by whom they are asked of."""
        found: dict[Desk, list[Range]] = {}
        for wanted in ranges:
            found.setdefault(self._desk(wanted[0]), []).append(wanted)
        return list(found.items())


fetcher = PerProcess(Fetcher)
"""That of this process."""
