"""Writing records into one file of format version 1."""

from __future__ import annotations

import operator
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl.cache.container import Container
from yogadl.cache.content_id import sums_of
from yogadl.format import index as indexes
from yogadl.format.codec import RecordCodec
from yogadl.format.contents import Contents
from yogadl.format.entries import ENTRY, marks_of, salt_of
from yogadl.format.header import Header
from yogadl.format.layout import (
    ALIGNMENT,
    INLINE_LIMIT,
    LEAD,
    WIDE_ALIGNMENT,
    lead_of,
)
from yogadl.format.pages import (
    PAGE_HEADER,
    PAGE_SIZE,
    big_payload,
    leaf_heads,
    leaf_node,
    leaf_nodes,
    overflow_header,
    overflow_headers,
    overflow_pages,
)
from yogadl.format.record_keys import KEY_DIGITS, record_key, record_keys

Array = np.ndarray[Any, Any]

_PAGE_NUMBER = 8
_RUN_BYTES = 4 << 20
_ZEROS = bytes(PAGE_SIZE)


def _items(rows: Array) -> list[bytes]:
    """The rows of a contiguous uint8 array ``[n, size]``."""
    found: list[bytes] = rows.view(f"V{rows.shape[1]}").reshape(len(rows)).tolist()
    return found


def _checksums(contents: Iterable[Any]) -> Array:
    """The checksums of contents, uint32."""
    digests = b"".join(map(xxhash.xxh3_64_digest, contents))
    return np.frombuffer(digests, ">u4")[1::2]


def record_bytes(content_size: int) -> int:
    """Bytes that a record of this size takes in a file, with its node and its entry in the index.

    Leaf pages are filled as far as nodes go, which is not counted.
    """
    if content_size > INLINE_LIMIT:
        node = leaf_node(record_key(0), 0, big_payload(0), True)
        pages: int = overflow_pages(LEAD + content_size)
        return len(node) + 2 + pages * PAGE_SIZE + ENTRY.itemsize
    node = leaf_node(record_key(0), 0, bytes(content_size), False)
    return len(node) + 2 + ENTRY.itemsize


class _Run:
    """Some records, and where their values will be.

    Args:
        contents: of the records.
        is_large: whether their values lie outside the leaves, bool ``[n]``.
        lengths: bytes of the values, int64 ``[n]``.
        pages: that they have of their own, int64 ``[n]``.
        numbers: of the first of these, int64 ``[n]``.
    """

    def __init__(
        self, contents: Contents, is_large: Array, lengths: Array, pages: Array, numbers: Array
    ) -> None:
        self._small = contents.selected(~is_large)
        self._large = contents.selected(is_large)
        self._inside: list[bytes] = []
        self.is_large = is_large
        self.lengths = lengths
        self.pages = pages
        self.numbers = numbers

    def values(self) -> tuple[bytes, Array]:
        """The pages of the values that lie outside, in one, and the checksums of all records."""
        pages, sizes = self.pages[self.is_large], self._large.sizes
        lead = PAGE_HEADER + LEAD
        leads = np.zeros((len(pages), lead), "u1")
        leads[:, :PAGE_HEADER] = overflow_headers(self.numbers[self.is_large], pages)
        rests = [_ZEROS[:size] for size in (pages * PAGE_SIZE - lead - sizes).tolist()]
        values = self._large.between(_items(leads), rests)
        starts = (np.cumsum(pages) - pages) * PAGE_SIZE + lead
        view = memoryview(values)
        spans = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        checksums = np.empty(len(self.is_large), "u4")
        checksums[self.is_large] = _checksums(view[start:end] for start, end in spans)
        self._inside = list(self._small.each())
        checksums[~self.is_large] = _checksums(self._inside)
        return values, checksums

    def nodes(self, first: int) -> list[bytes]:
        """The nodes of the records, of which ``first`` is the position of the first; to be called
        after :meth:`values`."""
        keys = record_keys(first + np.arange(len(self.is_large)))
        heads = _items(leaf_heads(keys, self.lengths, self.is_large))
        payloads = _items(self.numbers.astype("<u8")[:, None].view("u1"))
        small = np.flatnonzero(~self.is_large).tolist()
        for place, content in zip(small, self._inside, strict=True):
            payloads[place] = content
        return list(map(operator.add, heads, payloads))


