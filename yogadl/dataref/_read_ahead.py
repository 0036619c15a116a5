"""Reading ahead by the known order: what comes next is told to the system before it is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.cache.machine import machine_bytes
from yogadl.cache.record_reader import RecordReader
from yogadl.format.pages import PAGE_SIZE
from yogadl.orders import Order

Array = np.ndarray[Any, Any]

DEFAULT_WINDOW = 64 << 20
"""Bytes that are announced beyond the record being read."""

# How often it is seen whether other processes of this machine read the other shards, at first and
# later on.
_LOOK_SECONDS, _LATER_LOOK_SECONDS = 0.05, 0.5
_SAMPLES = 8
# By multiples of which they are moved, less whole numbers: no two are moved alike.
_GOLDEN = 0.618
# Pieces that are announced without looking, after one was found missing from the page cache.
_TRUST = 8
_LEAST_KEPT = 128 << 20


def kept_bytes() -> int:
    """What is read in order, and is no more than this, stays in the process's memory.

    For pages to come back from the page cache takes as long as to read them. An eighth of the
    machine's memory hinders nobody: what is in the page cache is there for all processes.
    """
    return max(_LEAST_KEPT, machine_bytes() // 8)


def announced_together(
    reader: RecordReader, window: int = DEFAULT_WINDOW, in_order: bool = False
) -> int:
    """How many records are announced at a time.

    Args:
        reader: of them.
        window: as of :class:`ReadAhead`.
        in_order: all of them are read, one after the other.
    """
    # What is read together with a small record is a page.
    size = max(reader.bytes_in_order if in_order else reader.record_bytes, PAGE_SIZE)
    # What comes from afar may have to be in memory until it is read.
    pieces = 4 if reader.is_far else 2
    return max(1, (window or DEFAULT_WINDOW) // pieces // size)


class ReadAhead:
    """Announces the records of one epoch, piece by piece, and forgets what was read in order if it
    is much.

    Announcing costs a system call per record, so it is left out where the page cache has a sample
    of the records. Safe for threads: one may do more or less than its share, which costs time only.

    Args:
        reader: of the cache file.
        order: the order of the stream.
        positions: the positions in the data set of a range of the epoch's records.
        start: the first record that will be read.
        window: bytes to announce beyond the record being read; 0 for none.

    Attributes:
        at: the record that was last about to be read.
    """

    def __init__(
        self,
        reader: RecordReader,
        order: Order,
        positions: Callable[[int, int], Array],
        start: int,
        window: int,
    ) -> None:
        self._reader = reader
        self._positions = positions
        nbytes = reader.record_bytes * len(reader) // order.num_shards
        self._forgets = not order.shuffle and nbytes > kept_bytes()
        self._announces = window > 0
        self._window = window
        self._in_order = not order.shuffle and order.num_shards == 1
        self._piece = self._piece_now()
        self.at = start
        self._announced = start
        self._forgotten = start
        self._trusted = 0
        # The system reads ahead by itself what is read from the beginning, and no bucket does.
        is_for_whole = order.shuffle or (reader.is_far and not start)
        self._shard = order.num_shards, order.shard_rank
        may_be_whole = self._announces and is_for_whole
        answer = reader.is_read_whole(*self._shard) if may_be_whole else False
        self._whole = bool(answer)
        # Others may still begin to read the rest on this machine.
        self._may_become_whole = may_be_whole and reader.is_far and not answer
        self._is_settling = answer is None
        self._next_look = time.monotonic() + _LOOK_SECONDS

    def before(self, at: int, stop: int | None = None) -> None:
        """Announces the epoch's records ``at … stop-1``, about to be read, and what comes soon.

        Args:
            at: the first of them.
            stop: by default, it is one record.
        """
        self.at = at
        if self._may_become_whole and time.monotonic() >= self._next_look:
            self._look_for_others()
        stop = at + 1 if stop is None else stop
        # What is asked for by itself need not be if all is, which may turn out soon.
        while self._announced < (stop if self._is_settling else stop + self._piece):
            start = self._announced
            self._announced = stop if self._is_settling else start + self._piece
            if self._announces:
                self._announce(start, self._announced)
                self._look_whether_here()
        # Other threads may still be reading a little behind.
        if self._forgets and at - self._forgotten >= 2 * self._piece:
            start, self._forgotten = self._forgotten, at - self._piece
            first, last = self._positions(start, start + 1), self._positions(at - self._piece, at)
            self._reader.forget(int(first[0]), int(last[0]) + 1)

    def _look_whether_here(self) -> None:
        """Of what is fetched, more are announced together once all of it is here; and then it has
        just been written, so that it may be in the page cache."""
        piece = self._piece_now()
        if piece != self._piece:
            self._piece, self._trusted = piece, 0

    def _look_for_others(self) -> None:
        answer = self._reader.is_read_whole(*self._shard)
        self._is_settling = answer is None
        seconds = _LOOK_SECONDS if self._is_settling else _LATER_LOOK_SECONDS
        self._next_look = time.monotonic() + seconds
        if answer:
            self._may_become_whole = False
            self._reader.announce(range(len(self._reader)))

    def _piece_now(self) -> int:
        return announced_together(self._reader, self._window, self._in_order)

    def _announce(self, start: int, stop: int) -> None:
        positions = self._positions(start, stop)
        if not len(positions):
            return
        if self._trusted:
            self._trusted -= 1
        elif self._reader.are_cached(_sample(positions)):
            if self._whole and self._reader.is_far:
                # What is between the records, too: all of it is read faster than all of them.
                self._whole = False
                self._reader.announce(range(len(self._reader)))
            return
        elif self._whole:
            self._whole = False
            self._reader.announce(range(len(self._reader)))
            if not self._reader.is_far:
                return
        else:
            self._trusted = _TRUST
        self._reader.announce(positions)


def _sample(positions: Array) -> Array:
    """Some of them, at distances that differ: records of two kinds may take turns."""
    step = -(-len(positions) // _SAMPLES)
    at = np.arange(0, len(positions), step)
    at += (np.arange(len(at)) * _GOLDEN % 1 * step).astype(at.dtype)
    chosen: Array = positions[np.minimum(at, len(positions) - 1)]
    return chosen
