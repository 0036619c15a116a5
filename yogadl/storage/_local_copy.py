"""The copy on this machine of a version in a bucket.

Beside the copy stands a note, ``local_metadata.json``. It says which state of which object the copy
is, and what the file system said of the file when it was known to be that. A copy that the file
system says something else of was touched: its digest then tells whether it is still the same.

A copy that cannot be read says nothing of the object: its digest is compared, and it is downloaded
again. So what ``open`` raises of damage is proven of the object itself.
"""

from __future__ import annotations

import errno
import logging
import pathlib
import stat

from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.parts import parts_of
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    ChecksumError,
    FileSystemError,
    LocalDirectoryError,
    StorageFullError,
    StoreError,
    UnsupportedTypeError,
)
from yogadl.storage._bucket_parts import DIGEST_KEY, BucketParts
from yogadl.storage._local_folders import LocalFolders
from yogadl.storage._local_lock import local_lock
from yogadl.storage._local_note import (
    FORMAT,
    Note,
    load_note,
    make_trusted,
    save_note,
    trusted_status,
)
from yogadl.storage._local_parts import LocalParts
from yogadl.storage._object_store import ObjectInfo, ObjectStore
from yogadl.storage._paths import CACHE_FILE, LOCK_FILE
from yogadl.storage._transfer import download, file_digest

_DOWNLOADS = 3
# What has no digest may have been damaged on its way. Not twice.
_PROOFS = 2
_UNREADABLE = (CacheFormatError, UnsupportedTypeError)

_log = logging.getLogger(__name__)


class LocalCopy:
    """The copy of one object. Safe for threads and processes of this machine.

    Args:
        folders: that it may be in.
        source: of the object; no other object has the same.
        parts: of its id.
    """

    def __init__(self, folders: LocalFolders, source: str, parts: BucketParts) -> None:
        self._folders = folders
        self._source = source
        self._parts = parts

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
            kept = _Kept(self._folders.claim(), self._source, self._parts)
        except (LocalDirectoryError, StorageFullError):
            # Nothing can be noted down, but what is there may be what is wanted.
            for kept in self._ours():
                if kept.holds(info, check_records):
                    return kept.read(check_records)
            raise
        return kept.open(store, info, check_records)

    def has(self, info: ObjectInfo) -> bool:
        """Whether there is a copy of this state of the object; it is read if that is not known."""
        return any(kept.is_known(info) or kept.holds(info, False) for kept in self._ours())

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
            return _Kept(staged.path.parent, self._source, self._parts).install(info, staged)
        except (OSError, *_UNREADABLE) as error:
            _log.warning("%s is stored, but no copy of it was kept: %s", self._source, error)
            return None

    def remove(self) -> None:
        """Removes the copy. Who has it open can go on reading it."""
        for kept in self._ours():
            try:
                kept.remove()
            except OSError as error:
                _log.warning("%s stays, and will not be used: %s", kept.path, error)

    def id_folders(self) -> list[pathlib.Path]:
        """The folders of the version's id that are there and safe."""
        return list(self._folders.of_id())

    def _ours(self) -> list[_Kept]:
        return [_Kept(folder, self._source, self._parts) for folder in self._folders.ours()]


