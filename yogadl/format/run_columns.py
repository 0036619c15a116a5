"""Runs of the records of parts as a table stores them: three columns of small numbers.

Where many commits have replaced records here and there, every other run is the next few records of
one part, and those between are the next few of others. So a run says how far behind the one before
it, of the same part, it begins, and numbers take no more bytes than their neighbours need. That is
frame-of-reference and delta encoding, as column stores have it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.format.record_keys import MOST_RECORDS

Array = np.ndarray[Any, Any]

RUN = np.dtype([("part", "<u4"), ("first", "<u4"), ("count", "<u4")])
"""Records of a part that follow on one another: its number among those of its group, the first of
them, how many there are."""

BLOCK = 1024
"""Numbers that take the same number of bytes."""

_COLUMNS = 3
_LARGEST = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF}
_DTYPES = {width: np.dtype(f"<u{width}") for width in _LARGEST}


def encode(runs: Array) -> bytes:
    """What :func:`decode` reads.

    Args:
        runs: ``RUN`` ``[n]``, at least one, each of at least one record.
    """
    counts = runs["count"].astype("i8")
    behind = _Behind(runs["part"])
    steps = behind.differences(runs["first"].astype("i8"), counts)
    zigzag = (steps << 1) ^ (steps >> 63)
    return b"".join(map(_encode_numbers, (runs["part"], zigzag, counts - 1)))


def decode(data: Array, count: int) -> tuple[Array, Array]:
    """Some runs, and what stands behind them.

    Whether there are such parts, with as many records, is not checked.

    Args:
        data: uint8, which begins with them. It is longer than a fixed share of what is made of it.
        count: how many there are, at least one.

    Returns:
        ``RUN`` ``[count]``, and the rest of ``data``.

    Raises:
        ValueError: there are none of them, or none that could be.
    """
    if count * _COLUMNS > len(data):
        raise ValueError("too few bytes")
    parts, data = _decode_numbers(data, count)
    zigzag, data = _decode_numbers(data, count)
    counts, data = _decode_numbers(data, count)
    counts += 1
    firsts = _Behind(parts).firsts((zigzag >> 1) ^ -(zigzag & 1), counts)
    if firsts.min() < 0 or firsts.max() > MOST_RECORDS or counts.max() > MOST_RECORDS:
        raise ValueError("records that no part has")
    runs = np.empty(count, RUN)
    runs["part"], runs["first"], runs["count"] = parts, firsts, counts
    return runs, data


class _Behind:
    """Which of some runs come behind which, of the same part.

    Args:
        parts: of each run, ``[n]``.
    """

    def __init__(self, parts: Array) -> None:
        # NumPy sorts numbers of 16 bits by counting them.
        short = parts.astype("u2") if int(parts.max()) < 1 << 16 else parts
        self._order = np.argsort(short, kind="stable")
        found = short[self._order]
        self._begins = np.ones(len(parts), bool)
        np.not_equal(found[1:], found[:-1], out=self._begins[1:])

    def differences(self, firsts: Array, counts: Array) -> Array:
        """From the end of the run before, or from 0, to the first record; int64 ``[n]`` each."""
        ends = np.zeros(len(firsts), "i8")
        ends[1:] = (firsts + counts)[self._order[:-1]]
        ends[self._begins] = 0
        differences = firsts.copy()
        differences[self._order] -= ends
        return differences

    def firsts(self, differences: Array, counts: Array) -> Array:
        """The other way round."""
        ordered = counts[self._order]
        ends = np.cumsum(differences[self._order] + ordered)
        starts = np.flatnonzero(self._begins)
        before = ends[starts - 1]
        before[0] = 0
        ends -= np.repeat(before, np.diff(starts, append=len(ends)))
        firsts = np.empty(len(ends), "i8")
        firsts[self._order] = ends - ordered
        return firsts


def _encode_numbers(numbers: Array) -> bytes:
    starts = range(0, len(numbers), BLOCK)
    largest = np.maximum.reduceat(numbers, starts).tolist()
    widths = [min(width for width in _LARGEST if most <= _LARGEST[width]) for most in largest]
    blocks = (
        numbers[start : start + BLOCK].astype(_DTYPES[width]).tobytes()
        for start, width in zip(starts, widths, strict=True)
    )
    return bytes(widths) + b"".join(blocks)


def _decode_numbers(data: Array, count: int) -> tuple[Array, Array]:
    """int64 ``[count]``, and the rest of ``data``."""
    starts = range(0, count, BLOCK)
    widths, data = data[: len(starts)].tolist(), data[len(starts) :]
    if not _LARGEST.keys() >= set(widths):
        raise ValueError("numbers of impossible widths")
    numbers = np.empty(count, "i8")
    for start, width in zip(starts, widths, strict=True):
        stop = min(start + BLOCK, count)
        size = width * (stop - start)
        if size > len(data):
            raise ValueError("too few bytes")
        numbers[start:stop] = data[:size].view(_DTYPES[width])
        data = data[size:]
    return numbers, data
