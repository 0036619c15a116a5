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
from collections.abc import Iterator

from yogadl.cache.files import leads_to
from yogadl.cache.mapping import Descriptor
from yogadl.cache.noted import is_noted
from yogadl.remote._local.in_memory import CELL
from yogadl.remote._local.own_file import sized_file, write_all

# What changes whenever something is taken back stands behind the cells.
_STAMP_BYTES = 8
# Cells that are written at a time.
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
        if not leads_to(path, data.number):
            # It was removed or renamed before it was locked, and the cells may be another's.
            continue
        if is_alone:
            _remove_others_cells(path, data)
        marks = _open_cells(path, data, size // CELL)
        if marks is None:
            continue
        lengthen(data, marks, size)
        _lock(data, fcntl.LOCK_SH)
        # For a moment it had no lock.
        if leads_to(path, data.number):
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


def all_marked(count: int) -> Iterator[bytes]:
    """What the file of so many cells has, in pieces, when all of them are there."""
    for at in range(0, count, _PIECE):
        yield b"\1" * min(_PIECE, count - at)
    yield bytes(_STAMP_BYTES)


def stamp(marks: Descriptor, count: int) -> bytes:
    """What is another whenever some of so many cells were taken back, by whichever process."""
    return os.pread(marks.number, _STAMP_BYTES, count).strip(b"\0")


def reserve_stamp(marks: Descriptor, count: int) -> None:
    """Sees that there is room for that, before any of so many cells is marked: none can be taken
    back otherwise once the disk is full.

    Raises:
        OSError: there is none.
    """
    if os.fstat(marks.number).st_size >= count + _STAMP_BYTES:
        return
    if hasattr(os, "posix_fallocate"):
        # What another process has written there meanwhile stays.
        try:
            os.posix_fallocate(marks.number, count, _STAMP_BYTES)
            return
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
    write_all(marks, count, memoryview(bytes(_STAMP_BYTES)))


def _remove_others_cells(path: pathlib.Path, data: Descriptor) -> None:
    """Removes the cells of a file that was at the path before, if they are such: nobody has this
    one open yet, and who has that one goes on with what is his."""
    cells = cells_of(path)
    # In this order: what is marked was written before.
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(cells).st_blocks and _is_empty(data):
            _log.info("What %s says is of another file.", cells)
            cells.unlink()


def _open_cells(path: pathlib.Path, data: Descriptor, count: int) -> Descriptor | None:
    """The file of so many cells of a sparse file; ``None`` if that was replaced, since somebody has
    deleted or cut the other.

    Others may have mapped what is there of it, to read it as it is: nobody may write to it who
    does not know what that is.
    """
    # In this order: who writes to the one has made the other as long as it is to be.
    has_bytes = not _is_empty(data)
    marks = sized_file(cells_of(path), 0)
    if has_bytes and os.fstat(marks.number).st_size < count:
        if not (is_noted(path, data) and _fill(marks, count)):
            _log.info("What %s has is not known any more.", path)
            with contextlib.suppress(FileNotFoundError):
                if os.lstat(path).st_ino == os.fstat(data.number).st_ino:
                    path.unlink()
            return None
    if os.fstat(marks.number).st_size < count:
        os.ftruncate(marks.number, count)
    return marks


def _fill(marks: Descriptor, count: int) -> bool:
    """Says of so many cells that all are there; whether there is room to say so."""
    try:
        at = 0
        for piece in all_marked(count):
            write_all(marks, at, memoryview(piece))
            at += len(piece)
    except OSError as error:
        _log.info("Cannot note what is there: %s", error)
        return False
    return True


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
