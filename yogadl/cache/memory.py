"""Memory that is freed and allocated again and again."""

from __future__ import annotations

import collections
import functools
import math
import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_ALIGNMENT = 64

LARGE_BYTES = 8 << 20
"""From so many on, an array of :func:`returning` is mapped by itself."""

_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)

# The largest block that the GNU C library lets move its thresholds.
_BLOCK = 31 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Has the C library keep up to 62 MiB of freed memory for the next allocations.

    To begin with, the GNU C library maps every block above 128 KiB anew, and gives memory back to
    the system as soon as 128 KiB lie free at the end of a heap; the system clears what it hands
    out, which takes longer than reading a record of that size. Both thresholds follow the largest
    mapped block that was ever freed (mallopt(3), ``M_MMAP_THRESHOLD``), so we free one, of which no
    page was touched. Where a user has set the thresholds, or with another C library, this does
    nothing.
    """
    np.empty(_BLOCK, "u1")


def private_memory(nbytes: int) -> mmap.mmap:
    """So many bytes, zero, which take memory when they are first written to, and give it back to
    the system when they are let go of."""
    return mmap.mmap(-1, nbytes, _PRIVATE)


def returning(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array like that of ``np.empty``, at a multiple of 64 bytes, whose memory the system has
    again when nobody has it any more, if it is large.

    The C library keeps freed blocks of up to 32 MiB in its heaps. There are several for the threads
    of a process, so of batches that are so large it would keep some in each.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE_BYTES:
        return MemoryPool().empty(shape, dtype)
    return np.frombuffer(private_memory(nbytes), dtype).reshape(shape)


class MemoryPool:
    """Memory for batches, used again when nobody has got the batch any more.

    For where the C library gives freed memory back at once, as TensorFlow has it do for the whole
    process when it reads from Python: fresh memory then costs more than the reading.

    Safe for threads, without locks, which a fork might find held. A copy or a pickle has memory of
    its own.

    Args:
        limit: how many unused pieces to keep of a size.
    """

    def __init__(self, limit: int = 16) -> None:
        self._limit = limit
        self._unused: dict[int, collections.deque[Array]] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array like that of ``np.empty``, at a multiple of 64 bytes.

        There, TensorFlow and JAX take it over without a copy.
        """
        size = math.prod(shape) * dtype.itemsize
        unused = self._unused.setdefault(size, collections.deque(maxlen=self._limit))
        try:
            memory = unused.pop()
        except IndexError:
            memory = np.empty(size + _ALIGNMENT, "u1")
        return np.asarray(_Loan(memory, size, unused)).view(dtype).reshape(shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._limit,)


class _Loan:
    """What an array and all its views keep alive: memory, which goes back when it goes."""

    def __init__(self, memory: Array, size: int, unused: collections.deque[Array]) -> None:
        self._memory, self._unused = memory, unused
        start = memory.ctypes.data
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (start + -start % _ALIGNMENT, False),
        }

    def __del__(self) -> None:
        self._unused.append(self._memory)
