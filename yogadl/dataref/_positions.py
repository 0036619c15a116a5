"""Which records of a data set another one is made of: positions to positions, in one step each."""

from __future__ import annotations

import abc
import fractions
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from yogadl.arguments import check_seed
from yogadl.errors import InvalidArgumentError

Array = np.ndarray[Any, Any]

# Of a mix: a table of so many entries at most.
_LONGEST_PERIOD = 10_000
_SUM_TOLERANCE = fractions.Fraction(1, 10**9)


class Selection(abc.ABC):
    """Some positions of a data set, in some order. Immutable; can be pickled."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def of(self, indices: Array) -> Array:
        """The positions that stand at some indices, int64."""

    def choose(self, chosen: Selection) -> Selection:
        """The positions that stand at chosen indices, as one selection."""
        if isinstance(chosen, Listed):
            return Listed(self.of(chosen.positions))
        return _Chosen(self, chosen)

    def run(self, indices: range) -> Array | range:
        """The positions at a run of indices: a run, too, if that has few others between them."""
        positions = self.of(np.arange(indices.start, indices.stop, dtype=np.int64))
        if not len(positions):
            return positions
        first, last = int(positions.min()), int(positions.max())
        return range(first, last + 1) if last - first < 2 * len(positions) else positions


class Slice(Selection):
    """Positions at equal distances, as a slice has them."""

    def __init__(self, positions: range) -> None:
        first, count = positions.start, len(positions)
        # A slice of one record may have a step that no array can hold.
        self.range = positions if count > 1 else range(first, first + count)

    def __len__(self) -> int:
        return len(self.range)

    def of(self, indices: Array) -> Array:
        start, step = self.range.start, self.range.step
        if step != 1:
            return start + indices * step
        return start + indices if start else indices

    def choose(self, chosen: Selection) -> Selection:
        if not isinstance(chosen, Slice):
            return super().choose(chosen)
        start = self.range.start + chosen.range.start * self.range.step
        step = self.range.step * chosen.range.step
        return Slice(range(start, start + len(chosen) * step, step))

    def run(self, indices: range) -> Array | range:
        if self.range.step != 1:
            return super().run(indices)
        start = self.range.start
        return range(start + indices.start, start + indices.stop)


class Listed(Selection):
    """Any positions, int64 ``[n]``."""

    def __init__(self, positions: Array) -> None:
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def of(self, indices: Array) -> Array:
        return self.positions[indices]

    def choose(self, chosen: Selection) -> Selection:
        if not isinstance(chosen, Slice):
            return super().choose(chosen)
        return Listed(self.of(chosen.of(np.arange(len(chosen), dtype=np.int64))))


class _Chosen(Selection):
    """Of the positions of one selection those at the indices of another."""

    def __init__(self, outer: Selection, inner: Selection) -> None:
        self._outer = outer
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def of(self, indices: Array) -> Array:
        return self._outer.of(self._inner.of(indices))


def joined(pieces: Sequence[tuple[Slice, Selection]]) -> Selection:
    """The positions of some selections one behind the other.

    Args:
        pieces: at least one: some positions, and the indices of those of them that are wanted.
    """
    found: list[Selection] = []
    for whole, piece in pieces:
        # Those of a slice are a slice; others would be copied.
        chosen = whole.choose(piece) if isinstance(piece, Slice) else _Chosen(whole, piece)
        last = found[-1] if found else None
        if isinstance(last, Slice) and isinstance(chosen, Slice) and _are_one(last, chosen):
            found[-1] = Slice(range(last.range.start, chosen.range.stop))
        else:
            found.append(chosen)
    return found[0] if len(found) == 1 else _Joined(found)


def _are_one(first: Slice, second: Slice) -> bool:
    """Whether two slices are one without gaps."""
    return first.range.step == second.range.step == 1 and first.range.stop == second.range.start


class _Joined(Selection):
    """Positions of selections, one behind the other."""

    def __init__(self, pieces: Sequence[Selection]) -> None:
        lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
        self._ends = np.cumsum(lengths)
        # Positions of slices are found all at once; those of others at first as indices in them.
        self._others = {
            number: piece for number, piece in enumerate(pieces) if not isinstance(piece, Slice)
        }
        runs = [piece.range if isinstance(piece, Slice) else range(1) for piece in pieces]
        steps = np.array([run.step for run in runs], dtype=np.int64)
        self._steps = None if (steps == 1).all() else steps
        firsts = np.array([run.start for run in runs], dtype=np.int64)
        self._shifts = firsts - (self._ends - lengths) * steps

    def __len__(self) -> int:
        return int(self._ends[-1])

    def of(self, indices: Array) -> Array:
        pieces = np.searchsorted(self._ends, indices, side="right")
        found: Array = self._shifts[pieces]
        found += indices if self._steps is None else indices * self._steps[pieces]
        for number, piece in self._others.items():
            places = np.flatnonzero(pieces == number)
            found[places] = piece.of(found[places])
        return found


class Mixed(Selection):
    """Positions in some data sets that stand one behind the other, in turn by their weights.

    Each is read in its own order. In any run of records, one of weight ``w`` has its share to
    within one or two: the next record is always of the one that is furthest behind its share. It
    ends before the first record that is not there. The order is frozen: runs are resumed by it.

    Args:
        lengths: of the data sets.
        weights: of them, above 0; exact as decimal fractions if these repeat within 10,000 records,
            else rounded to so many parts.

    Raises:
        InvalidArgumentError: a weight is no number above 0.
    """

    def __init__(self, lengths: Sequence[int], weights: Sequence[Any]) -> None:
        self._quotas = np.array(_quotas(weights), dtype=np.int64)
        self._starts = np.cumsum([0, *lengths[:-1]], dtype=np.int64)
        self._lengths = tuple(lengths)
        self._sources = _schedule(self._quotas)
        self._ranks = np.empty_like(self._sources)
        for source, quota in enumerate(self._quotas):
            self._ranks[self._sources == source] = np.arange(quota)
        self._length = self._end()

    def _end(self) -> int:
        ends = []
        for source, length in enumerate(self._lengths):
            cycles, rest = divmod(length, int(self._quotas[source]))
            places = np.flatnonzero(self._sources == source)
            ends.append(cycles * len(self._sources) + int(places[rest]))
        return min(ends)

    def __len__(self) -> int:
        return self._length

    def of(self, indices: Array) -> Array:
        cycles, places = np.divmod(indices, len(self._sources))
        sources = self._sources[places]
        found: Array = self._starts[sources] + cycles * self._quotas[sources] + self._ranks[places]
        return found


def _quotas(weights: Sequence[Any]) -> list[int]:
    """Whole numbers in proportion to the weights."""
    for weight in weights:
        number = isinstance(weight, int | float | fractions.Fraction | np.integer | np.floating)
        if not number or isinstance(weight, bool) or not 0 < weight < math.inf:
            raise InvalidArgumentError(f"a weight must be a number above 0, not {weight!r}")
    # By the shortest decimal that means the float: 0.1 is a tenth.
    shares = [fractions.Fraction(str(weight)) for weight in weights]
    common = math.lcm(*[share.denominator for share in shares])
    whole = [int(share * common) for share in shares]
    divisor = math.gcd(*whole)
    quotas = [count // divisor for count in whole]
    if sum(quotas) <= _LONGEST_PERIOD:
        return quotas
    total = sum(shares)
    return [max(1, round(share / total * _LONGEST_PERIOD)) for share in shares]


def _schedule(quotas: Array) -> Array:
    """Whose turn it is in each place of a period."""
    period = int(quotas.sum())
    turns = np.empty(period, dtype=np.int64)
    given = np.zeros_like(quotas)
    for place in range(period):
        turns[place] = turn = int(np.argmax(quotas * (place + 1) - given * period))
        given[turn] += 1
    return turns


def split_positions(
    count: int, parts: Mapping[str, float], seed: int | None
) -> dict[str, Selection]:
    """Positions ``0 … count-1`` divided by shares that add up to 1; each part in ascending order.

    Part by part, each has the next of the positions as ``numpy.random.RandomState(seed).shuffle``
    has them, or as they stand without a seed. The order is frozen. The places where parts end are
    rounded, so that all records are in one. Shares count as the shortest decimals that mean them,
    and in proportion to each other where these do not quite add up to 1.

    Raises:
        InvalidArgumentError: the shares are no numbers from 0 on that add up to 1.
    """
    if not isinstance(parts, Mapping):
        raise InvalidArgumentError(
            'split takes the share of each part by name, as in split({"train": 0.8, "valid": 0.2}),'
            f" not {parts!r:.100}"
        )
    for name, share in parts.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InvalidArgumentError(
                f"split takes a share from 0 to 1 per part, and {name!r} has {share!r}"
            )
    shares = {name: fractions.Fraction(str(share)) for name, share in parts.items()}
    total = sum(shares.values(), fractions.Fraction(0))
    if abs(total - 1) > _SUM_TOLERANCE:
        raise InvalidArgumentError(
            f"the shares of a split must add up to 1, and {dict(parts)!r} to {float(total)!r}"
        )
    if seed is not None:
        order = np.arange(count, dtype=np.int64)
        np.random.RandomState(check_seed(seed, "seed")).shuffle(order)
    found: dict[str, Selection] = {}
    start, reached = 0, fractions.Fraction(0)
    for name, part in shares.items():
        # Fractions, since floats would lose some of many records.
        reached += part
        stop = round(reached / total * count)
        run = Slice(range(start, stop))
        found[name] = run if seed is None else Listed(np.sort(order[start:stop]))
        start = stop
    return found
