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
# Rows below this are copied faster by way of a fresh array, of some that the processor keeps near,
# than one by one.
_SHORT_ROW = 12 << 10
_PIECE = 1 << 20
# Smaller items are copied more slowly.
_SMALLEST_PART = 4096
# The processor remembers where two or three thousand pages are; smaller items share theirs.
_PAGE = 4096
_MOST_PAGES = 2048
_TOUCHED_ITEM = 1024
# NumPy copies items of these sizes without calling a function for each, so that the processor waits
# for several of them at a time.
_WORDS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def gather(buffer: Array, offsets: Array, size: int, out: Array | None = None) -> Array:
    """Copies ``size`` bytes at each offset of a uint8 buffer, into uint8 ``[n, size]``.

    Every byte of the buffer is taken as the start of an item of ``size`` bytes, or every word where
    all items are words, and of these NumPy then copies some: measured against loops, ``take`` and
    other strides, the fastest at every size. Few large items are copied in several parts each, so
    that other Python threads can run meanwhile.

    Args:
        buffer: what to copy from.
        offsets: int64 ``[n]``.
        size: bytes of each item.
        out: a C-contiguous array of ``n * size`` bytes to copy into, instead of a fresh one.

    Raises:
        IndexError: an offset outside the buffer.
    """
    if out is not None:
        rows = out.reshape(-1).view("u1").reshape(len(offsets), size)
        if size >= _SHORT_ROW:
            _copy_rows(buffer, offsets, size, rows)
            return rows
        step = max(1, _PIECE // max(1, size))
        for start in range(0, len(offsets), step):
            rows[start : start + step] = gather(buffer, offsets[start : start + step], size)
        return rows
    if size > _LARGEST_ITEM:
        rows = np.empty((len(offsets), size), "u1")
        _copy_rows(buffer, offsets, size, rows)
        return rows
    bits = int(np.bitwise_or.reduce(offsets))
    if bits < 0:
        raise IndexError(f"byte {int(offsets.min())} of a buffer of {len(buffer)}")
    found: Array
    if size in _WORDS and bits % size == 0:
        items = buffer[: len(buffer) // size * size].view(_WORDS[size])
        found = items[offsets // size].view("u1")
    else:
        parts = _parts(len(offsets), size)
        item = size // parts
        items = np.ndarray((max(len(buffer) - item + 1, 0),), f"V{item}", buffer, strides=(1,))
        places = offsets if parts == 1 else offsets[:, None] + np.arange(parts) * item
        found = items[places].view("u1")
    return found.reshape(len(offsets), size)


class Toucher:
    """Has the processor find the pages of large items before they are copied.

    While it copies, it finds pages one after the other, as it comes to them. Where one byte of each
    is read, with nothing between, it looks for several at a time, which is worth up to a quarter of
    the time of copying, and makes up for that the records of many commits lie further apart than
    those of one file. What lies in memory in larger pages loses a few percent.

    Args:
        size: bytes of an item.
        first: the place in it of ``width`` bytes that are gathered before the others; 0 and 0 if
            there are none.
    """

    def __init__(self, size: int, first: int, width: int) -> None:
        self._size = size
        is_worth_it = _TOUCHED_ITEM <= size <= _MOST_PAGES * _PAGE
        places = np.arange(first % _PAGE, size if is_worth_it else 0, _PAGE)
        # That page the processor finds as fast when words are gathered from it.
        self._places = places[places != first] if width in _WORDS else places
        self._most = _MOST_PAGES // len(places) if len(self._places) else 0

    def touch(self, buffer: Array, offsets: Array) -> None:
        """Reads a byte of each page of some items, if they are large enough, and so few that their
        pages are not forgotten again before they are copied.

        Args:
            buffer, offsets: see :func:`gather`.

        Raises:
            IndexError: an offset outside the buffer.
        """
        count = len(offsets)
        if count <= self._most and count * self._size >= _LONG_COPY:
            # Lets other threads run: the system may have to read the pages.
            buffer.take((offsets[:, None] + self._places).reshape(-1))


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
