"""What becomes of ranges that somebody waits for.

They are fetched next, if nobody fetches them; otherwise they are waited for, but not those with
which somebody is late or much slower than with others, and of what comes in bulk, the first records
and large ones not for long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from yogadl.remote._fetching.bulk_queue import LARGE_BYTES
from yogadl.remote._fetching.lateness import Lateness
from yogadl.remote._fetching.work import Range, RemoteFile, Small, Work, cells
from yogadl.remote._fetching.work_queue import WorkQueue
from yogadl.remote._local.sparse_file import CELL, SparseFile

OVERTAKE_SECONDS = 0.25
"""Whether bulk is late with what somebody waits for is looked at after so long."""

# What another process has claimed and not brought for so long is fetched here as well.
_OTHERS_SECONDS = 5.0
# And then what others claim of the file is, for so long: who has stopped has claimed much.
_OTHERS_LATE_SECONDS = 60.0
# Of what is left to bulk, whether somebody has claimed it is looked at so often.
_UNCLAIMED_SECONDS = 0.5
# What comes slowly, and takes so long yet, ends where it is, and the rest is asked for anew.
_SLOW_SECONDS = 1.0


class Urgency:
    """For one thread at a time.

    Args:
        queue: where they are put.
        call: called for each, with how many threads there may be for it though there are very many.

    Attributes:
        lateness: of the requests of this process.
    """

    def __init__(self, queue: WorkQueue, call: Callable[[int], object]) -> None:
        self._queue = queue
        self._call = call
        self.lateness = Lateness()

    def hurry(self, lacking: Sequence[Range], small: Small, asked: dict[Range, float]) -> bool:
        """Has what is missing of some ranges fetched next.

        Args:
            lacking: the ranges.
            small: what becomes of those that bulk will bring, too.
            asked: since when others may have asked for them, which is changed.

        Returns:
            Whether all of it is under way in this process.
        """
        is_ours, known = True, _Known(self._queue)
        for wanted in lacking:
            if small is Small.WAIT and self._is_left_to_bulk(wanted, asked):
                is_ours = False
            else:
                file, start, stop = wanted[0], *cells(*wanted[1:])
                is_ours &= self._hurry_one(file, start, stop, asked[wanted], known)
        return is_ours

    def ask_again(self, ranges: Sequence[Range]) -> list[Range]:
        """Asks for small ranges that are in flight in bulk, which may bring much before them.

        Returns:
            Those that it asked for.
        """
        again: list[Range] = []
        for file, *where in ranges:
            pieces, (start, stop) = file.pieces, cells(*where)
            if stop - start >= LARGE_BYTES:
                # Each look takes a call of the system, after which this thread waits for others.
                continue
            if pieces.missing(start, stop):
                is_claimed = pieces.others_have(start, stop)
            else:
                is_claimed = not pieces.has(start, stop)
            if is_claimed and self._queue.bulk.precedes(file, start, stop):
                self._ask_unclaimed(file, start, stop)
                again.append((file, start, stop))
        return again

    def overtake(self, lacking: Sequence[Range], small: Small) -> list[Range]:
        """Has ranges come before bulk that is late with them; those that are asked for again."""
        again: list[Range] = []
        is_first = small is Small.ASK_AGAIN
        known = _Known(self._queue)
        for file, *where in lacking:
            start, stop = cells(*where)
            if is_first and known.has_second(file, start, stop):
                continue
            if is_first and self._queue.bulk.overtakes(file, start, stop):
                known.note(self._ask_unclaimed(file, start, stop))
                again.append((file, start, stop))
            else:
                self._queue.bulk.cut(file, start, stop, is_first)
        return again

    def _is_left_to_bulk(self, wanted: Range, asked: dict[Range, float]) -> bool:
        """Whether bulk is to bring a range, and nobody who has claimed it is late with it.

        Args:
            wanted: the range.
            asked: since when others may have asked for ranges, which is changed.
        """
        file, start, stop = wanted[0], *cells(*wanted[1:])
        if not (self._queue.bulk.is_coming(file, start, stop) and file.pieces.missing(start, stop)):
            return False
        now = time.monotonic()
        may_be_late = now < file.others.late_until
        if may_be_late or now - asked[wanted] > _UNCLAIMED_SECONDS:
            if not file.pieces.others_have(start, stop):
                asked[wanted] = now
            elif may_be_late:
                return False
        return now - asked[wanted] <= _OTHERS_SECONDS

    def _hurry_one(
        self, file: RemoteFile, start: int, stop: int, since: float, known: _Known
    ) -> bool:
        """Has what is missing of a range fetched next; whether all is under way in this process.

        Args:
            file, start, stop: the range.
            since: when it began to be waited for.
            known: what is asked for, which is changed.
        """
        now = time.monotonic()
        missing = file.pieces.missing(start, stop)
        if missing:
            if self._queue.hurry(file, start, stop):
                known.note(self._queue.urgent[-1])
                self._call(1)
            elif (file, start) not in known.urgent:
                work = Work(file, start, stop)
                known.note(work)
                self._queue.urgent.append(work)
                self._call(1)
            if is_late := now - since > _OTHERS_SECONDS:
                file.others.late_until = now + _OTHERS_LATE_SECONDS
            elif now < file.others.late_until:
                is_late = file.pieces.others_have(start, stop)
        else:
            late = now - self.lateness.seconds()
            flying = [work for work in self._queue.flying if work.touches(file, start, stop)]
            is_late = any(_is_late(work, late) for work in flying)
            for work in flying:
                if work.is_waiting and _is_late(work, late):
                    # There are fewer threads than thought: it is asked for by itself, at the next
                    # look.
                    self._queue.bulk.let_go(work)
                    return False
                work.is_cut |= self._is_slow(work, now)
            # Ctrl-C may have ended who had claimed it.
            is_late |= not flying and now - since > _OTHERS_SECONDS
        if is_late:
            # What is asked for once more may be late itself; each time, it is waited for longer.
            counts_from = min(now - self.lateness.seconds(), (now + since) / 2)
            if not known.has_second(file, start, stop, counts_from):
                for first, last in _lacking(file.pieces, start, stop):
                    self.lateness.again_bytes += last - first
                    known.note(self._ask_unclaimed(file, first, last))
        return not missing

    def _is_slow(self, work: Work, now: float) -> bool:
        """Whether some work takes much longer than others, though it goes on; what comes in bulk
        has a look of its own."""
        if work.is_bulk or not work.answered or work.seconds_to(work.stop, now) <= _SLOW_SECONDS:
            return False
        coming = (each.rate(now) for each in self._queue.flying if each.answered)
        return self.lateness.is_slow(work.rate(now), filter(math.isfinite, coming))

    def _ask_unclaimed(self, file: RemoteFile, start: int, stop: int) -> Work:
        work = Work(file, start, stop, is_claimed=False)
        self._queue.urgent.append(work)
        # The only one may be what is late.
        self._call(2)
        return work


class _Known:
    """What is asked for already, as long as nobody else uses the queue: of thousands of ranges that
    somebody waits for, each is looked up among thousands.

    Args:
        queue: as it is now.

    Attributes:
        urgent: files, and where in them what waits to be fetched begins.
    """

    def __init__(self, queue: WorkQueue) -> None:
        self.urgent: set[tuple[RemoteFile, int]] = set()
        # Cells that are asked for though somebody else is at them, and when some of that came last.
        self._second: dict[tuple[SparseFile, int], float] = {}
        for work in queue.urgent:
            self.note(work)
        for work in queue.flying:
            self._note_second(work, work.progressed)

    def note(self, work: Work) -> None:
        """Adds work that is urgent."""
        self.urgent.add((work.file, work.start))
        self._note_second(work)

    def _note_second(self, work: Work, progressed: float = math.inf) -> None:
        # What is asked for of a file that has ended is not brought.
        if not work.is_claimed and not work.file.ended.is_set():
            for number in range(work.start // CELL, work.stop // CELL):
                cell = work.file.pieces, number
                self._second[cell] = max(self._second.get(cell, 0.0), progressed)

    def has_second(self, file: RemoteFile, start: int, stop: int, since: float = 0.0) -> bool:
        """Whether any of a range is asked for though somebody else is at it.

        Args:
            file, start, stop: the range.
            since: what has brought nothing since then does not count.
        """
        if not self._second:
            return False
        numbers = range(start // CELL, stop // CELL)
        return any(self._second.get((file.pieces, at), -1.0) >= since for at in numbers)


def _is_late(work: Work, since: float) -> bool:
    """Whether nothing of some work has come for long, or nothing will: its file has ended, and is
    open once more.

    Args:
        work: it.
        since: what has brought nothing since then is late.
    """
    return work.progressed < since or work.file.ended.is_set()


def _lacking(pieces: SparseFile, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The cells of a range that are not there, as one range if there are any."""
    there = [pieces.has(at, at + CELL) for at in range(start, stop, CELL)]
    if not all(there):
        yield start + there.index(False) * CELL, stop - there[::-1].index(False) * CELL
