"""Walking the B+tree of an LMDB file that nobody vouches for.

Files of 0.1.4 have no checksums, and the C library trusts what it reads, so their tree is walked
here, every number checked before it is used. The walk is by level and by many pages at once: a
page holds few records, and one NumPy call per page would cost more than reading it.

Source of the format: as in :mod:`yogadl.format.pages`.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.errors import (
    ChecksumError,
    ForeignFileError,
    TruncatedCacheError,
    UnsupportedFormatError,
)
from yogadl.format.pages import (
    DATA_VERSION,
    F_BIGDATA,
    MAGIC,
    MAX_KEY,
    NO_PAGE,
    NODE_HEADER,
    P_BRANCH,
    P_LEAF,
    P_META,
    P_OVERFLOW,
    PAGE_HEADER,
)

Array = np.ndarray[Any, Any]

MAX_DEPTH = 32
"""Levels of a tree, LMDB's own limit (``CURSOR_STACK``)."""

_PAGE_SIZES = tuple(1 << power for power in range(9, 17))
META_BYTES = 2 * _PAGE_SIZES[-1]
"""The meta pages of any file are within so many bytes of its start."""

_F_SUBDATA = 0x02
_F_DUPDATA = 0x04
_FIRST_PAGE = 2
"""Pages 0 and 1 are the meta pages."""

_MAGIC_32_BIT = 12
"""Where the magic lies if page numbers are of four bytes."""

_META_FLAGS = struct.Struct("<QHH")
# magic, version, address, map size; two of pad, flags, depth, branch, leaf and overflow pages,
# entries, root; then last page, transaction id.
_META = struct.Struct("<IIQQ" + 2 * "IHHQQQQQ" + "QQ")
_MIN_ENTRY = 2 + NODE_HEADER + 1
"""Bytes of a pointer, a node and a key."""

_STEP_BYTES = 2 << 20
_KEY_WORDS = 16


@dataclass(frozen=True)
class Meta:
    """What a meta page says: bytes of a page, then depth, entries, root and last page of the tree,
    its flags, and the number of the transaction."""

    page_size: int
    flags: int
    depth: int
    entries: int
    root: int
    last_page: int
    transaction: int


@dataclass(frozen=True)
class Entries:
    """Some entries in key order: four int64 arrays of one length, offsets from the file's start."""

    key_offsets: Array
    key_sizes: Array
    offsets: Array
    sizes: Array


def _read_meta(buffer: Array, at: int, name: str) -> Meta:
    """The meta page at byte ``at``."""
    page = buffer[at : at + PAGE_HEADER + _META.size].tobytes()
    magic = MAGIC.to_bytes(4, "little")
    if page[PAGE_HEADER : PAGE_HEADER + 4] != magic:
        if page[PAGE_HEADER : PAGE_HEADER + 4] == magic[::-1]:
            raise UnsupportedFormatError(
                f"{name} was written on a big-endian machine, which yogadl cannot read"
            )
        if page[_MAGIC_32_BIT : _MAGIC_32_BIT + 4] in (magic, magic[::-1]):
            raise UnsupportedFormatError(
                f"{name} was written by a 32-bit program, which yogadl cannot read"
            )
        if at:
            raise ChecksumError(f"{name} is damaged: its second meta page is none; rebuild it")
        raise ForeignFileError(f"{name} is not a yogadl cache, nor any LMDB file")
    if len(page) < PAGE_HEADER + _META.size:
        raise TruncatedCacheError(f"{name} ends inside its meta pages; rebuild it")
    fields = _META.unpack_from(page, PAGE_HEADER)
    if fields[1] != DATA_VERSION:
        raise UnsupportedFormatError(
            f"{name} has LMDB data version {fields[1]}; yogadl reads version {DATA_VERSION}"
        )
    meta = Meta(fields[4], fields[13], fields[14], fields[18], fields[19], fields[20], fields[21])
    flags = _META_FLAGS.unpack_from(page)[2]
    if flags != P_META or meta.page_size not in _PAGE_SIZES or meta.depth > MAX_DEPTH:
        raise ChecksumError(f"{name} is damaged: a meta page with impossible values; rebuild it")
    return meta


