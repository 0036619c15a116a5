"""What two versions differ in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.record_reader import RecordReader
from yogadl.format.spec_text import spec_text
from yogadl.storage._commits.comparing import (
    LeafPairs,
    LeafPlaces,
    common_leaves,
    differing_components,
    tokens_in_common,
)
from yogadl.storage._commits.lineage import Changes, changes_between, changes_since
from yogadl.storage._commits.made import Made, same_specs
from yogadl.storage._commits.standing import Edit, standing
from yogadl.storage._commits.user_metadata import MISSING, same_json
from yogadl.versions.hunks import PARENT, Hunks, hunks_of
from yogadl.versions.matching import matched

Array = np.ndarray[Any, Any]

_STEP = 1 << 16


@dataclass(frozen=True)
class VersionDiff:
    """What two versions differ in. Of ``storage.diff``; its text says it in short.

    Attributes:
        before: the one version.
        after: the other.
        count_before, count_after: records of them.
        spec_before, spec_after: their element specs.
        deleted: positions in ``before`` of records that are not in ``after``, int64 ``[d]``.
        added: positions in ``after`` of records that are not in ``before``, int64 ``[a]``.
        changed: positions in ``before`` and in ``after`` of records that stand in for others, int64
            ``[2, c]``: other values of a component that both specs have; numbers of two dtypes are
            compared as numbers. If the specs have none in common, all that stand in for others.
        components: of how many of the changed records each component is another, by its name;
            ``record`` where records are no dicts.
        metadata: the keys of the metadata that differ.
    """

    before: str
    after: str
    count_before: int
    count_after: int
    spec_before: specs.Structure
    spec_after: specs.Structure
    deleted: Array
    added: Array
    changed: Array
    components: dict[Any, int] = field(default_factory=dict)
    metadata: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether they differ in anything."""
        records = len(self.deleted) + len(self.added) + self.changed.shape[1]
        return bool(records or self.metadata) or not self._is_of_one_spec

    @property
    def _is_of_one_spec(self) -> bool:
        return same_specs(self.spec_before, self.spec_after)

    def __str__(self) -> str:
        lines = [
            f"{self.before} → {self.after}: {self.count_before:,} → {self.count_after:,} records, "
            f"{len(self.added):,} added, {len(self.deleted):,} deleted, "
            f"{self.changed.shape[1]:,} changed"
        ]
        lines += [f"  {_told(name)} changed in {n:,}" for name, n in self.components.items()]
        if not self._is_of_one_spec:
            lines.append(f"  spec {spec_text(self.spec_before)} → {spec_text(self.spec_after)}")
        if self.metadata:
            lines.append(f"  metadata {', '.join(map(_told, self.metadata))} changed")
        return "\n".join(lines)


def _told(name: Any) -> str:
    """A name as a line of text may have it."""
    text = str(name)
    return text if text.isprintable() else repr(text)


def diff_of(
    before: Made,
    after: Made,
    made_of: Callable[[str], Made],
    readers: Callable[[], tuple[RecordReader, RecordReader]],
) -> VersionDiff:
    """What two versions of an id differ in.

    Where one follows from the other, that is told by the commits between them, and where they have
    different specs, by those since the version that both were made from; else records are the same
    if their tokens are, which are 64 bits, or those of the components that both have.

    Only changed records are read; where components were changed, what was stored anew of those that
    both have; and all of the components that both have if the specs differ, and nothing is known.

    Args:
        before: the one.
        after: the other.
        made_of: what is made of another version of the id.
        readers: opens both, if need be.
    """
    changes = _changes(before, after, made_of, readers)
    pairs, deleted, added = _paired(changes, before.count)
    leaves = common_leaves(before.spec, after.spec)
    may_differ = {name: np.ones(pairs.shape[1], bool) for name in leaves}
    # Otherwise only what is nested otherwise is another in records that stay.
    stay = {name: own for name, own in leaves.items() if changes.of_components or own is None}
    if stay:
        found = _stored_anew(before, after, changes.hunks, stay)
        pairs, may_differ = _put_together((pairs, may_differ), found)
    differing = differing_components(pairs, may_differ, *readers(), leaves) if pairs.size else {}
    if differing:
        pairs = pairs[:, np.any(list(differing.values()), axis=0)]
    keys = sorted({*before.metadata, *after.metadata})
    return VersionDiff(
        before.dataset_version,
        after.dataset_version,
        before.count,
        after.count,
        before.spec,
        after.spec,
        deleted=deleted,
        added=added,
        changed=pairs,
        components={name: int(own.sum()) for name, own in differing.items() if own.any()},
        metadata=tuple(
            key
            for key in keys
            if not same_json(before.metadata.get(key, MISSING), after.metadata.get(key, MISSING))
        ),
    )


