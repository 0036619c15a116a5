"""Comparing records of two versions, component by component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import StoredGroups
from yogadl.storage._commits.made import Made, runs_of, same_specs
from yogadl.storage._commits.new_records import projected
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]
LeafPairs = Mapping[Any, list[tuple[int, int]]]

_STEP = 4096


def common_leaves(before: specs.Structure, after: specs.Structure) -> LeafPairs:
    """The components that two specs have in common, by name, and the numbers of their leaves in
    both. What are no dicts have one, ``record``, if they are the same."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        count = len(list(specs.leaves(before)))
        return {"record": [(at, at) for at in range(count)] if same_specs(before, after) else []}
    found: dict[Any, list[tuple[int, int]]] = {}
    places = []
    for spec in (before, after):
        numbers = list(range(len(list(specs.leaves(spec)))))
        places.append(specs.unflatten(spec, numbers))
    for name, child in before.items():
        if name in after and same_specs(after[name], child):
            one = specs.flatten(child, places[0][name])
            two = specs.flatten(child, places[1][name])
            found[name] = list(zip(one, two, strict=True))
    return found


def differing_components(
    pairs: Array, before: RecordReader, after: RecordReader, leaves: LeafPairs
) -> dict[Any, Array]:
    """Of each component, in which pairs of records it differs, bool ``[n]``.

    Args:
        pairs: positions in the one and in the other, int64 ``[2, n]``.
        before: the one.
        after: the other.
        leaves: of the components, see :func:`common_leaves`.
    """
    found = {name: np.zeros(pairs.shape[1], bool) for name in leaves}
    for start in range(0, pairs.shape[1], _STEP):
        some = slice(start, start + _STEP)
        old, new = before.read_columns(pairs[0, some]), after.read_columns(pairs[1, some])
        for name, own in leaves.items():
            for one, two in own:
                found[name][some] |= differing(old[one], new[two])
    return found


def of_common_leaves(
    before: RecordReader, after: RecordReader, leaves: LeafPairs
) -> tuple[RecordReader, RecordReader]:
    """Two readers of no more than the components that both have, in one spec.

    Args:
        before: the one.
        after: the other.
        leaves: of the components, see :func:`common_leaves`; some at least.
    """
    names = {name: before.spec[name] for name in leaves}
    numbers = [
        {
            name: specs.unflatten(child, [pair[side] for pair in leaves[name]])
            for name, child in names.items()
        }
        for side in (0, 1)
    ]
    one, two = (
        projected(reader, names, specs.flatten(names, places))
        for reader, places in zip((before, after), numbers, strict=True)
    )
    return one, two


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

    def may_differ(self, pairs: Array, leaves: LeafPairs) -> Array:
        """Of which pairs of records a leaf is not in the same place of the same part, bool ``[n]``.

        Args:
            pairs: see :func:`differing_components`.
            leaves: likewise.
        """
        found = np.zeros(pairs.shape[1], bool)
        seen = set()
        for own in leaves.values():
            for numbers in own:
                one, two = (
                    (0, number) if stored.leaves is None else stored.leaves[number]
                    for (stored, _), number in zip(self._sides, numbers, strict=True)
                )
                if one[1] != two[1]:
                    return np.ones(pairs.shape[1], bool)
                seen.add((one[0], two[0]))
        for groups in seen:
            parts, places = zip(
                *[
                    self._at(side, *each)
                    for side, each in enumerate(zip(groups, pairs, strict=True))
                ],
                strict=True,
            )
            found |= (parts[0] != parts[1]) | (places[0] != places[1])
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
    if _is_plain(one) and _is_plain(two) and one.shape == two.shape and one.size:
        found: Array = (_bytes_of(one) != _bytes_of(two)).any(axis=1)
        return found
    return np.array([not _same(a, b) for a, b in zip(one, two, strict=True)], bool)


def _is_plain(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype != object


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
