"""What is kept on this machine of versions that are read from afar: found, measured, and removed.

The folder of a store has ``yogadl.objects``, in which each version's own file is named by its
digest, and ``yogadl.parts`` for the parts of tables. Beside a version's file stands
``<name>.json``, which says of which objects it is and when it was last opened. Who has a version
open holds a shared lock (``flock``) on its file, and so keeps its parts, too.
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
from yogadl.cache.parts import PARTS_FOLDER, part_path, parts_of
from yogadl.errors import YogadlError
from yogadl.remote._ledger import exclusive

OBJECTS_FOLDER = "yogadl.objects"
"""What the versions of a store are themselves, beside the folder of their parts."""

_SUFFIX = ".mdb"
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


def note_opened(path: pathlib.Path, name: str) -> None:
    """Notes that a version was opened, of which ``path`` is the file, as the object of a name.

    That it cannot be noted is no error: it counts as not opened for long.
    """
    try:
        with _changing_notes(path):
            note = _load(path)
            names = (name, *[known for known in note.names if known != name])[:_MOST_NAMES]
            _save(path, _Note(names, time.time(), note.pinned))
    except OSError as error:
        _log.info("It cannot be noted that %s was opened: %s", path, error)


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
    with _alone(version.path) as is_alone:
        if not is_alone or not os.path.lexists(version.path) or _load(version.path).pinned:
            return 0
        # Now, since others may have come that have some of its parts.
        others = version.path.parent.glob(f"*{_SUFFIX}")
        shared = {part for other in others if other != version.path for part in _parts(other)}
        # The version itself goes last: what is left of its parts would not be found otherwise.
        for part in dict.fromkeys(version.parts):
            if part not in shared:
                with _alone(part) as is_free:
                    freed += _unlink(part) if is_free else 0
        freed += _unlink(version.path)
    return freed


def remove_unused(folders: Iterable[pathlib.Path], nbytes: int) -> int:
    """Removes versions that nobody has open and that are not pinned, the least recently opened
    first, until so many bytes are free; before them, parts of no version.

    Returns:
        How many bytes it freed.
    """
    kept = {folder: kept_versions(folder) for folder in folders}
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


def _remove_parts(folder: pathlib.Path, versions: list[KeptVersion]) -> int:
    """Removes the parts that no version has, and nobody has open."""
    known = {part for version in versions for part in version.parts}
    freed = 0
    for part in (folder / PARTS_FOLDER).glob(f"*{_SUFFIX}"):
        if part not in known:
            with _alone(part) as is_free:
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
def _alone(path: pathlib.Path) -> Iterator[bool]:
    """Whether nobody has a file open; nobody opens it meanwhile."""
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        # It has not been needed yet.
        yield True
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


def _load(path: pathlib.Path) -> _Note:
    """What a note says; nothing if there is none, or one that makes no sense."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(_note_of(path), flags), "rb") as file:
            found = json.loads(file.read(_LARGEST_NOTE))
        names = tuple(str(name) for name in found["names"][:_MOST_NAMES])
        opened = float(found["opened"])
        if not 0 <= opened < _LATEST:
            raise ValueError(f"it was opened at {opened}")
        return _Note(names, opened, found["pinned"] is True)
    except (OSError, ArithmeticError, ValueError, LookupError, TypeError, RecursionError) as error:
        _log.debug("%s has no note: %s", path, error)
        return _Note()


def _save(path: pathlib.Path, note: _Note) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        partial.write_text(json.dumps(dataclasses.asdict(note)))
        os.replace(partial, _note_of(path))
    finally:
        partial.unlink(missing_ok=True)


def _note_of(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.json")