def is_of_transactions(buffer: Array, size: int, name: str) -> bool:
    """Whether LMDB's library may have written a file: its meta pages tell of two transactions. In
    one of format 1, whose header may be damaged, both tell of the same tree.

    Args:
        buffer: the first ``META_BYTES`` of the file, or all of it.
        size: bytes of the file.
        name: what to call it in errors.

    Raises:
        CacheFormatError: as :class:`Tree` does.
    """
    page_size = newest_meta(buffer, name, size).page_size
    first, second = (_read_meta(buffer, at, name) for at in (0, page_size))
    return first != dataclasses.replace(second, transaction=first.transaction)


def newest_meta(buffer: Array, name: str, size: int | None = None) -> Meta:
    """The meta page of the last commit, checked against the size of the file.

    Args:
        buffer: the bytes of the file.
        name: what to call it in errors.
        size: of the file, if not all of it is given.

    Raises:
        CacheFormatError: as :class:`Tree` does.
    """
    size = len(buffer) if size is None else size
    if len(buffer) == 0:
        raise TruncatedCacheError(f"{name} is empty; rebuild it")
    first = _read_meta(buffer, 0, name)
    if len(buffer) < 2 * first.page_size:
        raise TruncatedCacheError(f"{name} ends inside its meta pages; rebuild it")
    second = _read_meta(buffer, first.page_size, name)
    if first.page_size != second.page_size:
        raise ChecksumError(f"{name} is damaged: its meta pages disagree; rebuild it")
    meta = second if first.transaction < second.transaction else first
    needed = (meta.last_page + 1) * meta.page_size
    if size < needed:
        raise TruncatedCacheError(
            f"{name} has {size} bytes and should have {needed}; it was cut off. Rebuild it"
        )
    if meta.flags:
        raise ForeignFileError(
            f"{name} is an LMDB file with database flags {meta.flags:#x}, so not a yogadl cache"
        )
    # So that room for as many can be set aside before they are seen.
    if meta.entries > needed // _MIN_ENTRY:
        raise ChecksumError(f"{name} is damaged: it has no room for its entries; rebuild it")
    empty = meta.root == NO_PAGE
    if empty != (meta.entries == 0) or empty != (meta.depth == 0):
        raise ChecksumError(f"{name} is damaged: its tree is and is not empty; rebuild it")
    if not empty and not _FIRST_PAGE <= meta.root <= meta.last_page:
        raise ChecksumError(f"{name} is damaged: its root page lies outside it; rebuild it")
    return meta


@dataclass(frozen=True)
class _Nodes:
    """The nodes of some pages: their rank on the page, file offset, bytes from there to the end of
    the page, and the four header words; int64."""

    rank: Array
    start: Array
    room: Array
    header: Array


