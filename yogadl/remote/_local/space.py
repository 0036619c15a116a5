"""Room on the local disk for what is fetched.

A limit is kept by all processes of the machine together, which take some megabytes of it at a time;
see ``ledger``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterable

from yogadl.cache.partial import reserve_of
from yogadl.per_process import PerProcess
from yogadl.remote._local.collecting import remove_unused
from yogadl.remote._local.kept import disk_bytes
from yogadl.remote._local.ledger import Ledger, Used
from yogadl.remote._local.sparse_file import CELL

# Between two looks at how much is free.
_STEP_BYTES = 64 << 20
# Taken of a limit at a time, and what a process may hold beyond what it has written.
_TAKEN_BYTES = 8 << 20
# After nothing was found that could go, or who has the ledger did not let go of it.
_PAUSE_SECONDS = 2.0
_BLOCK_BYTES = 4096

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
        self._has_told = False
        self.forget()
        _spaces.add(self)

    def forget(self) -> None:
        """To be called in a child after a fork: what was granted is its parent's."""
        self._left = 0
        # Taken, and perhaps not written yet.
        self._under_way = 0

    def take(self, nbytes: int) -> bool:
        """See ``Space.take``."""
        nbytes = _most_on_disk(nbytes)
        with _mutex():
            if self._left < nbytes:
                try:
                    self._left += self._grant(nbytes - self._left)
                except OSError as error:
                    # Somebody deleted it, for example.
                    level = logging.DEBUG if self._has_told else logging.WARNING
                    self._has_told = True
                    _log.log(level, "Nothing more is kept in %s: %s", self._directory, error)
                    return False
            if self._left < nbytes:
                return False
            self._left -= nbytes
            self._under_way += nbytes
            return True

    def written(self, nbytes: int) -> None:
        """See ``Space.written``."""
        with _mutex():
            self._under_way = max(0, self._under_way - _most_on_disk(nbytes))

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
    """

    def __init__(
        self, ledger: pathlib.Path, limit: int, folders: Callable[[], Iterable[pathlib.Path]]
    ) -> None:
        self._ledger = Ledger(ledger)
        self._limit = limit
        self._folders = folders
        self._next_try = 0.0
        self._next_search = 0.0
        super().__init__(ledger.parent)

    def forget(self) -> None:
        super().forget()
        self._ledger.forget()
        self._claimed = 0

    def written(self, nbytes: int) -> None:
        super().written(nbytes)
        with _mutex():
            if self._claimed - self._left - self._under_way > _TAKEN_BYTES:
                # Others may not be told; then they think that there is less room.
                with contextlib.suppress(OSError):
                    self._claim(0)

    def _grant(self, nbytes: int) -> int:
        now = time.monotonic()
        # To count what is used takes long.
        if now < self._next_try or (nbytes > self._limit and now < self._next_search):
            return 0
        try:
            with self._ledger.locked() as used:
                return self._granted(used, nbytes)
        except OSError:
            self._next_try = time.monotonic() + _PAUSE_SECONDS
            raise

    def _granted(self, used: Used, nbytes: int) -> int:
        is_first = not self._ledger.has_claim and not self._ledger.claims_of_others()
        if is_first or used.nbytes <= 0:
            used.nbytes = self._count()
        if used.nbytes + nbytes > self._limit:
            self._make_room(used, nbytes)
        room = self._limit - used.nbytes
        granted = 0
        if room >= nbytes:
            granted = min(super()._grant(nbytes), room, nbytes + _TAKEN_BYTES)
        self._claim(granted)
        used.nbytes += granted
        return granted

    def _claim(self, granted: int) -> None:
        self._claimed = self._left + self._under_way + granted
        self._ledger.claim(self._claimed)

    def _count(self) -> int:
        """The bytes that are used, at most."""
        there = sum(map(disk_bytes, self._folders()))
        return there + sum(self._ledger.claims_of_others()) + self._left + self._under_way

    def _make_room(self, used: Used, nbytes: int) -> None:
        """Removes what nobody has open, so that some bytes are free, if they are not."""
        if time.monotonic() < self._next_search:
            return
        used.nbytes = self._count()
        lacking = used.nbytes + nbytes - self._limit
        if lacking > 0:
            used.nbytes -= remove_unused(self._folders(), lacking)
        if used.nbytes + nbytes > self._limit:
            self._next_search = time.monotonic() + _PAUSE_SECONDS


def _most_on_disk(nbytes: int) -> int:
    """What so many bytes of a file take, wherever in it they are, with what says that they are."""
    return sum((-(-size // _BLOCK_BYTES) + 1) * _BLOCK_BYTES for size in (nbytes, nbytes // CELL))


def _after_fork() -> None:
    for space in list(_spaces):
        space.forget()


os.register_at_fork(after_in_child=_after_fork)
