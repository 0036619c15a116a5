"""A file mapped into memory as a uint8 array."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

# mmap names it from Python 3.13 on. Without it the kernel would set swap aside for a private map
# and refuse one larger than memory.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)


def map_file(descriptor: int, size: int) -> np.ndarray[Any, Any]:
    """The first ``size`` bytes of an open file as an array, without reading them.

    The map is private: the array counts as writable, which DLPack asks for, and a write would
    change this process's copy only. It outlives ``descriptor`` and ends with the last array on it.
    """
    if size == 0:
        return np.empty(0, "u1")
    mapped = mmap.mmap(
        descriptor,
        size,
        flags=mmap.MAP_PRIVATE | _MAP_NORESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    return np.frombuffer(mapped, "u1")
