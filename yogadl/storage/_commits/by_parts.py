"""What a version changes of another, told by the parts that both are made of; no record is read.

A record that both have in the same place of the same part, in every column group, is one that
stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.cache.table_writer import ColumnGroup
from yogadl.storage._commits.made import Made, runs_of
from yogadl.versions.hunks import PARENT, Hunks, hunks_of
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

_NEW = 1


def hunks_by_parts(version: Made, before: Made) -> Hunks | None:
    """What a version changes of another; ``None`` if their column groups are others.

    Records that were stored anew count as changed; if all of them were, it is not known either.
    """
    if not (version.count and before.count):
        return Hunks.of([(0, before.count, version.count)])
    found = runs_by_parts(version, before)
    return None if found is None else hunks_of(found, before.count)[0]


def runs_by_parts(version: Made, before: Made) -> Runs | None:
    """The records of a version: those that another has by their positions in that, of ``PARENT``.

    Args:
        version, before: both of at least one record.

    Returns:
        ``None`` if their column groups are others, or they have no part in common.
    """
    if version.stored.layout != before.stored.layout:
        return None
    if version.digests.isdisjoint(before.digests):
        # One of them may have been compacted.
        return None
    groups = zip(version.stored.groups, before.stored.groups, strict=True)
    found, *others = [_as_runs_of(theirs, ours) for ours, theirs in groups]
    for other in others:
        found = _common(found, other)
    return found


def _as_runs_of(before: ColumnGroup, group: ColumnGroup) -> Runs:
    """The records of a group: those that another has by their positions in that, of ``PARENT``."""
    bases = _Bases()
    old, new = (bases.keys(each) for each in (before, group))
    counts = [runs_of(each).counts for each in (before, group)]
    edges = np.unique(np.concatenate([old, old + counts[0], new, new + counts[1]]))
    old_keys, old_positions, _ = _cut(old, counts[0], edges)
    new_keys, new_positions, new_counts = _cut(new, counts[1], edges)
    # Where a record is there more than once, the first is the first, and so on.
    order = np.argsort(old_keys, kind="stable")
    known = old_keys[order]
    at = np.searchsorted(known, new_keys) + _ranks(new_keys)
    is_known = at < np.searchsorted(known, new_keys, side="right")
    places = new_positions.copy()
    places[is_known] = old_positions[order[at[is_known]]]
    return Runs(np.where(is_known, PARENT, _NEW), places, new_counts).joined()


def _ranks(keys: Array) -> Array:
    """How often each number comes before it, int64."""
    order = np.argsort(keys, kind="stable")
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    return ranks


class _Bases:
    """Gives each record of some parts a number of its own."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._next = 0

    def keys(self, group: ColumnGroup) -> Array:
        """The numbers of the first records of the runs of a group, int64 ``[n]``."""
        bases = []
        for digest, entry in zip(group.parts.digests, group.parts.entries, strict=True):
            base = self._known.setdefault(digest, self._next)
            if base == self._next:
                self._next += int(entry["count"][0])
            bases.append(base)
        runs = runs_of(group)
        found: Array = np.array(bases, np.int64)[runs.sources] + runs.firsts
        return found


def _cut(keys: Array, counts: Array, edges: Array) -> tuple[Array, Array, Array]:
    """Runs of numbers cut at all edges: the first number of each piece, its position among all, and
    how many there are; int64 each.

    Args:
        keys, counts: of the runs.
        edges: in order, the ends of the runs among them.
    """
    low, high = np.searchsorted(edges, keys), np.searchsorted(edges, keys + counts)
    pieces = high - low
    owners = np.repeat(np.arange(len(keys)), pieces)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    at = low[owners] + within
    starts = edges[at]
    positions = (np.cumsum(counts) - counts)[owners] + starts - keys[owners]
    return starts, positions, edges[at + 1] - starts if len(at) else starts


def _common(one: Runs, other: Runs) -> Runs:
    """The records of which two groups say the same."""
    starts = [np.cumsum(runs.counts) - runs.counts for runs in (one, other)]
    edges = np.unique(np.concatenate(starts))
    sources, places = one.at(edges)
    others, other_places = other.at(edges)
    is_kept = (sources == PARENT) & (others == PARENT) & (places == other_places)
    counts = np.diff(np.append(edges, one.record_count))
    return Runs(np.where(is_kept, PARENT, _NEW), np.where(is_kept, places, edges), counts).joined()
