"""What versions have changed of those that they were made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from yogadl.errors import CacheFormatError, CacheNotFoundError, InvalidArgumentError
from yogadl.storage._commits.by_parts import hunks_by_parts
from yogadl.storage._commits.made import Made
from yogadl.versions.hunks import NO_HUNKS, PARENT, Hunks, hunks_of
from yogadl.versions.runs import Runs

_LONGEST_CHAIN = 10_000


@dataclass(frozen=True)
class Changes:
    """What a version changes of another.

    Attributes:
        hunks: which records stand in for others.
        of_components: whether components of the records that stay were changed, too.
    """

    hunks: Hunks
    of_components: bool

    def inverted(self) -> Changes:
        """What the other changes of the version."""
        return Changes(self.hunks.inverted(), self.of_components)


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
    steps: list[Changes] = []
    at, seen = version, {version.dataset_version}
    while at.dataset_version != before.dataset_version:
        if len(steps) == _LONGEST_CHAIN:
            return None
        parent = _parent(made_of, at, before)
        if parent is None or not is_parent(parent, at):
            return None
        changes = changes_of(at, parent)
        if changes is None:
            return None
        steps.append(changes)
        at = parent
        if at.dataset_version in seen:
            # Copies may have any names.
            return None
        seen.add(at.dataset_version)
    whole = Runs.whole(PARENT, before.count)
    for number, changes in enumerate(reversed(steps), start=1):
        whole = changes.hunks.applied(whole.record_count, number).through({PARENT: whole})
    of_components = any(changes.of_components for changes in steps)
    return Changes(hunks_of(whole, before.count)[0], of_components)


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
        at = parent
        seen.add(at.dataset_version)
    return found


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
