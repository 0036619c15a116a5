"""What versions have changed of those that they were made from."""

from __future__ import annotations

from collections.abc import Callable

from yogadl.errors import CacheFormatError, CacheNotFoundError
from yogadl.storage._commits.made import Made
from yogadl.versions.hunks import PARENT, Hunks, hunks_of
from yogadl.versions.runs import Runs

_LONGEST_CHAIN = 10_000


def hunks_since(
    made_of: Callable[[tuple[str, str]], Made], version: Made, before: Made
) -> Hunks | None:
    """What a version changes of one that it was made from, by any number of commits.

    Args:
        made_of: what is made of an id and version.
        version: the version.
        before: the other.

    Returns:
        ``None`` if it was not made from it, or it is not known what was changed.
    """
    chain: list[Made] = []
    at = version
    while at.dataset_version != before.dataset_version:
        if at.hunks is None or not at.provenance.parents or len(chain) == _LONGEST_CHAIN:
            return None
        chain.append(at)
        try:
            at = made_of(at.provenance.parents[0])
        except CacheNotFoundError:
            return None
    if at.digest != before.digest and at.sums != before.sums:
        # Another version of this name.
        return None
    whole = Runs.whole(PARENT, at.count)
    count = at.count
    for number, made in enumerate(reversed(chain), start=1):
        hunks = Hunks.from_list(made.hunks, count)
        count += hunks.new_count - hunks.old_count
        if count != made.count:
            raise CacheFormatError(
                f"version {made.dataset_version!r} does not say rightly what it changed"
            )
        whole = hunks.applied(whole.record_count, number).through({PARENT: whole})
    return hunks_of(whole, at.count)[0]
