"""Locks on ranges of numbers, which fall with the process that has them: those of POSIX, of a file.

The numbers are offsets in the file, which need not have them. A process loses all of its locks as
soon as it closes any descriptor of the file. Where a file system has no locks, everybody gets any.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
from collections.abc import Iterator

from yogadl.cache.mapping import Descriptor

_LACKS_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# Linux's, of 64 bits: kind, whence, start, bytes, process.
_CAN_TELL = sys.platform == "linux" and sys.maxsize > 1 << 32
_LOCK = struct.Struct("@hhqqi0q")


class RangeLocks:
    """Those of this process, and whether others have some. Safe for threads.

    To ask for a lock that this process has is to have it changed, or to drop it.

    Args:
        file: open for writing, and the only descriptor of its file in this process.
    """

    def __init__(self, file: Descriptor) -> None:
        self._file = file

    def take(self, first: int, count: int, kind: int = fcntl.LOCK_EX) -> bool:
        """Locks some numbers; whether no other process has any of them.

        Raises:
            OSError: the system cannot.
        """
        try:
            fcntl.lockf(self._file.number, kind | fcntl.LOCK_NB, count, first)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            if error.errno not in _LACKS_LOCKS:
                raise
        return True

    def drop(self, first: int, count: int) -> None:
        """Lets others lock some numbers."""
        with contextlib.suppress(OSError):
            # Where there are no locks, there is none to drop.
            fcntl.lockf(self._file.number, fcntl.LOCK_UN, count, first)

    def is_taken(self, first: int, count: int) -> bool:
        """Whether another process has any of some numbers, of which this one has none."""
        if _CAN_TELL:
            # To try it would keep others from them for a moment.
            return self._one_of_others(first, first + count) is not None
        if not self.take(first, count, fcntl.LOCK_SH):
            return True
        self.drop(first, count)
        return False

    def of_others(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Which of some numbers other processes have, as far as the system tells.

        Yields:
            A range, from a number to another, and the process that has it.
        """
        asked = [(first, last)] if _CAN_TELL else []
        while asked:
            start, stop = asked.pop()
            found = self._one_of_others(start, stop)
            if found is not None:
                yield found
                # It is any of them, and not the first.
                behind = found[1], stop
                asked += [each for each in ((start, found[0]), behind) if each[0] < each[1]]

    def _one_of_others(self, first: int, last: int) -> tuple[int, int, int] | None:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, last - first, 0)
        try:
            told = fcntl.fcntl(self._file.number, fcntl.F_GETLK, asked)
        except OSError:
            return None
        kind, _, start, count, process = _LOCK.unpack(told)
        if kind == fcntl.F_UNLCK:
            return None
        return max(start, first), min(start + count, last) if count else last, process
