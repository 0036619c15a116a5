"""The index of a version that is read from afar: fetched where it is needed, in small pieces.

Of a piece, nothing says whether it is what was written but the records that its entries lead to:
their checksums are of their contents and of their positions in their file. So an entry that was
damaged, or is another's, is found when its record is read, and fetched again. What is said of
records that are not read has to be right by itself: tokens follow from whole blocks of entries,
which are compared with their checksums.

Of each file, the header is compared with what its table says of it, before its entries are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl.format.entries import ENTRY, EntryCheck, mark_positions
from yogadl.format.header import BODY_OFFSET, HEADER_OFFSET
from yogadl.remote._files import RemoteFiles
from yogadl.remote._right import WrongBytesError, right_bytes
from yogadl.remote._sparse_file import CELL
from yogadl.remote._work import Range

Array = np.ndarray[Any, Any]

BRIDGED_CELLS = 2
"""Cells that are fetched although they are not needed: a request costs more than they do."""

# Of indexes that are not larger, what was read stays in memory.
_MOST_IN_MEMORY = 64 << 20
# Read into memory at once, if it is on this machine.
_WINDOW = 64 << 10
# More than the cells of any file.
_FILE_KEYS = 1 << 36


class DamagedIndexError(Exception):
    """The index, from the record at ``position`` on, cannot be what was written."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class DamagedFileError(Exception):
    """The file of a number is not the one that it should be."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


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
        is_header: whether bytes 8192 to 12287 of the file of a number are as they should be;
            ``None`` if that is known of all.
    """

    def __init__(
        self,
        files: RemoteFiles,
        check: EntryCheck,
        checksums: Callable[[], Array],
        is_header: Callable[[int, Array], bool] | None,
    ) -> None:
        self._files = files
        self._check = check
        self._read_checksums = checksums
        self._checksums: Array | None = None
        self._is_header = is_header
        self._is_known_file = np.full(len(files), is_header is None)
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
            DamagedFileError, DamagedIndexError: it cannot be what was written.
            YogadlError: it cannot be read.
        """
        numbers, places = self._files.find(positions)
        if not self._is_small:
            entries = np.empty(len(positions), ENTRY)
            for piece, found in self._load(numbers, places):
                entries[piece.wanted] = found[places[piece.wanted] - piece.first]
        else:
            lacking = ~self._is_known[positions]
            if lacking.any():
                self._remember(numbers[lacking], places[lacking])
            entries = self._entries[positions]
        mark_positions(entries["checksum"], places)
        return numbers, entries

    def _remember(self, numbers: Array, places: Array) -> None:
        for piece, found in self._load(numbers, places):
            first = self._files.position(piece.number, piece.first)
            self._entries[first : first + len(found)] = found
            self._is_known[first : first + len(found)] = True

    def forget(self, positions: Array) -> None:
        """Has the entries of some records fetched again, since they led to none.

        Raises:
            FileSystemError: see ``SparseFile.discard``.
        """
        numbers, places = self._files.find(positions)
        for piece in self._pieces(numbers, places, has_windows=False):
            file, start, stop = piece.where
            file.pieces.discard(start, stop)
            if self._is_small:
                first = self._files.position(piece.number, piece.first)
                self._is_known[first : first + (stop - start) // ENTRY.itemsize] = False

    def ranges(self, positions: Array) -> list[Range]:
        """What has to be here before some entries can be used; not what is in memory."""
        numbers, places = self._files.find(positions)
        if self._is_small:
            lacking = ~self._is_known[positions]
            if not lacking.any():
                return []
            numbers, places = numbers[lacking], places[lacking]
        pieces = self._pieces(numbers, places, has_windows=False)
        return [*self._headers(numbers)[1], *(piece.where for piece in pieces)]

    def verified(self, positions: Array) -> tuple[Array, Array]:
        """The entries of some records out of blocks that are what was written.

        Returns:
            Their ``ENTRY`` ``[n]``, as they are stored, and their positions in their files, int64
            ``[n]``.

        Raises:
            DamagedFileError, DamagedIndexError: it is damaged.
            YogadlError: it cannot be read.
        """
        numbers, places = self._files.find(positions)
        blocks = self._files.blocks(numbers, places)
        wanted = np.unique(blocks).tolist()
        if self._checksums is None:
            self._checksums = self._read_checksums()
        checksums = self._checksums[wanted]
        found_at = [self._files.block(block) for block in wanted]

        def is_right(number: int, data: Array) -> bool:
            return bool(xxhash.xxh3_64_intdigest(data) == checksums[number])

        entries = np.empty(len(positions), ENTRY)
        try:
            for number, data in right_bytes([where for _, where in found_at], is_right):
                chosen = blocks == wanted[number]
                first, _ = found_at[number]
                entries[chosen] = data.view(ENTRY)[positions[chosen] - first]
        except WrongBytesError as error:
            raise DamagedIndexError(found_at[error.number][0]) from error
        return entries, places

    def _load(self, numbers: Array, places: Array) -> Iterator[tuple[_Piece, Array]]:
        """The pieces in which some entries are, and all ``ENTRY`` of each."""
        pieces = self._pieces(numbers, places, has_windows=self._is_small)
        files, headers = self._headers(numbers)

        def is_right(at: int, data: Array) -> bool:
            if at < len(files):
                assert self._is_header is not None
                return self._is_header(files[at], data)
            entries, size = data.view(ENTRY), pieces[at - len(files)].where[0].size
            return bool(self._check.are_possible(entries, size).all())

        try:
            wanted = [*headers, *(piece.where for piece in pieces)]
            for at, data in right_bytes(wanted, is_right):
                if at < len(files):
                    self._is_known_file[files[at]] = True
                else:
                    yield pieces[at - len(files)], data.view(ENTRY)
        except WrongBytesError as error:
            if error.number < len(files):
                raise DamagedFileError(files[error.number]) from error
            piece = pieces[error.number - len(files)]
            raise DamagedIndexError(self._files.position(piece.number, piece.first)) from error

    def _headers(self, numbers: Array) -> tuple[list[int], list[Range]]:
        """Which of some files were not compared yet with what they should be, and what of them is
        needed for that."""
        unknown = np.unique(numbers[~self._is_known_file[numbers]]).tolist()
        return unknown, [(self._files.file(it), HEADER_OFFSET, BODY_OFFSET) for it in unknown]

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
        pieces = []
        for wanted in np.split(order, breaks) if len(order) else ():
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
            place = (first - int(self._files.entries[number])) // ENTRY.itemsize
            pieces.append(_Piece(number, place, (file, first, last), wanted))
        return pieces
