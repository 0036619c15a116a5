"""Descriptors of files, and those that are kept to ask for the page cache."""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import pathlib
from collections.abc import Callable

# Descriptors that this process keeps of all its mapped files together.
_MOST_KEPT = 64

_kept: collections.OrderedDict[int, Descriptor] = collections.OrderedDict()
"""Those kept open, oldest first, by their keys."""


class Descriptor:
    """A file descriptor, closed when nobody has it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.number)


def open_file(path: pathlib.Path | str) -> Descriptor:
    """Opens a file to read it; what is no regular file is for who maps it to say.

    Where no more files can be opened, those go that are only kept to ask for the page cache.

    Raises:
        OSError: it cannot be opened.
    """
    # A pipe by that name must not keep us waiting for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return Descriptor(os.open(path, flags))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    _kept.clear()
    return Descriptor(os.open(path, flags))


def keep(key: int, descriptor: Descriptor) -> None:
    """Keeps a descriptor under a key, as long as not too many are kept."""
    _kept[key] = descriptor
    if len(_kept) > _MOST_KEPT:
        # Who is using it has it still, and closes it then; another thread may have let go of all of
        # them.
        with contextlib.suppress(KeyError):
            _kept.popitem(last=False)


def kept(key: int) -> Descriptor | None:
    """What is kept under a key."""
    return _kept.get(key)


def let_go(key: int) -> None:
    """Closes what is kept under a key, unless somebody is using it."""
    _kept.pop(key, None)
