"""How far a reader of a stream has got."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")


class Cursor:
    """The place in an epoch of one iterator.

    Safe for threads: one may see a place that another has just left.

    Attributes:
        epoch: which epoch.
        is_finished: whether the iterator has ended, or has nothing more to give out.
    """

    def __init__(self, epoch: int, start: int) -> None:
        self.epoch = epoch
        self._has_ended = False
        # Behind it, all is left out.
        self._last = -1
        self._chunk = (start, start, 1, itertools.repeat(True, 0))

    def following(self, items: Iterator[Item], start: int, stop: int, unit: int) -> Iterator[Item]:
        """The same items, each of which moves the cursor on when it is taken.

        Args:
            items: of ``unit`` records each; the last may have fewer.
            start, stop: the numbers of the records that they are of.
            unit: how many.
        """
        # Both work in C: counting in Python would cost more than reading a small record.
        ticks = itertools.repeat(True, -(-(stop - start) // unit))
        self._chunk = (start, stop, unit, ticks)
        return itertools.compress(items, ticks)

    def end_at(self, number: int) -> None:
        """Says that the rest of the epoch is left out from a record on."""
        self._last = number

    def end(self) -> None:
        """Says that the iterator has ended."""
        self._has_ended = True

    @property
    def is_finished(self) -> bool:
        return self._has_ended or self.number == self._last

    def move_to(self, number: int) -> None:
        """Says how far the iterator has got, where nothing follows."""
        self._chunk = (number, number, 1, itertools.repeat(True, 0))

    @property
    def number(self) -> int:
        """The number after that of the last record that was taken."""
        start, stop, unit, ticks = self._chunk
        taken = -(-(stop - start) // unit) - operator.length_hint(ticks)
        return min(start + taken * unit, stop)
