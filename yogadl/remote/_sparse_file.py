"""The bytes of one file that are on this machine, shared by all of its processes.

``<name>`` is a sparse file as long as the whole one, ``<name>.cells`` has a byte for each 1,024 of
its bytes: 1 if they are there. They are written first and marked afterwards. What a crash of the
machine leaves marked and not written is no harm, nor what others do to the file: who reads compares
every record with its checksum, has a wrong one fetched again, and never sees it.

What there is no room for passes through memory: this process has it for a while.

Who fetches some bytes holds a POSIX lock on their cells, which the system drops when the process
dies, and which a child does not have after a fork. Such locks are a process's: it may have the file
of cells open but once.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import threading
import weakref
from typing import Any

import numpy as np

from yogadl.cache.mapping import Descriptor
from yogadl.per_process import PerProcess

Array = np.ndarray[Any, Any]

CELL = 1024
"""Bytes that are there or not as a whole; the sizes of files are multiples of it."""

_HERE = b"\1"
_FETCHING, _IN_MEMORY = 1, 2
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MODE = 0o664
# What another process is fetching some of is tried in halves, down to so many cells.
_SMALLEST_CLAIM = 64

_open: weakref.WeakValueDictionary[str, SparseFile] = weakref.WeakValueDictionary()
_opening = PerProcess(threading.Lock)


class SparseFile:
    """Safe for threads and processes. Offsets are in bytes of the file; starts and stops of ranges
    are multiples of ``CELL``.

    Args:
        path: of the sparse file, whose folder is there and trusted.
        size: bytes of the whole file, a multiple of ``CELL``.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: pathlib.Path, size: int) -> None:
        self.path = path
        self._size = size
        count = size // CELL
        self._data = _held(path, size)
        self._marks = _sized(path.with_name(f"{path.name}.cells"), count)
        # Those that this process is fetching, or has in memory.
        self._busy = np.zeros(count, "u1")
        self._passing: dict[int, bytes] = {}

    # What is there

    def has(self, start: int, stop: int) -> bool:
        """Whether all bytes of a range are there; it may begin and end anywhere."""
        first, last = start // CELL, -(-stop // CELL)
        marks = self._marked(first, last)
        if self._passing:
            found = np.frombuffer(marks, "u1") | (self._busy[first:last] == _IN_MEMORY)
            return bool(found.all())
        return 0 not in marks

    def is_kept(self, start: int, stop: int) -> bool:
        """The same, of what is not only in this process's memory."""
        return 0 not in self._marked(start // CELL, -(-stop // CELL))

    def _marked(self, first: int, last: int) -> bytes:
        """A byte for each of some cells, 0 if it is not there.

        They are not mapped: writing to a map of a disk that is full, or reading one of a file that
        somebody has cut off, ends the process.
        """
        marks = os.pread(self._marks.number, last - first, first)
        return marks if len(marks) == last - first else marks.ljust(last - first, b"\0")

    def missing(self, start: int, stop: int, bridge: int = 0) -> list[tuple[int, int]]:
        """The parts of a range that are not there, nor being fetched by this process.

        Args:
            start, stop: the range.
            bridge: gaps of at most so many bytes between them are counted in.
        """
        first = start // CELL
        wanted = self._states(start, stop) == 0
        edges = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
        starts, stops = edges[::2], edges[1::2]
        if bridge and len(starts) > 1:
            far = starts[1:] - stops[:-1] > bridge // CELL
            starts = np.concatenate((starts[:1], starts[1:][far]))
            stops = np.concatenate((stops[:-1][far], stops[-1:]))
        found = (np.stack((starts, stops)) + first) * CELL
        return list(zip(*found.tolist(), strict=True))

    def count(self, start: int, stop: int) -> int:
        """How many bytes of a range are there, or being fetched by this process."""
        return int(np.count_nonzero(self._states(start, stop))) * CELL

    def _states(self, start: int, stop: int) -> Array:
        """Of the cells of a range, not 0 if they are there, being fetched, or in memory."""
        marks = np.frombuffer(self._marked(start // CELL, stop // CELL), "u1")
        states: Array = marks | self._busy[start // CELL : stop // CELL]
        return states

    def read_into(self, start: int, out: memoryview) -> None:
        """Reads bytes from an offset on; those that are not there are zero, or anything."""
        read = os.preadv(self._data.number, [out], start)
        if read < len(out):
            out[read:] = bytes(len(out) - read)
        if self._passing:
            self._overlay(start, out)

    def _overlay(self, start: int, out: memoryview) -> None:
        """Puts in what this process has in memory."""
        stop = start + len(out)
        for cell in range(start // CELL, -(-stop // CELL)):
            data = self._passing.get(cell)
            if data is not None:
                first, last = max(start, cell * CELL), min(stop, (cell + 1) * CELL)
                out[first - start : last - start] = data[first - cell * CELL : last - cell * CELL]

    # Fetching

    def claim(self, start: int, stop: int) -> int:
        """Keeps others from fetching a range; returns where what was claimed of it ends.

        That is ``start`` if another process is fetching its first bytes. The caller has seen to it
        that no thread of this process is fetching any of them.
        """
        first, count = start // CELL, (stop - start) // CELL
        while not self._lock(first, count):
            if count <= _SMALLEST_CLAIM:
                return start
            count = max(count // 2, _SMALLEST_CLAIM)
        self._busy[first : first + count] = _FETCHING
        return (first + count) * CELL

    def release(self, start: int, stop: int) -> None:
        """Lets others fetch what was claimed and is not there."""
        busy = self._busy[start // CELL : stop // CELL]
        busy[busy == _FETCHING] = 0
        fcntl.lockf(self._marks.number, fcntl.LOCK_UN, (stop - start) // CELL, start // CELL)

    def _lock(self, first: int, count: int) -> bool:
        try:
            fcntl.lockf(self._marks.number, fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def write(self, start: int, data: memoryview) -> None:
        """Writes some bytes, which are not there before they are marked.

        Raises:
            OSError: the disk is full, or failing.
        """
        while len(data):
            written = os.pwrite(self._data.number, data, start)
            start, data = start + written, data[written:]

    def mark(self, start: int, stop: int) -> None:
        """Says that a range is there.

        Raises:
            OSError: the disk is full, or failing.
        """
        self._write_marks(_HERE, start // CELL, stop // CELL)

    def _write_marks(self, mark: bytes, first: int, last: int) -> None:
        if first < last:
            os.pwrite(self._marks.number, mark * (last - first), first)

    def pass_on(self, start: int, data: bytes) -> None:
        """Has some bytes, from a multiple of ``CELL`` on, in memory until :meth:`drop`."""
        for at in range(0, len(data), CELL):
            self._passing[(start + at) // CELL] = data[at : at + CELL]
        self._busy[start // CELL : (start + len(data)) // CELL] = _IN_MEMORY

    @property
    def has_passing(self) -> bool:
        """Whether anything is in memory."""
        return bool(self._passing)

    def drop(self, start: int, stop: int) -> int:
        """Lets go of what is in memory of a range, which may begin and end anywhere.

        Returns:
            How many bytes that was.
        """
        if not self._passing:
            return 0
        dropped = 0
        for cell in range(start // CELL, -(-stop // CELL)):
            if self._passing.pop(cell, None) is not None:
                self._busy[cell] = 0
                dropped += CELL
        return dropped

    def discard(self, start: int, stop: int) -> None:
        """Says that the bytes of a range, which may begin and end anywhere, are not there."""
        self.drop(start, stop)
        self._write_marks(b"\0", start // CELL, -(-stop // CELL))

    def forget_fetching(self) -> None:
        """To be called in a child after a fork, where nobody is fetching any more."""
        self._busy[self._busy == _FETCHING] = 0


def open_sparse(path: pathlib.Path, size: int) -> SparseFile:
    """The sparse file at a path; there is one for all who have it open in this process.

    Raises:
        OSError: it cannot be made.
    """
    with _opening():
        found = _open.get(str(path))
        if found is None or found._size != size:
            found = _open[str(path)] = SparseFile(path, size)
        return found


def _after_fork() -> None:
    """Nobody is fetching in a child."""
    for file in list(_open.values()):
        file.forget_fetching()


os.register_at_fork(after_in_child=_after_fork)


def _held(path: pathlib.Path, size: int) -> Descriptor:
    """The sparse file, with a shared lock: as long as anybody has it, it is not removed."""
    while True:
        descriptor = _sized(path, size)
        fcntl.flock(descriptor.number, fcntl.LOCK_SH)
        # It may have been removed before it was locked.
        if os.fstat(descriptor.number).st_nlink:
            return descriptor


def _sized(path: pathlib.Path, size: int) -> Descriptor:
    """A file that is at least so long, open for reading and writing."""
    descriptor = Descriptor(os.open(path, _FLAGS, _MODE))
    if os.fstat(descriptor.number).st_size < size:
        os.ftruncate(descriptor.number, size)
    return descriptor