class Tree:
    """The main database of an LMDB file. Immutable; may be shared by threads.

    Args:
        buffer: the bytes of the whole file, uint8.
        name: what to call the file in errors.

    Attributes:
        entries: number of entries.
        meta: the meta page of the last commit.

    Raises:
        ForeignFileError: it is no LMDB file, or uses what 0.1.4 never used.
        TruncatedCacheError: it is shorter than it says.
        UnsupportedFormatError: another byte order, word size or data version.
        ChecksumError: it is damaged.
    """

    def __init__(self, buffer: Array | memoryview, name: str) -> None:
        self._name = name
        array = np.frombuffer(buffer, "u1") if isinstance(buffer, memoryview) else buffer
        self.meta = newest_meta(array, name)
        self.entries = self.meta.entries
        self._pages = self.meta.last_page + 1
        # No look beyond the last page, though the file may be longer.
        self._buffer = array[: self._pages * self.meta.page_size]
        self._words = self._buffer.view("<u2")

    def _damaged(self, what: str) -> ChecksumError:
        return ChecksumError(f"{self._name} is damaged: {what}; rebuild it")

    def key(self, offset: int, size: int) -> bytes:
        """A key from its place."""
        return self._buffer[offset : offset + size].tobytes()

    def find(self, key: bytes) -> tuple[int, int] | None:
        """File offset and size in bytes of the value of ``key``, or ``None`` if it is not there.

        Raises:
            CacheFormatError: a page on the way is damaged.
        """
        if self.meta.depth == 0:
            return None
        page = self.meta.root
        for _ in range(self.meta.depth - 1):
            nodes = self._nodes(np.array([page]), P_BRANCH)
            keys = list(self._branch_keys(nodes))
            page = int(_children(nodes)[bisect.bisect_right(keys, key, 1) - 1])
        entries = self._leaf_entries(np.array([page]))
        keys = list(self._keys(entries.key_offsets, entries.key_sizes))
        at = bisect.bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            return None
        return int(entries.offsets[at]), int(entries.sizes[at])

    def walk(self) -> Iterator[Entries]:
        """All entries in key order, many at a time.

        Raises:
            CacheFormatError: the tree is damaged; found as the walk gets there.
        """
        leaves = self._leaf_pages()
        total = 0
        last: tuple[int, int] | None = None
        for part in self._steps(leaves):
            entries = self._leaf_entries(part)
            total += len(entries.offsets)
            if total > self.entries:
                raise self._damaged("it has more entries than it says")
            self._check_order(entries, last)
            last = int(entries.key_offsets[-1]), int(entries.key_sizes[-1])
            yield entries
        if total != self.entries:
            raise self._damaged(f"it has {total} entries and should have {self.entries}")

    def _steps(self, pages: Array) -> Iterator[Array]:
        """Parts small enough that all of their nodes fit in memory, however many there are."""
        step = _STEP_BYTES // self.meta.page_size
        for start in range(0, len(pages), step):
            yield pages[start : start + step]

    def _leaf_pages(self) -> Array:
        pages = np.array([self.meta.root] if self.meta.depth else [], "<i8")
        for _ in range(self.meta.depth - 1):
            below: list[Array] = []
            for part in self._steps(pages):
                nodes = self._nodes(part, P_BRANCH)
                self._check_branch_order(nodes)
                below.append(_children(nodes))
            pages = np.concatenate(below)
            # A page has one parent; else a few pages could stand for more than there are.
            if (np.diff(np.sort(pages)) == 0).any():
                raise self._damaged("pages are used twice")
        return pages

    def _nodes(self, pages: Array, flags: int) -> _Nodes:
        """The nodes of some pages, which must be of the kind ``flags``."""
        size = self.meta.page_size
        if pages.min() < _FIRST_PAGE or pages.max() >= self._pages:
            raise self._damaged("a page number outside the file")
        head = self._read_words(pages * size, PAGE_HEADER // 2)
        lower, upper = head[:, 6], head[:, 7]
        if (_quad(head) != pages).any() or (head[:, 5] != flags).any():
            raise self._damaged("a page that is not what should be there")
        if ((lower % 2 != 0) | (lower <= PAGE_HEADER) | (lower > upper) | (upper > size)).any():
            raise self._damaged("a page with impossible bounds")
        counts = (lower - PAGE_HEADER) // 2
        ranks = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        page = np.repeat(pages, counts)
        pointers = self._words[page * (size // 2) + PAGE_HEADER // 2 + ranks].astype("<i8")
        room = size - pointers
        # LMDB aligns nodes to two bytes.
        if (
            (pointers < np.repeat(upper, counts)) | (pointers % 2 != 0) | (room < NODE_HEADER)
        ).any():
            raise self._damaged("a node outside its page")
        start = page * size + pointers
        return _Nodes(ranks, start, room, self._read_words(start, NODE_HEADER // 2))

    def _read_words(self, offsets: Array, count: int) -> Array:
        """``count`` 16-bit words at each of some even offsets, int64 ``[n, count]``."""
        return self._words[(offsets // 2)[:, None] + np.arange(count)].astype("<i8")

    def _read_quads(self, offsets: Array) -> Array:
        """Eight bytes at each of some offsets, which lie at least eight bytes inside, uint8."""
        window = np.ndarray((len(self._buffer) - 7,), "V8", self._buffer, strides=(1,))
        quads: Array = window[offsets].view("u1").reshape(len(offsets), 8)
        return quads

    def _branch_keys(self, nodes: _Nodes) -> Iterator[bytes]:
        sizes = nodes.header[:, 3]
        if (sizes > MAX_KEY).any() or (NODE_HEADER + sizes > nodes.room).any():
            raise self._damaged("a key outside its page")
        return self._keys(nodes.start + NODE_HEADER, sizes)

    def _keys(self, offsets: Array, sizes: Array) -> Iterator[bytes]:
        """Keys one by one: nodes may overlap, so that together keys are longer than their page."""
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
            yield self.key(offset, size)

    def _check_branch_order(self, nodes: _Nodes) -> None:
        last = b""
        ranks = nodes.rank.tolist()
        for rank, key in zip(ranks, self._branch_keys(nodes), strict=True):
            # The first key of a branch page is never compared, and may be anything.
            if rank > 1 and key <= last:
                raise self._damaged("keys out of order")
            last = key

    def _leaf_entries(self, pages: Array) -> Entries:
        nodes = self._nodes(pages, P_LEAF)
        low, high, flags, key_sizes = nodes.header.T
        sizes = low | high << 16
        if (flags & (_F_SUBDATA | _F_DUPDATA)).any():
            raise ForeignFileError(
                f"{self._name} is an LMDB file with databases inside, so not a yogadl cache"
            )
        if (flags > F_BIGDATA).any() or (key_sizes == 0).any() or (key_sizes > MAX_KEY).any():
            raise self._damaged("an entry with impossible values")
        big = flags == F_BIGDATA
        if (NODE_HEADER + key_sizes + np.where(big, 8, sizes) > nodes.room).any():
            raise self._damaged("an entry outside its page")
        key_offsets = nodes.start + NODE_HEADER
        offsets = key_offsets + key_sizes
        if big.any():
            offsets[big] = self._overflow(offsets[big], sizes[big])
        return Entries(key_offsets, key_sizes, offsets, sizes)

    def _overflow(self, pointers: Array, sizes: Array) -> Array:
        """Offsets of values on pages of their own, whose numbers lie at ``pointers``."""
        size = self.meta.page_size
        # Numbers beyond int64 become negative, which is as wrong.
        numbers = self._read_quads(pointers).view("<i8").reshape(-1)
        if numbers.min() < _FIRST_PAGE or numbers.max() >= self._pages:
            raise self._damaged("a page number outside the file")
        head = self._read_words(numbers * size, PAGE_HEADER // 2)
        counts = head[:, 6] | head[:, 7] << 16
        if (_quad(head) != numbers).any() or (head[:, 5] != P_OVERFLOW).any():
            raise self._damaged("a page that is not what should be there")
        if ((counts * size < PAGE_HEADER + sizes) | (numbers + counts > self._pages)).any():
            raise self._damaged("a value outside its pages")
        return numbers * size + PAGE_HEADER

    def _check_order(self, entries: Entries, last: tuple[int, int] | None) -> None:
        """Checks that keys rise, from ``last`` of the step before on."""
        offsets, sizes = entries.key_offsets, entries.key_sizes
        if last is not None:
            offsets = np.concatenate([[last[0]], offsets])
            sizes = np.concatenate([[last[1]], sizes])
        if sizes.max() <= _KEY_WORDS and offsets.max() + _KEY_WORDS <= len(self._buffer):
            # As byte strings: padded with zeros, then by size.
            one = self._key_word(offsets, np.minimum(sizes, 8))
            two = self._key_word(offsets + 8, np.maximum(sizes - 8, 0))
            rises = (sizes[:-1] < sizes[1:]) & (two[:-1] == two[1:])
            rises = (rises | (two[:-1] < two[1:])) & (one[:-1] == one[1:])
            ordered = bool((rises | (one[:-1] < one[1:])).all())
        else:
            ordered = all(a < b for a, b in itertools.pairwise(self._keys(offsets, sizes)))
        if not ordered:
            raise self._damaged("keys out of order")

    def _key_word(self, offsets: Array, sizes: Array) -> Array:
        """Up to eight bytes of each key as a number that sorts as they do, uint64."""
        if not sizes.any():
            return np.zeros(len(sizes), "<u8")
        words = self._read_quads(offsets).view(">u8").reshape(-1).astype("<u8")
        unused = ((8 - sizes) * 8).astype("<u8")
        # A shift by all 64 bits is undefined, so it is made in two.
        half = unused // 2
        rest = unused - half
        masked: Array = words >> half >> rest << half << rest
        return masked


def _quad(head: Array) -> Array:
    """The 64-bit number in the first four words of headers; too large ones become negative."""
    quads: Array = head[:, 0] | head[:, 1] << 16 | head[:, 2] << 32 | head[:, 3] << 48
    return quads


def _children(nodes: _Nodes) -> Array:
    pages: Array = nodes.header[:, 0] | nodes.header[:, 1] << 16 | nodes.header[:, 2] << 32
    return pages
