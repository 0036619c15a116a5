"""Two changes of one parent, made one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.versions.hunks import Hunks

Array = np.ndarray[Any, Any]


class OverlapError(Exception):
    """Both changed some of the same records.

    Attributes:
        positions: of the first and the last of some of these in the parent.
    """

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first, last)
        self.positions = first, last


def rebased(ours: Hunks, theirs: Hunks) -> Hunks:
    """Our changes as changes of their version; the records that stand in for others stay in order.

    What both have inserted at one place stands there one behind the other, theirs first. Where as
    many records stand in for a range as it had, each stands in for one, so what the others have
    inserted between two of these stays between them; else it comes behind all of them.

    Args:
        ours, theirs: changes of one parent.

    Raises:
        OverlapError: both replace or delete a record.
    """
    _check_apart(ours, theirs)
    ours = _behind(_split(ours, theirs), theirs)
    is_insert = ours.starts == ours.stops
    starts = theirs.moved(ours.starts)
    stops = np.where(is_insert, starts, theirs.moved(ours.stops, ends=True))
    return Hunks(starts, stops, ours.counts).effective()


def _check_apart(ours: Hunks, theirs: Hunks) -> None:
    """Sees that no record is in a range of both."""
    replaced = theirs.stops > theirs.starts
    starts, stops = theirs.starts[replaced], theirs.stops[replaced]
    # The first of theirs that ends behind the beginning of each of ours.
    after = np.searchsorted(stops, ours.starts, side="right")
    beyond = np.append(starts, np.iinfo(np.int64).max)[after]
    meets = (beyond < ours.stops) & (ours.stops > ours.starts)
    if meets.any():
        at = int(np.flatnonzero(meets)[0])
        their = int(after[at])
        first = max(int(ours.starts[at]), int(starts[their]))
        last = min(int(ours.stops[at]), int(stops[their])) - 1
        raise OverlapError(first, last)


def _one_by_one(hunks: Hunks) -> Array:
    """Of each whether as many records stand in for a range as it has."""
    found: Array = hunks.counts == hunks.stops - hunks.starts
    return found


def _split(ours: Hunks, theirs: Hunks) -> Hunks:
    """Ours, cut where they have inserted something inside a range of ours, which stays then."""
    places = theirs.starts[theirs.starts == theirs.stops]
    firsts = np.searchsorted(places, ours.starts, side="right")
    lasts = np.searchsorted(places, ours.stops, side="left")
    cuts = np.maximum(lasts - firsts, 0)
    if not cuts.any():
        return ours
    pieces = cuts + 1
    hunks = np.repeat(np.arange(len(ours)), pieces)
    within = np.arange(len(hunks)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    is_first, is_last = within == 0, within == pieces[hunks] - 1
    padded = np.append(places, 0)
    starts = np.where(is_first, ours.starts[hunks], padded[firsts[hunks] + within - 1])
    stops = np.where(is_last, ours.stops[hunks], padded[firsts[hunks] + within])
    together = np.where(is_first, ours.counts[hunks], 0)
    return Hunks(starts, stops, np.where(_one_by_one(ours)[hunks], stops - starts, together))


def _behind(ours: Hunks, theirs: Hunks) -> Hunks:
    """Ours, with what was inserted inside a range that they replace, not one by one, behind it."""
    replaced = (theirs.stops > theirs.starts) & ~_one_by_one(theirs)
    starts, stops = theirs.starts[replaced], theirs.stops[replaced]
    if not len(starts):
        return ours
    within = np.searchsorted(starts, ours.starts, side="left") - 1
    is_inside = (
        (ours.starts == ours.stops) & (within >= 0) & (ours.starts < stops[np.maximum(within, 0)])
    )
    if not is_inside.any():
        return ours
    places = np.where(is_inside, stops[np.maximum(within, 0)], ours.starts)
    return Hunks(places, np.where(is_inside, places, ours.stops), ours.counts)
