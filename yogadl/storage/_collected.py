"""What collecting parts comes to."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredPart:
    """A part of the data sets of an id.

    Attributes:
        dataset_id: its id.
        digest: its name, in hexadecimal.
        size: bytes.
    """

    dataset_id: str
    digest: str
    size: int


@dataclass(frozen=True)
class CollectedParts:
    """What ``collect_parts`` did.

    Attributes:
        removed: the parts that are gone, or would be.
        waiting: those that no version refers to, and that are not old enough, or being read.
        skipped: the ids of which nothing was removed, and why.
    """

    removed: tuple[StoredPart, ...] = ()
    waiting: tuple[StoredPart, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of what was removed."""
        return sum(part.size for part in self.removed)

    @staticmethod
    def of(found: Iterable[CollectedParts]) -> CollectedParts:
        """All of them together."""
        listed = list(found)
        return CollectedParts(
            tuple(part for one in listed for part in one.removed),
            tuple(part for one in listed for part in one.waiting),
            {name: why for one in listed for name, why in one.skipped.items()},
        )


@dataclass(frozen=True)
class StoredVersion:
    """A version that is stored, or was.

    Attributes:
        dataset_id: its id.
        dataset_version: likewise.
        size: bytes of its own file; of parts, see :class:`StoredPart`.
    """

    dataset_id: str
    dataset_version: str
    size: int


@dataclass(frozen=True)
class Collected:
    """What ``gc`` did.

    Attributes:
        versions: that are deleted, or would be, since they are not to be kept.
        unfinished: what changes that were killed had stored as versions and not committed, and
            versions of which a deletion was killed: gone, too.
        scratch: folders on this machine that killed changes left behind: gone, too.
        parts: what became of parts.
    """

    versions: tuple[StoredVersion, ...] = ()
    unfinished: tuple[StoredVersion, ...] = ()
    scratch: tuple[pathlib.Path, ...] = ()
    parts: CollectedParts = field(default_factory=CollectedParts)

    @property
    def size(self) -> int:
        """Bytes of the versions and the parts."""
        return sum(one.size for one in self.versions + self.unfinished) + self.parts.size


class CannotCollectError(Exception):
    """Nothing of an id can be collected, for the reason it is given."""


class NotNowError(CannotCollectError):
    """Nothing is wrong; somebody is at work."""


def skipped(dataset_id: str, error: Exception) -> CollectedParts:
    """Tells the log why nothing of an id is collected, and its caller."""
    level = logging.INFO if isinstance(error, NotNowError) else logging.WARNING
    _log.log(level, "No parts of %s are removed: %s", dataset_id, error)
    return CollectedParts(skipped={dataset_id: str(error)})
