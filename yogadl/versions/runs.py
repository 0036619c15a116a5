"""Sequences of records, as runs of records of some sources.

A source is whatever has records at positions: another version, or a part. So one version is told in
terms of others, or of files, and changes are calculated without reading a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Runs:
    """Records in order; arrays int64 ``[n]``, not to be written to.

    Attributes:
        sources: the number of what has the records of each run.
        firsts: the position in it of the first of them, at least 0.
        counts: how many there are, at least 1.
    """

    sources: Array
    firsts: Array
    counts: Array

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int, int]]) -> Runs:
        """Those of some triples: source, first, count; what has no records is left out."""
        rows = np.array([run for run in runs if run[2]], dtype=np.int64).reshape(-1, 3)
        return cls(*np.ascontiguousarray(rows.T))

    @classmethod
    def whole(cls, source: int, count: int) -> Runs:
        """All ``count`` records of a source."""
        return cls.of([(source, 0, count)])

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.counts)

    @property
    def record_count(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    def triples(self) -> list[tuple[int, int, int]]:
        """Source, first and count of each."""
        rows = (self.sources.tolist(), self.firsts.tolist(), self.counts.tolist())
        return list(zip(*rows, strict=True))

    def at(self, positions: Array) -> tuple[Array, Array]:
        """The sources of the records at some positions, and their positions in these.

        Args:
            positions: int64 ``[n]``, each in ``[0, record_count)``.
        """
        ends = np.cumsum(self.counts)
        runs = np.searchsorted(ends, positions, side="right")
        return self.sources[runs], self.firsts[runs] + positions - (ends - self.counts)[runs]

    def taken(self, starts: Array, stops: Array) -> Runs:
        """The records of some ranges of positions, one range after the other.

        Args:
            starts, stops: int64 ``[m]``, ``0 <= start <= stop <= record_count``; in any order.
        """
        has_any = stops > starts
        starts, stops = starts[has_any], stops[has_any]
        ends = np.cumsum(self.counts)
        begins = ends - self.counts
        first_runs = np.searchsorted(ends, starts, side="right")
        pieces = np.searchsorted(ends, stops - 1, side="right") - first_runs + 1
        ranges = np.repeat(np.arange(len(starts)), pieces)
        within = np.arange(len(ranges)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        runs = first_runs[ranges] + within
        lows = np.maximum(begins[runs], starts[ranges])
        highs = np.minimum(ends[runs], stops[ranges])
        return Runs(
            self.sources[runs], self.firsts[runs] + lows - begins[runs], highs - lows
        ).joined()

    def then(self, others: Runs) -> Runs:
        """These records, and others behind them."""
        return self._beside(others).joined()

    def joined(self) -> Runs:
        """The same records in as few runs as can be."""
        if len(self) < 2:
            return self
        goes_on = (self.sources[1:] == self.sources[:-1]) & (
            self.firsts[1:] == self.firsts[:-1] + self.counts[:-1]
        )
        if not goes_on.any():
            return self
        begins = np.flatnonzero(np.concatenate([[True], ~goes_on]))
        counts = np.add.reduceat(self.counts, begins)
        return Runs(self.sources[begins], self.firsts[begins], counts)

    def renumbered(self, numbers: Array) -> Runs:
        """The same runs of sources of other numbers.

        Args:
            numbers: for each source its new number, int64.
        """
        return Runs(numbers[self.sources], self.firsts, self.counts)

    def through(self, wholes: dict[int, Runs]) -> Runs:
        """The same records, where some sources are made of runs of other sources themselves.

        Args:
            wholes: what these sources consist of. All other sources stay what they are.
        """
        numbers = list(wholes)
        sizes = np.array([wholes[number].record_count for number in numbers], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        everything = NO_RUNS
        for number in numbers:
            everything = everything._beside(wholes[number])
        is_whole = np.isin(self.sources, numbers)
        bases = np.zeros(len(self), dtype=np.int64)
        for place, number in enumerate(numbers):
            bases[self.sources == number] = starts[place]
        # The others stand behind, each run as a range of its own.
        others = ~is_whole
        bases[others] = starts[-1] + np.cumsum(self.counts[others]) - self.counts[others]
        space = everything._beside(
            Runs(self.sources[others], self.firsts[others], self.counts[others])
        )
        begins = bases + np.where(is_whole, self.firsts, 0)
        return space.taken(begins, begins + self.counts)

    def _beside(self, others: Runs) -> Runs:
        """As :meth:`then`, without joining any, so that ranges of it are known beforehand."""
        return Runs(
            np.concatenate([self.sources, others.sources]),
            np.concatenate([self.firsts, others.firsts]),
            np.concatenate([self.counts, others.counts]),
        )


NO_RUNS = Runs(*(np.empty(0, dtype=np.int64) for _ in range(3)))
