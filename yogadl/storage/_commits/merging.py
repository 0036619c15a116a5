"""Small parts that commits have made, put together when there are many, so that a version of a long
chain is read like one of few commits.

A commit that finds many parts of about one size rewrites the records in them that its parent has,
together with those in smaller ones, into one part; the others stay for the versions that have them.
So each record is rewritten once for every sixteen-fold size that its part grows to, and a version
has some tens of small parts at most, however long the chain is. Parts that no commit made are left
alone, and so are large ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import ColumnGroup, PartList, StoredGroups, whole_runs
from yogadl.format import spec_json
from yogadl.storage._commits.made import Made, runs_of, stored_runs
from yogadl.storage._commits.new_records import PartWriter, places_of, projected
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

MOST_SMALL = 32
"""Parts of about one size that a version has before they are put together."""

_LARGE_BYTES = 32 << 20
# Sizes are about the same whose numbers have as many digits in this base.
_TIER_BITS = 4


@dataclass(frozen=True)
class Rewritten:
    """Records of some parts of a column group that are in others, too.

    Attributes:
        runs: by the digest of a part, which of the rewritten records its records are: runs of
            source 1, and of source 0 where a record is not among them, all in order.
        parts: with the rewritten records.
    """

    runs: dict[bytes, Runs]
    parts: PartList

    def applied(self, group: ColumnGroup) -> ColumnGroup:
        """The same records, from the rewritten ones where these have them."""
        numbers = {
            number: self.runs[digest]
            for number, digest in enumerate(group.parts.digests)
            if digest in self.runs
        }
        if not numbers:
            return group
        both = PartList()
        both.extend(group.parts)
        both.extend(self.parts)
        # The rewritten records, as if they were in one part behind all others.
        behind = len(both)
        wholes = {
            number: runs.renumbered(np.array([number, behind])) for number, runs in numbers.items()
        }
        own = whole_runs(self.parts)
        sequence = Runs(
            own["part"].astype("i8") + len(group.parts),
            own["first"].astype("i8"),
            own["count"].astype("i8"),
        )
        runs = runs_of(group).through(wholes).through({behind: sequence})
        return ColumnGroup(group.spec, both, stored_runs(runs))


def rewritten(made: Made, reader: RecordReader, writer: PartWriter) -> list[Rewritten | None]:
    """Puts small parts of a version together, of each column group that has many.

    Args:
        made: of what the version is made.
        reader: of its records.
        writer: by which parts are stored.

    Raises:
        YogadlError: they cannot be read or stored.
    """
    found: list[Rewritten | None] = []
    for number, group in enumerate(made.stored.groups):
        chosen = _many_small(group, made.young)
        view = _view(made.stored, number, reader) if len(chosen) else None
        found.append(None if view is None else _rewrite(group, chosen, view, writer))
    return found


def _view(stored: StoredGroups, number: int, reader: RecordReader) -> RecordReader | None:
    """Reads the records of a group; ``None`` if the version has not all of their leaves."""
    if stored.leaves is None:
        return reader
    spec: specs.Structure = spec_json.from_json(json.loads(stored.groups[number].spec))
    places = places_of(stored.leaves, number, spec)
    known = [place for place in places if place is not None]
    return projected(reader, spec, known) if len(known) == len(places) else None


def _many_small(group: ColumnGroup, young: Collection[bytes]) -> Array:
    """The numbers of the parts to put together."""
    used = set(np.unique(group.runs["part"]).tolist())
    sizes = group.parts.array["size"].tolist()
    tiers: dict[int, list[int]] = {}
    for number, digest in enumerate(group.parts.digests):
        if number in used and digest in young and sizes[number] < _LARGE_BYTES:
            tiers.setdefault(sizes[number].bit_length() // _TIER_BITS, []).append(number)
    full = [tier for tier, numbers in tiers.items() if len(numbers) >= MOST_SMALL]
    chosen = [
        number
        for tier, numbers in tiers.items()
        if full and tier <= max(full)
        for number in numbers
    ]
    return np.array(chosen, np.int64)


def _rewrite(
    group: ColumnGroup, chosen: Array, view: RecordReader, writer: PartWriter
) -> Rewritten:
    runs = runs_of(group)
    starts = np.cumsum(runs.counts) - runs.counts
    is_chosen = np.isin(runs.sources, chosen)
    begins, counts = starts[is_chosen], runs.counts[is_chosen]
    ends = np.cumsum(counts)
    positions = np.repeat(begins - (ends - counts), counts) + np.arange(counts.sum())
    # What is cut into as small parts as before would be put together again by the next commit.
    parts = writer.of_larger_parts(_LARGE_BYTES).write_reader(view, positions)
    digests = group.parts.digests
    sizes = group.parts.array["count"].astype("i8")
    found: dict[bytes, Runs] = {}
    sources, firsts = runs.sources[is_chosen], runs.firsts[is_chosen]
    for number in chosen.tolist():
        is_own = sources == number
        # Where a record is meant twice, either will do.
        order = np.argsort(firsts[is_own], kind="stable")
        pieces, reached = [], 0
        for first, count, at in zip(
            firsts[is_own][order].tolist(),
            counts[is_own][order].tolist(),
            (ends - counts)[is_own][order].tolist(),
            strict=True,
        ):
            skipped = max(0, reached - first)
            pieces.append((0, reached, max(0, first - reached)))
            pieces.append((1, at + skipped, max(0, count - skipped)))
            reached = max(reached, first + count)
        pieces.append((0, reached, int(sizes[number]) - reached))
        found[digests[number]] = Runs.of(pieces)
    return Rewritten(found, parts)
