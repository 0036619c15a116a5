"""A file mapped into memory, and what the system is told about how it will be read."""

from __future__ import annotations

import enum
import mmap
import os
import weakref
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# One call reads ahead no more than the device's limits allow, of which this is a low one.
_LARGEST_CALL = 256 << 10
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)


class Access(enum.Enum):
    """How the system should expect a file to be read, where nobody announces what comes next.

    ``RANDOM`` reads just the pages that are touched, ``SEQUENTIAL`` far ahead of them, and
    ``NORMAL`` around them as it is set up to.
    """

    RANDOM = "random"
    SEQUENTIAL = "sequential"
    NORMAL = "normal"


_ADVICE = {
    Access.RANDOM: mmap.MADV_RANDOM,
    Access.SEQUENTIAL: mmap.MADV_SEQUENTIAL,
    Access.NORMAL: mmap.MADV_NORMAL,
}


class MappedFile:
    """An open file in memory. Read-only; safe for threads and forks.

    The map lives as long as the last array on it; the descriptor, which only serves to ask what is
    in the page cache, as long as this object.

    Attributes:
        array: the whole file, uint8.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._map: mmap.mmap | None = None
        if size == 0:
            self.array: Array = np.empty(0, "u1")
            return
        self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        self.array = np.frombuffer(self._map, "u1")
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def expect(self, access: Access) -> None:
        """Tells the system how the file will be read where that is not announced."""
        if self._map is not None:
            self._map.madvise(_ADVICE[access])

    def is_cached(self, offset: int) -> bool:
        """Whether the byte at an offset is in the page cache; ``False`` where that is not known."""
        if not _NO_WAIT:
            return False
        try:
            return os.preadv(self._descriptor, [bytearray(1)], offset, _NO_WAIT) == 1
        except OSError:
            # It is not, or the file system cannot tell.
            return False

    def will_need(self, starts: Array, ends: Array) -> None:
        """Has the system read some byte ranges into the page cache, without waiting for them.

        Args:
            starts, ends: int64 ``[n]`` each, inside the file.
        """
        assert self._map is not None
        for start, end in zip(*_page_ranges(starts, ends), strict=True):
            for at in range(start, end, _LARGEST_CALL):
                self._map.madvise(mmap.MADV_WILLNEED, at, min(_LARGEST_CALL, end - at))

    def forget(self, start: int, end: int) -> None:
        """Takes whole pages between two offsets out of this process's memory.

        They stay in the page cache, and come back when they are touched.
        """
        first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
        if self._map is not None and first < last:
            length = (last - first) * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, length)


def _page_ranges(starts: Array, ends: Array) -> tuple[list[int], list[int]]:
    """Byte ranges widened to whole pages, in ascending order, those that touch made one."""
    order = np.argsort(starts)
    first = starts[order] // mmap.PAGESIZE
    last = np.maximum.accumulate(-(-ends[order] // mmap.PAGESIZE))
    begins = np.ones(len(first), bool)
    begins[1:] = first[1:] > last[:-1]
    heads = np.flatnonzero(begins)
    tails = np.append(heads[1:], len(first))[: len(heads)] - 1
    return (first[heads] * mmap.PAGESIZE).tolist(), (last[tails] * mmap.PAGESIZE).tolist()
