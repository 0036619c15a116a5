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

Ranges = tuple[Array, Array]
"""Where some ranges of positions begin and end, int64 ``[n]`` each."""

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
    if not have_parts_in_common(version, before):
        return None
    groups = zip(version.stored.groups, before.stored.groups, strict=True)
    found, *others = [_as_runs_of(theirs, ours) for ours, theirs in groups]
    for other in others:
        found = _common(found, other)
    return found


def have_parts_in_common(version: Made, before: Made) -> bool:
    """Whether parts tell anything of two versions; one of them may have been compacted."""
    if version.stored.layout != before.stored.layout:
        return False
    return not version.digests.isdisjoint(before.digests)


def among(version: Made, places: Ranges, before: Made, others: Ranges) -> Runs:
    """Some records of a version: those that are among some that another had by their positions in
    that, of ``PARENT``; see :func:`runs_by_parts`.

    Where it had a record more than once, one of those that are asked for comes first.

    Args:
        version, before: of the same column groups.
        places: of the records in the version.
        others: of those in the other.
    """
    found = runs_by_parts(version, before)
    assert found is not None
    rest = found.taken(*places)
    groups = zip(version.stored.groups, before.stored.groups, strict=True)
    closer, *more = [_as_runs_of(theirs, ours, others, places) for ours, theirs in groups]
    for other in more:
        closer = _common(closer, other)
    closer = closer.through({PARENT: Runs.whole(PARENT, before.count).taken(*others)})
    return _either(closer, rest)


def _as_runs_of(
    before: ColumnGroup,
    group: ColumnGroup,
    others: Ranges | None = None,
    places: Ranges | None = None,
) -> Runs:
    """The records of a group: those that another has by their positions in that, of ``PARENT``.

    Args:
        before: the other.
        group: it.
        others, places: of both, only these ranges, and positions in them.
    """
    bases = _Bases()
    olds, news = runs_of(before), runs_of(group)
    if others is not None and places is not None:
        olds, news = olds.taken(*others), news.taken(*places)
    old, new = bases.keys(before, olds), bases.keys(group, news)
    counts = [olds.counts, news.counts]
    edges = np.unique(np.concatenate([old, old + counts[0], new, new + counts[1]]))
    old_keys, old_positions, _ = _cut(old, counts[0], edges)
    new_keys, new_positions, new_counts = _cut(new, counts[1], edges)
    # Where a record is there more than once, the first is the first, and so on.
    order = np.argsort(old_keys, kind="stable")
    known = old_keys[order]
    at = np.searchsorted(known, new_keys) + _ranks(new_keys)
    is_known = at < np.searchsorted(known, new_keys, side="right")
    found = new_positions.copy()
    found[is_known] = old_positions[order[at[is_known]]]
    return Runs(np.where(is_known, PARENT, _NEW), found, new_counts).joined()


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

    def keys(self, group: ColumnGroup, runs: Runs) -> Array:
        """The numbers of the first records of some runs of the parts of a group, int64 ``[n]``."""
        bases = []
        for digest, entry in zip(group.parts.digests, group.parts.entries, strict=True):
            base = self._known.setdefault(digest, self._next)
            if base == self._next:
                self._next += int(entry["count"][0])
            bases.append(base)
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


def _either(one: Runs, other: Runs) -> Runs:
    """As many records: what the one says of ``PARENT``, and else what the other says."""
    starts = [np.cumsum(runs.counts) - runs.counts for runs in (one, other)]
    edges = np.unique(np.concatenate(starts))
    sources, places = one.at(edges)
    others, other_places = other.at(edges)
    counts = np.diff(np.append(edges, one.record_count))
    is_of_one = sources == PARENT
    sources = np.where(is_of_one, sources, others)
    places = np.where(is_of_one, places, other_places)
    return Runs(sources, np.where(sources == PARENT, places, edges), counts).joined()


def _common(one: Runs, other: Runs) -> Runs:
    """The records of which two groups say the same."""
    starts = [np.cumsum(runs.counts) - runs.counts for runs in (one, other)]
    edges = np.unique(np.concatenate(starts))
    sources, places = one.at(edges)
    others, other_places = other.at(edges)
    is_kept = (sources == PARENT) & (others == PARENT) & (places == other_places)
    counts = np.diff(np.append(edges, one.record_count))
    return Runs(np.where(is_kept, PARENT, _NEW), np.where(is_kept, places, edges), counts).joined()
