"""A lock among the threads and processes of this machine."""

from __future__ import annotations

import contextlib
import errno
import logging
import pathlib
from collections.abc import Iterator

import filelock

from yogadl.cache import progress
from yogadl.cache.files import make_folders, shown, telling
from yogadl.errors import FileSystemError, YogadlError

_POLL_SECONDS = 0.05
_ATTEMPTS = 100

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
        YogadlError: this thread holds it already.
    """
    lock = _acquired(path, waiting_for)
    try:
        yield
    finally:
        lock.release()


def _acquired(path: pathlib.Path, waiting_for: str) -> filelock.BaseFileLock:
    for _ in range(_ATTEMPTS):
        make_folders(path.parent)
        # It may be let go of by another thread, as where a framework calls back.
        lock = filelock.FileLock(path, thread_local=False)
        # Somebody who gave up may remove the folder, empty as it is, until the file is there.
        with telling("lock", path), contextlib.suppress(FileNotFoundError):
            _wait(lock, waiting_for)
            return lock
    raise FileSystemError(f"{shown(path.parent)} is removed again and again", errno.ENOENT)


def _wait(lock: filelock.BaseFileLock, waiting_for: str) -> None:
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        _log.info("Waiting for another %s.", waiting_for)
        with progress.waiting_for(f"for another {waiting_for}"):
            try:
                lock.acquire(poll_interval=_POLL_SECONDS)
            except RuntimeError as error:
                raise YogadlError(
                    f"this thread would wait for itself for ever: it is the {waiting_for} already, "
                    "by another path to the same folder. Does a function call itself through "
                    "cacheable?"
                ) from error
