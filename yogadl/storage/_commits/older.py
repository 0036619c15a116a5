"""Records that come back beside those that another commit, an older one, has put back before.

The hunks of neither commit tell their order, but the version that both come from does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.storage._commits.lineage import Origins
from yogadl.versions.hunks import PARENT, Hunks
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

_NEW = 1


def in_old_order(ours: Hunks, theirs: Hunks, count: int, found: Origins) -> Hunks:
    """Our changes, with what they insert beside what theirs have put in put where it was.

    Args:
        ours: take back a commit; of the version that theirs have made.
        theirs: of the version of that commit, which has so many records.
        count: so many.
        found: where the records were.
    """
    come = found.before.taken(found.changes.starts, found.changes.stops)
    if come.record_count != ours.new_count:
        return ours
    runs = theirs.applied(count, _NEW)
    stops = np.cumsum(runs.counts)
    firsts = np.cumsum(ours.counts) - ours.counts
    hunks: list[tuple[int, int, int]] = []
    for (start, stop, new), first in zip(ours.triples(), firsts.tolist(), strict=True):
        places = None
        if start == stop:
            come_from = _were(come, first, first + new)
            begin, end = _new_around(runs, stops, start)
            places = _places(come_from, _were(found.head, begin, end), begin)
            if places is None:
                places = _places(come_from, _were(found.head, begin, start), begin)
        if places is None:
            hunks.append((start, stop, new))
        else:
            found_at, counts = np.unique(places, return_counts=True)
            hunks += [
                (at, at, many) for at, many in zip(found_at.tolist(), counts.tolist(), strict=True)
            ]
    placed = Hunks(*np.array(hunks, np.int64).reshape(-1, 3).T)
    if (placed.starts[1:] < placed.stops[:-1]).any():
        # Of some it is known where they were, and not of others, which they would come behind.
        return ours
    return placed.grouped()


def _new_around(runs: Runs, stops: Array, position: int) -> tuple[int, int]:
    """From where to where the records around a position are new.

    Args:
        runs: all records.
        stops: where each of the runs ends.
        position: of a record, or behind the last one.
    """
    begin, end = position, position
    number = int(np.searchsorted(stops, position))
    # The run that ends there, or has it, and that which begins there.
    for source, count, stop in zip(
        *(it[number : number + 2].tolist() for it in (runs.sources, runs.counts, stops)),
        strict=True,
    ):
        if source == _NEW and stop - count <= position:
            begin, end = min(begin, stop - count), max(end, stop)
    return begin, end


def _were(runs: Runs, start: int, stop: int) -> Array | None:
    """Where some records were, if all are known, and came in this order; int64 ``[n]``."""
    sources, places = runs.at(np.arange(start, stop))
    is_known = bool((sources == PARENT).all() and (np.diff(places) > 0).all())
    return places if is_known else None


def _places(ours: Array | None, theirs: Array | None, begin: int) -> Array | None:
    """Before which records ours come, of theirs, which begin at a position."""
    if ours is None or theirs is None:
        return None
    return begin + np.searchsorted(theirs, ours)
