"""What is fetched in large pieces, since all of it will be wanted."""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Iterator

from yogadl.cache.traffic import Traffic
from yogadl.remote._fetching.left_to_others import LeftToOthers
from yogadl.remote._fetching.work import Bulk, RemoteFile, Work, cells
from yogadl.remote._local.open_files import most_connections
from yogadl.remote._local.sparse_file import CELL

BULK_CONNECTIONS = 48
MACHINE_CONNECTIONS = 192
"""For bulk, of all processes of a machine: what is in flight is there later than what is asked for
by itself, and many processes together would have very much in flight."""
BULK_BYTES = 8 << 20
AT_ONCE_BYTES = BULK_CONNECTIONS * BULK_BYTES
"""What is no more is asked for at once."""
# But small records that a process alone waits for first come before so many bytes of others, which
# keep processors busy.
_SMALL_AT_ONCE_BYTES = 128 << 20

# What streams need next is asked for at so many connections beside bulk, if it is large; and of all
# processes of a machine at so many.
_BESIDE_BULK, _MACHINE_BESIDE_BULK = 16, 32
LARGE_BYTES = 64 << 10
"""From which on a request costs little beside what it brings."""

# What bulk brings so late that it takes so long yet is asked for by itself, if it is one of the
# first records, as far as that may come twice; other bulk ends where it is, if a large range, or
# one of the first, is waited for.
FIRST_LATE_SECONDS, _LATE_SECONDS = 0.25, 1.0
# Bulk that was late comes in pieces that take so long, and are not smaller, at so many connections
# of a process; and beside it, what streams need next at more of them than otherwise.
_PIECE_SECONDS, _LEAST_PIECE = 0.5, 256 << 10
_LATE_BULK, _BESIDE_LATE_BULK = 16, 64

BRIDGED_BYTES = 16 << 10
"""Bulk is not cut up by what is there in no larger pieces, which then come twice."""
TWICE = 0.01
"""As a share of all files of a version, what may come twice, since a request costs more than it."""
# Until the first records have been read, or for so long, bulk that does not come at once has
# but some of the connections.
_HOLD_SECONDS = 0.5
HELD_CONNECTIONS = 8
# Of small files, each request takes processors longer than the network.
HELD_OF_MANY = 4
FEWEST_CONNECTIONS = 2
# How many processes fetch the same is looked at so often, and first when all of those that began
# together should have.
_COUNT_SECONDS = 0.25
# What is small is left to bulk if that began so recently, or goes on so fast that it is all here or
# under way so long after it began.
_SOON_SECONDS, _QUICK_SECONDS = 2.0, 30.0
# But not to bulk that has not gone on for so long.
_STILL_SECONDS = 4.0

_TURN_SECONDS = 0.005
PAUSE_SECONDS = 0.001
"""What is here already is gone over for some time, while all others wait, and then not for this."""

_log = logging.getLogger(__name__)


