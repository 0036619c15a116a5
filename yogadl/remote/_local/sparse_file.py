"""The bytes of one file that are on this machine, shared by all of its processes.

``<name>`` is a sparse file as long as the whole one, ``<name>.cells`` has a byte for each 1,024 of
its bytes: 1 if they are there. They are written first and marked afterwards. What a crash of the
machine leaves marked and not written is no harm, nor what others do to the file: who reads compares
every record with its checksum, has a wrong one fetched again, and never sees it. Neither file is
mapped, since a process dies that touches a map where the file was cut off, or its disk is full:
this process keeps what it knows of the cells, and looks into the file for those that it lacks. Of
very large files it forgets that now and then, so as not to have a byte for each cell of them.

What there is no room for passes through memory: this process has it for a while.

Who fetches some bytes, to write them here, has claimed their cells; see ``claims``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import mmap
import os
import pathlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.files import telling
from yogadl.cache.mapping import Descriptor
from yogadl.cache.memory import private_memory
from yogadl.errors import TruncatedCacheError
from yogadl.per_process import PerProcess
from yogadl.remote._local.claims import Claims
from yogadl.remote._local.in_memory import CELL, InMemory
from yogadl.remote._local.own_file import write_all
from yogadl.remote._local.pair import (
    cells_of,
    lengthen,
    open_pair,
    reserve_stamp,
    stamp,
    take_back,
)

__all__ = ["CELL", "SparseFile", "cells_of", "open_marks", "open_sparse"]

Array = np.ndarray[Any, Any]

_HERE = 1
# Cells that are looked for in the file at once.
_LOOK_CELLS = 4096
# What is known of all files together has about so many pages of memory at most.
_KNOWN_PAGES = 8192

_log = logging.getLogger(__name__)

_open: weakref.WeakValueDictionary[str, SparseFile] = weakref.WeakValueDictionary()
# With those that are not at their paths any more.
_all: weakref.WeakSet[SparseFile] = weakref.WeakSet()
_noted = itertools.count(1)
_opening = PerProcess(threading.Lock)


class SparseFile:
    """Safe for threads and processes. Offsets are in bytes of the file; starts and stops of ranges
    are multiples of ``CELL``.

    Args:
        path: of the sparse file, whose folder is there and trusted.
        size: bytes of the whole file, a multiple of ``CELL``.

    Attributes:
        path, size: see above.
        memory: what this process has in memory alone.
        claims: who is fetching which cells.

    Raises:
        FileSystemError: it cannot be made.
    """

    def __init__(self, path: pathlib.Path, size: int) -> None:
        self.path = path
        self.size = size
        count = size // CELL
        with telling("write", path):
            self._data, self._marks = open_pair(path, size)
        self.claims = Claims(self._marks, count)
        # Those that this process knows to be there.
        self._known = private_memory(count)
        self._cells: Array = np.frombuffer(self._known, "u1")
        self._has_marked = False
        self.memory = InMemory()
        _all.add(self)

    # What is there

    def has(self, start: int, stop: int) -> bool:
        """Whether all bytes of a range are there; it may begin and end anywhere."""
        return self.is_kept(start, stop) or self.is_known(start, stop)

    def is_known(self, start: int, stop: int) -> bool:
        """The same as far as this process knows, without a look for what others have brought."""
        first, last = start // CELL, -(-stop // CELL)
        if self._known.find(b"\0", first, last) < 0:
            return True
        if not self.memory:
            return False
        unknown = np.flatnonzero(self._cells[first:last] == 0) + first
        return all(map(self.memory.__contains__, unknown.tolist()))

    def is_kept(self, start: int, stop: int) -> bool:
        """The same, of what is not only in this process's memory."""
        first, last = start // CELL, -(-stop // CELL)
        # Five times as fast as NumPy for a few.
        while (first := self._known.find(b"\0", first, last)) >= 0:
            end = min(first + _LOOK_CELLS, last)
            if not self._look(first, end).all():
                return False
            first = end
        return True

    def kept(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of a range that are not only in memory, in whole cells."""
        first = start // CELL
        there = self._look(first, -(-stop // CELL))
        # Mostly none is, which is asked very often.
        runs = _runs(there) if there.any() else []
        return [((first + begin) * CELL, (first + end) * CELL) for begin, end in runs]

    def _look(self, first: int, last: int) -> Array:
        """Which cells are there, bool; looks for what others have brought."""
        there: Array = self._cells[first:last] != 0
        try:
            marks = os.pread(self._marks.number, last - first, first)
        except OSError as error:
            # What a disk does not tell is fetched again.
            _log.warning("%s cannot be read: %s", cells_of(self.path), error.strerror)
            return there
        found = np.frombuffer(marks, "u1") == _HERE
        if found.any():
            _forget_if_much()
            self._cells[first : first + len(found)] |= found
            there[: len(found)] |= found
        return there

    def missing(
        self, start: int, stop: int, bridge: int = 0, for_bulk: bool = False
    ) -> list[tuple[int, int]]:
        """The parts of a range that are not there, nor being fetched by this process.

        Args:
            start, stop: the range.
            bridge: gaps of at most so many bytes between them are counted in.
            for_bulk: without what other processes have claimed, but not in bulk, as far as the
                system tells; and with what is only in memory, since all is to be kept.
        """
        first = start // CELL
        runs = _runs(~self._there(first, stop // CELL, for_bulk), bridge // CELL)
        return [((first + begin) * CELL, (first + end) * CELL) for begin, end in runs]

    def count(self, start: int, stop: int) -> int:
        """How many bytes of a range are kept, or being fetched but by others in bulk."""
        there = self._there(start // CELL, stop // CELL, for_bulk=True)
        return int(np.count_nonzero(there)) * CELL

    def is_claimed(self, start: int, stop: int) -> bool:
        """Whether this process is fetching some of a range."""
        first, last = start // CELL, stop // CELL
        return bool(self.claims.own(first, last))

    def _there(self, first: int, last: int, for_bulk: bool) -> Array:
        """Which cells are there, or not :meth:`missing` for another reason, bool."""
        there = self._look(first, last)
        for begin, end in self.claims.own(first, last):
            there[max(begin - first, 0) : end - first] = True
        if for_bulk:
            for begin, end in self.claims.of_others(first, last):
                there[begin - first : end - first] = True
        else:
            for cell in self.memory.cells(first, last):
                there[cell - first] = True
        return there

    def read_into(self, start: int, out: memoryview) -> None:
        """Reads bytes from an offset on; those that are not there are zero, or anything."""
        try:
            # Called for every record, of which it nearly always reads all.
            read = os.preadv(self._data.number, (out,), start)
        except OSError as error:
            # What a disk does not give back is fetched again.
            _log.warning("%s cannot be read: %s", self.path, error.strerror)
            read = len(out)
            out[:] = bytes(read)
        if read < len(out):
            if read:
                self.read_into(start + read, out[read:])
            else:
                out[:] = bytes(len(out))
        if self.memory:
            for cell in range(start // CELL, -(-(start + len(out)) // CELL)):
                if not self._cells[cell]:
                    self.memory.read_into(cell, start, out)

    # Fetching

    def claim(self, start: int, stop: int) -> int:
        """Keeps others from fetching a range; returns where what was claimed of it ends.

        That is ``start`` if another process is fetching its first bytes. The caller has seen to it
        that no thread of this process is fetching any of them.
        """
        return self.claims.take(start // CELL, (stop - start) // CELL) * CELL

    def claim_bulk(self, start: int, stop: int, bridge: int = 0) -> int:
        """Keeps others from fetching a large range that is :meth:`missing`, though not from the
        small ranges in it that they are fetching already; returns where what was claimed ends.

        That is ``start`` if another process has claimed any of it so, or its first bytes meanwhile.

        Args:
            start, stop: the range.
            bridge: what is there and not longer is claimed, too, and so are small ranges of others,
                who write them; see :meth:`claimed_beside_bulk`.
        """
        first, last = start // CELL, stop // CELL
        if not self.claims.take_bulk(first, last):
            return start
        left = self.missing(start, stop, bridge, for_bulk=True)
        end = left[0][1] // CELL if left and left[0][0] == start else first
        self.claims.keep_bulk(first, end, last)
        return end * CELL

    def claimed_beside_bulk(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Of a range that has just been claimed in bulk, what was claimed before, as far as the
        system tells."""
        found = self.claims.beside_bulk(start // CELL, stop // CELL)
        return [(begin * CELL, end * CELL) for begin, end in found]

    def others_have(self, start: int, stop: int) -> bool:
        """Whether other processes have claimed some of a range, as far as the system tells."""
        return self.claims.others_have(start // CELL, stop // CELL)

    def release(self, start: int, stop: int, is_bulk: bool = False) -> None:
        """Lets others fetch what was claimed and is not there."""
        self.claims.release(start // CELL, stop // CELL, is_bulk)

    def write(self, start: int, data: memoryview) -> None:
        """Writes some bytes, which are not there before they are marked.

        Those that are there stay as they are, whoever brought them: they may have been compared
        with the file's digest.

        Raises:
            OSError: the disk is full, or failing; or others do not see what is marked here, as
                somebody has deleted the cells' file, so that they may have written here, too.
        """
        if not os.fstat(self._marks.number).st_nlink and os.fstat(self._data.number).st_nlink:
            raise OSError(errno.ESTALE, f"{cells_of(self.path)} was deleted")
        first, last = start // CELL, -(-(start + len(data)) // CELL)
        if b"\1" not in os.pread(self._marks.number, last - first, first):
            write_all(self._data, start, data)
            return
        for begin, end in _runs(~self._look(first, last)):
            low, high = max((first + begin) * CELL, start), (first + end) * CELL
            write_all(self._data, low, data[low - start : high - start])

    def mark(self, start: int, stop: int) -> None:
        """Says that a range is there.

        Raises:
            OSError: likewise.
        """
        first, last = start // CELL, stop // CELL
        if not self._has_marked:
            reserve_stamp(self._marks, len(self._cells))
            self._has_marked = True
        write_all(self._marks, first, memoryview(bytes([_HERE]) * (last - first)))
        _forget_if_much()
        self._cells[first:last] = _HERE

    def discard(self, start: int, stop: int) -> None:
        """Says that the bytes of a range are not in the file.

        Raises:
            FileSystemError: others cannot be told.
        """
        first, last = start // CELL, -(-stop // CELL)
        with telling("write", self.path):
            # If it was cut off, all that was there is gone, and not only what was asked for first.
            if lengthen(self._data, self._marks, self.size):
                self.forget()
            take_back(self._marks, first, last, len(self._cells))
        self._cells[first:last] = 0

    def sync(self) -> None:
        """Has the disk have what was written, which a crash of the machine takes otherwise.

        Raises:
            OSError: it is failing.
        """
        os.fsync(self._data.number)

    def discarded(self) -> bytes:
        """What is another whenever something was discarded, by whichever process."""
        return stamp(self._marks, len(self._cells))

    def is_at_path(self) -> bool:
        """Whether nobody has removed its files; what somebody has cut off is not there any more.

        Raises:
            OSError: it cannot be as long as it was.
        """
        if not (os.fstat(self._data.number).st_nlink and os.fstat(self._marks.number).st_nlink):
            return False
        if lengthen(self._data, self._marks, self.size):
            self.forget()
        return True

    def check_size(self) -> None:
        """Sees that nobody cut the file off, as a process dies that touches a map of it then.

        Raises:
            TruncatedCacheError: somebody did.
        """
        if os.fstat(self._data.number).st_size < self.size:
            raise TruncatedCacheError(f"{self.path} was cut off")

    def forget(self) -> None:
        """Gives back the memory of what this process knows to be there; the file still says it."""
        self._known.madvise(mmap.MADV_DONTNEED)

    def after_fork(self) -> None:
        """To be called in a child, where nobody is fetching or reading any more."""
        self.claims.after_fork()
        self.memory.clear()


def open_sparse(path: pathlib.Path, size: int) -> SparseFile:
    """The sparse file at a path; there is one for all who have it open in this process.

    Raises:
        FileSystemError: it cannot be made.
    """
    name = os.path.realpath(path)
    with _opening():
        found = _open.get(name)
        if found is None or found.size != size or not found.is_at_path():
            found = _open[name] = SparseFile(path, size)
        return found


def open_count() -> int:
    """How many of them this process has open."""
    return len(_open)


@contextlib.contextmanager
def open_marks(path: pathlib.Path) -> Iterator[Descriptor]:
    """The file of the cells of a sparse file, to be read: with this process's locks on it kept.

    Raises:
        OSError: it cannot be opened.
    """
    with _opening():
        found = _open.get(os.path.realpath(path))
        if found is not None:
            yield found._marks
        else:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            yield Descriptor(os.open(cells_of(path), flags))


def _runs(wanted: Array, bridge: int = 0) -> list[tuple[int, int]]:
    """The stretches of ``True``; gaps of at most so many between them are counted in."""
    edges = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
    starts, stops = edges[::2], edges[1::2]
    if bridge and len(starts) > 1:
        far = starts[1:] - stops[:-1] > bridge
        starts = np.concatenate((starts[:1], starts[1:][far]))
        stops = np.concatenate((stops[:-1][far], stops[-1:]))
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _forget_if_much() -> None:
    """To be called when something was noted that is there, which may have taken another page."""
    if next(_noted) % _KNOWN_PAGES == 0:
        files = list(_open.values())
        if sum(len(file._known) for file in files) > _KNOWN_PAGES * mmap.PAGESIZE:
            for file in files:
                file.forget()


def _after_fork() -> None:
    """Nobody is fetching in a child."""
    for file in list(_all):
        file.after_fork()


os.register_at_fork(after_in_child=_after_fork)
