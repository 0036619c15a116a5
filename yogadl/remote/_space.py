"""Room on the local disk for what is fetched.

A limit is kept by all processes of the machine together. What they use is a number in a file, which
they change under a lock, some megabytes at a time. Whoever comes first, when no other process uses
it, counts what there really is, since killed processes may have taken more than they wrote.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator

from yogadl.cache.mapping import Descriptor
from yogadl.cache.partial import reserve_of
from yogadl.remote._kept import disk_bytes, kept_versions, remove

# Between two looks at how much is free.
_STEP_BYTES = 64 << 20
# Taken of a limit at a time, and what a process may hold beyond what it has written.
_TAKEN_BYTES = 8 << 20
# After nothing was found that could go.
_PAUSE_SECONDS = 2.0
_USED = struct.Struct("<q")

_log = logging.getLogger(__name__)


class FreeSpace:
    """As much as is free, but for what is left to others. Safe for threads.

    Args:
        directory: on the disk.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._left = 0
        self._mutex = threading.Lock()

    def take(self, nbytes: int) -> bool:
        """See ``Space.take``."""
        with self._mutex:
            if self._left < nbytes:
                self._left = self._more(nbytes)
            if self._left < nbytes:
                return False
            self._left -= nbytes
            return True

    def is_full(self) -> None:
        """See ``Space.is_full``."""
        self._left = 0

    def _more(self, nbytes: int) -> int:
        """How many bytes may be used from now on, if there are so many."""
        usage = shutil.disk_usage(self._directory)
        return min(usage.free - reserve_of(usage.total), nbytes + _STEP_BYTES)


class LimitedSpace(FreeSpace):
    """No more than a limit, in all folders together. Safe for threads, processes and forks.

    When there is no room left, versions that nobody has open and that are not pinned go, the least
    recently opened first.

    Args:
        ledger: the file with the number of bytes that are used.
        limit: bytes.
        folders: of stores, that what is kept is in.

    Raises:
        OSError: the ledger cannot be written.
    """

    def __init__(
        self, ledger: pathlib.Path, limit: int, folders: Callable[[], list[pathlib.Path]]
    ) -> None:
        super().__init__(ledger.parent)
        self._limit = limit
        self._folders = folders
        self._next_search = 0.0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._users = Descriptor(os.open(ledger.with_name(f"{ledger.name}.users"), flags, 0o664))
        self._ledger = Descriptor(os.open(ledger, flags, 0o664))
        with self._locked():
            try:
                fcntl.flock(self._users.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.debug("Others use %s.", ledger)
            else:
                self._write(sum(map(disk_bytes, folders())))
            fcntl.flock(self._users.number, fcntl.LOCK_SH)

    def _more(self, nbytes: int) -> int:
        with self._locked():
            used = self._read()
            if used + nbytes > self._limit:
                used -= self._make_room(used + nbytes - self._limit)
            free = super()._more(nbytes)
            more = min(free, self._limit - used, self._left + nbytes + _TAKEN_BYTES)
            if more < nbytes:
                self._write(used)
                return self._left
            self._write(used + more - self._left)
            return more

    def _make_room(self, nbytes: int) -> int:
        """Removes what nobody has open, so that some bytes are free; returns how many it freed."""
        if time.monotonic() < self._next_search:
            return 0
        freed = 0
        found = [
            (version, folder) for folder in self._folders() for version in kept_versions(folder)
        ]
        found.sort(key=lambda pair: pair[0].opened)
        for version, folder in found:
            if freed >= nbytes:
                return freed
            if version.is_pinned:
                continue
            others = [other for other in kept_versions(folder) if other.path != version.path]
            gone = remove(version, others)
            if gone:
                _log.info("Removed %s (%.1f MB) to make room.", version.path, gone / 1e6)
            freed += gone
        if freed < nbytes:
            self._next_search = time.monotonic() + _PAUSE_SECONDS
        return freed

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Of the open file, so that a child's does not pass for its parent's.
        descriptor = os.open(f"/proc/self/fd/{self._ledger.number}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> int:
        data = os.pread(self._ledger.number, _USED.size, 0)
        return int(_USED.unpack(data)[0]) if len(data) == _USED.size else 0

    def _write(self, used: int) -> None:
        os.pwrite(self._ledger.number, _USED.pack(max(0, used)), 0)
