"""A lock among the threads and processes of this machine."""

from __future__ import annotations

import contextlib
import logging
import pathlib
from collections.abc import Iterator

import filelock

from yogadl.cache import progress
from yogadl.cache.files import make_folders, telling

_POLL_SECONDS = 0.05

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def local_lock(path: pathlib.Path, waiting_for: str) -> Iterator[None]:
    """Holds a lock file, which the system lets go of when its process dies.

    The file stays, empty: if it were removed, two could hold locks on two files of its name. The
    wait can be interrupted.

    Args:
        path: of the file; missing folders are made.
        waiting_for: what others may hold it for, for the log.

    Raises:
        FileSystemError: it cannot be made or locked.
    """
    make_folders(path.parent)
    with telling("lock", path):
        # It may be let go of by another thread, as where a framework calls back.
        lock = filelock.FileLock(path, thread_local=False)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            _log.info("Waiting for another %s.", waiting_for)
            with progress.waiting_for(f"for another {waiting_for}"):
                lock.acquire(poll_interval=_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()
