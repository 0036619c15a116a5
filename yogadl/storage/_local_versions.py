"""What a storage keeps on this machine of its versions."""

from __future__ import annotations

import datetime
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

from yogadl.errors import CacheNotFoundError, InvalidArgumentError
from yogadl.remote._kept import KeptVersion, kept_versions, remove_unused, set_pinned


@dataclass(frozen=True)
class LocalVersion:
    """What is on this machine of a version.

    Attributes:
        names: of the objects that it was opened as, ``s3://…``; equal versions are kept once.
        nbytes: that it takes on the disk; parts that several versions have count for each.
        opened: when it was last opened.
        is_pinned: whether it stays when there is no room for another.
    """

    names: tuple[str, ...]
    nbytes: int
    opened: datetime.datetime
    is_pinned: bool


class LocalVersions:
    """Of one storage: ``storage.local``. Safe for threads and processes.

    Args:
        folder: in which they are; it need not be there yet.
        name_of: the name of the object of a version.
    """

    def __init__(self, folder: pathlib.Path, name_of: Callable[[str, str], str]) -> None:
        self._folder = folder
        self._name_of = name_of

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._folder)!r})"

    def list(self) -> list[LocalVersion]:
        """All of them, the one that was opened last in the end."""
        return [
            LocalVersion(
                version.names,
                version.nbytes,
                datetime.datetime.fromtimestamp(version.opened, datetime.timezone.utc),
                version.is_pinned,
            )
            for version in kept_versions(self._folder)
        ]

    def pin(self, dataset_id: str, dataset_version: str) -> None:
        """Has what is here of a version stay, whatever there is no room for.

        Raises:
            CacheNotFoundError: nothing of it is here; fetch it first.
        """
        set_pinned(self._find(dataset_id, dataset_version), True)

    def unpin(self, dataset_id: str, dataset_version: str) -> None:
        """Has it go like others.

        Raises:
            CacheNotFoundError: nothing of it is here.
        """
        set_pinned(self._find(dataset_id, dataset_version), False)

    def prune(self, nbytes: int | None = None) -> int:
        """Removes versions that nobody has open and that are not pinned, those first that were not
        opened for longest.

        Args:
            nbytes: stop when so many bytes are free; by default, remove all of them.

        Returns:
            How many bytes were freed.
        """
        if nbytes is not None and nbytes < 0:
            raise InvalidArgumentError(f"nbytes must not be negative, and {nbytes} is")
        return remove_unused([self._folder], sys.maxsize if nbytes is None else nbytes)

    def _find(self, dataset_id: str, dataset_version: str) -> KeptVersion:
        name = self._name_of(dataset_id, dataset_version)
        found = [version for version in kept_versions(self._folder) if name in version.names]
        if not found:
            raise CacheNotFoundError(f"nothing of {name} is kept on this machine; fetch it first")
        return found[-1]
