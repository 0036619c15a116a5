"""The records that a commit adds, and what the version's identity becomes by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.cache.content_id import TokenSums, sums_of_slices, sums_of_tokens
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import (
    ColumnGroup,
    ColumnLayout,
    PartList,
    StoredGroups,
    sums_of_runs,
    whole_runs,
)
from yogadl.format.record_keys import MOST_RECORDS
from yogadl.storage._commits.made import Made, runs_from, runs_of, stored_runs
from yogadl.storage._commits.new_records import NewRecords
from yogadl.versions.hunks import PARENT, Hunks
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

NEW = 1
"""The number of the source of new records."""

# More than any part has records.
_FAR = 2 * MOST_RECORDS


@dataclass(frozen=True)
class NewRuns:
    """The records that stand in for others in a version, in order.

    Attributes:
        layout: how their leaves are spread over column groups.
        groups: of each column group the parts that have them, and their runs, whose sources are the
            numbers of these parts.
        tokens: of them, uint64 ``[n]``.
        young: digests of those of the parts that commits made.
    """

    layout: ColumnLayout
    groups: tuple[tuple[PartList, Runs], ...]
    tokens: Array
    young: frozenset[bytes]

    def alone(self, spec: bytes) -> StoredGroups:
        """Of what a version of just these records is made.

        Args:
            spec: of the version, as JSON.
        """
        groups = tuple(
            ColumnGroup(text, parts, stored_runs(runs))
            for text, (parts, runs) in zip(self.layout.specs, self.groups, strict=True)
        )
        if self.layout.leaves is None:
            return StoredGroups(self.layout.specs[0], groups, None)
        return StoredGroups(spec, groups, list(self.layout.leaves))


def put_together(
    runs: Runs, sources: Sequence[NewRecords], made: Made, reader: RecordReader
) -> NewRuns:
    """The records of some runs, as parts.

    Args:
        runs: of the version that is changed, ``PARENT``, and of others, which count from 1 on.
        sources: those.
        made: of what the version is made.
        reader: of it.
    """
    groups = []
    for number, group in enumerate(made.stored.groups):
        parts, wholes = PartList(), {PARENT: runs_of(group)}
        parts.extend(group.parts)
        for source, new in enumerate(sources, start=1):
            own = runs_from(whole_runs(new.groups[number]))
            wholes[source] = Runs(own.sources + len(parts), own.firsts, own.counts)
            parts.extend(new.groups[number])
        groups.append((parts, runs.through(wholes) if len(runs) else runs))
    tokens = [np.empty(0, "u8")]
    for source, first, count in runs.triples():
        if source == PARENT:
            tokens.append(reader.tokens(np.arange(first, first + count)))
        else:
            tokens.append(sources[source - 1].tokens[first : first + count])
    young = {digest for new in sources for parts in new.groups for digest in parts.digests}
    return NewRuns(made.stored.layout, tuple(groups), np.concatenate(tokens), frozenset(young))


def sums_after(
    reader: Callable[[bool], RecordReader],
    base: Made,
    hunks: Hunks,
    new: NewRuns,
    stored: StoredGroups,
) -> TokenSums:
    """The sums over the tokens of a version; few of the records that stay are read for them.

    Args:
        reader: opens the base, of which all records are to be read or not.
        base, hunks, new: what the version is made of.
        stored: the version.
    """
    replaced = hunks.stops - hunks.starts
    stays = (replaced == hunks.counts) | (hunks.stops == base.count)
    if stays.all():
        old = np.repeat(hunks.starts - (np.cumsum(replaced) - replaced), replaced)
        old += np.arange(len(old))
        tokens = reader(False).tokens(old) if len(old) else np.empty(0, "u8")
        return _replaced(base.sums, old, tokens, hunks, new.tokens)
    if base.stored.leaves is None:
        (group,) = stored.groups
        tokens_of = _tokens_of_parts(reader(False), base, new)
        return sums_of_runs(group.parts, group.runs, tokens_of)
    return _sums_in_order(reader(True), hunks, new.tokens, base.count)


def _replaced(
    sums: TokenSums, old: Array, old_tokens: Array, hunks: Hunks, new_tokens: Array
) -> TokenSums:
    """The sums over the tokens of a version of which only records that stay in their places were
    replaced, or others appended."""
    ones = np.ones(len(old), np.int64)
    gone = sums_of_slices(old_tokens, np.arange(len(old)), ones, old)
    firsts = np.cumsum(hunks.counts) - hunks.counts
    # Places before all of them are those of the parent.
    come = sums_of_slices(new_tokens, firsts, hunks.counts, hunks.starts)
    count = sums.count + hunks.new_count - hunks.old_count
    one, two = (
        (mine - less + more) % 2**64 for mine, less, more in zip(sums.sums, gone, come, strict=True)
    )
    return TokenSums(count, (one, two))


def _tokens_of_parts(
    reader: RecordReader, base: Made, new: NewRuns
) -> Callable[[int, int, int], Array]:
    """See ``sums_of_runs``; of records that are in neither, the tokens are zero."""
    (group,) = base.stored.groups
    ((_, added),) = new.groups
    first_new = len(group.parts)
    old, come = _Users(runs_of(group)), _Users(added)

    def tokens_of(number: int, first: int, count: int) -> Array:
        found = np.zeros(count, "u8")
        if number < first_new:
            places, positions = old.find(number, first, count)
            found[places] = reader.tokens(positions)
        else:
            places, positions = come.find(number - first_new, first, count)
            found[places] = new.tokens[positions]
        return found

    return tokens_of


class _Users:
    """Finds where in a version the records of its parts are.

    Args:
        runs: of the version; their sources are the numbers of the parts.
    """

    def __init__(self, runs: Runs) -> None:
        order = np.lexsort((runs.firsts, runs.sources))
        # The records of each part behind those of the part before.
        bases = runs.sources[order] * _FAR
        self._firsts = bases + runs.firsts[order]
        self._ends = self._firsts + runs.counts[order]
        self._starts = (np.cumsum(runs.counts) - runs.counts)[order]
        self._reached = np.maximum.accumulate(self._ends)

    def find(self, part: int, first: int, count: int) -> tuple[Array, Array]:
        """Where those are of some records that are used; of each the first place that is found.

        Args:
            part: the number of their part.
            first, count: which of its records.

        Returns:
            Their numbers, from 0 for that of ``first`` on, and their positions in the version.
        """
        first += part * _FAR
        some = slice(
            int(np.searchsorted(self._reached, first, side="right")),
            int(np.searchsorted(self._firsts, first + count)),
        )
        firsts, ends = self._firsts[some], np.minimum(self._ends[some], first + count)
        # Behind what those before them have.
        done = np.append(first, self._reached[some])[:-1]
        lows = np.maximum(firsts, done)
        lengths = np.maximum(ends - lows, 0)
        counted = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.repeat(lows - first, lengths) + counted
        return places, np.repeat(self._starts[some] + lows - firsts, lengths) + counted


def _sums_in_order(reader: RecordReader, hunks: Hunks, new_tokens: Array, count: int) -> TokenSums:
    """The sums over all tokens of a version, for which all records are read that stay."""
    whole = hunks.applied(count, NEW)
    total = whole.record_count

    def tokens(positions: Array) -> Array:
        sources, places = whole.at(positions)
        found = np.empty(len(positions), "u8")
        is_new = sources == NEW
        found[is_new] = new_tokens[places[is_new]]
        found[~is_new] = reader.tokens(places[~is_new])
        return found

    return sums_of_tokens(total, tokens)
