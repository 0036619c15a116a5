"""Folders for files that are needed on this machine while a version is made."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator

from yogadl.cache.files import remove_if_empty, shown, telling
from yogadl.cache.partial import remove_leftovers
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.errors import FileSystemError
from yogadl.storage._disk.note import remove_partial_notes
from yogadl.storage._disk.tables import FileLock
from yogadl.storage._paths import CACHE_FILE, CATALOGUE_FOLDER, LOCK_FILE, SCRATCH_PREFIX

# Between its making and its lock.
_YOUNG_SECONDS = 3600.0
# Since the folder of a version was claimed, or lost its file.
_UNUSED_SECONDS = 86400.0

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def scratch_folder(parent: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder of its own, gone at the end; that of who was killed is found by
    :func:`abandoned_in`, since its lock fell with the process.

    Raises:
        FileSystemError: it cannot be made. That it cannot be removed is no error: what it was
            needed for is done.
    """
    with telling("make a folder in", parent):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent))
    try:
        with FileLock(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT) as lock:
            try:
                lock.takes(fcntl.LOCK_EX)
            except OSError as error:
                # Then nobody takes it for abandoned either.
                _log.debug("%s has no locks: %s", shown(folder), error.strerror)
            yield folder
    finally:
        if not _is_removed(folder):
            _log.warning("Cannot remove %s; storage.gc() does.", shown(folder))


def abandoned_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The scratch folders beside the versions of an id that nobody uses any more.

    Args:
        folder: of the id, on this machine.
    """
    found = []
    for version in _folders_in(folder):
        found += [each for each in _folders_in(version) if _is_abandoned(each)]
    return sorted(found)


def ids_with_leftovers(root: pathlib.Path) -> set[str]:
    """The ids below a folder of versions of which a writer may have been killed, or the last
    version has left its folder."""
    found = set()
    for at, folders, files in os.walk(root):
        here = pathlib.Path(at)
        is_left = any(name.startswith(SCRATCH_PREFIX) for name in folders) or any(
            name.startswith(f"{CACHE_FILE}.") for name in files
        )
        is_left = is_left or not (folders or files)
        if is_left and here != root:
            found.add(here.parent.relative_to(root).as_posix())
        folders[:] = [name for name in folders if name not in (PARTS_FOLDER, CATALOGUE_FOLDER)]
    return found


def remove_abandoned(folder: pathlib.Path) -> None:
    """Removes such a folder, and that of a version that was never made."""
    _is_removed(folder)
    remove_if_empty(folder.parent)
    _log.info("Removed %s, left by a change that was killed.", shown(folder))


def remove_partial_files(folder: pathlib.Path) -> None:
    """Removes what killed writers of versions of an id left behind, and the folders of versions
    that are gone.

    Args:
        folder: of the id, on this machine.
    """
    for version in _folders_in(folder):
        if version.name not in (PARTS_FOLDER, CATALOGUE_FOLDER):
            remove_leftovers(version / CACHE_FILE)
            remove_partial_notes(version)
            _remove_unused(version)


def _remove_unused(folder: pathlib.Path) -> None:
    """Removes the folder of a version if it is empty, and has been for long: somebody may have made
    it just now, to write to it."""
    with contextlib.suppress(OSError):
        if time.time() - os.stat(folder).st_mtime > _UNUSED_SECONDS:
            folder.rmdir()


def _is_removed(folder: pathlib.Path) -> bool:
    """Removes such a folder, as far as possible, its lock last: if this is killed, it is found
    again by that. Whether it is gone."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for each in list(found):
            if each.is_dir(follow_symlinks=False):
                shutil.rmtree(each.path, ignore_errors=True)
            elif each.name != LOCK_FILE:
                with contextlib.suppress(OSError):
                    os.unlink(each.path)
    shutil.rmtree(folder, ignore_errors=True)
    return not os.path.lexists(folder)


def _is_abandoned(folder: pathlib.Path) -> bool:
    if not folder.name.startswith(SCRATCH_PREFIX) or (folder / CACHE_FILE).exists():
        return False
    try:
        if time.time() - os.stat(folder).st_mtime < _YOUNG_SECONDS:
            return False
        with FileLock(folder / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW) as lock:
            return lock.takes(fcntl.LOCK_EX)
    except (FileSystemError, OSError) as error:
        if error.errno == errno.ENOENT and _is_empty(folder):
            # Who made it was killed before it had made its lock.
            return True
        _log.debug("%s is taken for used: %s", shown(folder), error)
        return False


def _is_empty(folder: pathlib.Path) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:
        # It is gone, or this user may not look.
        return False


def _folders_in(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        with os.scandir(folder) as found:
            return [folder / it.name for it in found if it.is_dir(follow_symlinks=False)]
    except OSError as error:
        _log.debug("Cannot list %s: %s", shown(folder), error.strerror)
        return []
