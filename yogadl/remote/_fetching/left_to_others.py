"""What bulk passes over, since somebody else is fetching it: who may end before it is here."""

from __future__ import annotations

import time
from collections.abc import Iterator

from yogadl.cache.traffic import Traffic
from yogadl.remote._fetching.work import Bulk, Range, RemoteFile
from yogadl.remote._local.open_files import most_queued
from yogadl.remote._local.sparse_file import open_count

LOOK_SECONDS = 0.25
"""Whether somebody is still fetching it is looked at so often."""


class LeftToOthers:
    """Ranges that other processes are fetching, or this one for another reason. For one thread at a
    time."""

    def __init__(self) -> None:
        self._left: list[tuple[Bulk, Range]] = []
        self._most_files = most_queued()
        self._next_look = 0.0

    def __bool__(self) -> bool:
        return bool(self._left)

    def of(self, traffic: Traffic) -> Iterator[Bulk]:
        """The bulk of which there is some, of files that have this traffic."""
        return (bulk for bulk, _ in self._left if bulk.traffic is traffic)

    def has(self, bulk: Bulk) -> bool:
        """Whether there is any of some bulk."""
        return any(it is bulk for it, _ in self._left)

    def add(self, bulk: Bulk, file: RemoteFile, start: int, stop: int) -> bool:
        """Adds a range that is not claimed for some bulk, if it is not here; whether it did."""
        if start >= stop or file.pieces.is_kept(start, stop) or open_count() >= self._most_files:
            return False
        self._left.append((bulk, (file, start, stop)))
        return True

    def drop(self, bulk: Bulk) -> None:
        """Forgets those of some bulk."""
        self._left = [it for it in self._left if it[0] is not bulk]

    def look(self) -> list[tuple[Bulk, Range | None]]:
        """What somebody has let go of since the last look, and is not here; or ``None`` for what
        is, or nobody wants."""
        now = time.monotonic()
        if not self._left or now < self._next_look:
            return []
        self._next_look = now + LOOK_SECONDS
        found: list[tuple[Bulk, Range | None]] = []
        kept: list[tuple[Bulk, Range]] = []
        for bulk, (file, start, stop) in self._left:
            if file.ended.is_set() or file.pieces.is_kept(start, stop):
                found.append((bulk, None))
            elif now < file.others.late_until:
                # Who has stopped has claimed much, and lets go of none of it.
                file.note_passed(start, stop)
                found.append((bulk, None))
            elif file.pieces.is_claimed(start, stop) or file.pieces.others_have(start, stop):
                kept.append((bulk, (file, start, stop)))
            else:
                found.append((bulk, (file, start, stop)))
        self._left = kept
        return found
