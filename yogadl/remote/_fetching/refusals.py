"""What a server refuses, which permits few connections, or requests, at a time.

There are others who want one: who opens something in this process, and other processes. Where
anything was refused lately, one connection of a process is closed now and then, and nobody of the
process who is refused asks for anything for a moment.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from yogadl import backoff
from yogadl.errors import StoreError
from yogadl.remote._fetching.waiters import Waiters
from yogadl.remote._fetching.work import Work
from yogadl.remote._fetching.work_queue import WorkQueue

SERVED = 1 / 8
"""What makes up for so much of a refusal: a server that refuses more is asked less often."""

# A server brings something as long as it has within the longest pause and so many seconds.
_FLOWS_SECONDS = 2.0
# What is refused while the rest of its file comes is put up with so many times as long.
_TURN_TIMES = 10
# For so long it is thought to refuse more: those who are refused ask in much less.
_LATELY_SECONDS = 20.0
# A process gives way as often as this: to others, whom it does not know, and to who opens something
# in it.
_OTHERS_SECONDS, _OPENING_SECONDS = 5.0, 1.0
# And for so long.
_AWAY_SECONDS = 0.5
# What takes longer is cut off for who opens something.
_SOON_SECONDS = 1.0


class Refusals:
    """Those of one server. For who has the mutex, but where it says otherwise.

    Args:
        mutex: what whoever calls this has.
        queue: what is fetched from the server.

    Attributes:
        last: when the last one was; 0.0 before the first.
        opening: those who were refused when they opened something.
        way_until: nobody who is refused asks for anything until then.
    """

    def __init__(self, mutex: threading.Lock, queue: WorkQueue) -> None:
        self._mutex = mutex
        self._queue = queue
        self.last = 0.0
        self.opening = Waiters()
        self.way_until = 0.0
        # When the last bytes of what is done came.
        self._came = 0.0
        self._gave_way = 0.0

    def note(self) -> None:
        """There was one. Safe for threads."""
        now = time.monotonic()
        if not self.are_late(now):
            # Who was not refused before has the connections that it has for a while.
            self._gave_way = now
        self.last = now

    def are_late(self, now: float) -> bool:
        """Whether there were any lately. Safe for threads."""
        return bool(self.last) and now - self.last < _LATELY_SECONDS

    def gives_way(self, since: float) -> bool:
        """Whether a thread is to close its connection, since others are refused. Safe for threads,
        and cheap where none is.

        Args:
            since: when its connection began.
        """
        if not self.last:
            return False
        now = time.monotonic()
        if not self.are_late(now):
            return False
        if self.opening:
            return now - self._gave_way > _OPENING_SECONDS
        return now - max(self._gave_way, since) > _OTHERS_SECONDS

    def give_way(self, close: Callable[[], object]) -> None:
        """To be called by a thread that is not at work, which closes its connection."""
        close()
        self._gave_way = time.monotonic()
        self.way_until = self._gave_way + _AWAY_SECONDS
        self.opening.wake_all()

    def cut(self) -> None:
        """For who opens something: ends some work where it is, if all of it takes long."""
        now = time.monotonic()
        left = {work: work.seconds_to(work.stop, now) for work in self._queue.flying}
        left = {work: seconds for work, seconds in left.items() if math.isfinite(seconds)}
        if left and min(left.values()) > _SOON_SECONDS:
            max(left, key=left.__getitem__).is_cut = True

    def is_for_others(self, work: Work, at: int, error: StoreError) -> bool:
        """Whether some work that has failed at an offset is put back, since others bring what they
        ask for. For who has not the mutex."""
        from yogadl.remote._fetching.judging import is_refusal

        if not is_refusal(error) or work.file.ended.is_set():
            return False
        now, limits, file = time.monotonic(), backoff.LIMITS, work.file
        with self._mutex:
            self.note()
            came = max((it.progressed for it in self._queue.flying if it.nbytes), default=0.0)
            file.refused_since = file.refused_since or now
            # It may be but this file that is refused for ever, and is waited for as long again; or
            # but this part of it, which may also wait for its turn.
            is_patient = now - file.refused_since < limits.patience / 2
            is_patient &= now - file.refused.setdefault(at, now) < _TURN_TIMES * limits.patience
        return is_patient and now - max(came, self._came) < limits.longest_pause + _FLOWS_SECONDS

    def note_end(self, work: Work, rest: int | None, is_refused: bool) -> None:
        """Takes note of what came of some work; see ``Desk._finish``."""
        file = work.file
        if work.nbytes:
            self._came = work.progressed
            # Of a cell, the same bytes may come again and again.
            if not is_refused or (rest or 0) > work.start:
                file.refused_since = 0.0
        if file.refused:
            end = work.stop if rest is None else rest
            for at in [at for at in file.refused if work.start <= at < end]:
                del file.refused[at]
