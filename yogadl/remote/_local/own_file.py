"""Files that only this package has, in folders that are trusted."""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import stat
from collections.abc import Iterable

from yogadl.cache.files import telling
from yogadl.cache.mapping import Descriptor
from yogadl.cache.partial import locked_file, partial_name

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MODE = 0o664

_log = logging.getLogger(__name__)


def sized_file(path: pathlib.Path, size: int) -> Descriptor:
    """A file that is at least so long, open for reading and writing."""
    with telling("write", path):
        try:
            descriptor = _own(path)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EACCES, errno.ENXIO, errno.EEXIST):
                raise
            # All that is lost of what is no file of ours is what can be fetched again.
            _log.warning("Replacing %s: %s", path, error.strerror)
            path.unlink(missing_ok=True)
            descriptor = _own(path)
        if os.fstat(descriptor.number).st_size < size:
            os.ftruncate(descriptor.number, size)
    return descriptor


def _own(path: pathlib.Path) -> Descriptor:
    """A file that only this path leads to, made if there is none."""
    descriptor = Descriptor(os.open(path, _FLAGS, _MODE))
    status = os.fstat(descriptor.number)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise OSError(errno.EEXIST, "it is no regular file, or has other names")
    return descriptor


def write_all(file: Descriptor, start: int, data: memoryview) -> None:
    """Writes bytes at an offset.

    Raises:
        OSError: the disk is full, or failing.
    """
    while len(data):
        written = os.pwrite(file.number, data, start)
        start, data = start + written, data[written:]


def replace_file(path: pathlib.Path, data: Iterable[bytes]) -> None:
    """Replaces a small file by another; others may not write to it, whatever the umask.

    What a killed process leaves is a partial file like any other, see ``remove_leftovers``.

    Args:
        path: of the file.
        data: its bytes, one after the other.

    Raises:
        OSError: it cannot be written.
    """
    partial = partial_name(path)
    try:
        with open(locked_file(partial, 0o664, needs_lock=False), "wb") as file:
            file.writelines(data)
            # While it is locked: others remove what nobody has.
            file.flush()
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
