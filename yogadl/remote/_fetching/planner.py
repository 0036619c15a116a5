"""What streams announce, turned into ranges of bytes to fetch.

To know where records lie, their index entries have to be fetched first. That is waited for here, in
a thread of its own, and not by who announces.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from yogadl.per_process import PerProcess
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.work import Range

Array = np.ndarray[Any, Any]

_IDLE_SECONDS = 5.0
# Announcements that wait; more than streams have at a time unless they were left.
_MOST_WAITING = 16
# Records whose entries are waited for together, more of those in order; and those of which no
# others are waited for.
STEP, _STEP_IN_ORDER, FIRST_RECORDS = 64, 512, 32
_LARGEST_RANGE = 4 << 20
# Between two ranges, what is fetched with them: a request costs more. And between records in order,
# of which others are not read, or were replaced.
_BRIDGED_BYTES, _BRIDGED_IN_ORDER = 1 << 10, 16 << 10

_log = logging.getLogger(__name__)


class Announced(Protocol):
    """What has records somewhere."""

    def in_steps(self, positions: Array) -> Sequence[Array]:
        """Them in their order, as many at a time as may be asked about at once."""

    def index_ranges(self, positions: Array) -> list[Range]:
        """Where their entries are."""

    def record_ranges(self, positions: Array) -> list[Range]:
        """Where they are; waits for the entries."""


class Planner:
    """One thread for what is read from one server, started when it is needed. Safe for threads."""

    def __init__(self) -> None:
        self._waiting: collections.deque[tuple[Announced, Array, bool]] = collections.deque(
            maxlen=_MOST_WAITING
        )
        self._mutex = threading.Lock()
        # Only the thread waits: see ``waiters``. Nor does anybody else take the lock by this, which
        # Ctrl-C could end when it has just been taken.
        self._wake = threading.Condition(self._mutex)
        self._thread: threading.Thread | None = None

    def submit(self, reader: Announced, positions: Array, must_keep: bool = False) -> None:
        """Has some records fetched, in this order, after those that were submitted before.

        Args:
            reader: of them.
            positions: of them, int64.
            must_keep: only as far as they can be kept.
        """
        with self._mutex:
            self._waiting.append((reader, positions, must_keep))
            self._wake.notify()
            # Ctrl-C may have ended the wait for its beginning, or come before that.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="yogadl plan", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:
                    # The system has no more; so nothing is fetched ahead.
                    _log.debug("Cannot fetch ahead: %s", error)

    def _run(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._wake.wait(_IDLE_SECONDS)
                # Something may have come just when there had been nothing for so long.
                if not self._waiting:
                    self._thread = None
                    return
                reader, positions, must_keep = self._waiting.popleft()
            try:
                _fetch(reader, positions, must_keep)
            except Exception as error:
                # Who reads the records meets it, too; and others' records are still to be fetched.
                # Not the error itself, as in ``_near``.
                _log.debug("Cannot fetch ahead: %s", str(error))
            # Nobody else may want it any more.
            del reader, positions


def _fetch(reader: Announced, positions: Array, must_keep: bool) -> None:
    # A stream that begins waits for the first of them, and not for all entries.
    for part in (positions[:FIRST_RECORDS], positions[FIRST_RECORDS:]):
        for some in reader.in_steps(part):
            fetcher().want(merged(reader.index_ranges(some)))
            _fetch_records(reader, some, must_keep)


def _fetch_records(reader: Announced, positions: Array, must_keep: bool) -> None:
    is_run = has_order(positions)
    step, bridged = (_STEP_IN_ORDER, _BRIDGED_IN_ORDER) if is_run else (STEP, _BRIDGED_BYTES)
    for at in range(0, len(positions), step):
        found = reader.record_ranges(positions[at : at + step])
        missing = (it for it in found if not it[0].pieces.has(*it[1:]))
        fetcher().want(merged(missing, bridged), bridged if is_run else 0, must_keep)


def has_order(positions: Array) -> bool:
    """Whether they rise or fall, as those of a shard, of a slice or of what was filtered do."""
    steps = np.diff(positions)
    return len(steps) > 0 and bool((steps > 0).all() or (steps < 0).all())


def merged(ranges: Iterable[Range], bridged: int = _BRIDGED_BYTES) -> list[Range]:
    """Ranges of which those that lie together in a file are one, but not too large; what is first
    in one of them is needed first.

    Records that follow on one another may lie otherwise: those of a page from its end on, and those
    of a version of many commits in several files.
    """
    wanted = list(ranges)
    by_place = sorted(range(len(wanted)), key=lambda at: (id(wanted[at][0]), wanted[at][1]))
    found: list[tuple[int, Range]] = []
    for at in by_place:
        file, start, stop = wanted[at]
        if found:
            first, (last, begin, end) = found[-1]
            if file is last and start - end < bridged and max(stop, end) - begin <= _LARGEST_RANGE:
                found[-1] = min(first, at), (last, begin, max(stop, end))
                continue
        found.append((at, wanted[at]))
    return [where for _, where in sorted(found, key=lambda it: it[0])]


_planners: PerProcess[dict[str, Planner]] = PerProcess(dict)


def planner(server: str) -> Planner:
    """That of this process for a server."""
    return _planners().setdefault(server, Planner())