class FileWriter:
    """One file, of records that were checked. Not thread-safe.

    Args:
        path: of the file to be, which is written under a partial name beside it.
        codec: of the records.

    Attributes:
        file: the file.
        count: records so far.
        checksums: of the blocks of its index, uint64, once it is finished.
    """

    def __init__(self, path: pathlib.Path, codec: RecordCodec) -> None:
        self._codec = codec
        self._container = Container(path)
        self._packer = self._container.packer
        self.file = self._container.file
        self.count = 0
        self.checksums: Array = np.empty(0, "<u8")
        # Per run of records: offsets of values outside the leaves (0 if inside), lengths, sums.
        self._entries: list[Array] = []
        self._buffer = np.empty((0, 0), "u1")

    def add_contents(self, contents: Contents, limit: int) -> int:
        """Appends the first of some records, as long as the file has less than ``limit`` bytes.

        The bytes of the file are the same however many records come at once.

        Args:
            contents: of the records.
            limit: bytes.

        Returns:
            How many were appended; at least one, if the file has less than the limit.
        """
        is_large = contents.sizes > INLINE_LIMIT
        lengths = np.where(is_large, contents.sizes + LEAD, contents.sizes)
        pages = np.where(is_large, overflow_pages(lengths), 0)
        # A leaf is written after the value of the first record that it has no room for.
        payloads = np.where(is_large, _PAGE_NUMBER, contents.sizes)
        full = self._packer.full_before(payloads, KEY_DIGITS)
        leaves = np.searchsorted(full, np.arange(len(contents)))
        numbers = self._container.next_page() + np.cumsum(pages) - pages + leaves
        most = min(limit, self.file.size + _RUN_BYTES)
        count = int(np.searchsorted(numbers * PAGE_SIZE, most))
        part = slice(count)
        run = _Run(contents[part], is_large[part], lengths[part], pages[part], numbers[part])
        self._add_run(run, [place for place in full if place < count])
        return count

    def _add_run(self, run: _Run, full: list[int]) -> None:
        """Appends some records.

        Args:
            run: the records.
            full: of which a leaf page has no room for the node.
        """
        values, checksums = run.values()
        nodes = run.nodes(self.count)
        with self._container.together():
            self._write(memoryview(values), np.cumsum(run.pages), nodes, full)
        entries = np.empty(len(nodes), ENTRY)
        entries["offset"] = np.where(run.is_large, run.numbers * PAGE_SIZE + PAGE_HEADER, 0)
        entries["length"] = run.lengths
        entries["checksum"] = checksums
        self._entries.append(entries)
        self.count += len(nodes)

    def add_columns(self, columns: Sequence[Any], count: int) -> None:
        """Appends some records of fixed size.

        The bytes of the file are the same however many records come at once.

        Args:
            columns: arrays of shape ``[count, *component shape]``, one per component.
            count: number of records.

        Raises:
            SpecMismatchError: a column does not fit the spec.
        """
        content_size = self._codec.layout.content_size
        assert content_size is not None
        if content_size <= INLINE_LIMIT:
            values = np.zeros((count, content_size), "u1")
            self._codec.encode_columns(columns, values)
            keys = record_keys(self.count + np.arange(count))
            self._packer.add_many(leaf_nodes(keys, content_size, values, False))
            self._add_entries(np.zeros(count, "<u8"), values, content_size)
            return
        offsets, values = self._write_large(columns, count, content_size)
        self._add_entries(offsets, values, content_size)

    def _add_entries(self, offsets: Array, values: Array, content_size: int) -> None:
        """Notes records of one size, whose values are uint8 ``[count, size]``."""
        count, size = values.shape
        entries = np.empty(count, ENTRY)
        entries["offset"] = offsets
        entries["length"] = size
        entries["checksum"] = _checksums(values[:, lead_of(content_size) :])
        self._entries.append(entries)
        self.count += count

    def _write_large(
        self, columns: Sequence[Any], count: int, content_size: int
    ) -> tuple[Array, Array]:
        """Writes values on pages of their own, and their nodes; returns offsets and the values."""
        size = LEAD + content_size
        pages = overflow_pages(size)
        if len(self._buffer) < count:
            self._buffer = np.zeros((count, pages * PAGE_SIZE), "u1")
        buffer, places = self._buffer[:count], np.arange(count)
        full = self._packer.full_before(np.full(count, _PAGE_NUMBER), KEY_DIGITS)
        leaves = np.searchsorted(full, places)
        numbers = (self._container.next_page() + pages * places + leaves).astype("<u8")
        buffer[:, :PAGE_HEADER] = np.frombuffer(overflow_header(0, size), "u1")
        buffer[:, :8] = numbers.view("u1").reshape(count, 8)
        values = buffer[:, PAGE_HEADER : PAGE_HEADER + size]
        self._codec.encode_columns(columns, values[:, LEAD:])
        payloads = numbers.view("u1").reshape(count, 8)
        nodes = leaf_nodes(record_keys(self.count + places), size, payloads, True)
        with self._container.together():
            ends = pages * (places + 1)
            self._write(memoryview(buffer.reshape(-1)), ends, _items(nodes), full)
        return numbers * PAGE_SIZE + PAGE_HEADER, values

    def _write(
        self, values: memoryview, ends: Array, nodes: list[bytes], full: Sequence[int]
    ) -> None:
        """Writes values on pages of their own, and the leaf pages that are full between them.

        A leaf is written after the value of the first record that it has no room for.

        Args:
            values: the pages.
            ends: where the value of each record ends among them, in pages, int64 ``[n]``.
            nodes: of the records.
            full: of which a leaf page has no room for the node.
        """
        start = written = 0
        for place in full:
            end = int(ends[place]) * PAGE_SIZE
            if end > written:
                self._container.write(values[written:end])
                written = end
            self._packer.add_fitting(nodes[start:place])
            self._packer.flush()
            start = place
        if len(values) > written:
            self._container.write(values[written:])
        self._packer.add_fitting(nodes[start:])
        self._container.overflow_pages += int(ends[-1]) if len(ends) else 0

    def finish(self, spec: bytes, metadata: bytes, created_ns: int) -> Header:
        """Completes the file, under its partial name.

        Args:
            spec: the element spec, as JSON.
            metadata: JSON.
            created_ns: when it was made, nanoseconds since 1970.
        """
        self._packer.flush()
        entries = self._finished_entries()
        sums = sums_of(entries).sums
        for start in range(0, self.count, indexes.BLOCK):
            some = entries["checksum"][start : start + indexes.BLOCK]
            some ^= marks_of(start + np.arange(len(some)), salt_of(sums[0]))
        self.checksums = indexes.block_checksums(entries)
        sections = {
            "checksums": self.checksums.tobytes(),
            "metadata": metadata,
            "spec": spec,
            "index": entries.tobytes(),
        }
        are_large = bool((entries["length"] > INLINE_LIMIT).all())
        fields = {
            "record_count": self.count,
            "alignment": WIDE_ALIGNMENT if are_large else ALIGNMENT,
            "value_size": self._codec.layout.value_size or 0,
            "created_ns": created_ns,
            "part_count": 0,
            "token_sums": sums,
        }
        return self._container.finish(sections, self.count, fields)

    def stamp(self, header: Header, created_ns: int) -> Header:
        """Gives the completed file another time of creation, and so another digest."""
        return self._container.stamp(header, created_ns)

    def _finished_entries(self) -> Array:
        entries = np.concatenate([np.empty(0, ENTRY), *self._entries])
        self._entries = []
        inside = entries["offset"] == 0
        entries["offset"][inside] = self._packer.positions()[inside]
        return entries
