"""What a version changes of its parent: ranges of records that others stand in for."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.errors import CacheFormatError
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

PARENT = 0
"""The number of the source that stands for the parent's records."""


@dataclass(frozen=True)
class Hunks:
    """Records ``starts … stops-1`` of a parent are replaced by ``counts`` others, which stand in
    a sequence of their own in this order; arrays int64 ``[n]``, not to be written to.

    Hunks are in order. They may touch, so that it is known what stands in for what; of those that
    are ``joined``, there is at least one record that stays between two, and none is without effect.
    """

    starts: Array
    stops: Array
    counts: Array

    @classmethod
    def of(cls, hunks: Iterable[tuple[int, int, int]]) -> Hunks:
        """Those of some triples, which are in order and do not overlap: start, stop, count."""
        rows = np.array(list(hunks), dtype=np.int64).reshape(-1, 3)
        return cls(*np.ascontiguousarray(rows.T)).joined()

    def __len__(self) -> int:
        return len(self.starts)

    def triples(self) -> list[tuple[int, int, int]]:
        """Start, stop and count of each."""
        return list(
            zip(self.starts.tolist(), self.stops.tolist(), self.counts.tolist(), strict=True)
        )

    @property
    def new_count(self) -> int:
        """Records that stand in for others."""
        return int(self.counts.sum())

    @property
    def old_count(self) -> int:
        """Records that are replaced."""
        return int((self.stops - self.starts).sum())

    def joined(self) -> Hunks:
        """The same with those that touch made one, and without those that change nothing."""
        found = self.effective()
        return found._merged(np.ones(max(0, len(found) - 1), bool))

    def grouped(self) -> Hunks:
        """The same with those that touch made one where that says as much: what was inserted stays
        apart from what is deleted, and from what stands in for as many others."""
        found = self.effective()
        sizes = found.stops - found.starts
        kinds = [sizes == 0, found.counts == 0, found.counts == sizes]
        return found._merged(np.any([kind[1:] & kind[:-1] for kind in kinds], axis=0))

    def effective(self) -> Hunks:
        """The same without those that change nothing."""
        rows = (self.stops > self.starts) | (self.counts > 0)
        return Hunks(self.starts[rows], self.stops[rows], self.counts[rows])

    def _merged(self, are_alike: Array) -> Hunks:
        """The same with neighbours that touch made one, of those that may be.

        Args:
            are_alike: of each but the first whether it may be made one with that before it.
        """
        if len(self) < 2:
            return self
        goes_on = are_alike & (self.starts[1:] <= self.stops[:-1])
        begins = np.flatnonzero(np.concatenate([[True], ~goes_on]))
        ends = np.concatenate([begins[1:], [len(self)]]) - 1
        counts = np.add.reduceat(self.counts, begins)
        return Hunks(self.starts[begins], self.stops[ends], counts)

    def applied(self, parent_count: int, new: int) -> Runs:
        """The records of the version.

        Args:
            parent_count: records of the parent, source ``PARENT``.
            new: the number of the source of the records that stand in for others.
        """
        # A kept range before each hunk, and one behind all.
        kept_starts = np.concatenate([[0], self.stops])
        kept_stops = np.concatenate([self.starts, [parent_count]])
        new_stops = np.cumsum(self.counts)
        starts = np.empty(2 * len(self) + 1, dtype=np.int64)
        stops = np.empty_like(starts)
        starts[0::2], stops[0::2] = kept_starts, kept_stops
        starts[1::2] = parent_count + new_stops - self.counts
        stops[1::2] = parent_count + new_stops
        both = Runs.of([(PARENT, 0, parent_count), (new, 0, self.new_count)])
        return both.taken(starts, stops)

    def standing(self, parent_count: int, new: int) -> Runs:
        """The records of the version, those that stand in for others as these: of a hunk, the first
        ones for the first ones.

        Args:
            parent_count: records of the parent, source ``PARENT``.
            new: the number of the source of those that stand in for none.
        """
        both = np.minimum(self.stops - self.starts, self.counts)
        before = np.concatenate([[0], self.stops])
        size = 2 * len(self) + 1
        sources, firsts = np.full(size, PARENT), np.zeros(size, np.int64)
        counts = np.empty(size, np.int64)
        # What is kept before each hunk goes on as what stands in for the first ones.
        firsts[0::2], counts[0::2] = before, np.append(self.starts + both, parent_count) - before
        sources[1::2], counts[1::2] = new, self.counts - both
        has_any = counts > 0
        return Runs(sources[has_any], firsts[has_any], counts[has_any]).joined()

    def inverted(self) -> Hunks:
        """What makes the parent of the version again."""
        kept = self.starts - np.concatenate([[0], self.stops[:-1]])
        starts = np.cumsum(kept + self.counts) - self.counts
        return Hunks(starts, starts + self.counts, self.stops - self.starts)

    def moved(self, positions: Array, ends: bool = False) -> Array:
        """Where boundaries between records of the parent are in the version.

        What was inserted at a boundary comes before it, or, with ``ends``, behind it.

        Args:
            positions: int64 ``[n]``, none of them inside a range that is replaced, but by as many
                records.
        """
        shifts = np.concatenate([[0], np.cumsum(self.counts - (self.stops - self.starts))])
        if ends:
            # Of what begins at it, nothing counts.
            before = np.searchsorted(self.starts, positions, side="left")
        else:
            before = np.searchsorted(self.stops, positions, side="right")
        found: Array = positions + shifts[before]
        return found

    # As it is stored

    def to_list(self) -> list[int]:
        """Numbers that JSON can hold: of each, records since the one before, replaced, and new."""
        gaps = self.starts - np.concatenate([[0], self.stops[:-1]])
        rows = np.stack([gaps, self.stops - self.starts, self.counts], axis=1)
        found: list[int] = rows.reshape(-1).tolist()
        return found

    @classmethod
    def from_list(cls, found: Any, parent_count: int) -> Hunks:
        """What a file says of a version whose parent has so many records.

        Raises:
            CacheFormatError: there can be no such hunks.
        """
        try:
            rows = np.array(found, dtype=np.int64).reshape(-1, 3)
            is_right = isinstance(found, list) and all(type(number) is int for number in found)
        except (TypeError, ValueError, OverflowError):
            is_right = False
        if not is_right or (rows < 0).any() or rows.astype("f8").sum() > 2**53:
            raise CacheFormatError("a version tells of impossible changes; make it again")
        gaps, removed, counts = np.ascontiguousarray(rows.T)
        stops = np.cumsum(gaps + removed)
        if len(stops) and (stops[-1] > parent_count or (np.diff(stops) < 0).any()):
            raise CacheFormatError("a version tells of changes beyond its parent; make it again")
        return cls(stops - removed, stops, counts)


