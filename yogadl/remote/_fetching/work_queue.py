"""What is to be fetched next.

What somebody waits for comes first; then what the orders of streams say is needed next; then, in
large pieces, the rest of what will be wanted as a whole.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from yogadl.format.pages import PAGE_SIZE
from yogadl.remote._fetching.bulk_queue import BulkQueue
from yogadl.remote._fetching.passing import AHEAD_BYTES
from yogadl.remote._fetching.work import Range, RemoteFile, Work
from yogadl.remote._local.open_files import most_queued
from yogadl.remote._local.sparse_file import CELL, open_count

# Ranges that may wait to be fetched soon; and so many though very many files are open.
_QUEUED, _QUEUED_ALWAYS = 4096, 8
# Of what streams need next, how much is looked at for what somebody waits for.
_LOOKED_AT = 64


class WorkQueue:
    """For one thread at a time.

    Attributes:
        urgent: what somebody waits for.
        soon: what streams need next.
        flying: what is being fetched.
        bulk: what will be wanted as a whole.
        lacks_room: whether some of ``soon`` waits until what was fetched has been read.
    """

    def __init__(self) -> None:
        self.urgent: collections.deque[Work] = collections.deque()
        self.soon: collections.deque[Work] = collections.deque()
        self.flying: set[Work] = set()
        self.lacks_room = False
        self.bulk = BulkQueue(self.flying, self.soon)
        self._most_files = most_queued()

    def __bool__(self) -> bool:
        """Whether anything is to be fetched, or is being fetched."""
        return bool(
            self.urgent or self.soon or self.flying or self.bulk.has_any() or self.bulk.left
        )

    def ahead(self) -> int:
        """Bytes that are under way before somebody waits for them."""
        return sum(work.stop - work.start for work in self.bulk.beside())

    def fitting(self, room: int, most: int) -> int:
        """How many of ``soon`` may be fetched ahead, up to so many; see :meth:`take`."""
        ahead, count = self.ahead(), 0
        for work in itertools.islice(self.soon, most):
            nbytes = work.stop - work.start
            if _lacks(ahead, nbytes, room):
                break
            ahead, count = ahead + nbytes, count + 1
        return count

    def has_room(self) -> bool:
        """Whether there may be more of ``soon``, each with its file."""
        count = len(self.soon)
        return count < _QUEUED_ALWAYS or (count < _QUEUED and open_count() < self._most_files)

    def hurry(self, file: RemoteFile, start: int, stop: int) -> bool:
        """Has what brings some bytes of a range fetched next, if it lacks room; whether it did."""
        for work in itertools.islice(self.soon, _LOOKED_AT if self.lacks_room else 0):
            if work.touches(file, start, stop):
                self.soon.remove(work)
                work.must_keep = False
                self.urgent.append(work)
                return True
        return False

    def skip(self, ranges: Sequence[Range]) -> None:
        """Fetches no more of what lacks room than what lies behind some ranges, which were read."""
        for work in list(itertools.islice(self.soon, _LOOKED_AT if self.lacks_room else 0)):
            for file, start, stop in ranges:
                if work.touches(file, start, stop) and start <= work.start:
                    work.start = stop // CELL * CELL
            if work.start >= work.stop:
                self.soon.remove(work)

    def put_back(self, work: Work, start: int, is_next: bool) -> None:
        """Has what was not fetched of some work, from an offset on, fetched later, or next."""
        if work.bulk is not None:
            self.bulk.put_back(work, start, is_next)
        else:
            # As if nobody waited for it: who does asks for it at once.
            rest = Work(work.file, start, work.stop, bridge=work.bridge, must_keep=work.must_keep)
            self.soon.appendleft(rest)

    def take(self, room: int) -> Work | None:
        """What to do next, claimed; ``None`` if there is nothing.

        Args:
            room: bytes that may be fetched ahead.
        """
        for work in self._candidates(room):
            work.progressed = work.began = time.monotonic()
            self.flying.add(work)
            return work
        return None

    def is_being_fetched(self, file: RemoteFile, start: int, stop: int, is_claimed: bool) -> bool:
        """Whether any work that is under way, claimed or not, brings some bytes of a range."""
        return any(
            work.is_claimed == is_claimed and work.touches(file, start, stop)
            for work in self.flying
        )

    def _candidates(self, room: int) -> Iterator[Work]:
        while self.urgent:
            work = self.urgent.popleft()
            if work.is_claimed:
                yield from self._claimed(work, self.urgent)
            elif not work.file.pieces.has(work.start, work.stop):
                yield work
        beside = self.bulk.beside()
        if not self.bulk.has_any() or len(beside) < self.bulk.connections_beside():
            self.lacks_room = False
            ahead = self.ahead()
            while self.soon:
                first = self.soon.popleft()
                bulk_first = self.bulk.before(first)
                if bulk_first is not None:
                    # Bulk brings it; and who keeps it keeps its file open.
                    if open_count() < self._most_files:
                        bulk_first.left.append(first)
                    continue
                self.lacks_room = _lacks(ahead, first.stop - first.start, room)
                if self.lacks_room:
                    self.soon.appendleft(first)
                    break
                yield from self._claimed(first, self.soon)
        yield from self.bulk.take()

    def _claimed(self, work: Work, queue: collections.deque[Work]) -> Iterator[Work]:
        """What is to be fetched of some work, if that is anything; the rest waits in its queue."""
        file = work.file
        if file.ended.is_set():
            return
        # Of what is being fetched, nothing is claimed twice.
        bridge = 0 if file.pieces.is_claimed(work.start, work.stop) else work.bridge
        # Between records that are being fetched, the rest of a page is left: nobody needs it.
        least = PAGE_SIZE if bridge < work.bridge else CELL
        runs = file.pieces.missing(work.start, work.stop, bridge)
        for start, stop in [run for run in runs if run[1] - run[0] >= least][:1]:
            end = file.pieces.claim(start, stop)
            is_claimed = end > start
            is_twice = queue is self.soon and self._is_fetched_twice(work, start, stop)
            if is_twice and not is_claimed:
                end = stop
            if end < work.stop and (end == stop or is_twice):
                queue.appendleft(replace(work, start=end))
            if end > start:
                yield replace(work, start=start, stop=end, is_claimed=is_claimed)

    def _is_fetched_twice(self, work: Work, start: int, stop: int) -> bool:
        """Whether what another process has claimed of some work is fetched here as well, if all of
        them are late, and not to be kept."""
        is_late = time.monotonic() < work.file.others.late_until
        return (
            is_late
            and not work.must_keep
            and not self.is_being_fetched(work.file, start, stop, is_claimed=False)
        )


def _lacks(ahead: int, more: int, room: int) -> bool:
    """Whether there is no room for so many bytes more than are under way."""
    # A record may be larger than there ever is room for.
    return ahead + more > room and (ahead > 0 or room < AHEAD_BYTES)
