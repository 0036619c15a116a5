"""Ranges of addresses, and what the system is told about how they will be read."""

from __future__ import annotations

import ctypes
import enum
import errno
import functools
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.cache.mapping._descriptors import Descriptor
from yogadl.per_process import PerProcess

Array = np.ndarray[Any, Any]

# One call reads ahead no more than the device's limits allow, of which this is a low one.
_LARGEST_CALL = 256 << 10


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

LARGEST_PAGE = 2 << 20
"""Of the sizes of pages that systems use of their own accord, in bytes."""

# With a gap behind each, these take 4,096 of the 65,530 maps that a process may have by default.
_MOST_ALIGNED = 1 << 11

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


def _open_page_table() -> Descriptor | None:
    """What Linux says of the pages of this process, 64 bits each, of which the highest is whether
    it is in memory; ``None`` elsewhere."""
    try:
        return Descriptor(os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return None


_PAGE_ENTRY = 8
_page_table = PerProcess(_open_page_table)


class AddressRange:
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
        place.map_again(np.asarray(AddressRange(mmap.PAGESIZE, protection, flags, -1)), 0)
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

    def is_present(self, offset: int) -> bool:
        """Whether this process has the page of an offset in memory, as far as the system tells.

        What it does not have may be in the page cache all the same.
        """
        table = _page_table()
        if table is None:
            return False
        page = (self._address + offset) // mmap.PAGESIZE
        try:
            entry = os.pread(table.number, _PAGE_ENTRY, page * _PAGE_ENTRY)
        except OSError:
            return False
        return len(entry) == _PAGE_ENTRY and entry[-1] >= 0x80

    def _advise(self, advice: int, start: int, size: int) -> None:
        # What lies beyond the map belongs to others, who may lose it by such advice.
        size = min(size, len(self.array) - start)
        if size > 0:
            # Where the system cannot take it, reading takes longer, no more.
            _advise(self._address + start, size, advice)


class ReservedRange(MappedRange):
    """A range in which files can be mapped, at a multiple of ``LARGEST_PAGE``. What is not mapped
    is zeros.

    Who copies what lies behind a record, to cover it, may so reach where no file is mapped yet.

    Args:
        size: bytes; pages of memory or of a disk are not taken for it.

    Raises:
        OSError: the system has no such range left.
    """

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        size = max(size, 1)
        array = np.asarray(AddressRange(size + LARGEST_PAGE, mmap.PROT_READ, flags, -1))
        start = -array.ctypes.data % LARGEST_PAGE
        super().__init__(array[start : start + size])

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


def aligned_places(sizes: Array) -> tuple[Array, int]:
    """Where in a :class:`ReservedRange` files may lie, one behind the other: each at a multiple of
    the power of two that is no smaller than it, at most ``LARGEST_PAGE``.

    The page cache has files in larger pieces than pages. What lies in memory as it does in the
    file takes a fraction of the entries of the processor's tables: one for 2 MiB, at best. But each
    gap between two files is one more of the maps that a process may have. So where there are many
    files, each begins at the next page.

    Args:
        sizes: bytes of each file, int64 ``[n]``.

    Returns:
        The offset of each, int64 ``[n]``, and bytes in all.
    """
    pages = -(-sizes // mmap.PAGESIZE) * mmap.PAGESIZE
    if len(sizes) > _MOST_ALIGNED:
        ends = np.cumsum(pages)
        return ends - pages, int(ends[-1])
    places, end = [], 0
    for size in pages.tolist():
        alignment = min(1 << max(size - 1, 0).bit_length(), LARGEST_PAGE)
        place = -(-end // alignment) * alignment
        places.append(place)
        end = place + size
    return np.array(places, "i8"), end
