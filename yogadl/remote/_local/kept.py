"""What is kept on this machine of versions in buckets: found, measured, and removed.

The folder of a store has ``yogadl.objects``, in which each version's own file is named by its
digest, and ``yogadl.parts`` for the parts of tables. Who has a version open holds a shared lock
(``flock``) on its file, and so keeps its parts, too.

``yogadl.lock`` is held exclusively by who removes anything, from before he lists what there is; and
shared by who gives a whole file its name. So a part that was there when the table that needs it got
its name is not removed any more, and no file while it gets its name.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from yogadl.cache.files import leads_to, telling
from yogadl.cache.parts import OBJECTS_FOLDER, PARTS_FOLDER, part_path, parts_of_sparse
from yogadl.errors import YogadlError
from yogadl.remote._local import notes
from yogadl.remote._local.notes import VERSION_SUFFIX

STAGED_FILE = "download.mdb"
"""Of what a download is staged for: one for all, so that what killed processes left is found."""

_LOCK_FILE = "yogadl.lock"
# Beside a link, for yogadl 0.1.4, which looks for no more than that.
_COPY_NOTE = "local_metadata.json"
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
BESIDE = (".cells", ".whole", ".json")
"""What stands beside a file has these behind its name; nobody makes it before the file itself."""

_POLL_SECONDS = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptVersion:
    """What is on this machine of one version.

    Attributes:
        path: of its own file.
        names: of the objects that it is known to be.
        opened: when it was last opened, seconds since 1970.
        is_pinned: whether it stays when room is needed.
        parts: the files of its parts.
        nbytes: that it takes on the disk; parts that several versions have count for each.
    """

    path: pathlib.Path
    names: tuple[str, ...]
    opened: float
    is_pinned: bool
    parts: tuple[pathlib.Path, ...]
    nbytes: int


def set_pinned(version: KeptVersion, pinned: bool) -> bool:
    """Has a version stay when room is needed, or not any more; whether it is still there.

    Raises:
        FileSystemError: it cannot be noted down.
    """
    path = version.path
    with telling("note what is pinned beside", path):
        try:
            descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            return False
        with open(descriptor, "rb") as file:
            # Who removes it has it to himself, and looks then whether it is pinned.
            fcntl.flock(file, fcntl.LOCK_SH)
            if not leads_to(path, file.fileno()):
                return False
            notes.set_pinned(path, pinned)
    return True


def kept_versions(folder: pathlib.Path) -> list[KeptVersion]:
    """What is kept in the folder of a store, last opened last."""
    found = [kept_version(path) for path in versions_in(folder)]
    return sorted(found, key=lambda version: version.opened)


def versions_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of the versions in the folder of a store."""
    return sorted((folder / OBJECTS_FOLDER).glob(f"*{VERSION_SUFFIX}"))


def kept_version(path: pathlib.Path) -> KeptVersion:
    """What is kept of the version of a file."""
    note, parts = notes.load(path), _parts(path)
    nbytes = sum(map(_on_disk, (path, *parts)))
    return KeptVersion(path, note.names, note.opened, note.pinned, parts, nbytes)


