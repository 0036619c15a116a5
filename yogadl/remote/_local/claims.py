"""Who is fetching which cells of a file, who reads which shards of it, and who compares it.

Each is said by POSIX locks on the file of its cells, which the system drops when the process dies,
and which a child does not have after a fork. Such locks are a process's: it may have that file open
but once. Where a file system has no locks, some bytes may come twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from yogadl.cache.mapping import Descriptor
from yogadl.remote._local.range_locks import RangeLocks

# What another process is fetching some of is tried in halves, down to so many cells.
_SMALLEST_CLAIM = 64
# Locks of what is fetched in bulk are so far behind those of cells.
_BULK = 1 << 60
# And those of who reads which shard of how many, behind these.
_SHARDS = 1 << 61
_MOST_SHARDS = 4096
# And the one of who compares the file with its digest.
_CHECK = 3 << 60

Cells = tuple[int, int]
"""A range of them, by the numbers of the first and of the one behind the last."""


class Claims:
    """Those of this process, and what can be told of others'. One thread at a time may claim cells
    and let go of them; all else is safe for threads.

    Args:
        marks: the file of the cells.
        count: how many cells there are.
    """

    def __init__(self, marks: Descriptor, count: int) -> None:
        self._locks = RangeLocks(marks)
        self._count = count
        # Ranges of cells that this process is fetching; and those of them that come in bulk.
        self._own: list[Cells] = []
        self._bulk: list[Cells] = []
        # What this process has said that it reads.
        self._shards: set[int] = set()

    def own(self, first: int, last: int) -> list[Cells]:
        """What this process has claimed of which some is in a range."""
        return [cells for cells in self._own if cells[0] < last and first < cells[1]]

    def of_others(self, first: int, last: int) -> list[Cells]:
        """What other processes have claimed of a range, but not in bulk, as far as the system
        tells."""
        return [(begin, end) for begin, end, _ in self._locks.of_others(first, last)]

    def others_have(self, first: int, last: int) -> bool:
        """Whether other processes have claimed some of a range, as far as the system tells."""
        return self._is_in_bulk(first, last - first) or any(self._locks.of_others(first, last))

    def beside_bulk(self, first: int, last: int) -> list[Cells]:
        """Of a range that has just been claimed in bulk, what was claimed before, as far as the
        system tells."""
        own = [cells for cells in self.own(first, last) if cells not in self._bulk]
        return [
            (max(begin, first), min(end, last))
            for begin, end in sorted(self.of_others(first, last) + own)
            if begin < last and first < end
        ]

    def take(self, first: int, count: int) -> int:
        """Claims some cells, or as many of the first ones as no other process has claimed.

        The caller has seen to it that this process has claimed none of them.

        Returns:
            Where what was claimed ends.
        """
        while not self._takes(first, count):
            if count <= _SMALLEST_CLAIM:
                return first
            count = max(count // 2, _SMALLEST_CLAIM)
        self._own.append((first, first + count))
        return first + count

    def _takes(self, first: int, count: int) -> bool:
        """Claims some cells unless another process is fetching any."""
        if not self._locks.take(first, count):
            return False
        # Afterwards, as who claims in bulk does it: of the two, one sees the other.
        if self._is_in_bulk(first, count):
            self._locks.drop(first, count)
            return False
        return True

    def take_bulk(self, first: int, last: int) -> bool:
        """Claims a range in bulk, until :meth:`keep_bulk`, unless another process has claimed some
        of it so; whether it did."""
        return self._locks.take(_BULK + first, last - first)

    def keep_bulk(self, first: int, end: int, last: int) -> None:
        """Of a range that was claimed in bulk, keeps what lies before ``end``."""
        if end < last:
            self._locks.drop(_BULK + end, last - end)
        if end > first:
            self._own.append((first, end))
            self._bulk.append((first, end))

    def _is_in_bulk(self, first: int, count: int) -> bool:
        """Whether another process is fetching some cells in bulk."""
        if any(begin < first + count and first < end for begin, end in self._bulk):
            # To ask for a lock that this process has would be to drop it.
            return False
        return self._locks.is_taken(_BULK + first, count)

    def processes_in_bulk(self) -> int:
        """How many processes are fetching some of it in bulk, with this one, as far as is told."""
        others = self._locks.of_others(_BULK, _BULK + self._count)
        return 1 + len({process for _, _, process in others})

    def release(self, first: int, last: int, is_bulk: bool) -> None:
        """Lets go of a range that was claimed."""
        self._own.remove((first, last))
        if is_bulk:
            self._bulk.remove((first, last))
        self._locks.drop(_BULK + first if is_bulk else first, last - first)

    def shards_here(self, rank: int, num_shards: int) -> int:
        """How many of some shards processes of this machine read, which have the file open.

        Args:
            rank: the shard that this process reads, which is noted.
            num_shards: of how many.
        """
        if num_shards > _MOST_SHARDS:
            return 1
        first = _SHARDS + num_shards * (num_shards - 1) // 2
        # Each time anew: who just looks for others may have been in the way, and whoever looks at
        # the file by another descriptor drops it.
        if self._locks.take(first + rank, 1):
            self._shards.add(first + rank)
        return sum(
            at - first == rank or at in self._shards or self._locks.is_taken(at, 1)
            for at in range(first, first + num_shards)
        )

    @contextlib.contextmanager
    def checking(self) -> Iterator[bool]:
        """Whether no other process compares the file with its digest; none does meanwhile."""
        is_alone = self._locks.take(_CHECK, 1)
        try:
            yield is_alone
        finally:
            if is_alone:
                self._locks.drop(_CHECK, 1)

    def after_fork(self) -> None:
        """To be called in a child, which has none of its parent's."""
        self._own.clear()
        self._bulk.clear()
        self._shards.clear()