NO_HUNKS = Hunks.of([])


def hunks_of(runs: Runs, parent_count: int) -> tuple[Hunks, Runs]:
    """What a version changes of its parent, and the records that stand in for others.

    Where records of the parent come in another order, as few as can be count as new ones.

    Args:
        runs: of the version: of ``PARENT``, and of any other sources.
        parent_count: records of the parent.
    """
    is_kept = np.zeros(len(runs), dtype=bool)
    candidates = np.flatnonzero(runs.sources == PARENT)
    is_kept[candidates[_ascending(runs.firsts[candidates], runs.counts[candidates])]] = True
    kept = np.flatnonzero(is_kept)
    starts = np.concatenate([[0], (runs.firsts + runs.counts)[kept]])
    stops = np.concatenate([runs.firsts[kept], [parent_count]])
    # The records between the kept runs.
    total = np.concatenate([[0], np.cumsum(np.where(is_kept, 0, runs.counts))])
    edges = np.concatenate([[0], kept + 1]), np.concatenate([kept, [len(runs)]])
    counts = total[edges[1]] - total[edges[0]]
    new = Runs(runs.sources[~is_kept], runs.firsts[~is_kept], runs.counts[~is_kept])
    return Hunks(starts, stops, counts).joined(), new.joined()


def _ascending(firsts: Array, counts: Array) -> Array:
    """Which of some runs to keep, so that each begins behind the one before and most records stay.

    Mostly all of them do.
    """
    if (firsts[1:] >= (firsts + counts)[:-1]).all():
        return np.arange(len(firsts))
    # Of the choices up to here, those that no other one betters: by where they end, and by how many
    # records they have, both ascending; and their last runs.
    ends: list[int] = []
    sizes: list[int] = []
    lasts: list[int] = []
    before = np.full(len(firsts), -1, dtype=np.int64)
    for place, (first, count) in enumerate(zip(firsts.tolist(), counts.tolist(), strict=True)):
        at = bisect.bisect_right(ends, first)
        before[place] = lasts[at - 1] if at else -1
        end, size = first + count, count + (sizes[at - 1] if at else 0)
        low, high = bisect.bisect_left(ends, end), bisect.bisect_right(ends, end)
        if high and sizes[high - 1] >= size:
            continue
        while high < len(ends) and sizes[high] <= size:
            high += 1
        ends[low:high], sizes[low:high], lasts[low:high] = [end], [size], [place]
    found, place = [], lasts[-1]
    while place >= 0:
        found.append(place)
        place = int(before[place])
    return np.array(found[::-1], dtype=np.int64)
