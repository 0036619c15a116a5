"""Files and folders: what can go wrong with them, told as errors of this library."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import pathlib
import stat
from collections.abc import Iterator

from yogadl.errors import (
    FileAccessError,
    FileSystemError,
    InvalidArgumentError,
    StorageFullError,
    TooManyFilesError,
)

_FULL = (errno.ENOSPC, errno.EDQUOT)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE)
# With a day left to move to any time zone.
_FIRST = datetime.datetime(1, 1, 2, tzinfo=datetime.timezone.utc).timestamp()
_LAST = datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc).timestamp()
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def shown(path: pathlib.Path | str | bytes) -> str:
    """A path as text that any log takes: bytes that are no UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def moment(seconds: float) -> datetime.datetime:
    """The time of a file, in UTC; of what is before or after all years, the nearest there is."""
    return datetime.datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), datetime.timezone.utc)


@contextlib.contextmanager
def telling(doing: str, path: pathlib.Path) -> Iterator[None]:
    """Makes errors of this library of what the file system raises.

    Only around calls of the file system: what users' own code raises must pass as it is.

    Args:
        doing: what could not be done, with the path after it: ``"write"``.
        path: of the file or folder.

    Raises:
        StorageFullError: the disk is full.
        FileAccessError: this user may not, or the file system is read-only.
        TooManyFilesError: the process or the machine has too many files open.
        InvalidArgumentError: the path is too long.
        FileSystemError: anything else.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FileSystemError):
            raise
        code = error.errno or 0
        if code in _FULL:
            raise StorageFullError(
                f"no space left on the disk to {doing} {shown(path)}; free some, or use another "
                "storage directory"
            ) from error
        message = f"cannot {doing} {shown(path)}: {error.strerror or error}"
        if code == errno.ENAMETOOLONG:
            raise InvalidArgumentError(
                f"{message}; use a shorter id or version, or a storage directory of a shorter path"
            ) from error
        if code in _EXHAUSTED:
            raise TooManyFilesError(
                f"{message}; close what is not needed, or raise the limit (ulimit -n)"
            ) from error
        if code in _FORBIDDEN:
            raise FileAccessError(message, code) from error
        raise FileSystemError(message, code) from error


def make_folders(folder: pathlib.Path, mode: int = 0o777) -> None:
    """Makes a folder and those above it that are missing, durably: not to be lost in a crash.

    Args:
        folder: to make.
        mode: of what is made, of which the umask takes some away.

    Raises:
        FileSystemError: it cannot be made; see :func:`telling`.
    """
    missing = []
    with telling("make the folder", folder):
        for path in (folder, *folder.parents):
            if path.is_dir():
                break
            missing.append(path)
    for path in reversed(missing):
        with telling("make the folder", path):
            try:
                path.mkdir(mode)
            except FileExistsError:
                if not _is_folder_or_gone(path):
                    raise FileSystemError(
                        f"{shown(path)} is where a folder has to be made, and is none; remove it",
                        errno.ENOTDIR,
                    ) from None
        # Also where another process made it, which may not have got so far.
        sync_folder(path.parent)


def _is_folder_or_gone(path: pathlib.Path) -> bool:
    """Of what was there a moment ago: somebody may have removed it since."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True
    return is_folder or path.is_dir()


def remove_if_empty(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def leads_to(path: pathlib.Path, descriptor: int) -> bool:
    """Whether a file that is open is the one at a path: it may have been removed before it was
    locked, and another be there. If it cannot be told, it is not."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


def sync_folder(folder: pathlib.Path) -> None:
    """Makes the names in a folder durable.

    Raises:
        FileSystemError: they are not; see :func:`telling`.
    """
    with telling("sync the folder", folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
