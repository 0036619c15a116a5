"""What is kept on this machine of versions in buckets: found, measured, and removed.

The folder of a store has ``yogadl.objects``, in which each version's own file is named by its
digest, and ``yogadl.parts`` for the parts of tables. Beside a version's file stands
``<name>.json``, which says of which objects it is, when it was last opened, and which symbolic
links lead to it. Who has a version open holds a shared lock (``flock``) on its file, and so keeps
its parts, too.

``yogadl.lock`` is held exclusively by who removes anything, from before he lists what there is; and
shared by who gives a whole file its name. So a part that was there when the table that needs it got
its name is not removed any more, and no file while it gets its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import pathlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from yogadl.cache.files import telling
from yogadl.cache.partial import remove_leftovers
from yogadl.cache.parts import OBJECTS_FOLDER, PARTS_FOLDER, part_path, parts_of
from yogadl.errors import YogadlError
from yogadl.remote._ledger import exclusive
from yogadl.remote._whole import replace_text

STAGED_FILE = "download.mdb"
"""Of what a download is staged for: one for all, so that what killed processes left is found."""

_SUFFIX = ".mdb"
_LOCK_FILE = "yogadl.lock"
# Beside a link, for yogadl 0.1.4, which looks for no more than that.
_COPY_NOTE = "local_metadata.json"
_LARGEST_NOTE = 64 << 10
_MOST_NAMES = 16
_LATEST = 2.0**37
_NOTES_LOCK = "notes.lock"
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

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


def note_opened(path: pathlib.Path, name: str, link: pathlib.Path | None = None) -> None:
    """Notes that a version was opened, of which ``path`` is the file, as the object of a name; and
    a link to it.

    That it cannot be noted is no error: it counts as not opened for long.
    """
    try:
        with _changing_notes(path):
            note = _load(path)
            names = _first(name, note.names)
            links = note.links if link is None else _first(os.path.abspath(link), note.links)
            _save(path, _Note(names, time.time(), note.pinned, links))
    except OSError as error:
        _log.info("It cannot be noted that %s was opened: %s", path, error)


def _first(one: str, others: tuple[str, ...]) -> tuple[str, ...]:
    return (one, *[other for other in others if other != one])[:_MOST_NAMES]


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
            if not os.fstat(file.fileno()).st_nlink:
                return False
            with _changing_notes(path):
                _save(path, dataclasses.replace(_load(path), pinned=pinned))
    return True


@contextlib.contextmanager
def _changing_notes(path: pathlib.Path) -> Iterator[None]:
    """Nobody else changes notes beside a file meanwhile.

    Raises:
        OSError: they cannot be kept from it.
    """
    with exclusive(path.with_name(_NOTES_LOCK)):
        yield


def kept_versions(folder: pathlib.Path) -> list[KeptVersion]:
    """What is kept in the folder of a store, last opened last."""
    found = []
    for path in sorted((folder / OBJECTS_FOLDER).glob(f"*{_SUFFIX}")):
        note, parts = _load(path), _parts(path)
        nbytes = sum(map(_on_disk, (path, *parts)))
        found.append(KeptVersion(path, note.names, note.opened, note.pinned, parts, nbytes))
    return sorted(found, key=lambda version: version.opened)


def remove(version: KeptVersion) -> int:
    """Removes a version and the parts that no other has, unless somebody has it open or pinned it.

    Returns:
        How many bytes that freed.
    """
    freed = 0
    with alone(version.path) as is_alone:
        if not is_alone or _load(version.path).pinned:
            return 0
        # Now, since others may have come that have some of its parts.
        others = version.path.parent.glob(f"*{_SUFFIX}")
        shared = {part for other in others if other != version.path for part in _parts(other)}
        for link in _load(version.path).links:
            _remove_link(pathlib.Path(link), version.path)
        # The version itself goes last: what is left of its parts would not be found otherwise.
        for part in dict.fromkeys(version.parts):
            if part not in shared:
                with alone(part) as is_free:
                    freed += _unlink(part) if is_free else 0
        freed += _unlink(version.path)
    return freed


def remove_unused(folders: Iterable[pathlib.Path], nbytes: int) -> int:
    """Removes versions that nobody has open and that are not pinned, the least recently opened
    first, until so many bytes are free; before them, parts of no version.

    Returns:
        How many bytes it freed.
    """
    with contextlib.ExitStack() as stack:
        # In one order, so that none of two waits for the other.
        stores = sorted(folders)
        for folder in stores:
            stack.enter_context(settled(folder, fcntl.LOCK_EX))
        return _remove_unused({folder: kept_versions(folder) for folder in stores}, nbytes)


def _remove_unused(kept: dict[pathlib.Path, list[KeptVersion]], nbytes: int) -> int:
    for folder in kept:
        for inner in (OBJECTS_FOLDER, PARTS_FOLDER):
            remove_leftovers(folder / inner / STAGED_FILE)
    freed = sum(_remove_parts(folder, versions) for folder, versions in kept.items())
    found = [version for versions in kept.values() for version in versions]
    for version in sorted(found, key=lambda version: version.opened):
        if freed >= nbytes:
            break
        gone = remove(version)
        freed += gone
        if gone:
            _log.info("Removed %s, %.1f MB, to make room.", version.path, gone / 1e6)
    return freed


def forget(folder: pathlib.Path, name: str | None = None, but: pathlib.Path | None = None) -> None:
    """Removes what is of no object any more, unless somebody has it open.

    Args:
        folder: of the store.
        name: of an object that has been deleted or replaced.
        but: what it was replaced by, which stays pinned if the other was.
    """
    with settled(folder, fcntl.LOCK_EX):
        for version in kept_versions(folder):
            is_it = name in version.names and version.path != but
            if is_it and not _lost_name(version, str(name), but):
                continue
            if not [other for other in version.names if not is_it or other != name]:
                remove(version)
        _remove_parts(folder, kept_versions(folder))


def _lost_name(version: KeptVersion, name: str, but: pathlib.Path | None) -> bool:
    """Whether it could be noted that a version is not the object of a name any more."""
    try:
        with _changing_notes(version.path):
            note = _load(version.path)
            names = tuple(other for other in note.names if other != name)
            if note.pinned and but is not None:
                _save(but, dataclasses.replace(_load(but), pinned=True))
            pinned = note.pinned and bool(names)
            _save(version.path, dataclasses.replace(note, names=names, pinned=pinned))
    except OSError as error:
        _log.info("%s stays: %s", version.path, error)
        return False
    return True


def _remove_link(link: pathlib.Path, path: pathlib.Path) -> None:
    """Removes a link to a file, and with it what says that it is current."""
    try:
        if link.is_symlink() and os.path.realpath(link) == os.path.realpath(path):
            link.unlink()
            link.with_name(_COPY_NOTE).unlink(missing_ok=True)
    except OSError as error:
        # It leads nowhere then, and is replaced when the version is fetched again.
        _log.info("%s stays: %s", link, error)


def _remove_parts(folder: pathlib.Path, versions: list[KeptVersion]) -> int:
    """Removes the parts that no version has, and nobody has open."""
    known = {part for version in versions for part in version.parts}
    freed = 0
    for part in (folder / PARTS_FOLDER).glob(f"*{_SUFFIX}"):
        if part not in known:
            with alone(part) as is_free:
                freed += _unlink(part) if is_free else 0
    return freed


def disk_bytes(folder: pathlib.Path) -> int:
    """That all files of a store take on the disk."""
    return sum(
        _on_disk(path)
        for inner in (OBJECTS_FOLDER, PARTS_FOLDER)
        for path in (folder / inner).glob(f"*{_SUFFIX}")
    )


def _parts(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
    try:
        return tuple(part_path(path, digest) for digest in parts_of(path))
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
    if path.name.endswith(_SUFFIX):
        for suffix in (".cells", ".whole", ".json"):
            yield path.with_name(path.name + suffix)
    # Last: who opens it meanwhile waits for the lock on it, and finds that all is gone.
    yield path


def _unlink(path: pathlib.Path) -> int:
    freed = 0
    for each in _family(path):
        try:
            nbytes = 512 * os.lstat(each).st_blocks
            each.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.info("%s stays: %s", each, error)
        else:
            freed += nbytes
    return freed


@contextlib.contextmanager
def settled(folder: pathlib.Path, kind: int) -> Iterator[None]:
    """Holds the lock of a store; where there is none, nobody removes anything.

    Args:
        folder: of the store.
        kind: ``LOCK_EX`` for who removes, ``LOCK_SH`` for who gives a file its name.
    """
    lock = -1
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(folder / _LOCK_FILE, flags, 0o664)
        fcntl.flock(lock, kind)
    except OSError as error:
        _log.debug("%s is not locked: %s", folder, error)
    try:
        yield
    finally:
        if lock >= 0:
            # Closing it is not enough: a child of a fork may have it, too.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


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
            yield True
        finally:
            # Closing it is not enough: a child of a fork may have it, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Note:
    names: tuple[str, ...] = ()
    opened: float = 0.0
    pinned: bool = False
    links: tuple[str, ...] = ()


def _load(path: pathlib.Path) -> _Note:
    """What a note says; nothing if there is none, or one that makes no sense."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(_note_of(path), flags), "rb") as file:
            found = json.loads(file.read(_LARGEST_NOTE))
        names, links = (
            tuple(str(one) for one in found.get(key, ())[:_MOST_NAMES])
            for key in ("names", "links")
        )
        opened = float(found["opened"])
        if not 0 <= opened < _LATEST:
            raise ValueError(f"it was opened at {opened}")
        return _Note(names, opened, found["pinned"] is True, links)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        _log.debug("%s has no note: %s", path, error)
        return _Note()


def _save(path: pathlib.Path, note: _Note) -> None:
    replace_text(_note_of(path), json.dumps(dataclasses.asdict(note)))


def _note_of(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.json")