class BulkQueue:
    """Ranges that take turns, and what is claimed of them. For one thread at a time.

    Args:
        flying: what is being fetched, of this and of all else.
        soon: what streams need next, to which what was left to bulk comes back.

    Attributes:
        is_unclaimed: whether there is bulk of which :meth:`claim` has not claimed any.
        left: what others are fetching of it; see :meth:`take_back`.
        is_interrupted: whether :meth:`take` has found nothing so far, and is to be called again.
    """

    def __init__(self, flying: set[Work], soon: collections.deque[Work]) -> None:
        self.is_unclaimed = self.is_interrupted = False
        self.left = LeftToOthers()
        self._flying = flying
        self._soon = soon
        self._most_in_bulk = most_connections(BULK_CONNECTIONS)
        # All of them take turns.
        self._bulk: collections.deque[Bulk] = collections.deque()
        # What is claimed of them, and waits for a thread.
        self._claimed: collections.deque[Work] = collections.deque()
        # What a stream waits for at its very beginning comes first.
        self._holds_until = 0.0
        self._next_turn = 0.0

    def add(self, bulk: Bulk) -> None:
        """Adds ranges of which everything will be needed, some time."""
        comes_late = bulk.has_many_files or not _comes_at_once(bulk)
        if comes_late and not bulk.is_begun and not self.has_any():
            self._holds_until = time.monotonic() + _HOLD_SECONDS
        self._bulk.append(bulk)
        self.is_unclaimed = True

    def claim(self) -> None:
        """Claims as much of bulk as there are connections for, at the beginning.

        Each claim takes some calls of the system, after which a thread waits for the interpreter:
        for long, once there are many threads, and with the lock for which all others wait.
        """
        until = time.monotonic() + _TURN_SECONDS
        try:
            while self.free() > 0 and time.monotonic() < until:
                for work in self._next():
                    work.progressed, work.is_waiting = time.monotonic(), True
                    self._flying.add(work)
                    self._claimed.append(work)
        finally:
            self.is_unclaimed = False

    def let_go(self, work: Work) -> None:
        """Has what was claimed by :meth:`claim`, and waits for a thread, be fetched later."""
        self._claimed.remove(work)
        self._flying.discard(work)
        work.file.pieces.release(work.start, work.stop, work.is_bulk)
        self.put_back(work, work.start)

    def start(self) -> bool:
        """Has bulk wait for nothing any more; whether it did."""
        if any(bulk.is_small and bulk.processes > 1 for bulk in self._bulk):
            # The others begin, too, and what is under way keeps their first records waiting.
            return False
        held, self._holds_until = bool(self._holds_until), 0.0
        return held

    def has_any(self) -> bool:
        """Whether there is bulk work; the first has some then."""
        while self._bulk and not self._has_work(self._bulk[0]):
            self._forget(self._bulk[0])
        return bool(self._bulk)

    def has_any_of(self, traffic: Traffic) -> bool:
        """Whether there is any of files that have this traffic, which others may be fetching."""
        self.has_any()
        return any(self._of(traffic))

    def _of(self, traffic: Traffic) -> Iterator[Bulk]:
        yield from (bulk for bulk in self._bulk if bulk.traffic is traffic)
        yield from self.left.of(traffic)

    def take_back(self) -> bool:
        """Has what others were fetching, and have not brought, fetched as bulk; whether there was
        any. To be called now and then."""
        found = self.left.look()
        for bulk, wanted in found:
            if wanted is not None:
                bulk.taken_back.append(wanted)
                bulk.passed -= wanted[2] - wanted[1]
                if bulk not in self._bulk:
                    self._bulk.append(bulk)
            elif bulk not in self._bulk and not self.left.has(bulk):
                self._use_left(bulk)
        return any(wanted is not None for _, wanted in found)

    def free(self) -> int:
        """How many more connections there may be for bulk, if there is any."""
        if not self.has_any():
            return 0
        in_bulk = len(self._flying) - len(self.beside())
        return self._connections(self._bulk[0]) - in_bulk

    def beside(self) -> list[Work]:
        """What is being fetched by itself; looked for before each request is made."""
        return [work for work in self._flying if work.bulk is None]

    def connections_beside(self) -> int:
        """At how many connections that may be, while there is any bulk."""
        bulk = self._bulk[0]
        if bulk.is_late:
            return max(_BESIDE_LATE_BULK // bulk.processes, _BESIDE_BULK)
        most = _MACHINE_BESIDE_BULK // bulk.processes
        return min(max(most, FEWEST_CONNECTIONS), _BESIDE_BULK)

    def _connections(self, bulk: Bulk) -> int:
        """How many there may be for bulk, of which some is at its turn."""
        now = time.monotonic()
        work = bulk.work
        is_late = now >= max(bulk.begun + _HOLD_SECONDS, bulk.counted + _COUNT_SECONDS)
        if is_late and work is not None and not work.file.ended.is_set():
            bulk.counted, bulk.processes = now, work.file.pieces.claims.processes_in_bulk()
        is_held = now < self._holds_until
        most = MACHINE_CONNECTIONS
        if is_held:
            most = HELD_OF_MANY if bulk.has_many_files else HELD_CONNECTIONS
        fewest = _LATE_BULK if bulk.is_late else min(BULK_CONNECTIONS, self._most_in_bulk)
        return min(max(most // bulk.processes, FEWEST_CONNECTIONS), fewest)

    def before(self, work: Work) -> Bulk | None:
        """What some work is left to: being so small that a request costs more than that, or since
        all of the rest comes at once."""
        self.has_any()
        bulk = next(self._of(work.file.traffic), None)
        if bulk is None:
            return None
        is_small = work.stop - work.start < LARGE_BYTES
        is_at_once = bulk.nbytes - bulk.passed <= AT_ONCE_BYTES and not bulk.is_late
        return bulk if is_small or is_at_once else None

    def precedes(self, file: RemoteFile, start: int, stop: int) -> bool:
        """Whether one of the first ranges is asked for though it is coming in bulk: if it is small,
        and that does not come at once; as far as some bytes may come twice."""
        size = stop - start
        if size >= LARGE_BYTES or not file.twice.has_room(size):
            return False
        if all(map(_comes_at_once, self._of(file.traffic))):
            return False
        file.twice.nbytes += size
        return True

    def is_coming(self, file: RemoteFile, start: int, stop: int) -> bool:
        """Whether a range is so small that it is left to bulk, which brings it soon."""
        if stop - start >= LARGE_BYTES or not self.has_any_of(file.traffic):
            return False
        if any(begin < stop and start < end for begin, end in file.passed):
            return False
        now = time.monotonic()
        return any(_is_quick(bulk, now) for bulk in self._of(file.traffic))

    def overtakes(self, file: RemoteFile, start: int, stop: int) -> bool:
        """Whether one of the first ranges is asked for though it comes in bulk, being late; as far
        as some bytes may come twice."""
        size = stop - start
        if not file.twice.has_room(size):
            return False
        if not self._late(file, start, stop, FIRST_LATE_SECONDS):
            return False
        file.twice.nbytes += size
        return True

    def cut(self, file: RemoteFile, start: int, stop: int, is_first: bool = False) -> None:
        """Has bulk that is late with a large range, or with one of the first, end where it is, and
        come in small pieces."""
        if is_first or stop - start >= LARGE_BYTES:
            for work in self._late(file, start, stop, _LATE_SECONDS):
                self._end_here(work)

    def _late(self, file: RemoteFile, start: int, stop: int, late: float) -> list[Work]:
        """What brings bytes of a range in bulk, and takes some seconds yet at least."""
        now = time.monotonic()
        begun = (work for work in self._flying if work.is_bulk and not work.is_waiting)
        found = [work for work in begun if work.touches(file, start, stop)]
        return [work for work in found if work.seconds_to(stop, now) > late]

    def _end_here(self, work: Work) -> None:
        bulk = work.bulk
        if bulk is not None and not work.is_cut:
            work.is_cut = True
            # An answer may just have begun, of which no rate is known.
            comes = min(work.rate(time.monotonic()) * _PIECE_SECONDS, BULK_BYTES)
            size = int(comes) // CELL * CELL
            bulk.piece = min(bulk.piece or BULK_BYTES, max(size, _LEAST_PIECE))
            self._use_left(bulk)

    def put_back(self, work: Work, start: int, is_next: bool = False) -> None:
        """Has bulk that was cut fetched later, from an offset on; or next."""
        bulk = work.bulk
        if bulk is not None and not bulk.has_failed:
            wanted = (work.file, start, work.stop)
            if is_next:
                bulk.taken_back.appendleft(wanted)
            else:
                bulk.cut_off.append(wanted)
            bulk.passed -= work.stop - start
            if bulk not in self._bulk:
                self._bulk.append(bulk)

    def note_end(self, work: Work) -> None:
        """To be called when all of some work was fetched."""
        bulk = work.bulk
        if bulk is not None and bulk.is_late and not work.is_cut:
            if time.monotonic() - work.answered < _PIECE_SECONDS / 2:
                # The network may have become faster.
                bulk.piece *= 2
            if bulk.piece >= BULK_BYTES:
                bulk.piece = 0

    def end(self, bulk: Bulk | None) -> None:
        """Leaves the rest of it to be fetched when it is needed."""
        if bulk is not None:
            bulk.has_failed = True
            bulk.forget_ranges()
            self.left.drop(bulk)
            self._forget(bulk)
            for work in [work for work in self._claimed if work.bulk is bulk]:
                self.let_go(work)

    def take(self) -> Iterator[Work]:
        """What to do next, claimed."""
        while self._claimed:
            work = self._claimed.popleft()
            work.is_waiting = False
            yield work
        self.is_interrupted = False
        now = time.monotonic()
        if now < self._next_turn:
            return
        until = now + _TURN_SECONDS
        while self.free() > 0:
            yield from self._next()
            if time.monotonic() >= until:
                # Most of it may be here, in so many files that it takes long to see that.
                self._next_turn, self.is_interrupted = until + PAUSE_SECONDS, True
                return

    def _forget(self, bulk: Bulk) -> None:
        if bulk in self._bulk:
            self._bulk.remove(bulk)
        if not self.left.has(bulk):
            self._use_left(bulk)

    def _use_left(self, bulk: Bulk) -> None:
        self._soon.extendleft(reversed(bulk.left))
        bulk.left.clear()

    def _has_work(self, bulk: Bulk) -> bool:
        if bulk.work is None:
            try:
                found = bulk.taken_back.popleft() if bulk.taken_back else next(bulk.ranges, None)
            except OSError as error:
                # Who reads the records meets it, too.
                _log.debug("Cannot fetch as a whole: %s", error)
                found = None
            if found is None and bulk.cut_off:
                found = bulk.cut_off.popleft()
            if found is not None and not found[0].ended.is_set():
                file, start, stop = found
                bulk.work = Work(file, *cells(start, stop), bulk)
        return bulk.work is not None

    def _next(self) -> Iterator[Work]:
        """The next large piece, if the next bytes of the first bulk work have one."""
        bulk = self._bulk[0]
        self._bulk.rotate(-1)
        work = bulk.work
        assert work is not None
        file, first = work.file, work.start
        if file.ended.is_set():
            bulk.work = None
            return
        work.start = min(first + (bulk.piece or BULK_BYTES), work.stop)
        found, bridge = None, BRIDGED_BYTES if file.twice.has_room(1) else 0
        runs = file.pieces.missing(first, work.start, bridge, for_bulk=True)[:1]
        if bridge and not all(file.twice.has_room(file.pieces.count(*run)) for run in runs):
            bridge = 0
            runs = file.pieces.missing(first, work.start, bridge, for_bulk=True)[:1]
        for start, stop in runs:
            again = file.pieces.count(start, stop) if bridge else 0
            # What another process is fetching is left to it.
            end = file.pieces.claim_bulk(start, stop, bridge)
            if end > start:
                file.twice.nbytes += again
                work.start = end
                others = file.pieces.claimed_beside_bulk(start, end) if bridge else []
                found = Work(file, start, end, bulk, others=others)
        bulk.passed, bulk.moved = bulk.passed + work.start - first, time.monotonic()
        # What is not claimed here is there, or somebody else is at it.
        end = work.start if found is None else found.start
        file.note_passed(end if self.left.add(bulk, file, first, end) else first, work.start)
        if work.start >= work.stop:
            bulk.work = None
        if found is not None:
            yield found


def comes_at_once(nbytes: int, are_small: bool, processes: int) -> bool:
    """Whether bulk is all asked for at once.

    Args:
        nbytes: of it.
        are_small: whether its records are.
        processes: that fetch it, which together have more of it soon than one.
    """
    most = _SMALL_AT_ONCE_BYTES if are_small and processes == 1 else AT_ONCE_BYTES
    return nbytes <= min(most, AT_ONCE_BYTES)


def _comes_at_once(bulk: Bulk) -> bool:
    return comes_at_once(bulk.nbytes, bulk.is_small, bulk.processes)


def _is_quick(bulk: Bulk, now: float) -> bool:
    """Whether all of it will soon be here, as far as can be told."""
    seconds, share = now - bulk.begun, bulk.passed / max(bulk.nbytes, 1)
    is_on_course = share >= seconds / _QUICK_SECONDS and now - bulk.moved < _STILL_SECONDS
    return seconds < _SOON_SECONDS or is_on_course