class _Kept:
    """The copy in one folder, which is safe and this object's."""

    def __init__(self, folder: pathlib.Path, source: str, parts: BucketParts) -> None:
        self._folder = folder
        self._source = source
        self._parts = parts
        self.path = folder / CACHE_FILE
        self._local_parts = LocalParts(folder.parent, parts.folder)

    def read(self, check_records: bool) -> LMDBDataRef:
        """Opens the copy, after downloading the parts that it names and this machine lacks."""
        if not parts_of(self.path):
            return LMDBDataRef(self.path, check_records=check_records)
        # None may be removed between being found and being opened.
        with self._local_parts.kept():
            self._parts.fetch(self.path, check_records)
            return LMDBDataRef(self.path, check_records=check_records)

    def is_known(self, info: ObjectInfo) -> bool:
        """Whether the copy was of this state of the object and has not been touched since."""
        note = load_note(self._folder)
        known = (note.get("source"), note.get("tag"), note.get("file"))
        return known == (self._source, info.tag, _fingerprint(self.path))

    def open_current(self, info: ObjectInfo, check_records: bool) -> LMDBDataRef | None:
        """Opens the copy if it is known to be of this state of the object, and not damaged."""
        note = load_note(self._folder)
        known = (note.get("source"), note.get("tag"), note.get("file"))
        found = _fingerprint(self.path)
        if found is None or found[0] != info.size or known != (self._source, info.tag, found):
            return None
        if check_records and not self._has_digest(_digest(info, note)):
            return None
        try:
            return self.read(check_records)
        except CacheNotFoundError:
            return None
        except _UNREADABLE as error:
            _log.warning("This copy is compared with %s now: %s", self._source, error)
            return None

    def open(self, store: ObjectStore, info: ObjectInfo, check_records: bool) -> LMDBDataRef:
        """Opens the copy after seeing to it that it has the object's bytes."""
        with local_lock(self._folder / LOCK_FILE, f"process that downloads {self.path}"):
            found = self.open_current(info, check_records)
            if found is not None:
                return found
            downloads = 0
            digest = _digest(info, load_note(self._folder))
            is_there = self.holds(info, check_records)
            while True:
                if not is_there:
                    digest = self._download(store, info)
                    downloads += 1
                self._record(info, digest)
                try:
                    return self.read(check_records)
                except _UNREADABLE:
                    if DIGEST_KEY in info.metadata or downloads == _PROOFS:
                        raise
                    is_there = False

    def holds(self, info: ObjectInfo, check_records: bool) -> bool:
        """Whether the copy has the object's bytes, whatever is known of it."""
        note = load_note(self._folder)
        found = _fingerprint(self.path)
        if found is None or found[0] != info.size:
            return False
        digest = _digest(info, note)
        if digest is not None:
            return self._has_digest(digest)
        # yogadl 0.1.4 made object and copy, and knows no more than this.
        is_old = "tag" not in note and note.get("time_created") == info.created.timestamp()
        return is_old and not check_records

    def install(self, info: ObjectInfo | None, staged: PartialFile) -> LMDBDataRef | None:
        with local_lock(self._folder / LOCK_FILE, f"process that downloads {self.path}"):
            self._commit(staged)
            self._record(info, None if info is None else info.metadata.get(DIGEST_KEY))
            # Its parts come when somebody wants to read them.
            return None if parts_of(self.path) else LMDBDataRef(self.path)

    def remove(self) -> None:
        with local_lock(self._folder / LOCK_FILE, f"process that downloads {self.path}"):
            try:
                was_table = self._local_parts.remove(self.path)
            except FileSystemError as error:
                if error.errno != errno.ENOENT:
                    raise
                was_table = False
            self._record(None, None)
        if was_table:
            self._local_parts.collect_after()

    def _has_digest(self, digest: str | None) -> bool:
        try:
            if digest is not None and file_digest(self.path) == digest:
                return True
            _log.warning("%s is not, or not known to be, %s.", self.path, self._source)
        except OSError as error:
            _log.warning("%s cannot be read: %s", self.path, error)
        return False

    def _download(self, store: ObjectStore, info: ObjectInfo) -> str:
        """Makes the object the copy; returns its digest."""
        remove_leftovers(self.path)
        wanted = info.metadata.get(DIGEST_KEY)
        seen = []
        for attempt in range(1, _DOWNLOADS + 1):
            with PartialFile(self.path) as file:
                download(store, info, file)
                digest = file_digest(file.path)
                if wanted in (None, digest):
                    self._commit(file)
                    return digest
            seen.append(digest)
            _log.warning("Download %d of %s differs from what was uploaded.", attempt, self._source)
        if len(set(seen)) > 1:
            raise StoreError(
                f"{_DOWNLOADS} downloads of {self._source} differ from what was uploaded and from "
                "one another, so this machine or its network alters them; fetch it on another one"
            )
        raise ChecksumError(
            f"{self._source} is not what was uploaded: {_DOWNLOADS} downloads had the same other "
            "digest. Submit it again"
        )

    def _commit(self, file: PartialFile) -> None:
        if self._local_parts.publish(make_trusted(file), self.path):
            self._local_parts.collect_after()

    def _record(self, info: ObjectInfo | None, digest: str | None) -> None:
        """Notes what the copy is. The caller holds the lock."""
        note: Note = {"time_created": 0.0, "format": FORMAT, "source": self._source}
        if info is not None:
            note |= {
                "time_created": info.created.timestamp(),
                "tag": info.tag,
                "digest": digest,
                "file": _fingerprint(self.path),
            }
        save_note(self._folder, note)


def _digest(info: ObjectInfo, note: Note) -> str | None:
    """What the copy's digest should be, by the object, or by what was downloaded of this state."""
    of_object = info.metadata.get(DIGEST_KEY)
    if of_object is not None:
        return of_object
    digest = note.get("digest") if note.get("tag") == info.tag else None
    return digest if isinstance(digest, str) else None


def _fingerprint(path: pathlib.Path) -> list[int] | None:
    """What changes when a file is written to: size, inode, times in ns; ``None`` if there is none
    that can be trusted."""
    status = trusted_status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
