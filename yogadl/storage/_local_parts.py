"""The parts of an id in a folder of this machine: who needs them, and removing the others.

``<id>/yogadl.parts`` has the parts, and besides

- ``yogadl.building``, a lock: shared by all who store parts and publish tables, from before the
  first part until the table has its name, and exclusive for who collects;
- for each table another name, ``<random>.table``, a hard link to the version's own file. It is made
  before the table is published, and stays when the version is replaced or deleted. So its file can
  still be found while somebody has it open, who holds a shared lock on it; see ``cache.held``.

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

A child of a fork inherits its parent's locks. Those of readers it keeps until it ends or closes
what it inherited; nobody unlocks them but by closing, so neither takes the other's away. Those of
who stores or collects are let go of by who took them, whatever children were born meanwhile.
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
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from yogadl.cache.files import make_folders, shown, telling
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.parts import PARTS_FOLDER, parts_of, read_header
from yogadl.cache.progress import waiting_for
from yogadl.cache.whole_file import check_digest
from yogadl.closing import Closing
from yogadl.errors import (
    CacheFormatError,
    FileAccessError,
    FileSystemError,
    ForeignFileError,
    UnsupportedTypeError,
)
from yogadl.storage._collected import (
    CannotCollectError,
    CollectedParts,
    NotNowError,
    StoredPart,
    skipped,
)
from yogadl.storage._local_note import FOLDER_MODE
from yogadl.storage._paths import CACHE_FILE

BUILDING_FILE = "yogadl.building"

_TABLE = ".table"
_PART = re.compile(r"([0-9a-f]{32})\.mdb")
_LEFTOVER = re.compile(r"([0-9a-f]{32}\.mdb)\.[0-9a-f]{32}\.partial")
_WITHOUT_TABLE = datetime.timedelta(days=1)
_POLL_SECONDS = 0.02

_Identity = tuple[int, int]

_log = logging.getLogger(__name__)


class LocalParts:
    """The parts of the versions of an id. Safe for threads and processes.

    Args:
        folder: of the id.
        dataset_id: the id, for people.
    """

    def __init__(self, folder: pathlib.Path, dataset_id: str) -> None:
        self._folder = folder
        self._id = dataset_id
        self._parts = folder / PARTS_FOLDER

    def _is_there(self) -> bool:
        with telling("look for", self._parts):
            return self._parts.is_dir()

    # Storing

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Nothing is collected meanwhile. Where nothing can be written, nobody sees to that.

        Raises:
            FileSystemError: the lock cannot be taken.
        """
        make_folders(self._parts, FOLDER_MODE)
        with contextlib.ExitStack() as stack:
            try:
                lock = _Lock(self._parts / BUILDING_FILE, os.O_RDONLY | os.O_CREAT)
            except FileAccessError as error:
                _log.debug("Not locked: %s", error)
            else:
                self._share(stack.enter_context(lock))
            yield

    def _share(self, lock: _Lock) -> None:
        try:
            if lock.takes(fcntl.LOCK_SH):
                return
            with waiting_for(f"for who removes parts of {self._id}"):
                while not lock.takes(fcntl.LOCK_SH):
                    time.sleep(_POLL_SECONDS)
        except OSError as error:
            _log.debug("%s has no locks: %s", shown(self._parts), error.strerror)

    def publish(self, file: PartialFile, path: pathlib.Path) -> bool:
        """Gives a whole file, a table or not, its final name.

        Returns:
            Whether it replaced a table, so that there may be something to collect.

        Raises:
            FileSystemError: it cannot be.
        """
        is_table = bool(parts_of(file.path))
        if not is_table and not self._is_there():
            file.commit(path)
            return False
        with self.kept():
            was_table = self._keep_table(path)
            if is_table:
                self._link(file.path)
            file.commit(path)
        return was_table

    def remove(self, path: pathlib.Path) -> bool:
        """Removes the file of a version; whether it was a table.

        Raises:
            FileSystemError: it cannot be, or is not there.
        """
        if not self._is_there():
            with telling("delete", path):
                path.unlink()
            return False
        with self.kept():
            was_table = self._keep_table(path)
            with telling("delete", path):
                path.unlink()
        return was_table

    def _keep_table(self, path: pathlib.Path) -> bool:
        """Sees to it that a table that is about to lose its name has another; whether it is one."""
        try:
            if not parts_of(path):
                return False
        except CacheFormatError:
            # Nobody can have it open.
            return True
        except FileSystemError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        if _identity(path) not in {_identity(link) for link in self._links()}:
            self._link(path)
        return True

    def _link(self, path: pathlib.Path) -> None:
        make_folders(self._parts, FOLDER_MODE)
        try:
            os.link(path, self._parts / f"{uuid.uuid4().hex}{_TABLE}")
        except OSError as error:
            # Then nothing is collected there either.
            _log.info("%s cannot have a second name: %s", shown(path), error.strerror)

    def _links(self) -> list[pathlib.Path]:
        with telling("list", self._parts):
            return [path for path in self._parts.iterdir() if path.name.endswith(_TABLE)]

    # Collecting

    def collect(
        self, older_than: datetime.timedelta | None = None, dry_run: bool = False
    ) -> CollectedParts:
        """Removes the parts that nobody needs.

        Args:
            older_than: only those that nobody has referred to for so long; without, what has no
                table stays for a day, and nothing else.
            dry_run: remove nothing.

        Raises:
            FileSystemError: a part cannot be removed.
        """
        if not self._is_there():
            return CollectedParts()
        with contextlib.ExitStack() as stack:
            try:
                self._lock_out(stack)
                plan = self._plan(older_than, stack)
            except (CannotCollectError, FileSystemError) as error:
                return skipped(self._id, error)
            if not dry_run:
                self._carry_out(plan)
        return CollectedParts(tuple(plan.removed.values()), tuple(plan.waiting))

    def collect_after(self) -> None:
        """The same after a change, which is no reason for the change to fail."""
        try:
            self.collect()
        except FileSystemError as error:
            _log.warning("Parts of %s are left for collect_parts: %s", self._id, error)

    def _lock_out(self, stack: contextlib.ExitStack) -> None:
        """Takes the exclusive lock.

        Raises:
            CannotCollectError: parts are stored, or collected by another, or there are no locks.
            FileSystemError: this user may not.
        """
        if self._parts.is_symlink():
            raise CannotCollectError(f"{shown(self._parts)} is a link, and others may use it")
        path = self._parts / BUILDING_FILE
        lock = stack.enter_context(_Lock(path, os.O_RDWR | os.O_CREAT))
        try:
            if not lock.takes(fcntl.LOCK_EX):
                raise NotNowError("somebody is storing or removing some now")
            probe = path.with_name(f"{uuid.uuid4().hex}{_TABLE}")
            os.link(path, probe)
            probe.unlink()
            # By the clock of the file system, it is now.
            os.utime(path)
        except OSError as error:
            raise CannotCollectError(
                f"the file system has no locks or no links: {error.strerror}"
            ) from error

    def _plan(self, older_than: datetime.timedelta | None, stack: contextlib.ExitStack) -> _Plan:
        now = os.stat(self._parts / BUILDING_FILE).st_mtime
        latest = now - (older_than or datetime.timedelta()).total_seconds()
        plan = _Plan()
        needed, current = self._current()
        dropped: set[bytes] = set()
        for link in self._links():
            status = os.lstat(link)
            if (status.st_dev, status.st_ino) in current:
                continue
            # Its number of names changed when its version was replaced or deleted.
            if status.st_ctime <= latest and _is_free(link, stack):
                plan.tables.append(link)
                dropped |= _digests_of_old(link)
            else:
                needed |= _known_digests(link)
        if older_than is None:
            latest = now - _WITHOUT_TABLE.total_seconds()
        for path, digest, status in self._files():
            if digest in needed:
                continue
            part = StoredPart(self._id, digest.hex(), status.st_size)
            if digest in dropped or status.st_ctime <= latest:
                plan.removed[path] = part
            else:
                plan.waiting.append(part)
        return plan

    def _current(self) -> tuple[set[bytes], set[_Identity]]:
        """What the versions refer to, and which files they are.

        Raises:
            CannotCollectError: that is not known.
        """
        needed: set[bytes] = set()
        current: dict[_Identity, pathlib.Path] = {}
        with telling("list", self._folder):
            folders = list(self._folder.iterdir())
        for folder in folders:
            path = folder / CACHE_FILE
            try:
                identity = _identity(path)
                digests = _known_digests(path)
            except FileSystemError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                continue
            if digests:
                needed |= digests
                current[identity] = path
        # Those that were put there by hand may be removed so, too.
        for identity in current.keys() - {_identity(link) for link in self._links()}:
            self._link(current[identity])
        return needed, set(current)

    def _files(self) -> Iterator[tuple[pathlib.Path, bytes, os.stat_result]]:
        with telling("list", self._parts), os.scandir(self._parts) as found:
            for entry in found:
                matched = _PART.fullmatch(entry.name)
                if matched and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield pathlib.Path(entry.path), bytes.fromhex(matched[1]), status

    def _carry_out(self, plan: _Plan) -> None:
        for path, part in plan.removed.items():
            with telling("delete", path):
                path.unlink()
            _log.debug("Removed part %s of %s.", part.digest, self._id)
        # Last, since they say which parts had a table.
        for link in plan.tables:
            with telling("delete", link):
                link.unlink()
        with telling("list", self._parts):
            partial = {_LEFTOVER.fullmatch(path.name) for path in self._parts.iterdir()}
        for name in {matched[1] for matched in partial if matched}:
            remove_leftovers(self._parts / name)


