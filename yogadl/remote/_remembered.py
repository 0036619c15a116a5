"""Which files stay open though nobody uses them just now.

Those that were opened first are closed first, among those of a version as well as among those of
all versions that a process has open, so that many versions take no more descriptors than one with
many files.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import weakref
from typing import Any

from yogadl.remote._fetching.work import RemoteFile
from yogadl.remote._local.open_files import most_remembered, most_versions

_MOST_OF_ONE = 1024

# By the numbers of those that remember them, and their own. Without a lock, which another thread
# might have had at a fork.
_all: collections.OrderedDict[tuple[int, int], dict[int, RemoteFile]] = collections.OrderedDict()
_numbers = itertools.count()
# Those by which others see that a version is open, in the order in which they were.
_own: collections.OrderedDict[int, RemoteFile] = collections.OrderedDict()


def keep(owner: Any, file: RemoteFile) -> None:
    """Keeps a version's own file open for as long as who reads the version lives, however many
    others are opened: its lock says that nothing of the version is to be removed. Of too many
    versions, those that were opened first are left to chance.

    Args:
        owner: who reads the version.
        file: its own, which is none of its parts.
    """
    number = next(_numbers)
    _own[number] = file
    weakref.finalize(owner, _own.pop, number, None)
    while len(_own) > most_versions():
        with contextlib.suppress(KeyError):
            _own.popitem(last=False)


class Remembered:
    """The open files of a version, by their numbers. Safe for threads and forks."""

    def __init__(self) -> None:
        self._files: collections.OrderedDict[int, RemoteFile] = collections.OrderedDict()
        self._number = next(_numbers)
        self._most = most_remembered()

    def get(self, number: int) -> RemoteFile | None:
        """A file, if it is remembered."""
        return self._files.get(number)

    def add(self, number: int, file: RemoteFile) -> RemoteFile:
        """Remembers a file, but for one that was there already; that which is remembered."""
        found = self._files.setdefault(number, file)
        _all[self._number, number] = self._files
        while len(self._files) > _MOST_OF_ONE:
            with contextlib.suppress(KeyError):
                first, _ = self._files.popitem(last=False)
                del _all[self._number, first]
        while len(_all) > self._most:
            with contextlib.suppress(KeyError):
                (_, first), files = _all.popitem(last=False)
                del files[first]
        return found

    def clear(self) -> None:
        """Forgets all of them."""
        for number in list(self._files):
            _all.pop((self._number, number), None)
        self._files.clear()
