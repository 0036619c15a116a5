"""Which of the files that are named by their contents are all there, and are what they are named;
see ``cache.noted`` for how that is noted."""

from __future__ import annotations

import logging
import os
import pathlib
import stat
from collections.abc import Callable

from yogadl.cache.mapping import MappedFile
from yogadl.cache.noted import Fingerprint, fingerprint_of, is_noted, note_of, text_of
from yogadl.cache.parts import read_header
from yogadl.cache.whole_file import check_digest
from yogadl.errors import ChecksumError, YogadlError
from yogadl.remote._local.own_file import replace_file
from yogadl.remote._local.pair import all_marked
from yogadl.remote._local.sparse_file import CELL, cells_of, open_marks

_PIECE = 1 << 20

_log = logging.getLogger(__name__)


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
    note_of(path).unlink(missing_ok=True)
    try:
        # Who has the file that had the name goes on with what he has.
        replace_file(cells_of(path), all_marked(size // CELL))
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


def note(path: pathlib.Path, fingerprint: Fingerprint, is_on_disk: bool = False) -> None:
    """Notes that a file was compared with its digest when the file system said that of it.

    Args:
        path: of the file.
        fingerprint: what it said.
        is_on_disk: whether a crash of the machine would take nothing of it.
    """
    try:
        replace_file(note_of(path), [text_of(fingerprint, is_on_disk)])
    except OSError as error:
        _log.info("Cannot note that %s is whole: %s", path, error)
