"""What some records take of mapped memory, and having it there before it is read."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from yogadl.cache.mapping._files import MappedFile

Array = np.ndarray[Any, Any]


class Memory(Protocol):
    """Mapped memory: a file, or several one behind the other."""

    @property
    def array(self) -> Array:
        """All of it, uint8, not to be written to."""

    def file(self, number: int) -> MappedFile:
        """One of the files, mapped."""

    def reach(self, start: int, end: int) -> None:
        """Maps what is not mapped yet of some bytes."""

    def is_cached(self, offset: int) -> bool: ...

    def will_need(self, starts: Array, ends: Array) -> None: ...

    def forget(self, start: int, end: int) -> None: ...


class Extents(Protocol):
    """Where some records lie."""

    def are_cached(self) -> bool:
        """Whether they need not be fetched, as far as that can be told at once."""

    def will_need(self) -> None:
        """Has them fetched, without waiting for them."""

    def touch(self) -> None:
        """Has them fetched, and waits for them."""

    def forget(self) -> None:
        """Takes them out of this process's memory."""


_FORGOTTEN_GAP = 256 << 10


@dataclass(frozen=True)
class MappedExtents(Extents):
    """Some byte ranges of mapped memory.

    Attributes:
        file: the file or files.
        starts, ends: int64 ``[n]`` each, inside the memory.
    """

    file: Memory
    starts: Array
    ends: Array

    def are_cached(self) -> bool:
        """Whether their first bytes are in the page cache, as far as the system can tell."""
        return all(map(self.file.is_cached, self.starts.tolist()))

    def will_need(self) -> None:
        """See ``MappedFile.will_need``."""
        self.file.will_need(self.starts, self.ends)

    def touch(self) -> None:
        """Reads something of every page, so that all of them are in memory."""
        self.file.array.take(_pages(self.starts, self.ends))

    def forget(self) -> None:
        """See ``MappedFile.forget``; of what lies between them, too, if it is little."""
        if not len(self.starts):
            return
        order = np.argsort(self.starts)
        starts, reached = self.starts[order], np.maximum.accumulate(self.ends[order])
        # A call takes longer than to map a few pages again.
        breaks = np.flatnonzero(starts[1:] > reached[:-1] + _FORGOTTEN_GAP)
        firsts = np.concatenate([[0], breaks + 1])
        lasts = np.concatenate([breaks, [len(starts) - 1]])
        for start, end in zip(starts[firsts].tolist(), reached[lasts].tolist(), strict=True):
            self.file.forget(start, end)


def _pages(starts: Array, stops: Array) -> Array:
    """The offsets of all pages in which some byte ranges lie, int64."""
    first = starts // mmap.PAGESIZE
    counts = np.where(stops > starts, (stops - 1) // mmap.PAGESIZE - first + 1, 0)
    ends = np.cumsum(counts)
    steps = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    pages: Array = (np.repeat(first, counts) + steps) * mmap.PAGESIZE
    return pages
