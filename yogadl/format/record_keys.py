"""The LMDB keys of records."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

KEY_DIGITS = 8

MOST_RECORDS = 10**KEY_DIGITS
"""Records of a file. Keys of more digits would sort between the shorter ones, so that the order of
keys, and with it that of the pages, would no longer be that of positions."""


def record_key(position: int) -> bytes:
    """The LMDB key of a record: its position in decimal, zero-padded to eight digits."""
    return b"%0*d" % (KEY_DIGITS, position)


def record_keys(positions: Array) -> Array:
    """The keys of positions, uint8 ``[n, 8]``."""
    powers = 10 ** np.arange(KEY_DIGITS - 1, -1, -1, dtype="<i8")
    digits: Array = positions[:, None] // powers % 10 + ord("0")
    return digits.astype("u1")