class Shares:
    """How many of a store's versions have a part; each table is read once.

    Args:
        folder: of the store, whose lock is held exclusively.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder / OBJECTS_FOLDER
        self._parts: dict[str, set[pathlib.Path]] = {}
        self._counts: collections.Counter[pathlib.Path] = collections.Counter()

    def only_of(self, version: KeptVersion) -> list[pathlib.Path]:
        """The parts of a version that no other has by now."""
        if not version.parts:
            return []
        self._look()
        own = self._parts.get(version.path.name, set())
        return [
            part for part in dict.fromkeys(version.parts) if self._counts[part] == (part in own)
        ]

    def all(self) -> set[pathlib.Path]:
        """The parts that any version has by now."""
        self._look()
        return set().union(*self._parts.values())

    def _look(self) -> None:
        there = {name for name in os.listdir(self._folder) if name.endswith(VERSION_SUFFIX)}
        for gone in self._parts.keys() - there:
            self._counts.subtract(self._parts.pop(gone))
        # Who reads from afar takes no lock, so others may have come.
        for come in there - self._parts.keys():
            self._parts[come] = set(_parts(self._folder / come))
            self._counts.update(self._parts[come])


def remove(version: KeptVersion, shares: Shares | None = None) -> int:
    """Removes a version and the parts that no other has, unless somebody has it open or pinned it.

    Args:
        version: of a store whose lock is held exclusively.
        shares: of that store, if more is removed of it.

    Returns:
        How many bytes that freed.
    """
    freed = 0
    with alone(version.path) as is_alone:
        if not is_alone or notes.load(version.path).pinned:
            return 0
        parts = (shares or Shares(version.path.parent.parent)).only_of(version)
        note = notes.load(version.path)
        for link in note.links:
            remove_link(pathlib.Path(link), version.path)
        # What has no note is of no object, and collected if this is killed.
        freed += _unlink(notes.note_of(version.path))
        notes.lose_version(version.path, *note.names)
        # The version itself goes last: what is left of its parts would not be found otherwise.
        for part in parts:
            with alone(part) as is_free:
                freed += unlink_all(part) if is_free else 0
        freed += unlink_all(version.path)
    return freed


def forget(folder: pathlib.Path, name: str, but: pathlib.Path | None = None) -> None:
    """Removes what an object was, if it is of no other, unless somebody has it open.

    Args:
        folder: of the store.
        name: of an object that has been deleted or replaced.
        but: what it was replaced by, which stays pinned if the other was.
    """
    # Most that are stored or fetched replace nothing: then this reads one file, and no note.
    before = [path for path in notes.versions_of(folder / OBJECTS_FOLDER, name) if path != but]
    if not before:
        return
    with settled(folder, fcntl.LOCK_EX):
        for path in before:
            names = notes.load(path).names
            if name in names and not notes.lose_name(path, name, but):
                continue
            is_of_others = any(other != name for other in names)
            if not is_of_others:
                remove(kept_version(path))
            # What is open now is removed when the object is replaced the next time.
            if is_of_others or not path.exists():
                notes.lose_version(path, name)


def remove_link(link: pathlib.Path, path: pathlib.Path) -> None:
    """Removes a link to a file, and with it what says that it is current."""
    try:
        if link.is_symlink() and os.path.realpath(link) == os.path.realpath(path):
            link.unlink()
            link.with_name(_COPY_NOTE).unlink(missing_ok=True)
    except OSError as error:
        # It leads nowhere then, and is replaced when the version is fetched again.
        _log.info("%s stays: %s", link, error)


def disk_bytes(folder: pathlib.Path) -> int:
    """That all files of a store take on the disk."""
    return sum(
        _on_disk(path)
        for inner in (OBJECTS_FOLDER, PARTS_FOLDER)
        for path in (folder / inner).glob(f"*{VERSION_SUFFIX}")
    )


def _parts(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
    try:
        return tuple(part_path(path, digest) for digest in parts_of_sparse(path))
    except (YogadlError, OSError) as error:
        # As little of it is there as of a file that was never opened.
        _log.debug("%s names no parts: %s", path, error)
        return ()


def _on_disk(path: pathlib.Path) -> int:
    total = 0
    for each in _family(path):
        with contextlib.suppress(OSError):
            total += 512 * os.lstat(each).st_blocks
    return total


def _family(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file and what stands beside it."""
    if path.name.endswith(VERSION_SUFFIX):
        for suffix in BESIDE:
            yield path.with_name(path.name + suffix)
    # Last: who opens it meanwhile waits for the lock on it, and finds that all is gone.
    yield path


def unlink_all(path: pathlib.Path) -> int:
    """Removes a file that nobody has open, and what stands beside it; how many bytes that frees."""
    return sum(map(_unlink, _family(path)))


def _unlink(path: pathlib.Path) -> int:
    try:
        nbytes = 512 * os.lstat(path).st_blocks
        path.unlink()
    except FileNotFoundError:
        return 0
    except OSError as error:
        _log.info("%s stays: %s", path, error)
        return 0
    return nbytes


@contextlib.contextmanager
def settled(folder: pathlib.Path, kind: int, patience: float | None = None) -> Iterator[None]:
    """Holds the lock of a store; where there is none, nobody removes anything.

    Args:
        folder: of the store.
        kind: ``LOCK_EX`` for who removes, ``LOCK_SH`` for who gives a file its name.
        patience: seconds for which others may have it.

    Raises:
        TimeoutError: they have it for longer.
    """
    lock = -1
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(folder / _LOCK_FILE, flags, 0o664)
        _lock(lock, kind, patience)
    except TimeoutError:
        os.close(lock)
        raise
    except OSError as error:
        _log.debug("%s is not locked: %s", folder, error)
    try:
        yield
    finally:
        if lock >= 0:
            # Closing it is not enough: a child of a fork may have it, too.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


def _lock(descriptor: int, kind: int, patience: float | None) -> None:
    if patience is None:
        fcntl.flock(descriptor, kind)
        return
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                said = f"another process has had the lock for {patience:g} s"
                raise TimeoutError(errno.ETIMEDOUT, said) from None
        else:
            return
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def alone(path: pathlib.Path) -> Iterator[bool]:
    """Whether a file is there and nobody has it open; nobody opens it meanwhile."""
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        # It has not been needed yet, or somebody else has removed it.
        yield False
        return
    except OSError as error:
        _log.info("%s stays: %s", path, error)
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        _log.debug("%s is in use: %s", path, error)
        yield False
    else:
        try:
            yield leads_to(path, descriptor)
        finally:
            # Closing it is not enough: a child of a fork may have it, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
