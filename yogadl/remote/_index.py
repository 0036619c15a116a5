"""The index of a version that is read from afar: fetched where it is needed, in small pieces.

Of a piece, nothing says whether it is what was written but the records that its entries lead to:
their checksums are marked by the file and by the position in it. So an entry that was damaged, or
is of another record or file, is found when its record is read, and fetched again. What is said of
records that are not read has to be right by itself: tokens follow from whole blocks of entries,
which are compared with their checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl.format.entries import ENTRY, EntryCheck, marks_of
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.right_bytes import WrongBytesError, right_bytes
from yogadl.remote._fetching.work import Range
from yogadl.remote._files import RemoteFiles
from yogadl.remote._local.sparse_file import CELL

Array = np.ndarray[Any, Any]

BRIDGED_CELLS = 2
"""Cells that are fetched although they are not needed: a request costs more than they do."""

# Of indexes that are not larger, what was read stays in memory.
_MOST_IN_MEMORY = 64 << 20
# Read into memory at once, if it is on this machine.
_WINDOW = 64 << 10
# Windows that meet are read together, to so many bytes: while much is being fetched, each call of
# the system takes a thread milliseconds.
_MOST_TOGETHER = 1 << 20
# More than the cells of any file.
_FILE_KEYS = 1 << 36


class DamagedIndexError(Exception):
    """The index of the record at ``position``, and of others, cannot be what was written."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class _Piece:
    """Entries that follow on one another.

    Attributes:
        number: of their file.
        first: the position in it of the first of them.
        where: they are.
        wanted: which of the records that were asked for have their entries here.
    """

    number: int
    first: int
    where: Range
    wanted: Array


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
        self._is_small = files.record_count * ENTRY.itemsize <= _MOST_IN_MEMORY
        count = files.record_count if self._is_small else 0
        self._entries = np.empty(count, ENTRY)
        self._is_known = np.zeros(count, bool)

    def look_up(self, positions: Array) -> tuple[Array, Array]:
        """Where some records are, if nothing is damaged.

        Returns:
            The numbers of their files, int64 ``[n]``, and their ``ENTRY`` ``[n]``, which say where
            values can be, with the checksums of the contents alone.

        Raises:
            DamagedIndexError: it cannot be what was written.
            YogadlError: it cannot be read.
        """
        numbers, places = self._files.find(positions)
        if not self._is_small:
            entries = np.empty(len(positions), ENTRY)
            for piece, found in self._load(positions, numbers, places):
                entries[piece.wanted] = found[places[piece.wanted] - piece.first]
        else:
            slots = self._files.slots(numbers, places)
            lacking = ~self._is_known[slots]
            if lacking.any():
                self._remember(positions[lacking], numbers[lacking], places[lacking])
            entries = self._entries[slots]
        entries["checksum"] ^= marks_of(places, self._files.salts[numbers])
        return numbers, entries

    def _remember(self, positions: Array, numbers: Array, places: Array) -> None:
        for piece, found in self._load(positions, numbers, places):
            first = self._files.slot(piece.number, piece.first)
            self._entries[first : first + len(found)] = found
            self._is_known[first : first + len(found)] = True

    def forget(self, positions: Array) -> None:
        """Has the entries of some records fetched again, since they led to none.

        Raises:
            FileSystemError: see ``SparseFile.discard``.
        """
        numbers, places = self._files.find(positions)
        for piece in self._pieces(numbers, places, has_windows=False):
            _, start, stop = piece.where
            fetcher().discard([piece.where])
            if self._is_small:
                first = self._files.slot(piece.number, piece.first)
                self._is_known[first : first + (stop - start) // ENTRY.itemsize] = False

    def ranges(self, positions: Array) -> list[Range]:
        """What has to be here before some entries can be used; not what is in memory."""
        numbers, places = self._files.find(positions)
        if self._is_small:
            lacking = ~self._is_known[self._files.slots(numbers, places)]
            if not lacking.any():
                return []
            numbers, places = numbers[lacking], places[lacking]
        return [piece.where for piece in self._pieces(numbers, places, has_windows=False)]

    def verified(self, positions: Array) -> Array:
        """The entries of some records out of blocks that are what was written.

        Returns:
            Their ``ENTRY`` ``[n]``, with the checksums of the contents alone.

        Raises:
            DamagedIndexError: it is damaged.
            YogadlError: it cannot be read.
        """
        if self._checksums is None:
            self._checksums = self._read_checksums()
        entries = np.empty(len(positions), ENTRY)
        for group in self._files.in_groups(positions):
            entries[group] = self._verified(positions[group], self._checksums)
        return entries

    def _verified(self, positions: Array, all_checksums: Array) -> Array:
        """See :meth:`verified`; of records whose files may be open together."""
        numbers, places = self._files.find(positions)
        blocks = self._files.blocks(numbers, places)
        wanted = np.unique(blocks).tolist()
        checksums = all_checksums[wanted]
        found_at = [self._files.block(block) for block in wanted]

        def is_right(number: int, data: Array) -> bool:
            return bool(xxhash.xxh3_64_intdigest(data) == checksums[number])

        entries = np.empty(len(positions), ENTRY)
        try:
            for number, data in right_bytes([where for _, where in found_at], is_right):
                chosen = blocks == wanted[number]
                first, _ = found_at[number]
                entries[chosen] = data.view(ENTRY)[places[chosen] - first]
        except WrongBytesError as error:
            chosen = blocks == wanted[error.number]
            raise DamagedIndexError(int(positions[chosen].min())) from error
        entries["checksum"] ^= marks_of(places, self._files.salts[numbers])
        return entries

    def _load(
        self, positions: Array, numbers: Array, places: Array
    ) -> Iterator[tuple[_Piece, Array]]:
        """The pieces in which the entries of some records are, and all ``ENTRY`` of each."""
        pieces = self._pieces(numbers, places, has_windows=self._is_small)
        wrong: dict[int, int] = {}

        def is_right(at: int, data: Array) -> bool:
            possible = self._check.are_possible(data.view(ENTRY), pieces[at].where[0].size)
            wrong[at] = pieces[at].first + int(np.argmin(possible))
            return bool(possible.all())

        try:
            for at, data in right_bytes([piece.where for piece in pieces], is_right):
                yield pieces[at], data.view(ENTRY)
        except WrongBytesError as error:
            wanted = pieces[error.number].wanted
            nearest = np.abs(places[wanted] - wrong[error.number]).argmin()
            raise DamagedIndexError(int(positions[wanted[nearest]])) from error

    def _pieces(self, numbers: Array, places: Array, has_windows: bool) -> list[_Piece]:
        """Whole cells of the index in which some entries are; those that are near are one piece.

        Args:
            numbers, places: of the files, and the positions in these, int64 ``[n]``.
            has_windows: make pieces larger by what is on this machine around them.
        """
        keys = numbers * _FILE_KEYS + self._files.offsets(numbers, places) // CELL
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        breaks = np.flatnonzero(np.diff(sorted_keys) > 1 + BRIDGED_CELLS) + 1
        pieces: list[_Piece] = []
        for near in np.split(order, breaks) if len(order) else ():
            wanted = near
            number = int(numbers[wanted[0]])
            start = int(keys[wanted[0]]) % _FILE_KEYS * CELL
            stop = (int(keys[wanted[-1]]) % _FILE_KEYS + 1) * CELL
            file, first, last = self._files.entries_within(number, start, stop)
            if has_windows:
                around = self._files.entries_within(
                    number, start // _WINDOW * _WINDOW, -(-stop // _WINDOW) * _WINDOW
                )
                if file.pieces.is_kept(*around[1:]):
                    _, first, last = around
                before = pieces[-1] if pieces else None
                if before is not None and before.number == number:
                    _, begin, end = before.where
                    if first <= end and last - begin <= _MOST_TOGETHER:
                        pieces.pop()
                        first, last = begin, max(end, last)
                        wanted = np.concatenate((before.wanted, wanted))
            place = (first - int(self._files.entries[number])) // ENTRY.itemsize
            pieces.append(_Piece(number, place, (file, first, last), wanted))
        return pieces
