"""Files on this machine that are named by their contents: whole ones, that were downloaded.

They are those that are read from afar, too (``yogadl.remote``): what was fetched in pieces and is
complete is a download, and a download need not be fetched in pieces. So two objects of the same
contents share a file, if they are of one bucket and directory. Those of another bucket do not: a
digest of this kind is found out by accident, not by who wants to have two contents of one digest,
and whoever may write to one bucket must not decide what is read of another.

A file gets its name when it is whole and was compared with its digest, by a rename. Who has opened
what had the name before keeps it, and locks on it; if that is not whole, since it is read from
afar, or is damaged, it is written to instead, which gives everybody the right bytes. If it is not
whole even then, they keep what they have, and the download gets the name.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import time
from collections.abc import Callable, Iterator

from yogadl.cache.files import telling
from yogadl.cache.held import hold, is_replaced
from yogadl.cache.mapping import Descriptor, open_file
from yogadl.cache.noted import fingerprint_of
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.parts import OBJECTS_FOLDER, check_file, part_path, parts_of
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    FileSystemError,
    LocalDirectoryError,
    StorageFullError,
)
from yogadl.remote._local.becoming import become_parts
from yogadl.remote._local.collecting import collect
from yogadl.remote._local.kept import STAGED_FILE, alone, forget, settled
from yogadl.remote._local.notes import note_opened
from yogadl.remote._local.sparse_file import SparseFile, open_sparse
from yogadl.remote._local.whole import is_whole, mark_whole, note
from yogadl.storage._disk.folders import LocalFolders
from yogadl.storage._disk.note import make_trusted, trusted_status

_PIECE = 4 << 20
# A file that others write to is completed so often; then it is left to them.
_TRIES = 3
# What they are fetching is waited for so long, and looked for so often.
_FETCH_SECONDS, _LOOK_SECONDS = 5.0, 0.01

_log = logging.getLogger(__name__)


class Contents:
    """Those of the objects of one origin. Safe for threads and processes.

    Args:
        folders: that say where.
        name: of the object that they are asked for, for people.
        limit: bytes of ``local_cache_bytes``; ``None`` for as many as there is room for.
    """

    def __init__(self, folders: LocalFolders, name: str, limit: int | None) -> None:
        self._folders = folders
        self._name = name
        self._limit = limit

    def path(self, digest: str) -> pathlib.Path:
        """Where the version of a digest is, if there is any of it."""
        return self._folders.pieces / OBJECTS_FOLDER / f"{digest}.mdb"

    def find(self, digest: str, size: int) -> pathlib.Path | None:
        """The file of a version, if all of it is here."""
        path = self.path(digest)
        is_here = self._folders.safe_pieces() and is_own(path) and is_whole(path, size)
        return path if is_here else None

    def copied(
        self, digest: bytes, size: int, staged: Callable[[], PartialFile]
    ) -> PartialFile | None:
        """A file with what a version is, which was compared with its digest; ``None`` if not all
        of it is here.

        Args:
            digest: of the version.
            size: of its file, in bytes.
            staged: makes an empty file.

        Raises:
            StorageFullError: the disk is full, or nearly so.
        """
        path = self.find(digest.hex(), size)
        if path is None:
            return None
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(staged())
            try:
                source = open_file(path)
                while data := os.pread(source.number, _PIECE, file.size):
                    file.append(data)
                check_file(file.path, digest)
            except (OSError, CacheFormatError) as error:
                _log.info("%s is not copied, but downloaded: %s", path, error)
                return None
            stack.pop_all()
            return file

    def claim(self) -> bool:
        """Whether something can be kept here; makes the folders for it."""
        try:
            self._folders.claim_pieces()
        except LocalDirectoryError as error:
            # There may be another folder for a copy all the same.
            _log.debug("%s", error)
            return False
        return True

    def staged(self, path: pathlib.Path) -> PartialFile:
        """A file to download to, for :meth:`place`; what killed processes left there goes."""
        staged = path.with_name(STAGED_FILE)
        remove_leftovers(staged)
        return PartialFile(staged)

    @contextlib.contextmanager
    def room(self, nbytes: int) -> Iterator[None]:
        """Room for so many bytes that are written meanwhile, of the limit if there is one.

        What nobody has open is removed for it, what was not opened for longest first.

        Raises:
            StorageFullError: there is too little.
        """
        if self._limit is None or not nbytes or not self.claim():
            yield
            return
        # One of its own, so that what is not used of it is free when it ends.
        space = self._folders.limited_space(self._limit)
        if nbytes > self._limit:
            raise StorageFullError(
                f"{self._name} has {nbytes:,} bytes, more than local_cache_bytes, {self._limit:,}, "
                "leaves to all copies together. Raise that, or fetch it with download=False, which "
                "keeps what there is room for"
            )
        if not space.take(nbytes):
            raise StorageFullError(
                f"{self._name} needs {nbytes:,} bytes in {self._folders.directory}, of which "
                f"local_cache_bytes leaves {self._limit:,} to all copies together, and others that "
                "are open or pinned have too many. Close or unpin those (storage.local tells which "
                "there are), raise local_cache_bytes, choose another local_cache_dir, or fetch it "
                "with download=False, which keeps what there is room for"
            )
        try:
            yield
        finally:
            space.written(nbytes)

    def place(self, file: PartialFile, path: pathlib.Path) -> Descriptor:
        """Gives a whole file, which was compared with its digest, its name.

        Args:
            file: on the file system of ``path``.
            path: named by its digest.

        Returns:
            Its shared lock: it is not removed before that is closed.

        Raises:
            FileSystemError: it cannot be.
        """
        make_trusted(file)
        with telling("write", path):
            size = os.fstat(file.fileno()).st_size
            os.fsync(file.fileno())
            lock = Descriptor(os.dup(file.fileno()))
            with settled(path.parent.parent, fcntl.LOCK_SH):
                # Nothing is removed meanwhile, so what is there stays if it is held.
                held = _held_by_others(path)
                if held is None:
                    _commit(file, path, lock)
            if held is not None:
                if is_whole(path, size, check=True) or _is_completed(file.fileno(), path, size):
                    return held
                with settled(path.parent.parent, fcntl.LOCK_SH):
                    _commit(file, path, lock)
        return lock

    @contextlib.contextmanager
    def held(self, path: pathlib.Path) -> Iterator[None]:
        """Keeps a version, and so its parts, from being removed.

        Raises:
            CacheNotFoundError: it has been.
        """
        try:
            lock = open_file(path)
        except OSError as error:
            raise CacheNotFoundError(f"{path} has been removed to make room") from error
        if not hold(lock, path) or is_replaced(lock, path):
            raise CacheNotFoundError(f"{path} has been removed to make room")
        yield

    def note_opened(self, path: pathlib.Path, link: pathlib.Path) -> None:
        """Notes that a version was opened now, and what leads to it."""
        if path.parent == self.path("").parent:
            note_opened(path, self._name, link)

    def has_parts(self, table: pathlib.Path) -> bool:
        """Whether the parts that a file names are here; of a file that is no table, ``True``."""
        try:
            sizes = parts_of(table)
        except (CacheFormatError, FileSystemError):
            return False
        # The last is fetched last.
        return all(is_whole(part_path(table, it), sizes[it]) for it in reversed(sizes))

    def collect(self) -> None:
        """Removes what is of no object any more, unless somebody has it open.

        That it cannot be is no error, nor that others are at it for long: the next one does it.
        """
        if self._folders.safe_pieces():
            try:
                collect(self._folders.pieces)
            except OSError as error:
                _log.warning("What nobody needs in %s stays: %s", self._folders.pieces, error)

    def become_parts(self, table: pathlib.Path) -> None:
        """Makes what is here of versions, and named as parts by what the object is now, those."""
        if self._folders.safe_pieces():
            become_parts(self._folders.pieces, self._name, table)

    def forget(self, but: pathlib.Path | None = None) -> None:
        """Removes what the object was before it became ``but``, or before it was deleted."""
        if self._folders.safe_pieces():
            forget(self._folders.pieces, self._name, but)


def is_own(path: pathlib.Path) -> bool:
    """Whether a file is there that is trusted, and no link."""
    return trusted_status(path) is not None and not path.is_symlink()


def _held_by_others(path: pathlib.Path) -> Descriptor | None:
    """The shared lock of a file that somebody has open; ``None`` if nobody has."""
    with alone(path) as is_alone:
        if is_alone or not is_own(path):
            return None
    lock = open_file(path)
    fcntl.flock(lock.number, fcntl.LOCK_SH)
    return lock


def _commit(file: PartialFile, path: pathlib.Path, lock: Descriptor) -> None:
    """Gives a file its name, and notes that it is whole; ``lock`` is of the same file."""
    mark_whole(path, os.fstat(lock.number).st_size)
    file.commit(path)
    note(path, fingerprint_of(lock.number), is_on_disk=True)
    # It was exclusive, as that of any file that is being written.
    fcntl.flock(lock.number, fcntl.LOCK_SH)


def _is_completed(source: int, path: pathlib.Path, size: int) -> bool:
    """Whether a file that is there, and stays the same file, has what an open one has, now.

    Others may be writing to it, and what they are about to write may be damaged.
    """
    _log.info("%s is open, and completed by a download.", path)
    try:
        target = open_sparse(path, size)
        for _ in range(_TRIES):
            _complete(source, target, size)
            if not _are_others_done(target, size):
                break
            if is_whole(path, size, check=True):
                return True
    except (OSError, FileSystemError) as error:
        _log.info("%s cannot be completed: %s", path, str(error))
    return False


def _are_others_done(target: SparseFile, size: int) -> bool:
    """Waits until nobody writes to a file any more of which all is marked.

    Who claims bytes of it after that finds them there, and writes none; but who has claimed some
    before may have looked for them then, and write whenever he goes on.
    """
    until = time.monotonic() + _FETCH_SECONDS
    while target.is_claimed(0, size) or target.others_have(0, size):
        if time.monotonic() > until:
            _log.info("%s is still being written to by others.", target.path)
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _complete(source: int, target: SparseFile, size: int) -> None:
    """Writes what an open file has into another as far as that does not have it."""
    at = 0
    while at < size:
        data = os.pread(source, _PIECE, at)
        if not data:
            raise OSError("what was downloaded has been cut off")
        end, there = at + len(data), bytearray(len(data))
        if target.is_kept(at, end):
            target.read_into(at, memoryview(there))
        if there != data or not target.is_kept(at, end):
            target.discard(at, end)
            target.write(at, memoryview(data))
            target.mark(at, end)
        at = end
    target.sync()
