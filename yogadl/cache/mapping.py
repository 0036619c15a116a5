"""A file mapped into memory, and what the system is told about how it will be read."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import enum
import errno
import functools
import itertools
import mmap
import os
import pathlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

# One call reads ahead no more than the device's limits allow, of which this is a low one.
_LARGEST_CALL = 256 << 10
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)
# Descriptors that this process keeps of all its mapped files together.
_MOST_DESCRIPTORS = 64


class Access(enum.Enum):
    """How the system should expect a file to be read, where nobody announces what comes next.

    ``RANDOM`` reads just the pages that are touched, ``SEQUENTIAL`` far ahead of them, and
    ``NORMAL`` around them as it is set up to.
    """

    RANDOM = "random"
    SEQUENTIAL = "sequential"
    NORMAL = "normal"


_ADVICE = {
    Access.RANDOM: mmap.MADV_RANDOM,
    Access.SEQUENTIAL: mmap.MADV_SEQUENTIAL,
    Access.NORMAL: mmap.MADV_NORMAL,
}

# Python's own maps keep a descriptor each; from 3.13 on they need not, but before they must.
_map = ctypes.CDLL(None, use_errno=True).mmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_unmap = ctypes.CDLL(None).munmap
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
# Called for every record that is announced: to let other threads run, each time, would take longer.
_advise = ctypes.PyDLL(None).madvise
_advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NO_MAPS_LEFT = (
    "; this process has as many maps as the system allows (on Linux, vm.max_map_count), or as many "
    "addresses (ulimit -v). Raise that limit, or store data sets in fewer, larger parts"
)
# Only Linux's can map the same pages once more.
_remap = getattr(ctypes.CDLL(None, use_errno=True), "mremap", None)
if _remap is not None:
    _remap.restype = ctypes.c_void_p
    _remap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p]
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2
_FAILED = ctypes.c_void_p(-1).value
_MAP_FIXED = 0x10
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0)


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
    _descriptors.clear()
    return Descriptor(os.open(path, flags))


class _Map:
    """A range of addresses, read-only: what its array and all views of that keep alive."""

    def __init__(self, size: int, protection: int, flags: int, descriptor: int) -> None:
        self.address = _mapped(None, size, protection, flags, descriptor)
        self._size = size
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (self.address, True),
        }

    def __del__(self, unmap: Callable[[int, int], int] = _unmap) -> None:
        if hasattr(self, "address"):
            unmap(self.address, self._size)


@functools.cache
def can_map_again() -> bool:
    """Whether this system has :meth:`ReservedRange.map_again`."""
    place = ReservedRange(mmap.PAGESIZE)
    protection, flags = mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    try:
        place.map_again(np.asarray(_Map(mmap.PAGESIZE, protection, flags, -1)), 0)
    except OSError:
        return False
    return True


def _mapped(at: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
    address = _map(at, size, protection, flags, descriptor, 0)
    if address == _FAILED:
        code = ctypes.get_errno()
        advice = _NO_MAPS_LEFT if code == errno.ENOMEM else ""
        raise OSError(code, f"{size:,} bytes cannot be mapped: {os.strerror(code)}{advice}")
    found: int = address
    return found


class MappedRange:
    """A range of addresses, and what the system is told about how it will be read.

    Attributes:
        array: all of it, uint8, not to be written to.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        self._address = array.ctypes.data

    def expect(self, access: Access) -> None:
        """Tells the system how it will be read where that is not announced."""
        self._advise(_ADVICE[access], 0, len(self.array))

    def will_need(self, starts: Array, ends: Array) -> None:
        """Has the system read some byte ranges into the page cache, without waiting for them.

        Args:
            starts, ends: int64 ``[n]`` each, inside the range.
        """
        for start, end in zip(*_page_ranges(starts, ends), strict=True):
            for at in range(start, end, _LARGEST_CALL):
                self._advise(mmap.MADV_WILLNEED, at, min(_LARGEST_CALL, end - at))

    def forget(self, start: int, end: int) -> None:
        """Takes whole pages between two offsets out of this process's memory.

        They stay in the page cache, and come back when they are touched.
        """
        first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
        if first < last:
            length = (last - first) * mmap.PAGESIZE
            self._advise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, length)

    def _advise(self, advice: int, start: int, size: int) -> None:
        # What lies beyond the map belongs to others, who may lose it by such advice.
        size = min(size, len(self.array) - start)
        if size > 0:
            # Where the system cannot take it, reading takes longer, no more.
            _advise(self._address + start, size, advice)


