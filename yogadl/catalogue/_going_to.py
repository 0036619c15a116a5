"""Where a commit says that it is going to be entered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yogadl.format.provenance import METADATA_KEY

_BRANCH = "branch"


@dataclass(frozen=True)
class GoingTo:
    """Where a commit was to be entered when its file was published.

    As its entry and the move of the branch are one change, one that has no entry there was never
    carried out.

    Attributes:
        catalogue: the identity of the catalogue.
        key: id and version that it was to be.
        branch: that it was to move.
    """

    catalogue: str
    key: tuple[str, str]
    branch: str

    def noted_in(self, document: dict[str, Any]) -> None:
        """Notes it in the metadata of the commit's file."""
        document.setdefault(METADATA_KEY, {})[_BRANCH] = [self.catalogue, *self.key, self.branch]

    @classmethod
    def of(cls, own: Any) -> GoingTo | None:
        """What is noted in yogadl's own part of a file's metadata, whatever that is; ``None`` for
        nothing, or what makes no sense."""
        found = own.get(_BRANCH) if isinstance(own, dict) else None
        if not isinstance(found, list) or len(found) != 4:
            return None
        if not all(isinstance(each, str) and each for each in found):
            return None
        return cls(found[0], (found[1], found[2]), found[3])
