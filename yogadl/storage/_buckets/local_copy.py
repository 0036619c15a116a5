"""The copy on this machine of a version in a bucket, in whichever folder it is."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable

from yogadl.cache.partial import PartialFile
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    LocalDirectoryError,
    StorageFullError,
)
from yogadl.storage._buckets.kept_copy import UNREADABLE, KeptCopy, by_content
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._disk.contents import Contents
from yogadl.storage._disk.folders import LocalFolders
from yogadl.storage._objects.store import ObjectInfo, ObjectStore
from yogadl.storage._paths import CACHE_FILE

_log = logging.getLogger(__name__)


class LocalCopy:
    """The copy of one object. Safe for threads and processes of this machine.

    Args:
        folders: that it may be in.
        source: of the object; no other object has the same.
        parts: of its id.
        contents: of this machine.
    """

    def __init__(
        self, folders: LocalFolders, source: str, parts: BucketParts, contents: Contents
    ) -> None:
        self._folders = folders
        self._source = source
        self._parts = parts
        self._contents = contents

    def open(self, store: ObjectStore, info: ObjectInfo, check_records: bool) -> LMDBDataRef:
        """Opens the copy, after downloading the object if the copy is not of this state of it.

        With ``check_records``, the copy is read once to see whether it still is.

        Raises:
            ObjectGoneError: the object was replaced or deleted meanwhile.
            CacheFormatError: the object is no cache, or not what was uploaded.
            StoreError: it cannot be read, or arrives differently each time.
            LocalDirectoryError, StorageFullError: nothing can be kept on this machine.
        """
        for kept in self._ours():
            found = kept.open_current(info, check_records)
            if found is not None:
                return found
        try:
            kept = self._kept(self._folders.claim())
        except (LocalDirectoryError, StorageFullError):
            # Nothing can be noted down, but what is there may be what is wanted.
            for kept in self._ours():
                if kept.holds(info, check_records):
                    return kept.read(check_records)
            raise
        return kept.open(store, info, check_records)

    def has(self, info: ObjectInfo) -> bool:
        """Whether there is a copy of this state of the object; it is read if that is not known."""
        for kept in self._ours():
            if kept.is_known(info) or kept.holds(info, False):
                return kept.has_parts()
        if any(self._kept(folder).holds(info, False) for folder in self._folders.unclaimed()):
            return True
        found = by_content(self._contents, info)
        return found is not None and self._contents.has_parts(found)

    def copied(
        self, digest: bytes, size: int, make_file: Callable[[], PartialFile]
    ) -> PartialFile | None:
        """A file with a part that is here as a plain version; see ``Contents.copied``."""
        return self._contents.copied(digest, size, make_file)

    def claim(self) -> pathlib.Path:
        """The path of a copy to be, beside which the file can be made that :meth:`install` takes.

        Raises:
            LocalDirectoryError, StorageFullError: nothing can be kept on this machine.
        """
        return self._folders.claim() / CACHE_FILE

    def install(self, info: ObjectInfo | None, staged: PartialFile) -> LMDBDataRef | None:
        """Makes a file that was just uploaded the copy of the object it became, and opens it.

        Args:
            info: the object; ``None`` if that is not known.
            staged: made beside :meth:`claim`.

        Returns:
            ``None`` for a table of parts; and, with a warning, if that failed: what was uploaded is
            stored all the same.
        """
        try:
            return self._kept(staged.path.parent).install(info, staged)
        except (OSError, *UNREADABLE) as error:
            _log.warning("%s is stored, but no copy of it was kept: %s", self._source, error)
            return None

    def remove(self) -> None:
        """Removes the copy. Who has it open can go on reading it."""
        for kept in self._ours():
            try:
                kept.remove()
            except OSError as error:
                _log.warning("%s stays, and will not be used: %s", kept.path, error)
        self._folders.remove_partial_notes()
        self._contents.forget()

    def collect(self) -> None:
        """Removes what nobody needs any more of what is named by its contents."""
        self._contents.collect()

    def id_folders(self) -> list[pathlib.Path]:
        """The folders of the version's id that are there and safe."""
        return list(self._folders.of_id())

    def _ours(self) -> list[KeptCopy]:
        return [self._kept(folder) for folder in self._folders.ours()]

    def _kept(self, folder: pathlib.Path) -> KeptCopy:
        return KeptCopy(folder, self._source, self._parts, self._contents)
