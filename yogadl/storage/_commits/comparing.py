"""Comparing records of two versions, component by component."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.content_id import mixed
from yogadl.cache.encoding import content_tokens
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import StoredGroups
from yogadl.format.codec import RecordCodec
from yogadl.storage._commits.made import Made, runs_of, same_specs
from yogadl.storage._commits.values import (
    are_numbers,
    differing_numbers,
    nested_alike,
    packed_column,
)
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

_STEP = 4096
# Of what is read at once.
_MOST_BYTES = 64 << 20
_TOKENS_BYTES = 1 << 20


class LeafPair(NamedTuple):
    """A leaf of two versions.

    Attributes:
        one: its number in the one.
        two: in the other.
        leaf: what it is in the one.
        other: in the other.
    """

    one: int
    two: int
    leaf: specs.Leaf
    other: specs.Leaf

    @property
    def are_of_one_spec(self) -> bool:
        """Whether it is the same in both."""
        return same_specs(self.leaf, self.other)

    def differing(self, old: Column, new: Column) -> Array:
        """Which of as many values of both differ, bool ``[n]``."""
        if self.are_of_one_spec:
            return differing(old, new)
        if are_numbers(old) and are_numbers(new) and old.shape == new.shape:
            return differing_numbers(old, new)
        one = packed_column(old, self.leaf, self.other)
        two = packed_column(new, self.other, self.leaf)
        return np.array([a != b for a, b in zip(one, two, strict=True)], bool)


LeafPairs = Mapping[Any, "list[LeafPair] | None"]


def common_leaves(before: specs.Structure, after: specs.Structure) -> LeafPairs:
    """The components that two specs have in common, by name, and their leaves in both; ``None`` of
    one that is nested otherwise, of which every value is another. What are no dicts have one,
    ``record``."""
    places = [_numbered(spec) for spec in (before, after)]
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return {"record": _leaf_pairs(before, after, *places)}
    return {
        name: _leaf_pairs(child, after[name], *[nest[name] for nest in places])
        for name, child in before.items()
        if name in after
    }


def _numbered(spec: specs.Structure) -> Any:
    """The numbers of the leaves of a spec, in its nest."""
    return specs.unflatten(spec, range(len(list(specs.leaves(spec)))))


def _leaf_pairs(
    one: specs.Structure, two: specs.Structure, numbers: Any, others: Any
) -> list[LeafPair] | None:
    if not nested_alike(one, two):
        return None
    columns = specs.flatten(one, numbers), specs.flatten(two, others)
    return list(map(LeafPair, *columns, specs.leaves(one), specs.leaves(two)))


def differing_components(
    pairs: Array,
    may_differ: Mapping[Any, Array],
    before: RecordReader,
    after: RecordReader,
    leaves: LeafPairs,
) -> dict[Any, Array]:
    """Of each component, in which pairs of records it differs, bool ``[n]``.

    Args:
        pairs: positions in the one and in the other, int64 ``[2, n]``.
        may_differ: of each component, in which of them it has to be looked at, bool ``[n]``.
        before: the one.
        after: the other.
        leaves: of the components, see :func:`common_leaves`.
    """
    found = {
        name: may_differ[name] & (own is None) if own != [] else np.zeros(pairs.shape[1], bool)
        for name, own in leaves.items()
    }
    read = {name: own for name, own in leaves.items() if own}
    size = max(reader.bytes_in_order for reader in (before, after))
    step = max(1, min(_STEP, _MOST_BYTES // size))
    for start in range(0, pairs.shape[1] if read else 0, step):
        some = np.arange(start, min(start + step, pairs.shape[1]))
        for names, rows in _looked_at(some, {name: may_differ[name] for name in read}):
            wanted = [pair for name in names for pair in read[name]]
            old = before.read_leaves(pairs[0, rows], {pair.one for pair in wanted})
            new = after.read_leaves(pairs[1, rows], {pair.two for pair in wanted})
            for name in names:
                for pair in read[name]:
                    found[name][rows] |= pair.differing(old[pair.one], new[pair.two])
    return found


def _looked_at(some: Array, may_differ: Mapping[Any, Array]) -> Iterator[tuple[list[Any], Array]]:
    """Which components are to be looked at in which of some places: each of these once."""
    masks = np.stack([mask[some] for mask in may_differ.values()])
    kinds, numbers = masks[:, :1], np.zeros(len(some), np.int64)
    if (masks != kinds).any():
        # Rarely, for sorting takes as long as comparing.
        kinds, numbers = np.unique(masks, axis=1, return_inverse=True)
    for number, kind in enumerate(kinds.T):
        names = [name for name, is_one in zip(may_differ, kind, strict=True) if is_one]
        if names:
            yield names, some[numbers.reshape(-1) == number]


def tokens_in_common(
    before: RecordReader, after: RecordReader, leaves: LeafPairs
) -> tuple[tuple[Array, Array], tuple[Array, Array] | None]:
    """Tokens of the components that two have, which are the same where their values are; and of
    no more than has the same spec in both, if that is less and there is any.

    Args:
        before: the one.
        after: the other.
        leaves: of the components, see :func:`common_leaves`; some at least.
    """
    pairs = [pair for own in leaves.values() for pair in own or ()]
    alike = [pair for pair in pairs if pair.are_of_one_spec]
    others = [pair for pair in pairs if not pair.are_of_one_spec]
    one = _tokens(before, [(it.one, it.leaf, it.other) for it in (*alike, *others)], len(alike))
    two = _tokens(after, [(it.two, it.other, it.leaf) for it in (*alike, *others)], len(alike))
    return (one[1], two[1]), (one[0], two[0]) if alike and others else None


def _tokens(
    reader: RecordReader, leaves: list[tuple[int, specs.Leaf, specs.Leaf]], alike: int
) -> tuple[Array, Array]:
    """Tokens of some leaves of all records, uint64 ``[n]``: of the first ones, and of all.

    Args:
        reader: of the records.
        leaves: their numbers, their specs and those that they have in the other version.
        alike: how many have the same spec there.
    """
    count, wanted = len(reader), {number for number, _, _ in leaves}
    firsts, wholes = np.zeros(count, "u8"), np.zeros(count, "u8")
    codec = RecordCodec(tuple(leaf for _, leaf, _ in leaves[:alike])) if alike else None
    step = max(1, _TOKENS_BYTES // reader.bytes_in_order)
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        columns = reader.read_leaves(rows, wanted)
        if codec is not None:
            known = [columns[number] for number, _, _ in leaves[:alike]]
            firsts[rows] = content_tokens(codec, known)
        found = firsts[rows]
        for number, leaf, other in leaves[alike:]:
            packed = packed_column(columns[number], leaf, other)
            found = mixed(found, np.array(list(map(xxhash.xxh3_64_intdigest, packed)), "u8"))
        wholes[rows] = found
    return firsts, wholes


class LeafPlaces:
    """Where leaves of two versions are stored, to tell which are the same without reading them.

    Args:
        before: the one.
        after: the other.
    """

    def __init__(self, before: Made, after: Made) -> None:
        self._numbers: dict[bytes, int] = {}
        self._sides = [self._side(made.stored) for made in (before, after)]

    def _side(self, stored: StoredGroups) -> tuple[StoredGroups, list[tuple[Runs, Array]]]:
        groups = []
        for group in stored.groups:
            known = [
                self._numbers.setdefault(digest, len(self._numbers))
                for digest in group.parts.digests
            ]
            groups.append((runs_of(group), np.array(known, np.int64)))
        return stored, groups

    def may_differ(self, pairs: Array, leaves: LeafPairs) -> dict[Any, Array]:
        """Of each component, in which pairs of records a leaf of it is not in the same place of the
        same part, bool ``[n]``.

        Args:
            pairs: see :func:`differing_components`.
            leaves: likewise.
        """
        of_groups: dict[tuple[int, int], Array] = {}
        found = {}
        for name, own in leaves.items():
            found[name] = np.full(pairs.shape[1], own is None)
            for pair in own or ():
                (group, number), (other, its_number) = (
                    (0, at) if stored.leaves is None else stored.leaves[at]
                    for (stored, _), at in zip(self._sides, (pair.one, pair.two), strict=True)
                )
                if number != its_number:
                    found[name][:] = True
                    break
                if (group, other) not in of_groups:
                    of_groups[group, other] = self._are_elsewhere(pairs, (group, other))
                found[name] |= of_groups[group, other]
        return found

    def _are_elsewhere(self, pairs: Array, groups: tuple[int, int]) -> Array:
        """Which pairs of records are not in the same place of the same part, of a group of each."""
        (parts, places), (others, other_places) = (
            self._at(side, group, positions)
            for side, (group, positions) in enumerate(zip(groups, pairs, strict=True))
        )
        found: Array = (parts != others) | (places != other_places)
        return found

    def _at(self, side: int, group: int, positions: Array) -> tuple[Array, Array]:
        """In which parts some records are, and where in these."""
        runs, numbers = self._sides[side][1][group]
        sources, places = runs.at(positions)
        return numbers[sources], places


def equal_records(one: RecordReader, two: RecordReader, positions: Array, others: Array) -> Array:
    """Which records of one reader are those of another, bit by bit, bool ``[n]``.

    Args:
        one: a reader.
        two: another of the same spec.
        positions: in the one, int64 ``[n]``.
        others: as many in the other.
    """
    found = np.ones(len(positions), bool)
    for start in range(0, len(positions), _STEP):
        some = slice(start, start + _STEP)
        columns = one.read_columns(positions[some]), two.read_columns(others[some])
        for column, other in zip(*columns, strict=True):
            found[some] &= ~differing(column, other)
    return found


def differing(one: Any, two: Any) -> Array:
    """Which values of two columns differ, bit by bit where they are numbers."""
    if are_numbers(one) and are_numbers(two) and one.shape == two.shape and one.size:
        found: Array = (_bytes_of(one) != _bytes_of(two)).any(axis=1)
        return found
    return np.array([not _same(a, b) for a, b in zip(one, two, strict=True)], bool)


def _bytes_of(column: Array) -> Array:
    """The values of a column, uint8 ``[n, size]``."""
    return np.ascontiguousarray(column).reshape(len(column), -1).view("u1")


def _same(one: Any, two: Any) -> bool:
    """Whether two values of a component are the same, bit by bit; they may be nests."""
    if isinstance(one, dict):
        # As is one that stands for a value that may be missing.
        return isinstance(two, dict) and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, tuple | list):
        return two is not None and len(one) == len(two) and all(map(_same, one, two))
    if one is None or two is None:
        return one is two
    if isinstance(one, bytes | str) and isinstance(two, bytes | str):
        # NumPy takes away the zeros at their ends.
        return one == two
    first, second = np.asarray(one), np.asarray(two)
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype == object:
        return bool(first.tolist() == second.tolist())
    return bool(first.tobytes() == second.tobytes())
