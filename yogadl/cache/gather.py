"""Copying many pieces out of a buffer at once."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# NumPy has no larger dtype.
_LARGEST_ITEM = 2**31 - 1


# NumPy lets other threads run while it copies this many items, and not while it copies fewer.
_RELEASING_ITEMS = 512
# Copying less is over before another thread could make use of it.
_LONG_COPY = 256 << 10
# Rows below this are copied faster by way of a fresh array than one by one.
_SHORT_ROW = 1024
# Smaller items are copied more slowly.
_SMALLEST_PART = 4096


def gather(buffer: Array, offsets: Array, size: int, out: Array | None = None) -> Array:
    """Copies ``size`` bytes at each offset of a uint8 buffer, into uint8 ``[n, size]``.

    Every byte of the buffer is taken as the start of an item of ``size`` bytes, of which NumPy then
    copies some: measured against loops, ``take`` and other strides, the fastest at every size. Few
    large items are copied in several parts each, so that other Python threads can run meanwhile.

    Args:
        buffer: what to copy from.
        offsets: int64 ``[n]``.
        size: bytes of each item.
        out: a C-contiguous array of ``n * size`` bytes to copy into, instead of a fresh one.

    Raises:
        IndexError: an offset outside the buffer.
    """
    if out is not None and size >= _SHORT_ROW:
        rows = out.reshape(-1).view("u1").reshape(len(offsets), size)
        _copy_rows(buffer, offsets, size, rows)
        return rows
    if size > _LARGEST_ITEM:
        rows = np.empty((len(offsets), size), "u1")
        _copy_rows(buffer, offsets, size, rows)
        return rows
    if len(offsets) and int(offsets.min()) < 0:
        raise IndexError(f"byte {int(offsets.min())} of a buffer of {len(buffer)}")
    parts = _parts(len(offsets), size)
    item = size // parts
    items = max(len(buffer) - item + 1, 0)
    window = np.ndarray((items,), f"V{item}", buffer, strides=(1,))
    places = offsets if parts == 1 else offsets[:, None] + np.arange(parts) * item
    found: Array = window[places].view("u1").reshape(len(offsets), size)
    if out is None:
        return found
    rows = out.reshape(-1).view("u1").reshape(len(offsets), size)
    rows[:] = found
    return rows


def _copy_rows(buffer: Array, offsets: Array, size: int, rows: Array) -> None:
    for row, offset in zip(rows, offsets.tolist(), strict=True):
        if offset < 0 or offset + size > len(buffer):
            raise IndexError(f"bytes {offset} to {offset + size} of a buffer of {len(buffer)}")
        np.copyto(row, buffer[offset : offset + size])


def _parts(count: int, size: int) -> int:
    """In how many parts to copy each of ``count`` items."""
    if not 0 < count < _RELEASING_ITEMS or count * size < _LONG_COPY:
        return 1
    fewest = -(-_RELEASING_ITEMS // count)
    most = size // _SMALLEST_PART
    return next((parts for parts in range(fewest, most + 1) if size % parts == 0), 1)
