"""Finding the records of one version again in another that was made without knowing it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.versions.hunks import PARENT
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

NEW = 1
"""The number of the source of records that are not in the parent."""

_STEP = 64
_LONGEST_STEP = 1 << 20
# Places in the parent that are tried for the beginning of a run.
_TRIED = 8
# Records by which these are compared.
_LOOK = 64


def matched(parent: Array, tokens: Array, are_equal: Callable[[Array, Array], Array]) -> Runs:
    """A version as runs of its parent's records, and of new ones, which are source ``NEW``.

    Equal records have equal tokens, and nearly always the other way round.

    Args:
        parent: the tokens of the parent's records, uint64 ``[m]``.
        tokens: those of the version's records, uint64 ``[n]``.
        are_equal: says which of some records are those of the parent, bool ``[k]``, of positions
            in the version and as many in the parent, int64 ``[k]``.
    """
    found = Runs.of(_runs(parent, tokens))
    return _checked(found, are_equal)


def _runs(parent: Array, tokens: Array) -> list[tuple[int, int, int]]:
    order = np.argsort(parent, kind="stable")
    ranked = parent[order]
    lows = np.searchsorted(ranked, tokens, side="left")
    highs = np.searchsorted(ranked, tokens, side="right")
    known = np.flatnonzero(highs > lows)
    runs: list[tuple[int, int, int]] = []
    at, expected, new = 0, 0, 0
    while at < len(tokens):
        if highs[at] == lows[at]:
            # All up to the next that is known are new.
            later = np.searchsorted(known, at)
            stop = int(known[later]) if later < len(known) else len(tokens)
            runs.append((NEW, new, stop - at))
            # As many as these may have been replaced.
            new, expected, at = new + stop - at, expected + stop - at, stop
            continue
        candidates = order[lows[at] : min(highs[at], lows[at] + _TRIED)].tolist()
        replaced = runs[-1][2] if runs and runs[-1][0] == NEW else 0
        near = [expected, expected - replaced, expected + 1]
        tried = [place for place in near if 0 <= place < len(parent)] + candidates
        best = max(tried, key=lambda place: _common(parent, tokens, place, at, _LOOK))
        count = _common(parent, tokens, best, at, len(tokens))
        runs.append((PARENT, best, count))
        at, expected = at + count, best + count
    return runs


def _common(parent: Array, tokens: Array, place: int, at: int, most: int) -> int:
    """How many tokens from ``at`` on are those of the parent from ``place`` on."""
    most = min(most, len(parent) - place, len(tokens) - at)
    done, step = 0, _STEP
    while done < most:
        size = min(step, most - done)
        differ = np.flatnonzero(
            parent[place + done : place + done + size] != tokens[at + done : at + done + size]
        )
        if len(differ):
            return done + int(differ[0])
        done, step = done + size, min(2 * step, _LONGEST_STEP)
    return done


def _checked(found: Runs, are_equal: Callable[[Array, Array], Array]) -> Runs:
    """The same without records that only have the token of the one that they were found to be."""
    starts = np.cumsum(found.counts) - found.counts
    runs: list[tuple[int, int, int]] = []
    new = 0
    for start, (source, first, count) in zip(starts.tolist(), found.triples(), strict=True):
        if source == NEW:
            runs.append((NEW, new, count))
            new += count
            continue
        for low in range(0, count, _LONGEST_STEP):
            some = np.arange(low, min(low + _LONGEST_STEP, count))
            equal = are_equal(start + some, first + some)
            edges = np.flatnonzero(np.diff(equal)) + 1
            bounds = [0, *edges.tolist(), len(some)]
            for begin, end in itertools.pairwise(bounds):
                if equal[begin]:
                    runs.append((PARENT, first + low + begin, end - begin))
                else:
                    runs.append((NEW, new, end - begin))
                    new += end - begin
    return Runs.of(runs).joined()
