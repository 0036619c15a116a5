"""Files that appear under their name only when they are complete.

A file is written under a name of its own beside the final one, synced, and renamed into place: at
any moment the final name holds the old file or the new one. Its writer holds a lock on the partial
file, which the system drops when the process dies, so that a leftover can be told from work in
progress and removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from yogadl.cache.files import leads_to, remove_if_empty, shown, sync_folder, telling
from yogadl.closing import Closing
from yogadl.errors import (
    ClosedError,
    FileSystemError,
    InvalidArgumentError,
    StorageFullError,
    YogadlError,
)

PARTIAL_SUFFIX = ".partial"
_CHECK_EVERY = 64 << 20
_RESERVE = 1 << 30
# So often a folder is made that somebody else removes.
_CLAIMS = 100
_BUILDERS_ADVICE = "use another storage directory, or make the data set smaller (is it infinite?)"
FLUSH_EVERY = 4 << 20
"""To flush at a time: enough to keep a disk busy, little enough to begin at once."""

_log = logging.getLogger(__name__)


def remove_leftovers(path: pathlib.Path) -> int:
    """Removes the partial files of ``path`` whose writers are gone; returns how many.

    Safe to call while others write, from any process on this machine.
    """
    return _remove_leftovers(path.parent, f"{path.name}.")


def remove_all_leftovers(folder: pathlib.Path) -> int:
    """The same for all that is in a folder which only this package writes to."""
    return _remove_leftovers(folder, "")


def partial_name(path: pathlib.Path) -> pathlib.Path:
    """A name beside that of a file, for what is to become it; never the same twice."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{PARTIAL_SUFFIX}")


