"""What nobody needs of what is kept on this machine: removed by and by, or when room is needed.

Also what killed processes left, at whatever they were killed. Of what is removed, the data is last:
as long as that is there, what stands beside it is found by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
from collections.abc import Iterable

from yogadl.cache.partial import remove_all_leftovers
from yogadl.cache.parts import OBJECTS_FOLDER, PARTS_FOLDER
from yogadl.remote._local import notes
from yogadl.remote._local.kept import (
    BESIDE,
    KeptVersion,
    Shares,
    alone,
    kept_version,
    kept_versions,
    remove,
    settled,
    unlink_all,
    versions_in,
)
from yogadl.remote._local.notes import VERSION_SUFFIX

# For who was stopped while he removes something.
_PATIENCE = 5.0
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_log = logging.getLogger(__name__)


def remove_unused(folders: Iterable[pathlib.Path], nbytes: int) -> int:
    """Removes versions that nobody has open and that are not pinned, the least recently opened
    first, until so many bytes are free; before them, parts of no version.

    Returns:
        How many bytes it freed.

    Raises:
        TimeoutError: another process removes or stores something all the time, or was stopped.
    """
    with contextlib.ExitStack() as stack:
        # In one order, so that none of two waits for the other.
        stores = sorted(folders)
        for folder in stores:
            stack.enter_context(settled(folder, fcntl.LOCK_EX, _PATIENCE))
        return _remove_unused({folder: kept_versions(folder) for folder in stores}, nbytes)


def _remove_unused(kept: dict[pathlib.Path, list[KeptVersion]], nbytes: int) -> int:
    for folder in kept:
        _remove_leftovers(folder)
    shares_of = {folder: Shares(folder) for folder in kept}
    freed = sum(_remove_parts(folder, shares) for folder, shares in shares_of.items())
    found = [(it, shares_of[folder]) for folder, versions in kept.items() for it in versions]
    for version, shares in sorted(found, key=lambda one: one[0].opened):
        if freed >= nbytes:
            break
        gone = remove(version, shares)
        freed += gone
        if gone:
            _log.info("Removed %s, %.1f MB, to make room.", version.path, gone / 1e6)
    return freed


def collect(folder: pathlib.Path) -> None:
    """Removes what is of no object any more, unless somebody has it open.

    Args:
        folder: of the store.

    Raises:
        TimeoutError: another process removes or stores something all the time, or was stopped.
    """
    with settled(folder, fcntl.LOCK_EX, _PATIENCE):
        _remove_leftovers(folder)
        shares = Shares(folder)
        for path in versions_in(folder):
            if not notes.load(path).names:
                remove(kept_version(path), shares)
        _remove_parts(folder, shares)
        notes.lose_what_is_gone(folder / OBJECTS_FOLDER)


def _remove_leftovers(folder: pathlib.Path) -> None:
    """Removes what killed processes left that is no version and no part."""
    for inner in (OBJECTS_FOLDER, PARTS_FOLDER):
        remove_all_leftovers(folder / inner)
        for path in _strays_in(folder / inner):
            _remove_stray(path)


def _strays_in(folder: pathlib.Path) -> set[pathlib.Path]:
    """The files that are not there, and beside which something stands, of who was killed while he
    renamed or removed one."""
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        return set()
    ends = [f"{VERSION_SUFFIX}{suffix}" for suffix in BESIDE]
    beside = {
        f"{name.removesuffix(end)}{VERSION_SUFFIX}"
        for end in ends
        for name in names
        if name.endswith(end)
    }
    return {folder / name for name in beside - names}


def _remove_stray(path: pathlib.Path) -> None:
    """Removes what stands beside a file that is not there.

    It is made for that: who opens it meanwhile locks it before he looks what stands beside it, and
    has another once it is removed. Reading from afar, he takes no lock of the store.
    """
    try:
        os.close(os.open(path, _NEW, 0o664))
    except FileExistsError:
        # Somebody keeps something of it now.
        return
    except OSError as error:
        _log.info("What stands beside %s stays: %s", path, error)
        return
    with alone(path) as is_alone:
        # Who had it open before has made it as long as it is to be.
        if is_alone and not os.lstat(path).st_size:
            _log.info("What stands beside %s is of a file that is gone, and is removed.", path)
            unlink_all(path)


def _remove_parts(folder: pathlib.Path, shares: Shares) -> int:
    """Removes the parts that no version has, and nobody has open."""
    needed, freed = shares.all(), 0
    for part in (folder / PARTS_FOLDER).glob(f"*{VERSION_SUFFIX}"):
        if part not in needed:
            with alone(part) as is_free:
                freed += unlink_all(part) if is_free else 0
    return freed
