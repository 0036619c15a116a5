"""The LMDB keys of records, and how they sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

KEY_DIGITS = 8


def record_key(position: int, digits: int = KEY_DIGITS) -> bytes:
    """The LMDB key of a record: its position in decimal, zero-padded to eight digits."""
    return b"%0*d" % (digits, position)


def record_keys(positions: Array, width: int) -> Array:
    """The keys of positions that all have ``width`` digits or fewer, uint8 ``[n, width]``."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype="<i8")
    digits: Array = positions[:, None] // powers % 10 + ord("0")
    return digits.astype("u1")


def key_order(count: int, digits: int) -> Iterator[Array]:
    """The positions ``0 … count-1`` in the order of their keys, in parts.

    Keys of ``digits`` digits and more are compared as byte strings: by their first three digits,
    one part each, then within the part.
    """
    lead = min(3, digits)
    widest = max(digits, len(str(count - 1)))
    for prefix in range(10**lead):
        runs = []
        for width in range(digits, widest + 1):
            scale = 10 ** (width - lead)
            start = prefix * scale
            if width > digits:
                start = max(start, 10 ** (width - 1))
            positions = np.arange(start, min((prefix + 1) * scale, count))
            runs.append((positions, positions * 10 ** (widest - width), width))
        joined = np.concatenate([positions for positions, _, _ in runs])
        scaled = np.concatenate([keys for _, keys, _ in runs])
        widths = np.concatenate([np.full(len(keys), width) for _, keys, width in runs])
        yield joined[np.lexsort((widths, scaled))]
