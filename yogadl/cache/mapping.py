"""A file mapped into memory as a uint8 array."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np


def map_file(descriptor: int, size: int) -> np.ndarray[Any, Any]:
    """The first ``size`` bytes of an open file as an array, without reading them.

    The array is read-only. It outlives ``descriptor``; the map ends with the last array on it.
    """
    if size == 0:
        return np.empty(0, "u1")
    return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), "u1")
