"""The copy on this machine of a version in a bucket, in one folder.

It is a file that is named by its contents (``contents``), to which a symbolic link leads from
where yogadl 0.1.4 has copies. A copy of a file that is not named by its contents, since 0.1.4 wrote
it or it is damaged, stands there itself, as do those of earlier yogadls.

The link is symbolic, so that removing what it leads to makes room, however many lead there, and
changes nothing of the file: one that has another name could be another user's. Who removes the file
removes the links first; one that leads nowhere is a copy that is missing.

Beside the copy, or the link, stands a note, ``local_metadata.json``. It says which state of which
object the copy is, and what the file system said of the file when it was known to be that. A copy
that the file system says something else of was touched: its digest then tells whether it is still
the same.

A copy that cannot be read says nothing of the object: its digest is compared, and it is downloaded
again. So what ``open`` raises of damage is proven of the object itself.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pathlib
import re
import stat
from collections.abc import Iterator

from yogadl.cache.files import telling
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.parts import followed, parts_of, read_header
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    ChecksumError,
    FileSystemError,
    ForeignFileError,
    StoreError,
    UnsupportedTypeError,
)
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._disk.contents import Contents
from yogadl.storage._disk.lock import local_lock
from yogadl.storage._disk.note import (
    FORMAT,
    Note,
    load_note,
    make_trusted,
    save_note,
    trusted_status,
)
from yogadl.storage._disk.parts import LocalParts
from yogadl.storage._objects.metadata_keys import CONTENT_KEY, DIGEST_KEY, FORMAT_KEY
from yogadl.storage._objects.store import ObjectInfo, ObjectStore
from yogadl.storage._objects.transfer import download, file_digest, file_digests
from yogadl.storage._paths import CACHE_FILE, LOCK_FILE

_DOWNLOADS = 3
# What has no digest may have been damaged on its way. Not twice.
_PROOFS = 2
UNREADABLE = (CacheFormatError, UnsupportedTypeError)
# Of a file system without symbolic links, or another one.
_CANNOT_LINK = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)
# What the metadata of an object says of a file of 0.1.4, or nothing.
_OLD = "0"
_CONTENT = re.compile(r"[0-9a-f]{32}")

_log = logging.getLogger(__name__)


class KeptCopy:
    """The copy in one folder, which is safe and this object's. Safe for threads and processes.

    Args:
        folder: that it is in.
        source: of the object.
        parts: of its id.
        contents: of this machine.

    Attributes:
        path: of the copy.
    """

    def __init__(
        self, folder: pathlib.Path, source: str, parts: BucketParts, contents: Contents
    ) -> None:
        self._folder = folder
        self._source = source
        self._parts = parts
        self._contents = contents
        self.path = folder / CACHE_FILE
        # What becomes the copy at once, if it is a link.
        self._link = self.path.with_name(f"{CACHE_FILE}.link")
        self._local_parts = LocalParts(folder.parent, parts.folder)

    def read(self, check_records: bool) -> LMDBDataRef:
        """Opens the copy, after downloading the parts that it names and this machine lacks.

        Raises:
            CacheNotFoundError: it is not there, or not any more: it may be removed to make room.
        """
        try:
            return self._read(check_records)
        except FileSystemError as error:
            if error.errno != errno.ENOENT:
                raise
            raise CacheNotFoundError(f"{self.path} was removed before it was opened") from error

    def _read(self, check_records: bool) -> LMDBDataRef:
        path = followed(self.path)
        if path != self.path:
            with self._contents.held(path):
                self._contents.note_opened(path, self.path)
                self._parts.fetch(path, check_records, self._contents)
                return LMDBDataRef(path, check_records=check_records)
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

    def has_parts(self) -> bool:
        """Whether the parts that the copy names are here, too."""
        path = followed(self.path)
        return path == self.path or self._contents.has_parts(path)

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
        except UNREADABLE as error:
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
            is_proven = self.holds(info, check_records)
            is_there = is_proven or self._find(info, check_records)
            with contextlib.ExitStack() as stack:
                while True:
                    if not is_there:
                        digest = stack.enter_context(self._downloaded(store, info))
                        downloads += 1
                    self._record(info, digest)
                    try:
                        return self.read(check_records)
                    except CacheNotFoundError:
                        # It was removed, to make room, before it was opened.
                        if downloads == _DOWNLOADS:
                            raise
                    except UNREADABLE:
                        is_proven = is_proven or downloads > 0
                        if (is_proven and DIGEST_KEY in info.metadata) or downloads == _PROOFS:
                            raise
                    is_there = is_proven = False

    def holds(self, info: ObjectInfo, check_records: bool) -> bool:
        """Whether the copy has the object's bytes, whatever is known of it."""
        note = load_note(self._folder)
        found = _fingerprint(self.path)
        if found is None or found[0] != info.size:
            return False
        digest = _digest(info, note)
        if digest is not None:
            return self._has_digest(digest, was_replaced=note.get("tag") not in (None, info.tag))
        # yogadl 0.1.4 made object and copy, and knows no more than this.
        is_old = "tag" not in note and note.get("time_created") == info.created.timestamp()
        return is_old and not check_records

    def _find(self, info: ObjectInfo, check_records: bool) -> bool:
        """Makes what is here of the same contents the copy, whatever object it was of."""
        found = by_content(self._contents, info)
        if found is None:
            return False
        try:
            with self._linked(found):
                pass
        except OSError as error:
            _log.info("Nothing can lead to %s: %s", found, error)
            return False
        return not check_records or self._has_digest(info.metadata.get(DIGEST_KEY))

    def install(self, info: ObjectInfo | None, staged: PartialFile) -> LMDBDataRef | None:
        with local_lock(self._folder / LOCK_FILE, f"process that downloads {self.path}"):
            try:
                content = read_header(staged.path)[0].digest.hex()
            except ForeignFileError:
                content = None
            size = os.fstat(staged.fileno()).st_size
            with self._contents.room(size), self._committed(staged, content):
                self._record(info, None if info is None else info.metadata.get(DIGEST_KEY))
                # Its parts come when somebody wants to read them.
                return None if parts_of(self.path) else self.read(check_records=False)

    def remove(self) -> None:
        with local_lock(self._folder / LOCK_FILE, f"process that downloads {self.path}"):
            try:
                # Who was killed may have left it.
                self._link.unlink(missing_ok=True)
                if followed(self.path) != self.path:
                    self.path.unlink()
                was_table = self._local_parts.remove(self.path)
            except FileSystemError as error:
                if error.errno != errno.ENOENT:
                    raise
                was_table = False
            self._record(None, None)
        if was_table:
            self._local_parts.collect_after()

    def _has_digest(self, digest: str | None, was_replaced: bool = False) -> bool:
        """Whether the copy has a digest; of an object that was replaced, nobody expects that."""
        try:
            if digest is not None and file_digest(self.path) == digest:
                return True
            level = logging.INFO if was_replaced else logging.WARNING
            _log.log(level, "%s is not, or not known to be, %s.", self.path, self._source)
        except OSError as error:
            _log.warning("%s cannot be read: %s", self.path, error)
        return False

    @contextlib.contextmanager
    def _downloaded(self, store: ObjectStore, info: ObjectInfo) -> Iterator[str]:
        """Makes the object the copy, which is not removed meanwhile; its digest."""
        # What 0.1.4 wrote is not counted, since it cannot be read in any other way.
        is_counted = info.metadata.get(FORMAT_KEY, _OLD) != _OLD
        with contextlib.ExitStack() as stack:
            with self._contents.room(info.size if is_counted else 0):
                file, digest, content = self._download(store, info)
                with file, self._contents.room(0 if is_counted or not content else info.size):
                    stack.enter_context(self._committed(file, content))
            yield digest

    def _download(
        self, store: ObjectStore, info: ObjectInfo
    ) -> tuple[PartialFile, str, str | None]:
        """The object in a file, its digest, and the one that it is named by."""
        remove_leftovers(self.path)
        wanted = info.metadata.get(DIGEST_KEY)
        seen = []
        for attempt in range(1, _DOWNLOADS + 1):
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(self._staged(info))
                download(store, info, file)
                digest, content = file_digests(file.path)
                # What has no digest of its own says how its file begins, which has another.
                told = info.metadata.get(CONTENT_KEY) if wanted is None else None
                if wanted in (None, digest) and told in (None, content):
                    stack.pop_all()
                    return file, digest, content
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

    def _staged(self, info: ObjectInfo) -> PartialFile:
        if info.metadata.get(FORMAT_KEY, _OLD) != _OLD and self._contents.claim():
            return self._contents.staged(self._contents.path(""))
        return PartialFile(self.path)

    @contextlib.contextmanager
    def _committed(self, file: PartialFile, content: str | None) -> Iterator[None]:
        """Makes a whole file the copy, which is not removed meanwhile.

        What it was before is removed at the end, since it may be a part of what it is now.

        Args:
            file: to be the copy.
            content: its digest, with which it was compared; ``None`` if it cannot be named by it.
        """
        lock = path = None
        if content is not None and self._contents.claim():
            path = self._contents.path(content)
            try:
                with self._linked(path):
                    lock = self._contents.place(file, path)
            except FileSystemError as error:
                if error.errno not in _CANNOT_LINK:
                    raise
                _log.info("%s is not named by its contents: %s", self.path, error)
            else:
                self._contents.note_opened(path, self.path)
                self._contents.become_parts(path)
        if lock is None:
            if followed(self.path) != self.path:
                self.path.unlink()
            if self._local_parts.publish(make_trusted(file), self.path):
                self._local_parts.collect_after()
        yield
        if lock is not None:
            self._contents.forget(but=path)
        del lock

    @contextlib.contextmanager
    def _linked(self, target: pathlib.Path) -> Iterator[None]:
        """Makes a link to a file the copy, at the end.

        Raises:
            FileSystemError: it cannot be.
        """
        link = self._link
        with telling("make a link at", link):
            link.unlink(missing_ok=True)
            folder = os.path.realpath(self._folder)
            link.symlink_to(os.path.relpath(os.path.realpath(target), folder))
        yield
        self._remove_table()
        with telling("make a link at", self.path):
            os.replace(link, self.path)

    def _remove_table(self) -> None:
        """Removes a copy that is a table itself; who has it open keeps its parts."""
        try:
            is_table = followed(self.path) == self.path and bool(parts_of(self.path))
        except FileSystemError:
            return
        except CacheFormatError:
            is_table = True
        if is_table:
            self._local_parts.remove(self.path)
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


def by_content(contents: Contents, info: ObjectInfo) -> pathlib.Path | None:
    """What is here of the contents of an object, as its metadata tells them."""
    content = info.metadata.get(CONTENT_KEY, "")
    return contents.find(content, info.size) if _CONTENT.fullmatch(content) else None


def _fingerprint(path: pathlib.Path) -> list[int] | None:
    """What changes when a file is written to: size, inode, times in ns; ``None`` if there is none
    that can be trusted."""
    status = trusted_status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
