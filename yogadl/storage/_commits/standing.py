"""Which records of a version are those of another one, or stand in for them, by the commits between
the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yogadl.versions.hunks import PARENT, Hunks
from yogadl.versions.runs import Runs

_NONE = PARENT + 1
"""Stands for records that stand in for none."""


@dataclass(frozen=True)
class Edit:
    """What a commit has changed of the version before it.

    Attributes:
        hunks: which records stand in for others.
        takes_back: the number of the one before it that it takes back; ``None`` for none.
    """

    hunks: Hunks
    takes_back: int | None = None


def inverted(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """What leads back from where some edits have led."""
    last = len(edits) - 1
    # What took back another one is taken back in turn when that is taken back.
    back = {edit.takes_back: last - number for number, edit in enumerate(edits)}
    return tuple(
        Edit(edits[number].hunks.inverted(), back.get(number)) for number in range(last, -1, -1)
    )


def one_after_the_other(first: Sequence[Edit], then: Sequence[Edit]) -> tuple[Edit, ...]:
    """Some edits, and others of what they have led to."""
    moved = [
        Edit(edit.hunks, None if edit.takes_back is None else edit.takes_back + len(first))
        for edit in then
    ]
    return (*first, *moved)


def standing(edits: Sequence[Edit], count: int) -> Runs:
    """The records that some edits have led to, from a version of so many, those of ``PARENT``: each
    as the one that it is or stands in for, or of another source if that is none.

    What was taken back stands for what it stood for before.
    """
    wanted = {edit.takes_back for edit in edits}
    before: dict[int, Runs] = {}
    whole = Runs.whole(PARENT, count)
    for number, edit in enumerate(edits):
        if number in wanted:
            before[number] = whole
        hunks, total, found = edit.hunks, whole.record_count, None
        if edit.takes_back in before:
            other = edits[edit.takes_back].hunks
            if hunks.new_count == other.old_count:
                back = before[edit.takes_back].taken(other.starts, other.stops)
                found = hunks.applied(total, _NONE).through({PARENT: whole, _NONE: back})
        if found is None or not in_order(found):
            # Not all came back, or whatever it says that it has taken back.
            found = hunks.standing(total, _NONE).through({PARENT: whole})
        whole = found
    return whole


def in_order(runs: Runs) -> bool:
    """Whether the records of ``PARENT`` come in the order that they have there."""
    is_of_parent = runs.sources == PARENT
    firsts, counts = runs.firsts[is_of_parent], runs.counts[is_of_parent]
    return bool((firsts[1:] >= (firsts + counts)[:-1]).all())
