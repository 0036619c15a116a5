"""Writing records into one file of format version 1."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl.cache.container import Container
from yogadl.cache.content_id import sums_of
from yogadl.errors import InvalidArgumentError
from yogadl.format import index as indexes
from yogadl.format.codec import RecordCodec
from yogadl.format.entries import ENTRY, marks_of, salt_of
from yogadl.format.header import Header
from yogadl.format.layout import (
    ALIGNMENT,
    INLINE_LIMIT,
    LEAD,
    MAX_VALUE,
    WIDE_ALIGNMENT,
    lead_of,
)
from yogadl.format.pages import (
    PAGE_HEADER,
    PAGE_SIZE,
    big_payload,
    leaf_node,
    leaf_nodes,
    overflow_header,
    overflow_pages,
)
from yogadl.format.record_keys import record_key, record_keys

Array = np.ndarray[Any, Any]

_LOW_HALF = 0xFFFFFFFF
_LEAD_ZEROS = bytes(LEAD)


def record_bytes(content_size: int) -> int:
    """Bytes that a record of this size takes in a file, with its node and its entry in the index.

    Leaf pages are filled as far as nodes go, which is not counted.
    """
    if content_size > INLINE_LIMIT:
        node = leaf_node(record_key(0), 0, big_payload(0), True)
        pages = overflow_pages(LEAD + content_size)
        return len(node) + 2 + pages * PAGE_SIZE + ENTRY.itemsize
    node = leaf_node(record_key(0), 0, bytes(content_size), False)
    return len(node) + 2 + ENTRY.itemsize


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
        # Per block of records: offsets of values outside the leaves (0 if inside), lengths, sums.
        self._entries: list[Array] = []
        self._queue: list[tuple[int, int, int]] = []
        self._buffer = np.empty((0, 0), "u1")

    def add(self, content: bytes) -> None:
        """Appends one record.

        Raises:
            InvalidArgumentError: it is above the format's limit.
        """
        length, offset, payload = len(content), 0, content
        if length > INLINE_LIMIT:
            length += LEAD
            if length > MAX_VALUE:
                raise InvalidArgumentError(
                    f"it has {length:,} bytes, and the limit is {MAX_VALUE:,}"
                )
            page = self._container.write_overflow(_LEAD_ZEROS, content)
            offset = page * PAGE_SIZE + PAGE_HEADER
            payload = big_payload(page)
        self._packer.add(leaf_node(record_key(self.count), length, payload, offset > 0))
        self._queue.append((offset, length, xxhash.xxh3_64_intdigest(content) & _LOW_HALF))
        self.count += 1
        if len(self._queue) == indexes.BLOCK:
            self._flush_queue()

    def add_columns(self, columns: Sequence[Any], count: int) -> None:
        """Appends some records of fixed size.

        Args:
            columns: arrays of shape ``[count, *component shape]``, one per component.
            count: number of records.

        Raises:
            SpecMismatchError: a column does not fit the spec.
        """
        content_size = self._codec.layout.content_size
        assert content_size is not None
        if content_size > INLINE_LIMIT:
            offsets, payloads, values = self._write_overflows(columns, count, content_size)
        else:
            values = np.zeros((count, content_size), "u1")
            self._codec.encode_columns(columns, values)
            offsets, payloads = np.zeros(count, "<u8"), values
        keys = record_keys(self.count + np.arange(count))
        size = values.shape[1]
        self._packer.add_many(leaf_nodes(keys, size, payloads, content_size > INLINE_LIMIT))
        entries = np.empty(count, ENTRY)
        entries["offset"] = offsets
        entries["length"] = size
        digest = xxhash.xxh3_64_intdigest
        contents = values[:, lead_of(content_size) :]
        entries["checksum"] = [digest(content) & _LOW_HALF for content in contents]
        self._entries.append(entries)
        self.count += count

    def _write_overflows(
        self, columns: Sequence[Any], count: int, content_size: int
    ) -> tuple[Array, Array, Array]:
        """Writes values on pages of their own; returns offsets, leaf payloads and the values."""
        size = LEAD + content_size
        pages = overflow_pages(size)
        if self._buffer.shape != (count, pages * PAGE_SIZE):
            self._buffer = np.zeros((count, pages * PAGE_SIZE), "u1")
        first = self._container.next_page()
        numbers = first + pages * np.arange(count, dtype="<u8")
        header = np.frombuffer(overflow_header(0, size), "u1")
        self._buffer[:, :PAGE_HEADER] = header
        self._buffer[:, :8] = numbers.view("u1").reshape(count, 8)
        values = self._buffer[:, PAGE_HEADER : PAGE_HEADER + size]
        self._codec.encode_columns(columns, values[:, LEAD:])
        self._container.write(self._buffer)
        self._container.overflow_pages += pages * count
        return numbers * PAGE_SIZE + PAGE_HEADER, numbers.view("u1").reshape(count, 8), values

    def _flush_queue(self) -> None:
        if self._queue:
            self._entries.append(np.array(self._queue, ENTRY))
            self._queue = []

    def finish(self, spec: bytes, metadata: bytes, created_ns: int) -> Header:
        """Completes the file, under its partial name.

        Args:
            spec: the element spec, as JSON.
            metadata: JSON.
            created_ns: when it was made, nanoseconds since 1970.
        """
        self._flush_queue()
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
