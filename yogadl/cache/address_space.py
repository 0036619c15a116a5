"""Many files mapped one behind the other, so that what reads one file reads all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.cache.mapping import MappedFile, ReservedRange, aligned_places

Array = np.ndarray[Any, Any]


class AddressSpace:
    """Files in one range of addresses, each mapped when it is first needed.

    Read-only; safe for threads and forks. What was not mapped yet is zeros. The range lives as long
    as the last array on it.

    Args:
        sizes: bytes of each file, int64 ``[n]``.
        map_file: maps the file of a number into the range, at an offset in it; safe for threads.

    Attributes:
        array: the whole range, uint8, not to be written to.
        bases: where in it each file begins, int64 ``[n]``.
    """

    def __init__(
        self, sizes: Array, map_file: Callable[[int, ReservedRange, int], MappedFile]
    ) -> None:
        self.bases, size = aligned_places(sizes)
        self._range = ReservedRange(size)
        self._map_file = map_file
        self._files: list[MappedFile | None] = [None] * len(sizes)
        self.array = self._range.array

    def file(self, number: int) -> MappedFile:
        """A file, mapped; it may be mapped elsewhere, too."""
        found = self._files[number]
        if found is None:
            # Two threads may map it to the same place, the one after the other: it is the same.
            found = self._map_file(number, self._range, int(self.bases[number]))
            self._files[number] = found
        return found

    def touch(self, number: int, start: int, end: int) -> None:
        """Maps a file, of which some bytes are about to be read."""
        self.file(number)
        self._range.will_need(np.array([start]), np.array([end]))

    def reach(self, start: int, end: int) -> None:
        """See ``Memory.reach``."""
        first, last = np.searchsorted(self.bases, [start, max(start, end - 1)], side="right") - 1
        for number in range(int(first), int(last) + 1):
            self.file(number)

    def is_cached(self, offset: int) -> bool:
        """See ``MappedFile.is_cached``."""
        if self._range.is_present(offset):
            return True
        number = int(np.searchsorted(self.bases, offset, side="right")) - 1
        return self.file(number).is_cached(offset - int(self.bases[number]))

    def will_need(self, starts: Array, ends: Array) -> None:
        """See ``MappedFile.will_need``."""
        self._range.will_need(starts, ends)

    def forget(self, start: int, end: int) -> None:
        """See ``MappedFile.forget``."""
        self._range.forget(start, end)
