"""Writing a cache file of format version 1."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.cache.container import Container
from yogadl.cache.files import shown
from yogadl.cache.partial import PartialFile, check_room
from yogadl.cache.progress import Progress
from yogadl.errors import (
    InvalidArgumentError,
    SpecMismatchError,
    UnsupportedTypeError,
)
from yogadl.format import header as headers
from yogadl.format import index as indexes
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
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
from yogadl.format.provenance import METADATA_KEY, UNKNOWN, Provenance
from yogadl.format.record_keys import MOST_RECORDS, record_key, record_keys

Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 4 << 20
_LOW_HALF = 0xFFFFFFFF
# Records do not wait for longer, so that progress tells of them.
_FLUSH_SECONDS = 0.5


def _metadata_json(metadata: Mapping[str, Any] | None, provenance: Provenance) -> bytes:
    """A user's metadata, and what yogadl keeps beside it, as JSON.

    Raises:
        InvalidArgumentError: it is not a mapping of strings to JSON values.
    """
    if isinstance(metadata, Mapping) and METADATA_KEY in metadata:
        raise InvalidArgumentError(f"the key {METADATA_KEY!r} of metadata is yogadl's own")
    try:
        _check_keys(metadata)
        known = provenance.to_json()
        whole = {**(metadata or {}), **({METADATA_KEY: known} if known else {})}
        found = json.dumps(whole, allow_nan=False, sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"metadata must be a dict that JSON can hold, and {metadata!r:.200} is not: {error}"
        ) from error
    if len(found) > headers.LARGEST_METADATA:
        raise InvalidArgumentError(
            f"metadata of {len(found):,} bytes of JSON are above the format's limit of "
            f"{headers.LARGEST_METADATA:,}; store them as a data set"
        )
    return found


def _spec_json(spec: specs.Structure) -> bytes:
    found = json.dumps(spec_json.to_json(spec)).encode()
    if len(found) > headers.LARGEST_SPEC:
        raise InvalidArgumentError(
            f"an element spec of {len(found):,} bytes of JSON is above the format's limit of "
            f"{headers.LARGEST_SPEC:,}: make arrays of what it has many of"
        )
    return found


def _check_keys(value: Any) -> None:
    """JSON would make strings of other keys."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no string")
            _check_keys(child)
    elif isinstance(value, list | tuple):
        for child in value:
            _check_keys(child)


