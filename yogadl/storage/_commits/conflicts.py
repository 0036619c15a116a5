"""Commits that come behind others: what cannot be put together is told."""

from __future__ import annotations

from collections.abc import Callable

from yogadl.errors import ConflictError
from yogadl.storage._commits.lineage import changes_since, origins, taken_back_by
from yogadl.storage._commits.made import Made
from yogadl.storage._commits.older import in_old_order
from yogadl.versions.hunks import Hunks
from yogadl.versions.rebasing import OverlapError, rebased

Look = Callable[[str], Made]
"""Gives of what a version of the id is made."""


def advice(takes_back: bool) -> str:
    """What to do with a change, or with what takes back a commit, that others' changes exclude."""
    return "revert the commits in between first" if takes_back else "change it again"


def put_behind(
    hunks: Hunks, base: Made, head: Made, branch: str, look: Look, *, takes_back: bool = False
) -> Hunks:
    """Changes of records of a version as changes of one that others have made of it since.

    Args:
        hunks: the changes.
        base: the version.
        head: the other, which the branch is at.
        branch: its name.
        look: see ``Look``.
        takes_back: whether the changes take back the commit that has made the version.

    Raises:
        ConflictError: they changed some of the same, or components.
    """
    told = f"the branch {branch!r} is at {head.dataset_version!r} by now, "
    theirs = changes_since(look, head, base)
    if not head.has_spec_of(base) or (theirs is not None and theirs.of_components):
        raise ConflictError(f"{told}whose components are others; {advice(takes_back)}")
    if theirs is None:
        raise ConflictError(
            f"{told}which does not follow from {base.dataset_version!r}, or it is not known "
            f"how; {advice(takes_back)}"
        )
    try:
        # Together, they tell positions in the version that both were made from.
        rebased(hunks, theirs.hunks)
    except OverlapError as error:
        first, last = error.positions
        raise ConflictError(
            f"{told}which changes some of the same records, {first} to {last} of "
            f"{base.dataset_version!r} among them; {advice(takes_back)}"
        ) from None
    for step in theirs.steps:
        hunks = rebased(hunks, step)
    hunks = hunks.grouped()
    found = origins(look, head, base) if takes_back and theirs.has_older else None
    return hunks if found is None else in_old_order(hunks, theirs.hunks, base.count, found)


def is_as_before(base: Made, head: Made, look: Look) -> bool:
    """Whether what others have made of a version since has the same records and components."""
    theirs = changes_since(look, head, base)
    if theirs is None or len(theirs.hunks) or theirs.of_components:
        return False
    return head.content_id == base.content_id


def check_undone(undone: Made, head: Made, branch: str, look: Look) -> None:
    """Sees that a commit that is to be taken back is one of those of a branch, and still counts.

    Each is taken back once: who wants that again takes back what put it there again.

    Args:
        undone: made by the commit.
        head: the version that the branch is at.
        branch: its name.
        look: see ``Look``.

    Raises:
        ConflictError: it is none of them, or was taken back.
    """
    by = taken_back_by(look, head, undone)
    if by is None:
        raise ConflictError(
            f"the branch {branch!r} is at {head.dataset_version!r}, which does not follow from "
            f"{undone.dataset_version!r}, or it is not known how, so there is nothing to take back"
        )
    if by:
        raise ConflictError(
            f"{undone.dataset_version!r} was taken back already, by {by!r}; if that was taken back "
            "in turn, revert what did so"
        )
