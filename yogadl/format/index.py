"""The index: offset, length and checksum of every record, 16 bytes each.

Entries are checked in blocks when first used: opening must not depend on the number of records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xxhash

from yogadl.errors import REPAIR, ChecksumError
from yogadl.format.header import BODY_OFFSET
from yogadl.format.layout import INLINE_LIMIT, LEAD, RecordLayout
from yogadl.format.pages import PAGE_HEADER, PAGE_SIZE

Array = np.ndarray[Any, Any]

ENTRY = np.dtype([("offset", "<u8"), ("length", "<u4"), ("checksum", "<u4")])
"""File offset and length of the value, and the low half of the XXH3-64 of the content in it."""

BLOCK = 4096
"""Entries under one checksum."""


def block_checksums(entries: Array) -> Array:
    """One XXH3-64 for every ``BLOCK`` entries, uint64."""
    raw = memoryview(np.ascontiguousarray(entries)).cast("B")
    step = BLOCK * ENTRY.itemsize
    sums = [xxhash.xxh3_64_intdigest(raw[at : at + step]) for at in range(0, len(raw), step)]
    return np.asarray(sums, "<u8")


class Index:
    """The entries of an open file, checked as they are used. Safe for threads.

    Args:
        entries: of all records, as they lie in the file.
        checksums: one per block, as of :func:`block_checksums`.
        limit: file size; records end a page before it, if not earlier.
        layout: of the records.
        alignment: what the offset of every content must be a multiple of.
        name: what to call the file in errors.
        announce: called with the first entry and the end of those about to be read.
    """

    def __init__(
        self,
        entries: Array,
        checksums: Array,
        *,
        limit: int,
        layout: RecordLayout,
        alignment: int,
        name: str,
        announce: Callable[[int, int], None] | None = None,
    ) -> None:
        self._entries = entries
        self._checksums = checksums
        # Leaf pages come after all values, so that a whole page around a value is in the file.
        self._limit = limit - PAGE_SIZE
        self._value_size = layout.value_size
        self._smallest = layout.smallest_content
        self._alignment = alignment
        self._name = name
        self._announce = announce
        self._checked = np.zeros(len(checksums), bool)
        self._all_checked = len(checksums) == 0

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, positions: Array) -> Array:
        """The entries of some records.

        Args:
            positions: int64 ``[n]``, each in ``[0, len(self))``; not checked here.

        Returns:
            ``ENTRY`` records ``[n]``; the caller may trust that they lie inside the file, where the
            format lets them begin, and are no shorter than the spec allows.

        Raises:
            ChecksumError: a block that is needed is damaged.
        """
        if not self._all_checked:
            self._check(positions // BLOCK)
        return self._entries[positions]

    def _check(self, blocks: Array) -> None:
        missing = blocks[~self._checked[blocks]]
        if len(missing) == 0:
            return
        for block in np.unique(missing).tolist():
            self._check_block(block)
        self._all_checked = bool(self._checked.all())

    def _check_block(self, block: int) -> None:
        first = block * BLOCK
        entries = self._entries[first : first + BLOCK]
        if self._announce is not None:
            self._announce(first, first + len(entries))
        if xxhash.xxh3_64_intdigest(entries) != int(self._checksums[block]):
            raise ChecksumError(
                f"{self._name} has a damaged index at records {first} to "
                f"{first + len(entries) - 1}; {REPAIR}"
            )
        if not self._are_possible(entries["offset"], entries["length"]):
            raise ChecksumError(
                f"{self._name} has an index with impossible entries (a record outside the file, of "
                f"another size than its spec has, or out of line) at records {first} to "
                f"{first + len(entries) - 1}; {REPAIR}"
            )
        self._checked[block] = True

    def _are_possible(self, offsets: Array, lengths: Array) -> bool:
        """Whether values can lie there: all that readers of records rely on."""
        # In this order: a sum could wrap around where an offset is beyond the limit.
        if (
            (offsets < BODY_OFFSET).any()
            or (offsets > self._limit).any()
            or (offsets + lengths > self._limit).any()
        ):
            return False
        if self._value_size is not None:
            return bool((lengths == self._value_size).all()) and self._are_in_line(
                offsets, self._value_size > INLINE_LIMIT
            )
        large = lengths > INLINE_LIMIT
        contents = np.where(large, lengths - LEAD, lengths)
        return (
            bool((contents >= self._smallest).all())
            and self._are_in_line(offsets[large], True)
            and self._are_in_line(offsets[~large], False)
        )

    def _are_in_line(self, offsets: Array, large: bool) -> bool:
        """Whether values begin where they must: large ones on pages of their own."""
        if large:
            return bool((offsets % PAGE_SIZE == PAGE_HEADER).all())
        return bool((offsets % self._alignment == 0).all())
