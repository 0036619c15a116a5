"""The index of a version that is read from afar: fetched where it is needed, in its blocks.

A block is compared with its checksum before any entry of it is used: one that was fetched from a
wrong place would lead to other records, whose own checksums are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import xxhash

from yogadl.format.entries import ENTRY, EntryCheck
from yogadl.remote._fetcher import fetcher
from yogadl.remote._files import RemoteFiles
from yogadl.remote._work import Range

Array = np.ndarray[Any, Any]

_FETCHES = 4
# Of indexes that are not larger, what was read stays in memory.
_MOST_IN_MEMORY = 64 << 20


class DamagedIndexError(Exception):
    """A block of the index, from the record at ``position`` on, is not what was written."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class RemoteIndex:
    """Safe for threads and forks.

    Args:
        files: whose index it is.
        check: of entries.
        checksums: reads one XXH3-64 for each block of each file, uint64.
    """

    def __init__(
        self, files: RemoteFiles, check: EntryCheck, checksums: Callable[[], Array]
    ) -> None:
        self._files = files
        self._check = check
        self._read_checksums = checksums
        self._checksums: Array | None = None
        self._is_checked = np.zeros(files.block_count, bool)
        is_small = files.record_count * ENTRY.itemsize <= _MOST_IN_MEMORY
        self._entries = np.empty(files.record_count if is_small else 0, ENTRY)
        self._is_small = is_small

    def look_up(self, positions: Array) -> tuple[Array, Array]:
        """The numbers of the files of some records, int64 ``[n]``, and their ``ENTRY`` ``[n]``.

        Raises:
            DamagedIndexError: it is damaged there.
            YogadlError: it cannot be read.
        """
        numbers, blocks = self._files.find(positions)
        if self._is_small:
            lacking = blocks[~self._is_checked[blocks]]
            for block, first, found in self._load(np.unique(lacking)) if len(lacking) else ():
                self._entries[first : first + len(found)] = found
                self._is_checked[block] = True
            return numbers, self._entries[positions]
        entries = np.empty(len(positions), ENTRY)
        for block, first, found in self._load(np.unique(blocks)):
            places = blocks == block
            entries[places] = found[positions[places] - first]
        return numbers, entries

    def ranges(self, positions: Array) -> list[Range]:
        """The blocks in which some entries are, each once; none of those that are in memory."""
        blocks = self._files.find(positions)[1]
        lacking = dict.fromkeys(blocks[~self._is_checked[blocks]].tolist())
        return [self._files.block(block)[1] for block in lacking]

    def _load(self, blocks: Array) -> Iterator[tuple[int, int, Array]]:
        """Some blocks: their numbers, their first positions, and their entries, checked."""
        wanted = [(block, *self._files.block(block)) for block in blocks.tolist()]
        checksums = self._known_checksums([where for _, _, where in wanted])
        for _ in range(_FETCHES):
            wrong = []
            with fetcher().holding([where for *_, where in wanted], is_last_use=False):
                for block, first, where in wanted:
                    file, start, stop = where
                    entries = np.empty((stop - start) // ENTRY.itemsize, ENTRY)
                    data = memoryview(entries.view("u1"))
                    file.pieces.read_into(start, data)
                    if xxhash.xxh3_64_intdigest(data) != checksums[block]:
                        wrong.append((block, first, where))
                    elif not self._check.are_possible(entries, file.size).all():
                        raise DamagedIndexError(first)
                    else:
                        yield block, first, entries
            if not wrong:
                return
            for _, _, (file, start, stop) in wrong:
                file.pieces.discard(start, stop)
            wanted = wrong
        raise DamagedIndexError(wanted[0][1])

    def _known_checksums(self, wanted: Iterable[Range]) -> Array:
        if self._checksums is None:
            # At the same time, rather than one after the other.
            fetcher().want([it for it in wanted if not it[0].pieces.has(*it[1:])])
            self._checksums = self._read_checksums()
        return self._checksums
