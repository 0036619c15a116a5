"""The files of a version that is read from afar."""

from __future__ import annotations

import collections
import errno
import pathlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.cache.files import telling
from yogadl.cache.traffic import Traffic
from yogadl.errors import FileSystemError
from yogadl.format.entries import ENTRY
from yogadl.format.index import BLOCK, RunFinder, Runs, block_counts
from yogadl.remote._fetching.bulk_queue import BULK_CONNECTIONS
from yogadl.remote._fetching.remote_object import RemoteObject
from yogadl.remote._fetching.work import (
    MOST_FAILED,
    Failed,
    Others,
    Range,
    RemoteFile,
    Space,
    Twice,
    forget_failures,
)
from yogadl.remote._local.open_files import most_at_once
from yogadl.remote._local.sparse_file import SparseFile, open_sparse
from yogadl.remote._remembered import Remembered

Array = np.ndarray[Any, Any]

SMALL_FILE_BYTES = 1 << 20
"""Files of no more come by one request: to ask for what finds the records before the rest would
cost more than it brings."""


class RemoteFiles:
    """The files in which the records of a version are. Safe for threads and forks.

    Args:
        counts: records of each, int64 ``[n]``.
        sizes: bytes of each, int64 ``[n]``.
        entries: where the index begins in each, int64 ``[n]``.
        salts: what the entries of each are marked by, uint32 ``[n]``.
        objects: where the file of a number comes from.
        paths: where what is here of the file of a number is.
        claim: makes the folder for that, if somebody has removed it.
        space: says what may be kept.
        runs: which of their records are those of the version; without, all of them in order.
        elsewhere: where the same comes from once it is not there any more; without, from nowhere.

    Attributes:
        counts, sizes, entries, salts: see above.
        traffic: what was asked for.
        twice: what may come twice, and has.
    """

    def __init__(
        self,
        counts: Array,
        sizes: Array,
        entries: Array,
        salts: Array,
        objects: Callable[[int], RemoteObject],
        paths: Callable[[int], pathlib.Path],
        claim: Callable[[], object],
        space: Space,
        runs: Runs | None = None,
        elsewhere: Callable[[int], RemoteObject] | None = None,
    ) -> None:
        self.sizes = sizes
        self.traffic = Traffic()
        self.twice = Twice()
        self._others = Others()
        self._runs = Runs.of_whole(counts) if runs is None else runs
        self._finder = RunFinder(self._runs.counts)
        # A position less this is that of the record in its file.
        self._shifts = self._finder.starts - self._runs.firsts
        self._firsts = np.cumsum(counts) - counts
        blocks = block_counts(counts)
        self._last_blocks = np.cumsum(blocks)
        self._first_blocks = self._last_blocks - blocks
        self.entries = entries
        self.salts = salts
        self.counts = counts
        self._objects = objects
        self._elsewhere = elsewhere
        self._paths = paths
        self._claim = claim
        self._space = space
        self._open = Remembered()
        self._most_at_once = most_at_once()
        self._complete = 0
        self._ended = threading.Event()
        self._failed: Failed = collections.deque(maxlen=MOST_FAILED)
        # What was made last is called first.
        weakref.finalize(self, forget_failures, self._failed)
        weakref.finalize(self, self._open.clear)
        weakref.finalize(self, self._ended.set)

    def __len__(self) -> int:
        return len(self.sizes)

    def are_complete(self) -> bool:
        """Whether every byte is on this machine. Costs little while one is not."""
        while self._complete < len(self):
            # The last is fetched last.
            number = len(self) - 1 - self._complete
            size = int(self.sizes[number])
            if not self._paths(number).exists() or not self.file(number).pieces.is_kept(0, size):
                return False
            self._complete += 1
        return True

    def path(self, number: int) -> pathlib.Path:
        """Where what is here of a file is."""
        return self._paths(number)

    def paths(self) -> list[pathlib.Path]:
        """Of all of them on this machine; some more than once if they are parts of a table."""
        return [self._paths(number) for number in range(len(self))]

    @property
    def nbytes(self) -> int:
        """Of all of them."""
        return int(self.sizes.sum())

    @property
    def record_count(self) -> int:
        """Of all of them, whether the version has them or not."""
        return int(self.counts.sum())

    @property
    def block_count(self) -> int:
        """Blocks of all their indexes."""
        return int(self._last_blocks[-1])

    def find(self, positions: Array) -> tuple[Array, Array]:
        """The numbers of the files of some records, and their positions in these: int64 ``[n]``."""
        runs = self._finder.find(positions)
        return self._runs.files[runs], positions - self._shifts[runs]

    def in_steps(self, positions: Array) -> list[Array]:
        """Some records in their order, in steps of which all files may be open together."""
        # No iterator, which would have the files while they are waited for.
        step = self._most_at_once if len(self) > self._most_at_once else max(len(positions), 1)
        return [positions[at : at + step] for at in range(0, len(positions), step)]

    def in_groups(self, positions: Array) -> list[Array]:
        """Which of some records are read together, int64 each, since all files may not be open
        together; those of a file are in one group."""
        if len(self) > self._most_at_once < len(positions):
            numbers, which = np.unique(self.find(positions)[0], return_inverse=True)
            if len(numbers) > self._most_at_once:
                order = np.argsort(which, kind="stable")
                firsts = np.arange(self._most_at_once, len(numbers), self._most_at_once)
                return np.split(order, np.searchsorted(which[order], firsts))
        return [np.arange(len(positions))]

    def slots(self, numbers: Array, places: Array) -> Array:
        """The numbers of some records among those of all files, int64 ``[n]``."""
        slots: Array = self._firsts[numbers] + places
        return slots

    def slot(self, number: int, place: int) -> int:
        """The same of one."""
        return int(self._firsts[number]) + place

    def offsets(self, numbers: Array, places: Array) -> Array:
        """Where the entries of some records begin in their files, int64 ``[n]``."""
        offsets: Array = self.entries[numbers] + ENTRY.itemsize * places
        return offsets

    def entries_within(self, number: int, start: int, stop: int) -> Range:
        """The entries of a file between two offsets, which are multiples of their size."""
        first = int(self.entries[number])
        end = first + ENTRY.itemsize * int(self.counts[number])
        return self.file(number), max(start, first), min(stop, end)

    def blocks(self, numbers: Array, places: Array) -> Array:
        """The numbers of the blocks of some entries among those of all files, int64 ``[n]``."""
        blocks: Array = self._first_blocks[numbers] + places // BLOCK
        return blocks

    def block(self, block: int) -> tuple[int, Range]:
        """The first record of a block of the index in its file, and where the block is."""
        number = int(np.searchsorted(self._last_blocks, block, side="right"))
        first = (block - int(self._first_blocks[number])) * BLOCK
        count = min(BLOCK, int(self.counts[number]) - first)
        start = int(self.entries[number]) + ENTRY.itemsize * first
        where = self.file(number), start, start + ENTRY.itemsize * count
        return first, where

    @property
    def are_small(self) -> Array:
        """Of each file whether it is fetched at once, bool ``[n]``."""
        small: Array = self.sizes <= SMALL_FILE_BYTES
        return small

    @property
    def are_many_small(self) -> bool:
        """Whether requests are what fetching all of them takes, more than bytes."""
        return len(self) > BULK_CONNECTIONS and self.nbytes <= len(self) * SMALL_FILE_BYTES

    def are_most_small(self, positions: Array, sharing: int) -> bool:
        """Whether some records, and as many of each of the others who share the files, are in more
        than half of many small files, so that to ask for each takes longer than to fetch all."""
        if not self.are_many_small or len(positions) * 2 * sharing <= len(self):
            return False
        return len(np.unique(self.find(positions)[0])) * 2 * sharing > len(self)

    def index(self, number: int) -> tuple[int, int]:
        """Where the index of a file, and what comes behind it, begins and ends."""
        return int(self.entries[number]), int(self.sizes[number])

    @property
    def server(self) -> str:
        """Who has them; see ``RemoteObject.server``."""
        return self._objects(0).server

    def file(self, number: int) -> RemoteFile:
        """A file, open.

        Raises:
            FileSystemError: nothing can be kept on this machine.
        """
        found = self._open.get(number)
        if found is not None:
            return found
        size = int(self.sizes[number])
        path = self._paths(number)
        with telling("keep what is fetched in", path):
            pieces = self._open_sparse(path, size)
        made = RemoteFile(
            self._objects(number), size, pieces, self.traffic, self._space, self._ended
        )
        made.twice, made.others = self.twice, self._others
        made.failed = self._failed
        if self._elsewhere is not None:
            made.elsewhere = self._elsewhere(number)
        return self._open.add(number, made)

    def _open_sparse(self, path: pathlib.Path, size: int) -> SparseFile:
        try:
            return open_sparse(path, size)
        except FileSystemError as error:
            if error.errno != errno.ENOENT:
                raise
        self._claim()
        return open_sparse(path, size)
