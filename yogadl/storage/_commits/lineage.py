"""What versions have changed of those that they were made from."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from yogadl.errors import CacheFormatError, CacheNotFoundError, InvalidArgumentError
from yogadl.storage._commits.by_parts import among, have_parts_in_common, hunks_by_parts
from yogadl.storage._commits.made import Made
from yogadl.storage._commits.standing import Edit, in_order, inverted, one_after_the_other
from yogadl.storage._commits.user_metadata import metadata_digest
from yogadl.versions.hunks import NO_HUNKS, PARENT, Hunks, hunks_of
from yogadl.versions.runs import NO_RUNS, Runs

_log = logging.getLogger(__name__)

_LONGEST_CHAIN = 10_000
_OF_COMMON, _OF_AFTER = 1, 2
"""Stand for records of a common ancestor, and of one of its descendants, beside ``PARENT``."""
_NEW = -1
"""Stands for records of which it is not known where they were."""


@dataclass(frozen=True)
class Changes:
    """What a version changes of another.

    Attributes:
        hunks: which records stand in for others.
        of_components: whether components of the records that stay were changed, too.
        steps: the same as changes one after the other, each of what the one before has made: of
            the commits between them, which say more exactly what stands in for what, unless one
            has taken back another.
        has_older: whether one of them has taken back a commit from before them all.
        edits: what each of the commits between them has changed, those taken back among them.
    """

    hunks: Hunks
    of_components: bool
    steps: tuple[Hunks, ...] = ()
    has_older: bool = False
    edits: tuple[Edit, ...] = ()

    def inverted(self) -> Changes:
        """What the other changes of the version."""
        return Changes(self.hunks.inverted(), self.of_components, edits=inverted(self.edits))


NO_CHANGES = Changes(NO_HUNKS, of_components=False)


def is_parent(parent: Made, version: Made) -> bool:
    """Whether a version of the name of another one's first parent has the records of that: it may
    have been replaced."""
    return version.parent_content in ("", parent.content_id)


def changes_of(version: Made, parent: Made) -> Changes | None:
    """What a version changes of its first parent; ``None`` if that is not known.

    Raises:
        CacheFormatError: it tells of impossible changes.
    """
    is_other = not version.has_spec_of(parent)
    if version.hunks is None:
        is_told = bool(version.parent_content) and not is_other
        found = hunks_by_parts(version, parent) if is_told else None
        return None if found is None else Changes(found, of_components=False)
    hunks = Hunks.from_list(version.hunks, parent.count)
    count = parent.count + hunks.new_count - hunks.old_count
    if count != version.count:
        raise CacheFormatError(
            f"version {version.dataset_version!r} does not say rightly what it changed"
        )
    # A commit changes either records or components, and the sums are those of all of them.
    return Changes(hunks, is_other or (not len(hunks) and version.sums != parent.sums))


def changes_since(made_of: Callable[[str], Made], version: Made, before: Made) -> Changes | None:
    """What a version changes of one that it was made from, by any number of commits.

    Args:
        made_of: what is made of another version of the id.
        version: the version.
        before: the other.

    Returns:
        ``None`` if it was not made from it, or it is not known what was changed.
    """
    if version.dataset_version == before.dataset_version:
        # One of them may have been replaced.
        return NO_CHANGES if version.content_id == before.content_id else None
    steps = _steps_to(made_of, version, before, lambda at: at is before)
    if steps is None:
        return None
    hunks = _put_together(steps, before.count)
    ids, taken_back = {step.id for step in steps}, {step.reverts for step in steps} - {""}
    is_exact = ids.isdisjoint(taken_back)
    exact = tuple(step.changes.hunks for step in steps) if is_exact else (hunks,)
    return Changes(hunks, _of_components(steps), exact, not taken_back <= ids, _edits(steps))


def changes_between(made_of: Callable[[str], Made], before: Made, after: Made) -> Changes | None:
    """What a version changes of another that was made from the same one.

    Args:
        made_of: what is made of another version of the id.
        before: the other.
        after: the version.

    Returns:
        ``None`` if there is no version that both were made from, or what was changed is not known.
    """
    common = _common_ancestor(made_of, before, after)
    if common is None:
        return None
    here, there = (changes_since(made_of, it, common) for it in (before, after))
    if here is None or there is None:
        return None
    common_of_before = here.hunks.inverted().applied(before.count, _OF_COMMON)
    whole = there.hunks.applied(common.count, _OF_AFTER).through({PARENT: common_of_before})
    hunks, _ = hunks_of(whole, before.count)
    of_components = here.of_components or there.of_components
    edits = one_after_the_other(inverted(here.edits), there.edits)
    return Changes(hunks, of_components, edits=edits)


def _common_ancestor(made_of: Callable[[str], Made], one: Made, two: Made) -> Made | None:
    """The last version that both were made from; asks for no more than lead there."""
    seen: tuple[set[str], set[str]] = set(), set()
    for pair in itertools.zip_longest(_ancestors(made_of, one), _ancestors(made_of, two)):
        for at, own, others in zip(pair, seen, reversed(seen), strict=True):
            if at is None:
                continue
            own.add(at.dataset_version)
            if at.dataset_version in others:
                return at
    return None


def _ancestors(made_of: Callable[[str], Made], version: Made) -> Iterator[Made]:
    """The versions that one was made from, the last first."""
    seen = {version.dataset_version}
    at = _parent(made_of, version, version)
    while at is not None and at.dataset_version not in seen and len(seen) < _LONGEST_CHAIN:
        yield at
        seen.add(at.dataset_version)
        at = _parent(made_of, at, at)


@dataclass(frozen=True)
class Origins:
    """Where records were in the parent of the oldest of some commits, which is ``PARENT``.

    Attributes:
        head: those of a version that they have led to.
        before: those of the parent of one of them.
        changes: of that one.
    """

    head: Runs
    before: Runs
    changes: Hunks


def origins(made_of: Callable[[str], Made], head: Made, undone: Made) -> Origins | None:
    """Where records were before one commit, and before all that were taken back since.

    Args:
        made_of: what is made of another version of the id.
        head: a version that was made from that of the commit.
        undone: made by the commit.

    Returns:
        ``None`` if it is not known.
    """
    steps = _steps_behind(made_of, head, undone, is_all=True)
    if steps is None:
        # Of some that are far back, it is not known what they changed.
        steps = _steps_behind(made_of, head, undone, is_all=False)
    if steps is None:
        return None
    (number,) = [at for at, step in enumerate(steps) if step.made is undone]
    before = whole = NO_RUNS
    for at, whole in enumerate(_wholes(steps, steps[0].parent.count)):
        before = whole if at == number else before
    if not (in_order(before) and in_order(whole)):
        return None
    return Origins(whole, before, steps[number].changes.hunks)


def _steps_behind(
    made_of: Callable[[str], Made], head: Made, undone: Made, is_all: bool
) -> list[_Step] | None:
    """The commits that have led to a version, from before one of them on, and from before those
    that others have taken back: ``is_all``, also those from before that one."""
    missing, is_behind = set[str](), False

    def is_end(at: Made) -> bool:
        nonlocal is_behind
        if is_behind and not missing:
            return True
        if at.provenance.reverts and (is_all or not (is_behind or at is undone)):
            missing.add(at.provenance.reverts)
        is_behind = is_behind or at is undone
        missing.discard(at.provenance.change or "")
        return False

    return _steps_to(made_of, head, undone, is_end)


def _steps_to(
    made_of: Callable[[str], Made], version: Made, known: Made, is_end: Callable[[Made], bool]
) -> list[_Step] | None:
    """The commits that have led to a version, the oldest first.

    Args:
        made_of: what is made of another version of the id.
        version: the version.
        known: one of those that it was made from, which need not be asked for.
        is_end: is asked of each version, from the last one on, whether it is where to begin.

    Returns:
        ``None`` if that is not found, or it is not known what a commit has changed.
    """
    steps: list[_Step] = []
    at, seen = version, {version.dataset_version}
    while not is_end(at):
        if len(steps) == _LONGEST_CHAIN:
            return None
        parent = _parent(made_of, at, known)
        if parent is None or not is_parent(parent, at):
            return None
        changes = changes_of(at, parent)
        if changes is None:
            return None
        steps.append(_Step(at, parent, changes))
        at = parent
        if at.dataset_version in seen:
            # Copies may have any names.
            return None
        seen.add(at.dataset_version)
    steps.reverse()
    return steps


@dataclass(frozen=True)
class _Step:
    """One commit.

    Attributes:
        made: the version that it made.
        parent: that of which it made it.
        changes: what it changed.
    """

    made: Made
    parent: Made
    changes: Changes

    @property
    def id(self) -> str:
        """Of the commit; of what was made by none, one that nothing has."""
        return self.made.provenance.change or " "

    @property
    def reverts(self) -> str:
        """The id of the commit that it takes back; empty for none."""
        return self.made.provenance.reverts


def _edits(steps: Sequence[_Step]) -> tuple[Edit, ...]:
    """What each of some commits, one after the other, has changed."""
    found: list[Edit] = []
    numbers: dict[str, int] = {}
    for number, step in enumerate(steps):
        found.append(Edit(step.changes.hunks, numbers.get(step.reverts)))
        numbers[step.id] = number
    return tuple(found)


def _put_together(steps: Sequence[_Step], count: int) -> Hunks:
    """What some commits have changed of a version of so many records, one after the other."""
    (whole,) = deque(_wholes(steps, count), maxlen=1)
    return hunks_of(whole, count)[0]


def _wholes(steps: Sequence[_Step], count: int) -> Iterator[Runs]:
    """Where the records of a version of so many were, ``PARENT``, and what each of some commits has
    made of them, one after the other.

    Records that one has replaced and another, which takes that back, has put there again, are those
    of the version.
    """
    taken_back = {step.reverts for step in steps}
    before: dict[str, tuple[_Step, Runs]] = {}
    whole = Runs.whole(PARENT, count)
    yield whole
    for number, step in enumerate(steps, start=1):
        if step.id in taken_back:
            before[step.id] = step, whole
        hunks = step.changes.hunks
        after = hunks.applied(whole.record_count, number)
        back = _put_back(step, *before[step.reverts]) if step.reverts in before else None
        found = None if back is None else after.through({PARENT: whole, number: back})
        if found is None or in_order(found) < in_order(whole):
            # Whatever it says that it has taken back.
            found = after.through({PARENT: whole})
        whole = found
        yield whole


def _put_back(step: _Step, undone: _Step, whole: Runs) -> Runs | None:
    """The records that a commit has put in for others when it took back another one: what was there
    before that.

    Args:
        step: the commit.
        undone: the other.
        whole: the records of the parent of the other: those that are to be known, of ``PARENT``.

    Returns:
        ``None`` if that is not known.
    """
    hunks, other = step.changes.hunks.inverted(), undone.changes.hunks
    made, parent = step.made, undone.parent
    places, others = (hunks.starts, hunks.stops), (other.starts, other.stops)
    if None not in (made.hunks, undone.made.hunks):
        # They come back in the order in which they were.
        is_all = hunks.old_count == other.old_count
        return whole.taken(*others) if is_all else None
    if not (hunks.old_count and other.old_count and have_parts_in_common(made, parent)):
        return None
    # Records that others were moved across count as changed, too.
    found = among(made, places, parent, others)
    return found.renumbered(np.array([PARENT, _NEW])).through({PARENT: whole})


def _of_components(steps: Sequence[_Step]) -> bool:
    """Whether components are changed, and not changed back, by some commits one after the other."""
    # Of each commit the one that it takes back, or that what it takes back has taken back.
    firsts: dict[str, int] = {}
    are_changed: dict[int, bool] = {}
    parents: dict[str, Made] = {}
    for number, step in enumerate(steps):
        parent = parents.get(step.reverts)
        is_back = parent is not None and parent.sums == step.made.sums
        first = firsts[step.reverts] if is_back else number
        firsts[step.id], parents[step.id] = first, step.parent
        if step.changes.of_components:
            are_changed[first] = not are_changed.get(first, False)
    return any(are_changed.values())


def taken_back_by(made_of: Callable[[str], Made], head: Made, undone: Made) -> str | None:
    """The first version that took back a commit; empty if none has.

    Args:
        made_of: what is made of another version of the id.
        head: a version.
        undone: made by the commit.

    Returns:
        ``None`` if the version was not made from that of the commit, or it is not known.
    """
    found, at, seen = "", head, {head.dataset_version}
    while at.dataset_version != undone.dataset_version:
        if undone.provenance.change and at.provenance.reverts == undone.provenance.change:
            found = at.dataset_version
        parent = _parent(made_of, at, undone)
        if parent is None or parent.dataset_version in seen:
            return None
        if parent is undone and not _has_made(undone, at):
            return None
        at = parent
        seen.add(at.dataset_version)
    return found


def _has_made(parent: Made, version: Made) -> bool:
    """Whether a version was made from this one, and not from another of the name."""
    had = version.parent_metadata
    return is_parent(parent, version) and had in ("", metadata_digest(parent.metadata))


def _parent(made_of: Callable[[str], Made], version: Made, known: Made) -> Made | None:
    """The version of the name of the first parent of another one, if there is any."""
    if not version.provenance.parents:
        return None
    # A copy under another id has the copies of its parents there, if any.
    _, name = version.provenance.parents[0]
    try:
        return known if name == known.dataset_version else made_of(name)
    except (CacheNotFoundError, InvalidArgumentError):
        # What a file says may be anything.
        return None
    except CacheFormatError as error:
        _log.info("What %r was made from is not known: %s", version.dataset_version, error)
        return None
