"""Removing the parts of an id, in a folder of this machine, that nobody needs.

A part is *needed* if a version refers to it, or a table that some reader holds. What is needed is
determined, and all else removed, under the exclusive lock:

1. The tables of all versions are read. One that is damaged or newer than this yogadl, or cannot be
   read, ends it: what it refers to is not known.
2. Of each other table, the lock is taken exclusively, and kept. If that fails, it is being read,
   and its parts are needed. A reader that comes too late, who opened the file before it was
   replaced, does not get its lock, or finds a part missing, and opens what the version's name leads
   to now.
3. Parts that are not needed are removed, then the other names of tables that nobody needs.

That is right because versions can only lose tables meanwhile: whoever publishes one holds the lock
shared. Who is killed anywhere leaves locks that fall with it, other names of files that no version
is, and parts that no table refers to; the next one finds all of them. Such parts without a table
stay for a day, by the clock of the file system, since they may have been put there by hand, to be
followed by their table. Two who collect exclude one another.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import logging
import os
import pathlib
import re
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from yogadl.cache.files import shown, telling
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import remove_leftovers
from yogadl.cache.parts import followed, parts_of, read_header
from yogadl.cache.whole_file import check_digest
from yogadl.errors import CacheFormatError, FileSystemError, ForeignFileError, UnsupportedTypeError
from yogadl.storage._collected import (
    CannotCollectError,
    CollectedParts,
    NotNowError,
    StoredPart,
    skipped,
)
from yogadl.storage._disk.tables import (
    BUILDING_FILE,
    TABLE_ENDING,
    FileIdentity,
    FileLock,
    LocalTables,
    identity_of,
)
from yogadl.storage._paths import CACHE_FILE
from yogadl.storage._receipt import RECEIPT_NAME, UNFINISHED_RECEIPT

_PART = re.compile(r"([0-9a-f]{32})\.mdb")
_LEFTOVER = re.compile(r"([0-9a-f]{32}\.mdb)\.[0-9a-f]{32}\.partial")
_WITHOUT_TABLE = datetime.timedelta(days=1)

_log = logging.getLogger(__name__)


class LocalCollector:
    """Removes the parts of an id that nobody needs.

    Args:
        folder: of the id.
        dataset_id: the id, for people.
    """

    def __init__(self, folder: pathlib.Path, dataset_id: str) -> None:
        self._folder = folder
        self._id = dataset_id
        self._tables = LocalTables(folder)
        self._parts = self._tables.folder

    def collect(
        self,
        older_than: datetime.timedelta | None = None,
        dry_run: bool = False,
        doomed: Collection[str] = (),
    ) -> CollectedParts:
        """Removes the parts that nobody needs.

        Args:
            older_than: only those that nobody has referred to for so long; without, what has no
                table stays for a day, and nothing else.
            dry_run: remove nothing.
            doomed: versions that are taken for deleted; for a dry run.

        Raises:
            FileSystemError: a part cannot be removed.
        """
        with contextlib.ExitStack() as stack:
            try:
                self._lock_out(stack)
                plan = self._plan(older_than, stack, doomed)
            except (CannotCollectError, FileSystemError) as error:
                return skipped(self._id, error)
            if not dry_run:
                self._carry_out(plan)
        return CollectedParts(tuple(plan.removed.values()), tuple(plan.waiting))

    def _lock_out(self, stack: contextlib.ExitStack) -> None:
        """Takes the exclusive lock.

        Raises:
            CannotCollectError: parts are stored, or collected by another, or there are no locks.
            FileSystemError: this user may not.
        """
        if self._parts.is_symlink():
            raise CannotCollectError(f"{shown(self._parts)} is a link, and others may use it")
        path = self._parts / BUILDING_FILE
        lock = stack.enter_context(FileLock(path, os.O_RDWR | os.O_CREAT))
        try:
            if not lock.takes(fcntl.LOCK_EX):
                raise NotNowError("somebody is storing or removing some now")
            probe = path.with_name(f"{uuid.uuid4().hex}{TABLE_ENDING}")
            os.link(path, probe)
            probe.unlink()
            # By the clock of the file system, it is now.
            os.utime(path)
        except OSError as error:
            raise CannotCollectError(
                f"the file system has no locks or no links: {error.strerror}"
            ) from error

    def _plan(
        self,
        older_than: datetime.timedelta | None,
        stack: contextlib.ExitStack,
        doomed: Collection[str],
    ) -> _Plan:
        now = os.stat(self._parts / BUILDING_FILE).st_mtime
        latest = now - (older_than or datetime.timedelta()).total_seconds()
        plan = _Plan()
        needed, current = self._current(doomed)
        own = identity_of(self._parts / BUILDING_FILE)
        dropped, held = set[bytes](), set[bytes]()
        for link in self._tables.links():
            status = os.lstat(link)
            identity = status.st_dev, status.st_ino
            if identity in current:
                continue
            if identity == own:
                # Of who was killed as he tried whether there are links.
                plan.tables.append(link)
                continue
            # Its number of names changed when its version was replaced or deleted.
            if status.st_ctime <= latest and _is_free(link, stack):
                plan.tables.append(link)
                dropped |= _digests_of_old(link)
            else:
                held |= _known_digests(link)
        if older_than is None:
            latest = now - _WITHOUT_TABLE.total_seconds()
        for path, digest, status in self._files():
            if digest in needed:
                continue
            part = StoredPart(self._id, digest.hex(), status.st_size)
            if digest not in held and (digest in dropped or status.st_ctime <= latest):
                plan.removed[path] = part
            else:
                plan.waiting.append(part)
        for path in self._parts.iterdir():
            if RECEIPT_NAME.fullmatch(path.name) and os.lstat(path).st_ctime <= latest:
                plan.receipts.append(path)
        return plan

    def _current(self, doomed: Collection[str]) -> tuple[set[bytes], set[FileIdentity]]:
        """What the versions refer to, and which files they are.

        Raises:
            CannotCollectError: that is not known.
        """
        needed: set[bytes] = set()
        current: dict[FileIdentity, pathlib.Path] = {}
        with telling("list", self._folder):
            folders = [path for path in self._folder.iterdir() if path.name not in doomed]
        for folder in folders:
            path = folder / CACHE_FILE
            if followed(path) != path:
                # Its parts are beside what it leads to.
                continue
            try:
                identity = identity_of(path)
                digests = _known_digests(path)
            except FileSystemError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                continue
            if digests:
                needed |= digests
                current[identity] = path
        # Those that were put there by hand may be removed so, too.
        for identity in current.keys() - {identity_of(link) for link in self._tables.links()}:
            self._tables.link(current[identity])
        return needed, set(current)

    def _files(self) -> Iterator[tuple[pathlib.Path, bytes, os.stat_result]]:
        with telling("list", self._parts), os.scandir(self._parts) as found:
            for entry in found:
                matched = _PART.fullmatch(entry.name)
                if matched and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield pathlib.Path(entry.path), bytes.fromhex(matched[1]), status

    def _carry_out(self, plan: _Plan) -> None:
        # First, since they say that their parts are there.
        for path in plan.receipts:
            with telling("delete", path):
                path.unlink()
        for path, part in plan.removed.items():
            with telling("delete", path):
                path.unlink()
            _log.debug("Removed part %s of %s.", part.digest, self._id)
        # Last, since they say which parts had a table.
        for link in plan.tables:
            with telling("delete", link):
                link.unlink()
        with telling("list", self._parts):
            names = [path.name for path in self._parts.iterdir()]
        for kind in (_LEFTOVER, UNFINISHED_RECEIPT):
            for name in {matched[1] for matched in map(kind.fullmatch, names) if matched}:
                remove_leftovers(self._parts / name)


@dataclass
class _Plan:
    """What is to be removed: parts, receipts, and other names of tables, which are locked."""

    removed: dict[pathlib.Path, StoredPart] = field(default_factory=dict)
    waiting: list[StoredPart] = field(default_factory=list)
    receipts: list[pathlib.Path] = field(default_factory=list)
    tables: list[pathlib.Path] = field(default_factory=list)


def _is_free(link: pathlib.Path, stack: contextlib.ExitStack) -> bool:
    """Takes the lock of a table, unless somebody reads it."""
    try:
        # On NFS, an exclusive lock needs the right to write.
        lock = stack.enter_context(FileLock(link, os.O_RDWR | os.O_NOFOLLOW))
        return lock.takes(fcntl.LOCK_EX)
    except OSError as error:
        _log.info("%s is taken for used: %s", shown(link), error)
        return False


def _digests(path: pathlib.Path) -> set[bytes]:
    """Of the parts that the file of a version refers to, which is compared with its own digest.

    Raises:
        CacheFormatError: it is damaged.
        FileSystemError: it cannot be opened.
    """
    try:
        header, file = read_header(path)
    except ForeignFileError:
        # A table whose beginning was overwritten is not one of 0.1.4.
        open_cache(path).close()
        return set()
    if not header.part_count:
        return set()
    check_digest(file, header, shown(path))
    return set(parts_of(path))


def _known_digests(path: pathlib.Path) -> set[bytes]:
    """The same of a file that may be read.

    Raises:
        CannotCollectError: it is damaged.
        FileSystemError: it cannot be opened.
    """
    try:
        return _digests(path)
    except (CacheFormatError, UnsupportedTypeError) as error:
        raise CannotCollectError(f"it is not known what a table refers to: {error}") from error


def _digests_of_old(link: pathlib.Path) -> set[bytes]:
    """The same of one that nobody can read any more; of a damaged one, nothing is known."""
    try:
        return _digests(link)
    except (CacheFormatError, UnsupportedTypeError) as error:
        _log.info("%s refers to nothing: %s", shown(link), error)
        return set()