@dataclass
class _Plan:
    """What is to be removed: parts, and other names of tables, which are locked."""

    removed: dict[pathlib.Path, StoredPart] = field(default_factory=dict)
    waiting: list[StoredPart] = field(default_factory=list)
    tables: list[pathlib.Path] = field(default_factory=list)


class _Lock(Closing):
    """A file that can be locked, and is unlocked when it is closed."""

    def __init__(self, path: pathlib.Path, flags: int) -> None:
        self._owner = os.getpid()
        with telling("open", path):
            self._descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)

    def takes(self, kind: int) -> bool:
        """Whether it can be locked at once.

        Raises:
            OSError: the file system has no locks.
        """
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            if self._owner == os.getpid():
                with contextlib.suppress(OSError):
                    # Where there are no locks, there is none to drop.
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


def _is_free(link: pathlib.Path, stack: contextlib.ExitStack) -> bool:
    """Takes the lock of a table, unless somebody reads it."""
    try:
        # On NFS, an exclusive lock needs the right to write.
        lock = stack.enter_context(_Lock(link, os.O_RDWR | os.O_NOFOLLOW))
        return lock.takes(fcntl.LOCK_EX)
    except OSError as error:
        _log.info("%s is taken for used: %s", shown(link), error)
        return False


def _identity(path: pathlib.Path) -> _Identity:
    with telling("look for", path):
        status = os.stat(path)
    return status.st_dev, status.st_ino


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
