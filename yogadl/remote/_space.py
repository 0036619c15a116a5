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
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from yogadl.cache.mapping import Descriptor
from yogadl.cache.partial import reserve_of
from yogadl.per_process import PerProcess
from yogadl.remote._kept import disk_bytes, remove_unused

# Between two looks at how much is free.
_STEP_BYTES = 64 << 20
# Taken of a limit at a time, and what a process may hold beyond what it has written.
_TAKEN_BYTES = 8 << 20
# After nothing was found that could go.
_PAUSE_SECONDS = 2.0
_BLOCK_BYTES = 4096
_USED = struct.Struct("<q")

_spaces: weakref.WeakSet[FreeSpace] = weakref.WeakSet()

_log = logging.getLogger(__name__)

_mutex = PerProcess(threading.Lock)


class FreeSpace:
    """As much as is free, but for what is left to others. Safe for threads and forks.

    Args:
        directory: on the disk.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.forget()
        _spaces.add(self)

    def forget(self) -> None:
        """To be called in a child after a fork: what was granted is its parent's."""
        self._left = 0

    def take(self, nbytes: int) -> bool:
        """See ``Space.take``."""
        # A block is taken as a whole.
        nbytes = -(-nbytes // _BLOCK_BYTES) * _BLOCK_BYTES
        with _mutex():
            if self._left < nbytes:
                try:
                    self._left += self._grant(nbytes - self._left)
                except OSError as error:
                    # Somebody deleted it, for example.
                    _log.warning("Nothing more is kept in %s: %s", self._directory, error.strerror)
                    return False
            if self._left < nbytes:
                return False
            self._left -= nbytes
            return True

    def is_full(self) -> None:
        """See ``Space.is_full``."""
        self._left = 0

    def _grant(self, nbytes: int) -> int:
        """That many bytes more, or some more than that; or fewer, where there are no more."""
        usage = shutil.disk_usage(self._directory)
        free = usage.free - reserve_of(usage.total) - self._left
        return max(0, min(free, nbytes + _STEP_BYTES))


class LimitedSpace(FreeSpace):
    """No more than a limit, in all folders together. Safe for threads, processes and forks.

    When there is no room left, versions that nobody has open and that are not pinned go, the least
    recently opened first.

    Args:
        ledger: the file with the number of bytes that are used, in a folder that is trusted.
        limit: bytes.
        folders: of stores, that what is kept is in.

    Raises:
        OSError: the ledger cannot be written.
    """

    def __init__(
        self, ledger: pathlib.Path, limit: int, folders: Callable[[], Iterable[pathlib.Path]]
    ) -> None:
        super().__init__(ledger.parent)
        self._ledger = ledger
        self._limit = limit
        self._folders = folders
        self._next_search = 0.0
        self._users = _opened(ledger.with_name(f"{ledger.name}.users"))
        with self._used() as used:
            try:
                fcntl.flock(self._users.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.debug("Others use %s.", ledger)
            else:
                used.nbytes = sum(map(disk_bytes, folders()))
            fcntl.flock(self._users.number, fcntl.LOCK_SH)

    def _grant(self, nbytes: int) -> int:
        with self._used() as used:
            if used.nbytes + nbytes > self._limit:
                used.nbytes -= self._make_room(used.nbytes + nbytes - self._limit)
            room = self._limit - used.nbytes
            if room < nbytes:
                return 0
            granted = min(super()._grant(nbytes), room, nbytes + _TAKEN_BYTES)
            used.nbytes += granted
            return granted

    def _make_room(self, nbytes: int) -> int:
        """Removes what nobody has open, so that some bytes are free; returns how many it freed."""
        if time.monotonic() < self._next_search:
            return 0
        freed = remove_unused(self._folders(), nbytes)
        if freed < nbytes:
            self._next_search = time.monotonic() + _PAUSE_SECONDS
        return freed

    @contextlib.contextmanager
    def _used(self) -> Iterator[_Used]:
        """The bytes that all processes use; what is changed of them is written."""
        ledger = _opened(self._ledger)
        fcntl.flock(ledger.number, fcntl.LOCK_EX)
        data = os.pread(ledger.number, _USED.size, 0)
        used = _Used(_USED.unpack(data)[0] if len(data) == _USED.size else 0)
        yield used
        os.pwrite(ledger.number, _USED.pack(max(0, used.nbytes)), 0)


@dataclass
class _Used:
    nbytes: int


def _opened(path: pathlib.Path) -> Descriptor:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return Descriptor(os.open(path, flags, 0o664))


def _after_fork() -> None:
    for space in list(_spaces):
        space.forget()


os.register_at_fork(after_in_child=_after_fork)
