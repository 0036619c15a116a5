"""Memory that is freed and allocated again and again."""

from __future__ import annotations

import functools

import numpy as np

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