class CacheWriter:
    """Writes one cache file, which appears at ``path`` when :meth:`commit` returns.

    A context manager: leaving it without ``commit`` leaves nothing behind. Not thread-safe; any
    number of writers, in any processes, may write to one path: the last to commit wins.

    Args:
        path: of the cache file; its directory must exist.
        spec: the element spec.
        metadata: anything JSON can hold, for the user.
        total: number of records if known, for the progress bar and an early check of free space.
        provenance: how the records came to be.
    """

    def __init__(
        self,
        path: pathlib.Path,
        spec: specs.Structure,
        metadata: Mapping[str, Any] | None = None,
        total: int | None = None,
        *,
        provenance: Provenance = UNKNOWN,
    ) -> None:
        self._metadata = _metadata_json(metadata, provenance)
        self._spec_json = _spec_json(spec)
        self._codec = RecordCodec(spec)
        self._spec = spec
        self._codec.layout.check_size()
        value_size = self._codec.layout.value_size
        if total is not None and value_size is not None:
            check_room(path, total * value_size)
        self._container = Container(path)
        self._file = self._container.file
        self._packer = self._container.packer
        self._progress = Progress(f"Writing {shown(path)}", total)
        self._count = 0
        # Per block of records: offsets of values outside the leaves (0 if inside), lengths, sums.
        self._entries: list[Array] = []
        self._queue: list[tuple[int, int, int]] = []
        self._buffer = np.empty((0, 0), "u1")
        # Records of fixed size wait here to be written as columns.
        self._waiting: list[Array] = []
        self._waiting_count = 0
        self._waiting_limit = max(1, min(1024, _BLOCK_BYTES // (value_size or _BLOCK_BYTES)))
        self._flush_at = time.monotonic() + _FLUSH_SECONDS

    # Appending

    def append(self, record: Any) -> None:
        """Appends one record, a nest as of the spec.

        Raises:
            SpecMismatchError, UnsupportedTypeError: the record does not fit the spec.
            StorageFullError: the disk is full, or nearly so.
        """
        try:
            components = self._codec.components(record)
        except (SpecMismatchError, UnsupportedTypeError) as error:
            raise type(error)(f"record {self._count + self._waiting_count}: {error}") from error
        if self._codec.layout.content_size is None:
            self._append_variable(self._codec.encode_components(components))
            return
        if not self._waiting:
            limit = self._waiting_limit
            arrays = [np.asarray(component) for component in components]
            self._waiting = [np.empty((limit, *array.shape), array.dtype) for array in arrays]
        # Copies: a generator may fill one array again and again.
        for column, component in zip(self._waiting, components, strict=True):
            column[self._waiting_count] = component
        self._waiting_count += 1
        if self._waiting_count == self._waiting_limit or time.monotonic() > self._flush_at:
            self._flush_waiting()

    def _flush_waiting(self) -> None:
        if self._waiting_count:
            count, self._waiting_count = self._waiting_count, 0
            self._append_columns([column[:count] for column in self._waiting], count)
            self._flush_at = time.monotonic() + _FLUSH_SECONDS

    def _check_count(self, more: int) -> None:
        if self._count + more > MOST_RECORDS:
            raise InvalidArgumentError(
                f"a file holds {MOST_RECORDS:,} records at most; submit the rest as another "
                "version, and join them by yogadl.concat"
            )

    def _append_variable(self, content: bytes) -> None:
        self._check_count(1)
        value = bytes(lead_of(len(content))) + content
        if len(value) > MAX_VALUE:
            raise InvalidArgumentError(
                f"record {self._count} has {len(value):,} bytes; the limit is {MAX_VALUE:,}"
            )
        offset = 0
        payload = value
        if len(content) > INLINE_LIMIT:
            page = self._container.write_overflow(value)
            offset = page * PAGE_SIZE + PAGE_HEADER
            payload = big_payload(page)
        key = record_key(self._count)
        self._packer.add(leaf_node(key, len(value), payload, offset > 0))
        self._queue.append((offset, len(value), xxhash.xxh3_64_intdigest(content) & _LOW_HALF))
        self._count += 1
        if len(self._queue) == indexes.BLOCK:
            self._flush_queue()
        self._progress.update(1, self._file.size)

    def append_columns(self, columns: Sequence[Any], count: int) -> None:
        """Appends ``count`` records of fixed size, given as one array per component.

        Args:
            columns: arrays of shape ``[count, *component shape]``, in the order of
                :func:`yogadl.format.layout.components_of`.
            count: number of records.

        Raises:
            SpecMismatchError: a column does not fit the spec.
            StorageFullError: the disk is full, or nearly so.
        """
        self._flush_waiting()
        for column in columns:
            if len(column) != count:
                raise SpecMismatchError(f"a column of {len(column)} records stands beside {count}")
        self._append_columns(columns, count)

    def _append_columns(self, columns: Sequence[Any], count: int) -> None:
        content_size = self._codec.layout.content_size
        assert content_size is not None
        step = max(1, _BLOCK_BYTES // content_size)
        for start in range(0, count, step):
            part = [column[start : start + step] for column in columns]
            self._append_block(part, min(step, count - start))

    def _append_block(self, columns: Sequence[Any], count: int) -> None:
        self._check_count(count)
        content_size = self._codec.layout.content_size
        assert content_size is not None
        if content_size > INLINE_LIMIT:
            offsets, payloads, values = self._write_overflows(columns, count, content_size)
        else:
            values = np.zeros((count, content_size), "u1")
            self._codec.encode_columns(columns, values)
            offsets, payloads = np.zeros(count, "<u8"), values
        keys = record_keys(self._count + np.arange(count))
        size = values.shape[1]
        self._packer.add_many(leaf_nodes(keys, size, payloads, content_size > INLINE_LIMIT))
        entries = np.empty(count, indexes.ENTRY)
        entries["offset"] = offsets
        entries["length"] = size
        digest = xxhash.xxh3_64_intdigest
        contents = values[:, lead_of(content_size) :]
        entries["checksum"] = [digest(content) & _LOW_HALF for content in contents]
        self._entries.append(entries)
        self._count += count
        self._progress.update(count, self._file.size)

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
            self._entries.append(np.array(self._queue, indexes.ENTRY))
            self._queue = []

    # Finishing

    def commit(self) -> int:
        """Completes the file, syncs it, and renames it into place.

        Returns:
            The number of records.

        Raises:
            StorageFullError: the disk is full, or nearly so.
        """
        self.finish().commit()
        return self._count

    def finish(self) -> PartialFile:
        """Completes the file under its partial name, for the caller to commit or to leave.

        It is removed when this writer's context ends, unless it was committed. Nothing can be
        appended any more.

        Raises:
            StorageFullError: the disk is full, or nearly so.
        """
        self._flush_waiting()
        self._flush_queue()
        self._packer.flush()
        entries = self._finished_entries()
        sections = {
            "checksums": indexes.block_checksums(entries).tobytes(),
            "metadata": self._metadata,
            "spec": self._spec_json,
            "index": entries.tobytes(),
        }
        fields = {
            "record_count": self._count,
            "alignment": self._alignment(entries),
            "value_size": self._codec.layout.value_size or 0,
            "created_ns": time.time_ns(),
        }
        self._container.finish(sections, self._count, fields)
        self._progress.close(done=True)
        return self._file

    def _finished_entries(self) -> Array:
        entries = np.concatenate([np.empty(0, indexes.ENTRY), *self._entries])
        self._entries = []
        inside = entries["offset"] == 0
        entries["offset"][inside] = self._packer.positions()[inside]
        return entries

    def _alignment(self, entries: Array) -> int:
        """What every content's offset is a multiple of."""
        return WIDE_ALIGNMENT if (entries["length"] > INLINE_LIMIT).all() else ALIGNMENT

    def __enter__(self) -> CacheWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.close(done=False)
        self._file.discard()
