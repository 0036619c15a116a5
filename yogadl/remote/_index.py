"""The index of a version that is read from afar: fetched where it is needed, in small pieces.

An entry is trusted as far as it is possible: the record that it leads to is compared with the
checksum in it. Once all of a file's index is here, it is kept in memory, if it is not large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.format.entries import ENTRY, EntryCheck
from yogadl.remote._fetcher import Range, fetcher
from yogadl.remote._files import RemoteFiles
from yogadl.remote._sparse_file import CELL

Array = np.ndarray[Any, Any]

_FETCHES = 4
# Of the indexes of all files together.
_MOST_IN_MEMORY = 64 << 20


class ImpossibleEntryError(Exception):
    """The index has an entry, of the record at ``position``, that no record can have."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class RemoteIndex:
    """Safe for threads.

    Args:
        files: whose index it is.
        check: of entries.
    """

    def __init__(self, files: RemoteFiles, check: EntryCheck) -> None:
        self._files = files
        self._check = check
        self._whole: dict[int, Array] = {}

    def look_up(self, positions: Array) -> tuple[Array, Array]:
        """The numbers of the files of some records, int64 ``[n]``, and their ``ENTRY`` ``[n]``.

        Raises:
            ImpossibleEntryError: it is damaged there.
            StoreError: it cannot be read.
        """
        numbers = self._files.of(positions)
        entries = np.empty(len(positions), ENTRY)
        offsets = self._files.entry_offsets(numbers, positions)
        rest = []
        for number in np.unique(numbers).tolist():
            whole = self._in_memory(number)
            if whole is None:
                rest.append(number)
                continue
            places = numbers == number
            start = self._files.index(number)[0]
            entries[places] = whole[(offsets[places] - start) // ENTRY.itemsize]
        if rest:
            places = np.isin(numbers, rest)
            found = self._read(positions[places], numbers[places], offsets[places])
            entries[places] = found
        return numbers, entries

    def ranges(self, positions: Array) -> Iterator[Range]:
        """The cells in which some entries are, each once; none of those that are in memory."""
        numbers = self._files.of(positions)
        cells = self._files.entry_offsets(numbers, positions) // CELL
        for number, cell in dict.fromkeys(zip(numbers.tolist(), cells.tolist(), strict=True)):
            if number not in self._whole:
                yield self._files.file(number), cell * CELL, (cell + 1) * CELL

    def discard(self, position: int) -> None:
        """Has the entry of a record fetched again."""
        number = int(self._files.of(np.array([position]))[0])
        self._whole.pop(number, None)
        for file, start, stop in self.ranges(np.array([position])):
            file.pieces.discard(start, stop)

    def _read(self, positions: Array, numbers: Array, offsets: Array) -> Array:
        entries = np.empty(len(positions), ENTRY)
        view = memoryview(entries.view("u1"))
        wrong: Array = np.empty(0, "i8")
        for _ in range(_FETCHES):
            with fetcher().holding(list(self.ranges(positions)), is_last_use=False):
                for at, (number, offset) in enumerate(
                    zip(numbers.tolist(), offsets.tolist(), strict=True)
                ):
                    place = view[at * ENTRY.itemsize : (at + 1) * ENTRY.itemsize]
                    self._files.file(number).pieces.read_into(offset, place)
            possible = self._check.are_possible(entries, self._files.sizes[numbers])
            wrong = np.flatnonzero(~possible)
            if not len(wrong):
                return entries
            for position in positions[wrong].tolist():
                self.discard(position)
        raise ImpossibleEntryError(int(positions[wrong[0]]))

    def _in_memory(self, number: int) -> Array | None:
        """All entries of a file, if they are here."""
        found = self._whole.get(number)
        if found is not None:
            return found
        start, stop = self._files.entries_of(number)
        file = self._files.file(number)
        if stop - start > _MOST_IN_MEMORY or not file.pieces.has(start, stop):
            return None
        # Without a lock, which another thread might have had at a fork.
        kept = sum(entries.nbytes for entries in list(self._whole.values()))
        if kept + stop - start > _MOST_IN_MEMORY:
            return None
        entries = np.empty((stop - start) // ENTRY.itemsize, ENTRY)
        file.pieces.read_into(start, memoryview(entries.view("u1")))
        if not self._check.are_possible(entries, file.size).all():
            file.pieces.discard(start, stop)
            return None
        self._whole[number] = entries
        return entries