def _changes(
    before: Made,
    after: Made,
    made_of: Callable[[str], Made],
    readers: Callable[[], tuple[RecordReader, RecordReader]],
) -> Changes:
    found = changes_since(made_of, after, before)
    if found is not None:
        return found
    found = changes_since(made_of, before, after)
    if found is not None:
        return found.inverted()
    if not before.has_spec_of(after):
        found = changes_between(made_of, before, after)
        if found is not None:
            return found
    if before.has_spec_of(after):
        tokens = [reader.tokens(np.arange(len(reader))) for reader in readers()]
        return Changes(_matched(*tokens), of_components=False)
    leaves = common_leaves(before.spec, after.spec)
    if not any(leaves.values()):
        return Changes(Hunks.of([(0, before.count, after.count)]), of_components=False)
    all_tokens, of_one_spec = tokens_in_common(*readers(), leaves)
    hunks = _matched(*all_tokens)
    edits = () if of_one_spec is None else (Edit(_aligned(hunks, *of_one_spec)),)
    return Changes(hunks, of_components=False, edits=edits)


def _matched(tokens: Array, others: Array) -> Hunks:
    """What one version changes of another, by the tokens of their records."""
    runs = matched(tokens, others, lambda places, _: np.ones(len(places), bool))
    return hunks_of(runs, len(tokens))[0]


def _aligned(hunks: Hunks, tokens: Array, others: Array) -> Hunks:
    """The same changes in smaller ones that touch, so that records stand in for those of which they
    have the tokens."""
    found: list[tuple[int, int, int]] = []
    firsts = hunks.moved(hunks.starts, ends=True).tolist()
    for (start, stop, count), first in zip(hunks.triples(), firsts, strict=True):
        if (stop - start, count) == (1, 1):
            found.append((start, stop, count))
            continue
        inner = _matched(tokens[start:stop], others[first : first + count])
        at = 0
        for begin, end, new in [*inner.triples(), (stop - start, stop - start, 0)]:
            found.append((start + at, start + begin, begin - at))
            found.append((start + begin, start + end, new))
            at = end
    return Hunks(*np.array(found, np.int64).reshape(-1, 3).T.copy()).effective()


def _paired(changes: Changes, count: int) -> tuple[Array, Array, Array]:
    """Positions in both, int64 ``[2, n]``, of those that stand in for others, and positions
    of records that only one of them has.

    Args:
        changes: of the one.
        count: its records.
    """
    hunks = changes.hunks
    now = standing(changes.edits or (Edit(hunks),), count)
    old = _ranges(hunks.starts, hunks.stops - hunks.starts)
    new = _ranges(hunks.moved(hunks.starts, ends=True), hunks.counts)
    sources, places = now.at(new)
    # What was taken back may have come to stand elsewhere meanwhile.
    numbers = np.repeat(np.arange(len(hunks)), hunks.counts)
    is_there = (hunks.starts[numbers] <= places) & (places < hunks.stops[numbers])
    stands_in = (sources == PARENT) & is_there
    pairs = np.stack([places[stands_in], new[stands_in]])
    return pairs, np.setdiff1d(old, pairs[0], assume_unique=True), new[~stands_in]


def _stored_anew(
    before: Made, after: Made, hunks: Hunks, leaves: LeafPairs
) -> tuple[Array, dict[Any, Array]]:
    """The positions in both, int64 ``[2, n]``, of records that stay, and of which some leaves that
    both versions have were stored anew, so that they may be others; and of each component, in which
    of them it may be, bool ``[n]``."""
    places, whole = LeafPlaces(before, after), hunks.applied(before.count, PARENT + 1)
    found = [np.empty((2, 0), np.int64)]
    masks = {name: [np.empty(0, bool)] for name in leaves}
    for start in range(0, after.count, _STEP):
        positions = np.arange(start, min(start + _STEP, after.count))
        sources, old = whole.at(positions)
        stays = sources == PARENT
        pairs = np.stack([old[stays], positions[stays]])
        own = places.may_differ(pairs, leaves)
        some = np.any(list(own.values()), axis=0)
        found.append(pairs[:, some])
        for name, mask in own.items():
            masks[name].append(mask[some])
    return np.concatenate(found, axis=1), {
        name: np.concatenate(parts) for name, parts in masks.items()
    }


def _put_together(
    one: tuple[Array, Mapping[Any, Array]], two: tuple[Array, Mapping[Any, Array]]
) -> tuple[Array, dict[Any, Array]]:
    """Positions and masks of both, see :func:`_stored_anew`, in the order of the first positions;
    of the components of the one."""
    pairs = np.concatenate([one[0], two[0]], axis=1)
    order, none = np.argsort(pairs[0]), np.zeros(two[0].shape[1], bool)
    masks = {
        name: np.concatenate([mask, two[1].get(name, none)])[order] for name, mask in one[1].items()
    }
    return pairs[:, order], masks


def _ranges(starts: Array, counts: Array) -> Array:
    """All numbers of some ranges, int64."""
    firsts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    found: Array = firsts + np.arange(len(firsts))
    return found
