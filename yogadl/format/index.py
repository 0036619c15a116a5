"""The index: offset, length and checksum of every record, 16 bytes each.

Entries are checked in blocks when first used: opening must not depend on the number of records.
Files that are mapped one behind the other have one index, whose entries lie in each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl.errors import REPAIR, ChecksumError
from yogadl.format.entries import ENTRY, EntryCheck, marks_of
from yogadl.format.layout import RecordLayout

Array = np.ndarray[Any, Any]

BLOCK = 4096
"""Entries under one checksum."""

# To find the file of a position, as many times as there are files.
_BUCKETS = 4


def block_checksums(entries: Array) -> Array:
    """One XXH3-64 for every ``BLOCK`` entries, uint64."""
    raw = memoryview(np.ascontiguousarray(entries)).cast("B")
    step = BLOCK * ENTRY.itemsize
    sums = [xxhash.xxh3_64_intdigest(raw[at : at + step]) for at in range(0, len(raw), step)]
    return np.asarray(sums, "<u8")


def block_counts(counts: Any) -> Any:
    """Blocks of a file of so many records; also for arrays."""
    return -(-counts // BLOCK)


@dataclass(frozen=True)
class IndexedFiles:
    """Where some files lie in a buffer, in the order of positions; arrays int64 ``[n]``.

    Attributes:
        counts: records of each; at least 1, but where there is one file only.
        bases: the byte of the buffer that is its first.
        sizes: its bytes.
        entries: where its entries begin in it, a multiple of 16, as bases are.
        salts: what its entries are marked by, uint32 ``[n]``.
    """

    counts: Array
    bases: Array
    sizes: Array
    entries: Array
    salts: Array


class Index:
    """The entries of all records of some files, checked as they are used. Safe for threads.

    Args:
        buffer: in which the files lie, uint8.
        files: the files; also an attribute.
        checksums: one per block of each, as of :func:`block_checksums`; also an attribute.
        layout: of the records.
        alignment: what the offset of every content must be a multiple of.
        where: what to call in errors what a record is in, and its position there.
        touch: called before entries are read: with the number of the file, and their first byte in
            the buffer and the end of them.
    """

    def __init__(
        self,
        buffer: Array,
        files: IndexedFiles,
        checksums: Array,
        *,
        layout: RecordLayout,
        alignment: int,
        where: Callable[[int], tuple[str, int]],
        touch: Callable[[int, int, int], object],
    ) -> None:
        self._buffer = buffer
        self.files = files
        self.checksums = checksums
        self._possible = EntryCheck(layout, alignment)
        self._where = where
        self._touch = touch
        self._ends = np.cumsum(files.counts)
        self._firsts = self._ends - files.counts
        blocks = block_counts(files.counts)
        self._first_blocks = np.cumsum(blocks) - blocks
        # The buffer as entries, and the number in it of the entry of position 0, if a file had it.
        self._all = buffer[: len(buffer) // ENTRY.itemsize * ENTRY.itemsize].view(ENTRY)
        self._all_offsets = self._all["offset"].view("<i8")
        self._at = (files.bases + files.entries) // ENTRY.itemsize - self._firsts
        # NumPy takes as long to make an array of a number as to divide 32 others by it.
        self._even = np.array(_even(files.counts))
        self._buckets, self._shift = _buckets(self._ends)
        self._whole = self._entries_of(0) if len(files.counts) == 1 else None
        self._whole_offsets = None if self._whole is None else self._whole["offset"].view("<i8")
        self._checked = np.zeros(len(checksums), bool)
        self._all_checked = len(checksums) == 0

    def __len__(self) -> int:
        return int(self._ends[-1])

    def lookup(self, positions: Array) -> Array:
        """The entries of some records.

        Args:
            positions: int64 ``[n]``, each in ``[0, len(self))``; not checked here.

        Returns:
            ``ENTRY`` records ``[n]``, with offsets in the buffer; the caller may trust that they
            lie inside their file, where the format lets them begin, and are no shorter than the
            spec allows.

        Raises:
            ChecksumError: a block that is needed is damaged.
        """
        if self._whole is not None:
            self._check_whole(positions)
            return self._whole[positions]
        files, places = self._places(positions)
        entries: Array = self._all[places]
        entries["offset"] += self.files.bases[files].view("u8")
        return entries

    def offsets(self, positions: Array) -> Array:
        """The offsets alone, int64 ``[n]``, in a fraction of the time; see :meth:`lookup`."""
        if self._whole_offsets is not None:
            self._check_whole(positions)
            whole: Array = self._whole_offsets[positions]
            return whole
        files, places = self._places(positions)
        offsets: Array = self._all_offsets[places]
        offsets += self.files.bases[files]
        return offsets

    def marks(self, positions: Array) -> Array:
        """The marks of the entries of some records, uint32 ``[n]``; see :func:`marks_of`."""
        files = np.asarray(0) if self._whole is not None else self._files_of(positions)
        return marks_of(positions - self._firsts[files], self.files.salts[files])

    def _check_whole(self, positions: Array) -> None:
        """Checks what is needed of the only file."""
        if not self._all_checked:
            self._check(positions // BLOCK)

    def _places(self, positions: Array) -> tuple[Array, Array]:
        """The files of some records, and which entries of the buffer are theirs; checks these."""
        files = self._files_of(positions)
        if not self._all_checked:
            within = positions - self._firsts[files]
            self._check(self._first_blocks[files] + within // BLOCK)
        places: Array = self._at[files]
        places += positions
        return files, places

    def _files_of(self, positions: Array) -> Array:
        """The numbers of the files in which some records are, int64 ``[n]``."""
        if self._even:
            even: Array = positions // self._even
            return even
        files: Array = self._buckets[positions >> self._shift]
        while (beyond := positions >= self._ends[files]).any():
            files = files + beyond
        return files

    def _entries_of(self, file: int) -> Array:
        """All entries of a file, where they lie; offsets are in the file."""
        start = int(self.files.bases[file] + self.files.entries[file])
        size = int(self.files.counts[file]) * ENTRY.itemsize
        return self._buffer[start : start + size].view(ENTRY)

    def _check(self, blocks: Array) -> None:
        missing = blocks[~self._checked[blocks]]
        if len(missing) == 0:
            return
        for block in np.unique(missing).tolist():
            self._check_block(block)
        self._all_checked = bool(self._checked.all())

    def _check_block(self, block: int) -> None:
        file = int(np.searchsorted(self._first_blocks, block, side="right")) - 1
        first = (block - int(self._first_blocks[file])) * BLOCK
        count = min(BLOCK, int(self.files.counts[file]) - first)
        start = int(self.files.bases[file] + self.files.entries[file])
        start += first * ENTRY.itemsize
        stop = start + count * ENTRY.itemsize
        self._touch(file, start, stop)
        entries = self._buffer[start:stop].view(ENTRY)
        name, first = self._where(first + int(self._firsts[file]))
        if xxhash.xxh3_64_intdigest(entries) != int(self.checksums[block]):
            raise ChecksumError(
                f"{name} has a damaged index at records {first} to {first + count - 1}; {REPAIR}"
            )
        if not self._possible.are_possible(entries, int(self.files.sizes[file])).all():
            raise ChecksumError(
                f"{name} has an index with impossible entries (a record outside the file, of "
                f"another size than its spec has, or out of line) at records {first} to "
                f"{first + count - 1}; {REPAIR}"
            )
        self._checked[block] = True


def _even(counts: Array) -> int:
    """The records of every file if all have as many, and the last no more; else 0."""
    first = int(counts[0])
    are_even = (counts[:-1] == first).all() and counts[-1] <= first
    return first if are_even else 0


def _buckets(ends: Array) -> tuple[Array, int]:
    """By which a position's file is found without a search.

    Args:
        ends: the first position behind each file, ascending.

    Returns:
        For every run of ``2**shift`` positions, the file of the first of them; and ``shift``.
    """
    count = max(1, int(ends[-1]))
    shift = max(0, (count // (_BUCKETS * len(ends))).bit_length() - 1)
    starts = np.arange(0, count, 1 << shift)
    return np.searchsorted(ends, starts, side="right").clip(0, len(ends) - 1), shift