def locked_file(path: pathlib.Path, mode: int, needs_lock: bool = True) -> int:
    """Makes a file that nobody takes for a leftover: it is locked as long as it is open.

    Args:
        path: where there is none.
        mode: its rights, less the umask.
        needs_lock: otherwise it is not locked where the file system has no locks, and nobody
            removes leftovers there.

    Returns:
        Its descriptor, for reading and writing.

    Raises:
        OSError: it cannot be made, or locked; none is left.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                if needs_lock:
                    raise
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        # Between open and flock somebody took it for a leftover.
        os.close(descriptor)


@contextlib.contextmanager
def claimed(claim: Callable[[], pathlib.Path]) -> Iterator[pathlib.Path]:
    """The path of a file to be, whose folder stays until the end; then it is removed if it is
    empty and nobody else is about to write to it.

    Args:
        claim: makes the folder, and returns the path.

    Raises:
        FileSystemError: it cannot be made, or written to.
    """
    path, mark, descriptor = _marked(claim)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            mark.unlink()
        os.close(descriptor)
        remove_if_empty(path.parent)


def _marked(claim: Callable[[], pathlib.Path]) -> tuple[pathlib.Path, pathlib.Path, int]:
    """What is claimed, and a file beside it that nobody takes for a leftover, open."""
    for _ in range(_CLAIMS):
        path = claim()
        mark = partial_name(path)
        with telling("write", path), contextlib.suppress(FileNotFoundError):
            return path, mark, locked_file(mark, 0o666, needs_lock=False)
        # Somebody who gave up has removed the folder meanwhile.
    raise FileSystemError(f"{shown(path.parent)} is removed again and again", errno.ENOENT)


def _remove_leftovers(folder: pathlib.Path, begin: str) -> int:
    removed, end = 0, PARTIAL_SUFFIX
    try:
        with os.scandir(folder) as found:
            # A folder may be named so, too: that of an id.
            names = [
                entry.name
                for entry in found
                if entry.name.startswith(begin)
                and entry.name[len(begin) :].endswith(end)
                and entry.is_file(follow_symlinks=False)
            ]
    except OSError as error:
        _log.info("Cannot look for leftovers in %s: %s", shown(folder), error.strerror)
        return 0
    for leftover in map(folder.joinpath, names):
        try:
            removed += _remove_leftover(leftover)
        except FileNotFoundError:
            _log.debug("%s was published or removed meanwhile.", shown(leftover))
        except PermissionError:
            _log.info("%s was left by another user, who has to remove it.", shown(leftover))
        except OSError as error:
            _log.info("Cannot remove %s: %s", shown(leftover), error.strerror)
    return removed


def _remove_leftover(leftover: pathlib.Path) -> bool:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    descriptor = os.open(leftover, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not leads_to(leftover, descriptor):
            return False
        leftover.unlink()
    except BlockingIOError:
        _log.debug("%s is being written.", shown(leftover))
        return False
    finally:
        os.close(descriptor)
    _log.info("Removed %s, left by a writer that was killed.", shown(leftover))
    return True


def check_room(path: pathlib.Path, needed: int, advice: str = _BUILDERS_ADVICE) -> None:
    """Checks that ``needed`` bytes can be written beside ``path`` with a reserve left.

    Args:
        path: of a file to be.
        needed: bytes.
        advice: what else to do than to free some space.

    Raises:
        StorageFullError: they can not.
    """
    with telling("ask for the free space of", path.parent):
        usage = shutil.disk_usage(path.parent)
    reserve = reserve_of(usage.total)
    if usage.free < needed + reserve:
        raise StorageFullError(
            f"{shown(path.parent)} has {usage.free:,} bytes free, which is too little for "
            f"{needed:,} more and the {reserve:,} that yogadl leaves to others. Free some space, "
            f"{advice}"
        )


def reserve_of(total: int) -> int:
    """What is left to others of a disk of so many bytes: a fiftieth of it, at most 1 GiB."""
    return min(_RESERVE, total // 50)


class PartialFile(Closing):
    """A file being written that will replace ``path`` when it is committed.

    A context manager: leaving it without :meth:`commit` removes the partial file. Not thread-safe.

    Attributes:
        size: bytes appended so far.
    """

    def __init__(self, path: pathlib.Path) -> None:
        with telling("write", path):
            if not path.parent.is_dir():
                raise InvalidArgumentError(
                    f"the directory {shown(path.parent)} does not exist; create it"
                )
        self._path = path
        self.size = 0
        self._next_check = 0
        self._flushed = 0
        self._owner = os.getpid()
        self.path, self._descriptor = self._create()

    def _create(self) -> tuple[pathlib.Path, int]:
        path = partial_name(self._path)
        with telling("write", path):
            return path, locked_file(path, 0o666)

    def append(self, data: Any) -> None:
        """Writes a buffer at the end.

        Raises:
            StorageFullError: the disk is full, or nearly so.
        """
        view = memoryview(data).cast("B")
        if self.size + len(view) > self._next_check:
            check_room(self._path, len(view))
            self._next_check = self.size + len(view) + _CHECK_EVERY
        self._write(view, self.size)
        self.size += len(view)
        if self.size - self._flushed >= FLUSH_EVERY:
            self.start_flushing(self._flushed, self.size)
            self._flushed = self.size

    def start_flushing(self, start: int, stop: int) -> None:
        """Has the system write these bytes to the disk now, not only when the file is committed.

        To be called once, soon after they were written: it also drops from the page cache what is
        on the disk already. From any thread.
        """
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)

    def overwrite(self, data: bytes, offset: int) -> None:
        """Writes over bytes that were appended before."""
        self._write(memoryview(data), offset)

    def write_at(self, data: bytes, offset: int) -> None:
        """Writes anywhere, also beyond the end; from many threads, at different places.

        The caller has seen to it that there is room.

        Raises:
            StorageFullError: there was not.
        """
        self._write(memoryview(data), offset)

    def _write(self, view: memoryview, offset: int) -> None:
        if self._descriptor < 0:
            raise ClosedError(f"the file of {shown(self._path)} was committed or discarded")
        with telling("write", self._path):
            while view:
                written = os.pwrite(self._descriptor, view, offset)
                view = view[written:]
                offset += written

    def fileno(self) -> int:
        return self._descriptor

    def commit(self, path: pathlib.Path | None = None, replaces: bool = True) -> None:
        """Makes the file durable and gives it its final name, replacing what has it.

        Args:
            path: another name, on the same file system.
            replaces: if not, what has that name stays, and this is an error.

        Raises:
            FileSystemError: it is not; the disk is full, for example. What was there is there.
        """
        final = path or self._path
        with telling("write", final):
            os.fsync(self._descriptor)
            if replaces:
                os.replace(self.path, final)
            else:
                os.link(self.path, final)
                self.path.unlink()
        self._let_go()
        # From here on it is stored, and whoever opens it reads it.
        try:
            sync_folder(final.parent)
        except YogadlError as error:
            _log.warning(
                "%s is stored, but might be lost, or be the old one again, if this machine crashed "
                "now: %s. Store it again when the disk is well",
                shown(final),
                error,
            )

    def close(self) -> None:
        """Removes the partial file, unless it was committed. May be called twice.

        That it cannot be is no error: what went wrong before is to be told.
        """
        if self._descriptor >= 0:
            try:
                self.path.unlink(missing_ok=True)
            except OSError as error:
                # What it is discarded for says more; and who writes there next removes it.
                _log.warning("Cannot remove %s: %s", shown(self.path), error.strerror)
            finally:
                self._let_go()

    def _let_go(self) -> None:
        if self._descriptor >= 0:
            if self._owner == os.getpid():
                # A child that was born meanwhile has the file, too, and would keep it locked.
                with contextlib.suppress(OSError):
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1
