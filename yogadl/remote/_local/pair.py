"""The two files that say what is there of one: its bytes, and which of them these are.

Somebody may have deleted, replaced or cut off the one and left the other. Whoever opens them sees
to it that what is said to be there can be.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pathlib

from yogadl.cache.mapping import Descriptor
from yogadl.remote._local.in_memory import CELL
from yogadl.remote._local.own_file import sized_file, write_all

# What changes whenever something is taken back stands behind the cells.
_STAMP_BYTES = 8
# Cells that are taken back at a time.
_PIECE = 1 << 20

_log = logging.getLogger(__name__)


def open_pair(path: pathlib.Path, size: int) -> tuple[Descriptor, Descriptor]:
    """The sparse file of a path, and that of its cells. The first has a shared lock: as long as
    anybody has it, it is not removed.

    Args:
        path: of the sparse file.
        size: bytes that it is to have.

    Raises:
        FileSystemError, OSError: they cannot be made.
    """
    while True:
        data = sized_file(path, 0)
        is_alone = _lock_first(data)
        if is_alone:
            _remove_others_cells(path, data)
        marks = sized_file(cells_of(path), size // CELL)
        lengthen(data, marks, size)
        _lock(data, fcntl.LOCK_SH)
        # It may have been removed before it was locked.
        if os.fstat(data.number).st_nlink:
            return data, marks


def cells_of(path: pathlib.Path) -> pathlib.Path:
    """The file of the cells of a sparse file."""
    return path.with_name(f"{path.name}.cells")


def lengthen(data: Descriptor, marks: Descriptor, size: int) -> bool:
    """Has a sparse file be as long as it is to be; what somebody has cut off is not there any more.
    Whether somebody has.

    Raises:
        OSError: it cannot be changed.
    """
    found = os.fstat(data.number).st_size
    is_cut = found < size
    # In this order: what is marked was written before.
    if not is_cut and not _is_empty(marks) and _is_empty(data):
        # It was cut off, and has been made longer again.
        found, is_cut = 0, True
    if is_cut:
        take_back(marks, found // CELL, size // CELL, size // CELL)
        os.ftruncate(data.number, size)
    return is_cut


def take_back(marks: Descriptor, first: int, last: int, count: int) -> None:
    """Says of some cells, of so many, that they are not there.

    Raises:
        OSError: others cannot be told.
    """
    # Of what was never marked, a full disk has no room for zeros.
    for at in range(first, 0 if _is_empty(marks) else last, _PIECE):
        end = min(at + _PIECE, last)
        if any(os.pread(marks.number, end - at, at)):
            write_all(marks, at, memoryview(bytes(end - at)))
            write_all(marks, count, memoryview(os.urandom(_STAMP_BYTES)))


def stamp(marks: Descriptor, count: int) -> bytes:
    """What is another whenever some of so many cells were taken back, by whichever process."""
    return os.pread(marks.number, _STAMP_BYTES, count)


def _remove_others_cells(path: pathlib.Path, data: Descriptor) -> None:
    """Removes the cells of a file that was at the path before, if they are such: nobody has this
    one open yet, and who has that one goes on with what is his."""
    cells = cells_of(path)
    # In this order: what is marked was written before.
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(cells).st_blocks and _is_empty(data):
            _log.info("What %s says is of another file.", cells)
            cells.unlink()


def _is_empty(file: Descriptor) -> bool:
    """Whether nothing was written to a file, as far as the system tells."""
    try:
        os.lseek(file.number, 0, os.SEEK_DATA)
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


def _lock_first(data: Descriptor) -> bool:
    """Locks a file, for nobody else if nobody else has it; whether that is so."""
    try:
        fcntl.flock(data.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _lock(data, fcntl.LOCK_SH)
        return False
    return True


def _lock(data: Descriptor, kind: int) -> None:
    with contextlib.suppress(OSError):
        # Where a file system has no locks, nobody removes anything.
        fcntl.flock(data.number, kind)