class ReservedRange(MappedRange):
    """A range in which files can be mapped. What is not mapped must not be touched.

    Args:
        size: bytes; pages of memory or of a disk are not taken for it.

    Raises:
        OSError: the system has no such range left.
    """

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        super().__init__(np.asarray(_Map(max(size, 1), 0, flags, -1)))

    def map(self, descriptor: Descriptor, size: int, offset: int) -> Array:
        """Maps a file of so many bytes at an offset, in place of what was there.

        Raises:
            OSError: the system cannot; of maps, a process has 65,530 by default.
        """
        assert 0 <= offset <= offset + size <= len(self.array)
        at = self._address + offset
        _mapped(at, size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor.number)
        return self.array[offset : offset + size]

    def map_again(self, array: Array, offset: int) -> None:
        """Maps at an offset what an array maps, which begins on a page: the same pages of the same
        file, even if that has been replaced or deleted.

        Raises:
            OSError: the system cannot; see :meth:`map`.
        """
        assert 0 <= offset <= offset + len(array) <= len(self.array)
        if _remap is None:
            raise OSError(errno.ENOSYS, "this system cannot map again what is mapped")
        flags, at = _MREMAP_MAYMOVE | _MREMAP_FIXED, self._address + offset
        # A map of no bytes that grows is the old one once more.
        if _remap(array.ctypes.data, 0, len(array), flags, at) == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"{len(array):,} bytes cannot be mapped: {os.strerror(code)}")


_descriptors: collections.OrderedDict[int, Descriptor] = collections.OrderedDict()
"""Those kept open, oldest first, by ``MappedFile._key``."""
_keys = itertools.count()


class MappedFile(MappedRange):
    """An open file in memory. Read-only; safe for threads and forks.

    The map lives as long as the last array on it, and needs no descriptor. One serves to ask what
    is in the page cache: it is kept for the last files opened, and for others opened anew.

    Args:
        descriptor: of the file.
        path: of the file.
        into: a range, an offset in it, and bytes, to map a file of so many bytes to.

    Attributes:
        path: of the file, absolute.

    Raises:
        OSError: the file cannot be mapped, or has another size.
    """

    def __init__(
        self,
        descriptor: Descriptor,
        path: pathlib.Path,
        into: tuple[ReservedRange, int, int] | None = None,
    ) -> None:
        status = os.fstat(descriptor.number)
        self.path = pathlib.Path(os.path.abspath(path))
        self._identity = status.st_dev, status.st_ino
        self._key = next(_keys)
        size = status.st_size
        if not size:
            super().__init__(np.empty(0, "u1"))
        elif into is None:
            mapped = _Map(size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor.number)
            super().__init__(np.asarray(mapped))
        else:
            place, offset, wanted = into
            if size != wanted:
                raise OSError(errno.ESTALE, f"it has {size:,} bytes and should have {wanted:,}")
            super().__init__(place.map(descriptor, size, offset))
        self._keep(descriptor)
        weakref.finalize(self, _descriptors.pop, self._key, None)

    def _keep(self, descriptor: Descriptor) -> None:
        _descriptors[self._key] = descriptor
        if len(_descriptors) > _MOST_DESCRIPTORS:
            # Who is using it has it still, and closes it then; another thread may have let go of
            # all of them.
            with contextlib.suppress(KeyError):
                _descriptors.popitem(last=False)

    def _descriptor(self) -> Descriptor | None:
        """A descriptor of the file, ``None`` if it has been replaced or cannot be opened."""
        kept = _descriptors.get(self._key)
        if kept is not None:
            return kept
        try:
            opened = open_file(self.path)
        except OSError:
            # It is only needed to ask, and who cannot ask goes without the answer.
            return None
        status = os.fstat(opened.number)
        if (status.st_dev, status.st_ino) != self._identity:
            return None
        self._keep(opened)
        return opened

    def file(self, number: int) -> MappedFile:  # noqa: ARG002
        """See ``Memory.file``."""
        return self

    def reach(self, start: int, end: int) -> None:
        """See ``Memory.reach``: all of it is mapped."""

    def is_cached(self, offset: int) -> bool:
        """Whether the byte at an offset is in the page cache; ``False`` where that is not known."""
        descriptor = self._descriptor() if _NO_WAIT else None
        if descriptor is None:
            return False
        try:
            return os.preadv(descriptor.number, [bytearray(1)], offset, _NO_WAIT) == 1
        except OSError:
            # It is not, or the file system cannot tell.
            return False


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
        """See ``MappedFile.forget``."""
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            self.file.forget(start, end)


def _page_ranges(starts: Array, ends: Array) -> tuple[list[int], list[int]]:
    """Byte ranges widened to whole pages, in ascending order, those that touch made one."""
    order = np.argsort(starts)
    first = starts[order] // mmap.PAGESIZE
    last = np.maximum.accumulate(-(-ends[order] // mmap.PAGESIZE))
    begins = np.ones(len(first), bool)
    begins[1:] = first[1:] > last[:-1]
    heads = np.flatnonzero(begins)
    tails = np.append(heads[1:], len(first))[: len(heads)] - 1
    return (first[heads] * mmap.PAGESIZE).tolist(), (last[tails] * mmap.PAGESIZE).tolist()


def _pages(starts: Array, stops: Array) -> Array:
    """The offsets of all pages in which some byte ranges lie, int64."""
    first = starts // mmap.PAGESIZE
    counts = np.where(stops > starts, (stops - 1) // mmap.PAGESIZE - first + 1, 0)
    ends = np.cumsum(counts)
    steps = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    pages: Array = (np.repeat(first, counts) + steps) * mmap.PAGESIZE
    return pages


def page_multiple(sizes: Array) -> Array:
    """Sizes rounded up to whole pages of memory."""
    return -(-sizes // mmap.PAGESIZE) * mmap.PAGESIZE
