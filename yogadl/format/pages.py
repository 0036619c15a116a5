"""LMDB pages, built in bulk.

A cache is written front to back, once, in key order, so its B+tree can be laid down page by page
instead of being grown: leaves as records come, branches and the two meta pages at the end. This
keeps the bytes the same whatever LMDB is installed, puts records where they can be read without a
copy, and lets the checksum of the whole be computed on the way.

Source of the format: LMDB 0.9, ``mdb.c`` (``MDB_page``, ``MDB_node``, ``MDB_meta``, ``MDB_db``),
data version 1, 64-bit little-endian.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PAGE_SIZE = 4096
PAGE_HEADER = 16
NODE_HEADER = 8
MAGIC = 0xBEEFC0DE
DATA_VERSION = 1

P_BRANCH = 0x01
P_LEAF = 0x02
P_OVERFLOW = 0x04
P_META = 0x08
F_BIGDATA = 0x01

NO_PAGE = 2**64 - 1
MAX_KEY = 511

_PAGE = struct.Struct("<QHHHH")
_OVERFLOW = struct.Struct("<QHHI")
_NODE = struct.Struct("<HHHH")
# magic, version, address, map size; then two of _DB; then last page, transaction id.
_META = struct.Struct("<IIQQ")
_DB = struct.Struct("<IHHQQQQQ")
_META_END = struct.Struct("<QQ")

_POINTER = 2
_LEAF_ROOM = PAGE_SIZE - PAGE_HEADER

PAGE_STRUCT = np.dtype(
    [("number", "<u8"), ("pad", "<u2"), ("flags", "<u2"), ("lower", "<u2"), ("upper", "<u2")]
)
_OVERFLOW_STRUCT = np.dtype([("number", "<u8"), ("pad", "<u2"), ("flags", "<u2"), ("pages", "<u4")])
NODE_STRUCT = np.dtype([("low", "<u2"), ("high", "<u2"), ("flags", "<u2"), ("key_size", "<u2")])


def overflow_pages(size: Any) -> Any:
    """The pages that a value of ``size`` bytes takes outside the leaves, for an integer or many."""
    return -(-(PAGE_HEADER + size) // PAGE_SIZE)


def overflow_header(page: int, size: int) -> bytes:
    return _OVERFLOW.pack(page, 0, P_OVERFLOW, overflow_pages(size))


def overflow_headers(pages: Array, counts: Array) -> Array:
    """What begins values outside the leaves: the same as :func:`overflow_header` of each.

    Args:
        pages: their first pages, ``[n]``.
        counts: how many pages each has, ``[n]``.

    Returns:
        uint8 ``[n, 16]``.
    """
    headers = np.zeros(len(pages), _OVERFLOW_STRUCT)
    headers["number"] = pages
    headers["flags"] = P_OVERFLOW
    headers["pages"] = counts
    return headers.view("u1").reshape(len(pages), PAGE_HEADER)


def leaf_node(key: bytes, size: int, payload: bytes, big: bool) -> bytes:
    """A leaf node; ``payload`` is the value, or the page number of one that lies outside."""
    header = _NODE.pack(size & 0xFFFF, size >> 16, F_BIGDATA if big else 0, len(key))
    node = header + key + payload
    return node + bytes(len(node) % 2)


def big_payload(page: int) -> bytes:
    return page.to_bytes(8, "little")


def leaf_nodes(keys: Array, sizes: Array | int, payloads: Array, big: bool) -> Array:
    """Many leaf nodes of one length.

    Args:
        keys: uint8 ``[n, key_size]``.
        sizes: byte sizes of the values, one or ``[n]``.
        payloads: uint8 ``[n, payload_size]``, as in :func:`leaf_node`.

    Returns:
        uint8 ``[n, node_size]``.
    """
    count, key_size = keys.shape
    length = NODE_HEADER + key_size + payloads.shape[1]
    nodes = np.zeros((count, length + length % 2), "u1")
    _put_heads(nodes, keys, sizes, big)
    nodes[:, NODE_HEADER + key_size : length] = payloads
    return nodes


def leaf_heads(keys: Array, sizes: Array, big: Array) -> Array:
    """What many leaf nodes have before their payloads, uint8 ``[n, 8 + key_size]``.

    Args:
        keys: uint8 ``[n, key_size]``.
        sizes: byte sizes of the values, ``[n]``.
        big: whether these lie outside, bool ``[n]``.
    """
    heads = np.empty((len(keys), NODE_HEADER + keys.shape[1]), "u1")
    _put_heads(heads, keys, sizes, big)
    return heads


def _put_heads(nodes: Array, keys: Array, sizes: Array | int, big: Array | bool) -> None:
    count, key_size = keys.shape
    header = np.empty(count, NODE_STRUCT)
    header["low"] = np.asarray(sizes) & 0xFFFF
    header["high"] = np.asarray(sizes) >> 16
    header["flags"] = np.where(big, F_BIGDATA, 0)
    header["key_size"] = key_size
    nodes[:, :NODE_HEADER] = header.view("u1").reshape(count, NODE_HEADER)
    nodes[:, NODE_HEADER : NODE_HEADER + key_size] = keys


def _tree_page(number: int, flags: int, nodes: list[bytes]) -> bytes:
    """A branch or leaf page: pointers upwards from the header, nodes downwards from the end."""
    pointers = [PAGE_SIZE - end for end in itertools.accumulate(map(len, nodes))]
    position = pointers[-1]
    lower = PAGE_HEADER + _POINTER * len(nodes)
    head = _PAGE.pack(number, 0, flags, lower, position)
    head += struct.pack(f"<{len(pointers)}H", *pointers)
    return head + bytes(position - lower) + b"".join(reversed(nodes))


class LeafPacker:
    """Packs nodes that come in key order into leaf pages, each as full as can be.

    Not thread-safe.

    Args:
        write: takes the bytes of whole pages, appends them to the file, and returns nothing.
        next_page: the number of the page that ``write`` will write next.
    """

    def __init__(self, write: Callable[[Any], None], next_page: Callable[[], int]) -> None:
        self._write = write
        self._next_page = next_page
        self._open: list[bytes] = []
        self._room = _LEAF_ROOM
        self._positions: list[Array] = []
        self.leaves: list[tuple[bytes, int]] = []
        """First key and page number of every leaf page written."""

    def full_before(self, payloads: Array, key_size: int) -> list[int]:
        """Of nodes to be added, those for which a page has no room, so that it is written.

        Args:
            payloads: their sizes in bytes, ``[n]``.
            key_size: of their keys.
        """
        sizes = NODE_HEADER + key_size + payloads
        ends = np.cumsum(sizes + sizes % 2 + _POINTER).tolist()
        found = []
        place = bisect.bisect_right(ends, self._room)
        while place < len(ends):
            found.append(place)
            begun = ends[place - 1] if place else 0
            place = bisect.bisect_right(ends, begun + _LEAF_ROOM, place)
        return found

    def add_fitting(self, nodes: list[bytes]) -> None:
        """Adds nodes for all of which the open page has room."""
        self._open += nodes
        self._room -= sum(map(len, nodes)) + _POINTER * len(nodes)

    def add(self, node: bytes) -> None:
        if len(node) + _POINTER > self._room:
            self.flush()
        self._open.append(node)
        self._room -= len(node) + _POINTER

    def add_many(self, nodes: Array) -> None:
        """Adds nodes of one length, uint8 ``[n, node_size]``; the same as ``add`` of each."""
        size = nodes.shape[1]
        per_page = _LEAF_ROOM // (size + _POINTER)
        start = 0
        if self._open:
            start = min(len(nodes), self._room // (size + _POINTER))
            for row in nodes[:start]:
                self.add(row.tobytes())
            if start < len(nodes):
                self.flush()
        full = (len(nodes) - start) // per_page
        if full:
            self._write_full(nodes[start : start + full * per_page].reshape(full, per_page, size))
        for row in nodes[start + full * per_page :]:
            self.add(row.tobytes())

    def _write_full(self, nodes: Array) -> None:
        count, per_page, size = nodes.shape
        first = self._next_page()
        pages = np.zeros((count, PAGE_SIZE), "u1")
        starts = PAGE_SIZE - size * np.arange(1, per_page + 1)
        header = np.zeros(count, PAGE_STRUCT)
        header["number"] = first + np.arange(count)
        header["flags"] = P_LEAF
        header["lower"] = lower = PAGE_HEADER + _POINTER * per_page
        header["upper"] = starts[-1]
        pages[:, :PAGE_HEADER] = header.view("u1").reshape(count, PAGE_HEADER)
        pages[:, PAGE_HEADER:lower] = starts.astype("<u2").view("u1")
        pages[:, starts[-1] :] = nodes[:, ::-1].reshape(count, per_page * size)
        key_size = int(nodes[0, 0, 6:8].view("<u2")[0])
        keys = nodes[:, 0, NODE_HEADER : NODE_HEADER + key_size].tobytes()
        for page in range(count):
            key = keys[page * key_size : (page + 1) * key_size]
            self.leaves.append((key, first + page))
        payload = (first + np.arange(count))[:, None] * PAGE_SIZE + starts + NODE_HEADER + key_size
        self._positions.append(payload.reshape(-1))
        self._write(pages)

    def flush(self) -> None:
        """Writes the page that is being filled, if it holds anything."""
        if not self._open:
            return
        page = self._next_page()
        ends = itertools.accumulate(map(len, self._open))
        # Behind the header of a node and its key.
        places = [
            NODE_HEADER + node[6] + (node[7] << 8) - end
            for node, end in zip(self._open, ends, strict=True)
        ]
        positions = (page + 1) * PAGE_SIZE + np.array(places, "<i8")
        self._positions.append(positions)
        first = self._open[0]
        key_size = int.from_bytes(first[6:8], "little")
        self.leaves.append((first[NODE_HEADER : NODE_HEADER + key_size], page))
        self._write(_tree_page(page, P_LEAF, self._open))
        self._open = []
        self._room = _LEAF_ROOM

    def positions(self) -> Array:
        """File offset of the payload of every node that was written, int64, in key order."""
        return np.concatenate([np.empty(0, "<i8"), *self._positions])


def write_branches(
    leaves: list[tuple[bytes, int]], write: Callable[[Any], None], next_page: Callable[[], int]
) -> tuple[int, int, int]:
    """Writes the branch levels over some leaf pages.

    Returns:
        The root's page number, the depth of the tree, the number of branch pages.
    """
    level = leaves
    depth = 1
    branch_pages = 0
    while len(level) > 1:
        upper: list[tuple[bytes, int]] = []
        for children in _branches(level):
            upper.append((children[0][0], next_page()))
            # The first key of a branch page is never compared, and LMDB keeps it empty.
            nodes = [
                _branch_node(b"", children[0][1]),
                *itertools.starmap(_branch_node, children[1:]),
            ]
            write(_tree_page(next_page(), P_BRANCH, nodes))
        branch_pages += len(upper)
        level = upper
        depth += 1
    return level[0][1], depth, branch_pages


def _branches(level: list[tuple[bytes, int]]) -> list[list[tuple[bytes, int]]]:
    """The pages of a level, at least two, by the branch pages above it.

    Each has as many as there is room for, and at least two: of one that has fewer, LMDB aborts the
    process.
    """
    pages: list[list[tuple[bytes, int]]] = []
    room = 0
    for key, page in level:
        size = NODE_HEADER + len(key) + len(key) % 2 + _POINTER
        if size > room:
            pages.append([])
            size, room = NODE_HEADER + _POINTER, _LEAF_ROOM
        pages[-1].append((key, page))
        room -= size
    if len(pages[-1]) == 1:
        pages[-1].insert(0, pages[-2].pop())
    return pages


def _branch_node(key: bytes, page: int) -> bytes:
    node = _NODE.pack(page & 0xFFFF, page >> 16 & 0xFFFF, page >> 32, len(key)) + key
    return node + bytes(len(node) % 2)


def meta_pages(
    root: int, depth: int, branches: int, leaves: int, overflows: int, entries: int, pages: int
) -> bytes:
    """The two pages a file starts with, both describing one tree, as after the first commit."""
    free = _DB.pack(PAGE_SIZE, 0x08, 0, 0, 0, 0, 0, NO_PAGE)
    main = _DB.pack(0, 0, depth, branches, leaves, overflows, entries, root)
    both = b""
    for number in (0, 1):
        page = _PAGE.pack(number, 0, P_META, 0, 0) + _META.pack(
            MAGIC, DATA_VERSION, 0, pages * PAGE_SIZE
        )
        page += free + main + _META_END.pack(pages - 1, number)
        both += page.ljust(PAGE_SIZE, b"\0")
    return both
