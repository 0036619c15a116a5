"""What a storage keeps on this machine of its versions."""

from __future__ import annotations

import builtins
import datetime
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

from yogadl.arguments import as_index
from yogadl.cache.files import moment, telling
from yogadl.errors import CacheNotFoundError
from yogadl.remote._local.collecting import remove_unused
from yogadl.remote._local.kept import KeptVersion, kept_versions, set_pinned


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
        folder: in which they are; ``None`` as long as there is none that can be trusted.
        name_of: the name of the object of a version.
    """

    def __init__(
        self, folder: Callable[[], pathlib.Path | None], name_of: Callable[[str, str], str]
    ) -> None:
        self._folder = folder
        self._name_of = name_of

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._folder())!r})"

    def list(self) -> list[LocalVersion]:
        """All of them, the one that was opened last in the end."""
        return [
            LocalVersion(
                version.names,
                version.nbytes,
                moment(version.opened),
                version.is_pinned,
            )
            for version in self._kept()
        ]

    def _kept(self) -> builtins.list[KeptVersion]:
        folder = self._folder()
        return [] if folder is None else kept_versions(folder)

    def pin(self, dataset_id: str, dataset_version: str) -> None:
        """Has what is here of a version stay, whatever there is no room for.

        Of a version that was replaced, what was opened last.

        Raises:
            CacheNotFoundError: nothing of it is here; fetch it first.
            FileSystemError: it cannot be noted down.
        """
        name = self._name_of(dataset_id, dataset_version)
        found = self._find(name)
        if not found or not set_pinned(found[-1], True):
            raise _nothing_of(name)

    def unpin(self, dataset_id: str, dataset_version: str) -> None:
        """Has it go like others, with all that was pinned under its name.

        Raises:
            CacheNotFoundError: nothing of it is here.
            FileSystemError: it cannot be noted down.
        """
        name = self._name_of(dataset_id, dataset_version)
        found = [set_pinned(version, False) for version in self._find(name)]
        if not any(found):
            raise _nothing_of(name)

    def prune(self, nbytes: int | None = None) -> int:
        """Removes versions that nobody has open and that are not pinned, those first that were not
        opened for longest.

        Args:
            nbytes: stop when so many bytes are free; by default, remove all of them.

        Returns:
            How many bytes were freed.

        Raises:
            InvalidArgumentError: ``nbytes`` is no number of bytes.
            FileSystemError: another process, which may be stopped, removes something, too.
        """
        wanted = sys.maxsize if nbytes is None else as_index("nbytes", nbytes)
        folder = self._folder()
        if folder is None:
            return 0
        with telling("remove what nobody reads in", folder):
            return remove_unused([folder], wanted)

    def _find(self, name: str) -> builtins.list[KeptVersion]:
        return [version for version in self._kept() if name in version.names]


def _nothing_of(name: str) -> CacheNotFoundError:
    return CacheNotFoundError(f"nothing of {name} is kept on this machine; fetch it first")
