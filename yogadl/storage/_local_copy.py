"""The copy on this machine of a version in a bucket.

Beside the copy stands ``local_metadata.json``, whose format is in ``docs/cloud.md``. It says which
state of which object the copy is, and what the file system said of the file when it was known to be
that. A copy that the file system says something else of was touched: its digest then tells whether
it is still the same.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import uuid
from typing import Any

from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheNotFoundError, ChecksumError
from yogadl.storage._local_lock import local_lock
from yogadl.storage._object_store import ObjectInfo, ObjectStore
from yogadl.storage._paths import CACHE_FILE, LOCK_FILE, METADATA_FILE
from yogadl.storage._transfer import download, file_digest

FORMAT = 1
DIGEST_KEY = "yogadl-digest"
"""In an object's metadata: XXH3-128 of its bytes."""

_DOWNLOADS = 3
_LARGEST_METADATA = 64 << 10

_log = logging.getLogger(__name__)


class LocalCopy:
    """A version's folder below the local cache directory.

    Safe for threads and processes of this machine.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.path = folder / CACHE_FILE

    def open(self, store: ObjectStore, info: ObjectInfo, check_records: bool) -> LMDBDataRef:
        """Opens the copy, after downloading the object if the copy is not of this state of it.

        Raises:
            ObjectGoneError: the object was replaced or deleted meanwhile.
            ChecksumError: it is not what was uploaded.
            CacheFormatError: it is no cache.
        """
        found = self._open_current(store, info, check_records)
        if found is not None:
            return found
        with local_lock(self.folder / LOCK_FILE, f"process that downloads {self.path}"):
            found = self._open_current(store, info, check_records)
            if found is not None:
                return found
            if not self._is_unchanged(info):
                self._download(store, info)
            self._record(store, info)
            return LMDBDataRef(self.path, check_records=check_records)

    def install(self, store: ObjectStore, info: ObjectInfo, staged: PartialFile) -> None:
        """Makes a file that was just uploaded the copy of the object it became."""
        with local_lock(self.folder / LOCK_FILE, f"process that downloads {self.path}"):
            staged.commit()
            self._record(store, info)

    def remove(self) -> None:
        """Removes the copy. Who has it open can go on reading it."""
        with local_lock(self.folder / LOCK_FILE, f"process that downloads {self.path}"):
            (self.folder / METADATA_FILE).unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def _open_current(
        self, store: ObjectStore, info: ObjectInfo, check_records: bool
    ) -> LMDBDataRef | None:
        if not self._is_current(store, info):
            return None
        try:
            return LMDBDataRef(self.path, check_records=check_records)
        except CacheNotFoundError:
            return None

    def _is_current(self, store: ObjectStore, info: ObjectInfo) -> bool:
        known = self._load_metadata()
        found = _fingerprint(self.path)
        if found is None or not known or found[0] != info.size:
            return False
        if "tag" not in known:
            # yogadl 0.1.4 downloaded or made it, and knows no more than this.
            return bool(known.get("time_created") == info.created.timestamp())
        source = f"{store.url}/{info.key}"
        same_object = known["tag"] == info.tag and known.get("source") == source
        return same_object and known.get("file") == found

    def _is_unchanged(self, info: ObjectInfo) -> bool:
        """Whether a file that was touched has the object's bytes all the same."""
        digest = info.metadata.get(DIGEST_KEY)
        found = _fingerprint(self.path)
        if digest is None or found is None or found[0] != info.size:
            return False
        return file_digest(self.path) == digest

    def _download(self, store: ObjectStore, info: ObjectInfo) -> None:
        remove_leftovers(self.path)
        digest = info.metadata.get(DIGEST_KEY)
        for attempt in range(1, _DOWNLOADS + 1):
            with PartialFile(self.path) as file:
                download(store, info, file)
                if digest is None or file_digest(file.path) == digest:
                    file.commit()
                    return
            _log.warning(
                "Download %d of %s/%s differs from what was uploaded.",
                attempt,
                store.url,
                info.key,
            )
        raise ChecksumError(
            f"{store.url}/{info.key} is not what was uploaded: {_DOWNLOADS} downloads had another "
            "digest. Submit it again"
        )

    def _load_metadata(self) -> dict[str, Any]:
        try:
            with open(self.folder / METADATA_FILE, "rb") as file:
                found = json.loads(file.read(_LARGEST_METADATA))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _record(self, store: ObjectStore, info: ObjectInfo) -> None:
        """Notes that the copy is this state of the object. The caller holds the local lock."""
        metadata = {
            "time_created": info.created.timestamp(),
            "format": FORMAT,
            "source": f"{store.url}/{info.key}",
            "tag": info.tag,
            "file": _fingerprint(self.path),
        }
        path = self.folder / METADATA_FILE
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            partial.write_text(json.dumps(metadata))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _fingerprint(path: pathlib.Path) -> list[int] | None:
    """What changes when a file is written to: size, inode, times in ns; ``None`` without one."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
