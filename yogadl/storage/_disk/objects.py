"""The small objects of a catalogue, in a folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import stat
import sys
import time
from collections.abc import Iterator

import xxhash

from yogadl.cache.files import make_folders, shown, telling
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.catalogue import ROOT
from yogadl.conditional import ABSENT, SMALL_BYTES, PreconditionFailedError
from yogadl.errors import CatalogueError
from yogadl.storage._disk.note import FOLDER_MODE
from yogadl.storage._disk.tables import FileLock
from yogadl.storage._paths import LOCK_FILE

_LEFTOVER = re.compile(r"(.+)\.[0-9a-f]{32}\.partial")
_SHORTEST_POLL = 0.002
_LONGEST_POLL = 0.05


class LocalObjects:
    """See ``CatalogueObjects``. Safe for threads and processes.

    An object is a file that is replaced by renaming another over it, by who holds the lock of the
    folder; its tag is a digest of its bytes. Whoever may read the folder can read without a lock.

    Args:
        folder: in which they are; made when the first is written.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    @property
    def where(self) -> str:
        return shown(self._folder)

    @contextlib.contextmanager
    def alone(self, patience: float | None) -> Iterator[None]:
        make_folders(self._folder, FOLDER_MODE)
        path = self._folder / LOCK_FILE
        until = None if patience is None else time.monotonic() + patience
        # Others who share the storage may have made it, and may lock what they can only read.
        with FileLock(path, os.O_RDONLY | os.O_CREAT) as lock:
            pause = _SHORTEST_POLL
            while True:
                with telling("lock", path):
                    if lock.takes(fcntl.LOCK_EX):
                        break
                if until is not None and time.monotonic() > until:
                    raise CatalogueError(
                        f"{shown(path)} was locked by others for {patience:g} s; try again later"
                    )
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_POLL)
            yield

    def read(
        self,
        key: str,
        patience: float | None = None,  # noqa: ARG002 # buckets have it
        largest: int = SMALL_BYTES,
    ) -> tuple[bytes, str] | None:
        path = self._folder / key
        try:
            with telling("read", path), open(path, "rb", opener=_open_at_once) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise CatalogueError(f"{shown(path)} is no file; remove it")
                data = file.read(min(status.st_size, largest) + 1)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise
        if len(data) > largest:
            raise CatalogueError(f"{shown(path)} is far larger than it should be; remove it")
        return data, _tag(data)

    def write(
        self,
        key: str,
        data: bytes,
        if_tag: str | None = None,
        patience: float | None = None,  # noqa: ARG002 # buckets have it
    ) -> str:
        """See ``ConditionalObjects.write``; with a condition, only inside :meth:`alone`."""
        path = self._folder / key
        if if_tag is not None:
            found = self.read(key, largest=sys.maxsize - 1)
            if if_tag != (ABSENT if found is None else found[1]):
                raise PreconditionFailedError
        with PartialFile(path) as file:
            # Of the room that is left to others, too: who has no other deletes by this.
            file.write_at(data, 0)
            _make_alike(file, self._folder / ROOT)
            file.commit()
        return _tag(data)

    def delete(self, key: str) -> None:
        with telling("delete", self._folder / key):
            (self._folder / key).unlink(missing_ok=True)

    def times(self) -> dict[str, float]:
        with telling("list", self._folder), os.scandir(self._folder) as found:
            times = {}
            for entry in found:
                with contextlib.suppress(FileNotFoundError):
                    # Who merges segments removes old ones, and writes new ones, without the lock.
                    times[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        for name in times:
            leftover = _LEFTOVER.fullmatch(name)
            if leftover:
                remove_leftovers(self._folder / leftover[1])
        return times

    def cannot_be_trusted(self, what: str) -> CatalogueError:
        return CatalogueError(f"{self.where} is on a file system that cannot be trusted: {what}")


def _tag(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def _open_at_once(path: str, flags: int) -> int:
    """Also a pipe, which would keep us waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _make_alike(file: PartialFile, path: pathlib.Path) -> None:
    """Lets those use a file who may use another, whoever writes it."""
    with contextlib.suppress(OSError):
        before = os.stat(path)
        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        os.fchown(file.fileno(), -1, before.st_gid)
