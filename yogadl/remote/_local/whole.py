"""Which of the files that are named by their contents are all there, and are what they are named.

``<name>.whole`` has what the file system said of the file when it was compared with its digest, as
JSON: bytes, inode, and the times of its contents and of its status in ns. So nobody has to read it
all to know that, unless it was touched. Behind these is what tells one start of the machine from
another, if the file was not written through to the disk: what a crash takes of it is not seen
otherwise, and to write it through takes as long as to fetch it.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import pathlib
import stat
from collections.abc import Callable
from typing import TypeAlias

from yogadl.cache.mapping import Descriptor, MappedFile
from yogadl.cache.parts import read_header
from yogadl.cache.whole_file import check_digest
from yogadl.errors import ChecksumError, YogadlError
from yogadl.remote._local.own_file import replace_file
from yogadl.remote._local.sparse_file import CELL, cells_of, open_marks

_LARGEST_NOTE = 1000
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PIECE = 1 << 20
# Linux's.
_START = pathlib.Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)

Fingerprint: TypeAlias = list[int]
"""Bytes, inode, and the times of contents and status in ns."""


def is_noted(path: pathlib.Path) -> bool:
    """Whether a file was compared with its digest, and not touched since."""
    try:
        noted = Descriptor(os.open(_note_of(path), _FLAGS))
        found = json.loads(os.read(noted.number, _LARGEST_NOTE))
        known = fingerprint_of(path)
        return found in (known, [*known, _start_of_machine()])
    except (OSError, ValueError, RecursionError):
        # Then it is compared with its digest, which says for sure.
        return False


def check_whole(path: pathlib.Path) -> None:
    """Compares a file with its digest and its name, and notes that.

    Args:
        path: of the file.

    Raises:
        CacheFormatError: it is another.
        FileSystemError: it cannot be read.
    """
    note(path, compare(path)[0])


def compare(
    path: pathlib.Path, arrived: Callable[[int], int] | None = None
) -> tuple[Fingerprint, MappedFile]:
    """Compares a file with its digest and its name.

    Args:
        path: of the file.
        arrived: for one that is being fetched, see ``check_digest``.

    Returns:
        What the file system said of the file when all of it was there, and the file.

    Raises:
        CacheFormatError: it is another.
        FileSystemError: it cannot be read.
    """
    fingerprint: Fingerprint = []

    def ends(at: int) -> int:
        assert arrived is not None
        end = arrived(at)
        if end == header.file_size:
            fingerprint[:] = fingerprint_of(path)
        return end

    if arrived is None:
        fingerprint[:] = fingerprint_of(path)
    else:
        arrived(0)
    header, file = read_header(path)
    check_digest(file, header, str(path), None if arrived is None else ends)
    if header.digest.hex() != path.stem:
        raise ChecksumError(f"{path} is {header.digest.hex()}, and has the name of another")
    return fingerprint, file


def is_whole(path: pathlib.Path, size: int, check: bool = False) -> bool:
    """Whether all bytes of a file are there, and right.

    Args:
        path: of the file.
        size: bytes that it should have.
        check: read all of it to see that; otherwise only where that was not done since it was
            touched, and where nothing says that some bytes are missing.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        if not check:
            if is_noted(path):
                return True
            if not _may_be_complete(path, size):
                return False
        check_whole(path)
    except FileNotFoundError:
        return False
    except (OSError, YogadlError) as error:
        _log.info("%s is not taken for whole: %s", path, error)
        return False
    return True


def mark_whole(path: pathlib.Path, size: int) -> None:
    """Says of a file that it is to have all of its bytes, before it gets its name.

    So nobody who opens it then, to read it from afar, writes to it. That it cannot be said is no
    error: then nothing is.
    """
    _note_of(path).unlink(missing_ok=True)
    count = size // CELL
    pieces = (b"\1" * min(_PIECE, count - at) for at in range(0, count, _PIECE))
    try:
        # Who has the file that had the name goes on with what he has.
        replace_file(cells_of(path), pieces)
    except OSError as error:
        _log.info("Cannot note that %s is whole: %s", path, error)
        cells_of(path).unlink(missing_ok=True)


def _may_be_complete(path: pathlib.Path, size: int) -> bool:
    """Whether nothing says that some bytes of a file are missing."""
    try:
        with open_marks(path) as cells:
            for at in range(0, size // CELL, _PIECE):
                count = min(_PIECE, size // CELL - at)
                if os.pread(cells.number, count, at) != b"\1" * count:
                    return False
    except FileNotFoundError:
        pass
    return True


def fingerprint_of(file: pathlib.Path | int) -> Fingerprint:
    """That of the file of a name, or of an open one.

    Raises:
        OSError: it cannot be had.
    """
    status = os.stat(file) if isinstance(file, int) else os.lstat(file)
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def note(path: pathlib.Path, fingerprint: Fingerprint, is_on_disk: bool = False) -> None:
    """Notes that a file was compared with its digest when the file system said that of it.

    Args:
        path: of the file.
        fingerprint: what it said.
        is_on_disk: whether a crash of the machine would take nothing of it.
    """
    found = fingerprint if is_on_disk else [*fingerprint, _start_of_machine()]
    try:
        replace_file(_note_of(path), [json.dumps(found).encode()])
    except OSError as error:
        _log.info("Cannot note that %s is whole: %s", path, error)


@functools.cache
def _start_of_machine() -> str:
    """What each start of it has another of; of systems that do not tell, nothing."""
    try:
        return _START.read_text().strip()
    except (OSError, ValueError):
        return ""


def _note_of(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.whole")
