"""The lock that says that a table of parts, or what may be removed to make room, is being read.

Whoever has one open holds a shared lock on its own file, which costs one call more. The
system drops it when the last process that has this descriptor, the children of a fork among them,
closes it or dies. Who removes parts takes the lock of a table that no version is any more
exclusively first; see ``yogadl.storage._disk.collector``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pathlib
import time

from yogadl.cache.files import shown
from yogadl.cache.mapping import Descriptor

# Who publishes a table has its lock for a moment longer than its name.
_PATIENCE = 10.0
_POLL_SECONDS = 0.005

_log = logging.getLogger(__name__)


def hold(descriptor: Descriptor, path: pathlib.Path) -> bool:
    """Takes the shared lock of a table, for as long as the descriptor is open.

    Args:
        descriptor: of the table.
        path: it was opened by.

    Returns:
        ``False`` if its parts are being removed, since another file, or none, is there now.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor.number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_replaced(descriptor, path):
                return False
        except OSError as error:
            # Where there are no such locks, nobody can remove parts either.
            _log.debug("%s cannot be locked: %s", shown(path), error.strerror)
            return True
        else:
            return True
        if time.monotonic() > until:
            _log.warning(
                "%s is locked by somebody else; if it is replaced while it is read, its parts may "
                "be removed",
                shown(path),
            )
            return True
        time.sleep(_POLL_SECONDS)


def is_replaced(descriptor: Descriptor, path: pathlib.Path) -> bool:
    """Whether a path leads to another file than the open one, or to none."""
    try:
        found = os.stat(path)
    except OSError:
        return True
    status = os.fstat(descriptor.number)
    return (found.st_dev, found.st_ino) != (status.st_dev, status.st_ino)
