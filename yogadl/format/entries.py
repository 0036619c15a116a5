"""What index entries can be: checked before anything is read where they say."""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.format.header import BODY_OFFSET
from yogadl.format.layout import INLINE_LIMIT, LEAD, RecordLayout
from yogadl.format.pages import PAGE_HEADER, PAGE_SIZE

Array = np.ndarray[Any, Any]

ENTRY = np.dtype([("offset", "<u8"), ("length", "<u4"), ("checksum", "<u4")])
"""File offset and length of the value; checksum of the content in it, marked as its own."""

# Odd, so that no two entries of a file are marked alike.
_MARK = np.uint32(0x9E3779B1)


def salt_of(token_sum: Any) -> Any:
    """What the entries of a file are marked by: the low half of its first token sum, uint32.

    Args:
        token_sum: a number, or uint64 ``[n]`` of as many files.
    """
    return np.asarray(token_sum).astype("u8").astype("u4")


def marks_of(places: Array, salts: Array) -> Array:
    """What the checksums of contents and those in entries differ by (exclusive or), uint32 ``[n]``.

    So an entry that stands where another belongs, of its file or of another, is found by the record
    that it leads to.

    Args:
        places: the positions of the records in their files, int64 ``[n]``.
        salts: of these files, see :func:`salt_of`; uint32 ``[n]``, or of no dimension.
    """
    marks: Array = places.astype("u4") * _MARK + salts
    return marks


class EntryCheck:
    """Whether values can lie where entries say: all that readers of records rely on.

    Args:
        layout: of the records.
        alignment: what the offset of every content must be a multiple of.
    """

    def __init__(self, layout: RecordLayout, alignment: int) -> None:
        self._value_size = layout.value_size
        self._smallest = layout.smallest_content
        self._alignment = alignment

    def are_possible(self, entries: Array, file_sizes: Any) -> Array:
        """Of each entry: does it lie inside its file, where the format lets values begin, and is it
        as long as the spec has it, or no shorter than it allows?

        Args:
            entries: ``ENTRY`` ``[n]``, with offsets in their files.
            file_sizes: bytes of the file, or of each, int64 ``[n]``.

        Returns:
            bool ``[n]``.
        """
        offsets, lengths = entries["offset"], entries["length"]
        # Leaf pages come after all values, so that a whole page around a value is in the file.
        limits = np.asarray(file_sizes - PAGE_SIZE).astype("u8")
        # A sum could wrap around where an offset is beyond the limit.
        are_inside = (offsets >= BODY_OFFSET) & (offsets <= limits)
        are_inside &= np.where(are_inside, offsets, 0) + lengths <= limits
        if self._value_size is not None:
            are_long_enough = lengths == self._value_size
        else:
            contents = np.where(lengths > INLINE_LIMIT, lengths - LEAD, lengths)
            are_long_enough = contents >= self._smallest
        # Large values begin on pages of their own.
        are_in_line: Array = np.where(
            lengths > INLINE_LIMIT,
            offsets % PAGE_SIZE == PAGE_HEADER,
            offsets % self._alignment == 0,
        )
        possible: Array = are_inside & are_long_enough & are_in_line
        return possible
