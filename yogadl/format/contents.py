"""The contents of many records at once, in pieces that lie where they were.

So what varies in length is copied once: from where the caller has it into the pages of the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Piece = Any
"""A contiguous buffer of bytes."""


class Packed:
    """Values of one component of some records, each a run of bytes in one buffer. Immutable.

    Args:
        buffer: uint8 ``[m]``, contiguous.
        starts, sizes: bytes, int64 ``[n]`` each, inside the buffer.
    """

    def __init__(self, buffer: Array, starts: Array, sizes: Array) -> None:
        self._buffer = buffer
        self._starts = starts
        self.sizes = sizes

    @classmethod
    def between(cls, buffer: Array, offsets: Array) -> Packed:
        """Values that lie one behind the other.

        Args:
            buffer: uint8 ``[m]``, contiguous.
            offsets: where each begins and the last one ends, bytes, int64 ``[n + 1]``.
        """
        return cls(buffer, offsets[:-1], np.diff(offsets))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, part: slice) -> Packed:
        return Packed(self._buffer, self._starts[part], self.sizes[part])

    def pieces(self) -> list[Piece]:
        """The bytes of each value, which are not copied."""
        view = memoryview(self._buffer)
        starts = self._starts.tolist()
        ends = (self._starts + self.sizes).tolist()
        return [view[start:end] for start, end in zip(starts, ends, strict=True)]


class Pieces:
    """The same with each value in a buffer of its own."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self.sizes: Array = np.fromiter(map(len, pieces), "i8", len(pieces))

    def pieces(self) -> Sequence[Piece]:
        return self._pieces


@dataclass(frozen=True)
class Contents:
    """The contents of some records.

    Attributes:
        sizes: of the contents, bytes, int64 ``[n]``; multiples of 8.
        columns: of pieces, ``n`` in each: a content is its piece of every column, joined.
    """

    sizes: Array
    columns: Sequence[Sequence[Piece]]

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, part: slice) -> Contents:
        return Contents(self.sizes[part], [column[part] for column in self.columns])

    def selected(self, wanted: Array) -> Contents:
        """Those of some records, bool ``[n]``."""
        if wanted.all():
            return self
        chosen = wanted.tolist()
        columns = [list(itertools.compress(column, chosen)) for column in self.columns]
        return Contents(self.sizes[wanted], columns)

    def each(self) -> Iterator[bytes]:
        """One content after the other."""
        return map(b"".join, zip(*self.columns, strict=True))

    def between(self, before: Sequence[Piece], after: Sequence[Piece]) -> bytes:
        """All contents in one, each behind its piece of ``before`` and before that of ``after``."""
        rows = zip(before, *self.columns, after, strict=True)
        return b"".join(itertools.chain.from_iterable(rows))


def whole(contents: Sequence[bytes]) -> Contents:
    """Contents that are in one piece each."""
    return Contents(np.fromiter(map(len, contents), "i8", len(contents)), [contents])
