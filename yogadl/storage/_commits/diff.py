"""What two versions differ in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.record_reader import RecordReader
from yogadl.format.spec_text import spec_text
from yogadl.storage._commits.commit import MISSING, same_json
from yogadl.storage._commits.lineage import hunks_since
from yogadl.storage._commits.made import Made
from yogadl.versions.hunks import Hunks, hunks_of
from yogadl.versions.matching import matched

Array = np.ndarray[Any, Any]

_STEP = 4096


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
            ``[2, c]``.
        components: of how many of the changed records each component is another.
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
    components: dict[str, int] = field(default_factory=dict)
    metadata: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether they differ in anything."""
        records = len(self.deleted) + len(self.added) + self.changed.shape[1]
        return bool(records or self.metadata) or self.spec_before != self.spec_after

    def __str__(self) -> str:
        lines = [
            f"{self.before} → {self.after}: {self.count_before:,} → {self.count_after:,} records, "
            f"{len(self.added):,} added, {len(self.deleted):,} deleted, "
            f"{self.changed.shape[1]:,} changed"
        ]
        lines += [f"  {name} changed in {count:,}" for name, count in self.components.items()]
        if self.spec_before != self.spec_after:
            lines.append(f"  spec {spec_text(self.spec_before)} → {spec_text(self.spec_after)}")
        if self.metadata:
            lines.append(f"  metadata {', '.join(self.metadata)} changed")
        return "\n".join(lines)


def diff_of(
    before: Made,
    after: Made,
    made_of: Callable[[tuple[str, str]], Made],
    readers: Callable[[], tuple[RecordReader, RecordReader]],
) -> VersionDiff:
    """What two versions of an id differ in.

    Where one follows from the other, that is told by the commits between them; else records are
    the same if their tokens are, which are 64 bits. Only changed records are read.

    Args:
        before: the one.
        after: the other.
        made_of: what is made of an id and version.
        readers: opens both, if need be.
    """
    hunks = _hunks(before, after, made_of, readers)
    olds, news = hunks.stops - hunks.starts, hunks.counts
    both = np.minimum(olds, news)
    new_starts = hunks.moved(hunks.starts, ends=True)
    changed = np.stack([_ranges(hunks.starts, both), _ranges(new_starts, both)])
    keys = sorted({*before.metadata, *after.metadata})
    return VersionDiff(
        before.dataset_version,
        after.dataset_version,
        before.count,
        after.count,
        before.spec,
        after.spec,
        deleted=_ranges(hunks.starts + both, olds - both),
        added=_ranges(new_starts + both, news - both),
        changed=changed,
        components=_components(changed, *readers()) if changed.shape[1] else {},
        metadata=tuple(
            key
            for key in keys
            if not same_json(before.metadata.get(key, MISSING), after.metadata.get(key, MISSING))
        ),
    )


def _hunks(
    before: Made,
    after: Made,
    made_of: Callable[[tuple[str, str]], Made],
    readers: Callable[[], tuple[RecordReader, RecordReader]],
) -> Hunks:
    found = hunks_since(made_of, after, before)
    if found is not None:
        return found
    found = hunks_since(made_of, before, after)
    if found is not None:
        return found.inverted()
    if before.spec != after.spec:
        return Hunks.of([(0, before.count, after.count)])
    one, two = readers()
    tokens, others = (reader.tokens(np.arange(len(reader))) for reader in (one, two))
    runs = matched(tokens, others, lambda places, _: np.ones(len(places), bool))
    return hunks_of(runs, before.count)[0]


def _ranges(starts: Array, counts: Array) -> Array:
    """All numbers of some ranges, int64."""
    firsts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    found: Array = firsts + np.arange(len(firsts))
    return found


def _components(changed: Array, before: RecordReader, after: RecordReader) -> dict[str, int]:
    """In how many of some pairs of records each component differs that both have."""
    names, leaves = _common_leaves(before.spec, after.spec)
    counts = dict.fromkeys(names, 0)
    for start in range(0, changed.shape[1], _STEP):
        old = before.read_columns(changed[0, start : start + _STEP])
        new = after.read_columns(changed[1, start : start + _STEP])
        for name in counts:
            differ = np.zeros(len(changed[0, start : start + _STEP]), bool)
            for one, two in leaves[name]:
                differ |= differing(old[one], new[two])
            counts[name] += int(differ.sum())
    return {name: count for name, count in counts.items() if count}


def _common_leaves(
    before: specs.Structure, after: specs.Structure
) -> tuple[list[str], dict[str, list[tuple[int, int]]]]:
    """The components that both have of one spec, and the numbers of their leaves in each."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        count = len(list(specs.leaves(before)))
        pairs = [(at, at) for at in range(count)] if before == after else []
        return ["record"], {"record": pairs}
    found: dict[str, list[tuple[int, int]]] = {}
    places = []
    for spec in (before, after):
        numbers = list(range(len(list(specs.leaves(spec)))))
        places.append(specs.unflatten(spec, numbers))
    for name, child in before.items():
        if name in after and after[name] == child:
            one = specs.flatten(child, places[0][name])
            two = specs.flatten(child, places[1][name])
            found[str(name)] = list(zip(one, two, strict=True))
    return list(found), found


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
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(_same, one, two))
    first, second = np.asarray(one), np.asarray(two)
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype == object:
        return bool(first.tolist() == second.tolist())
    return bool(first.tobytes() == second.tobytes())
