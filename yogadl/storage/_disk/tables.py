"""The names and locks of the tables of an id, in a folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import uuid

from yogadl.cache.files import make_folders, shown, telling
from yogadl.cache.parts import PARTS_FOLDER, parts_of
from yogadl.closing import Closing
from yogadl.errors import CacheFormatError, FileSystemError
from yogadl.not_inherited import not_for_children
from yogadl.storage._disk.note import FOLDER_MODE

BUILDING_FILE = "yogadl.building"
TABLE_ENDING = ".table"

FileIdentity = tuple[int, int]
"""The same for all names of a file."""

_log = logging.getLogger(__name__)


class LocalTables:
    """The tables of an id, by the other names that they have; see ``yogadl.storage._disk.parts``.

    Safe for threads and processes.

    Args:
        folder: of the id.

    Attributes:
        folder: that of the id's parts, where these names are.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / PARTS_FOLDER

    def keep(self, path: pathlib.Path) -> bool:
        """Sees to it that a table that is about to lose its name has another; whether it is one."""
        try:
            if not parts_of(path):
                return False
        except CacheFormatError:
            # Nobody can have it open.
            return True
        except FileSystemError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        if identity_of(path) not in {identity_of(link) for link in self.links()}:
            self.link(path)
        return True

    def link(self, path: pathlib.Path) -> None:
        """Gives a table another name, if the file system has such."""
        make_folders(self.folder, FOLDER_MODE)
        try:
            os.link(path, self.folder / f"{uuid.uuid4().hex}{TABLE_ENDING}")
        except OSError as error:
            # Then nothing is collected there either.
            _log.info("%s cannot have a second name: %s", shown(path), error.strerror)

    def links(self) -> list[pathlib.Path]:
        """The other names of all tables."""
        with telling("list", self.folder):
            return [path for path in self.folder.iterdir() if path.name.endswith(TABLE_ENDING)]


class FileLock(Closing):
    """A file that can be locked, and is unlocked when it is closed, or its process has ended."""

    def __init__(self, path: pathlib.Path, flags: int) -> None:
        self._owner = os.getpid()
        with telling("open", path):
            self._descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        not_for_children(self)

    def takes(self, kind: int) -> bool:
        """Whether it can be locked at once.

        Raises:
            OSError: the file system has no locks.
        """
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            if self._owner == os.getpid():
                with contextlib.suppress(OSError):
                    # Where there are no locks, there is none to drop.
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


def identity_of(path: pathlib.Path) -> FileIdentity:
    with telling("look for", path):
        status = os.stat(path)
    return status.st_dev, status.st_ino
