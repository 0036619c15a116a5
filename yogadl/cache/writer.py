"""Writing a cache file of format version 1."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.file_writer import FileWriter, record_bytes
from yogadl.cache.files import shown
from yogadl.cache.partial import PartialFile, check_room
from yogadl.cache.progress import Progress
from yogadl.cache.table_writer import PartList
from yogadl.cache.waiting import WaitingRecords
from yogadl.closing import Closing
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format import header as headers
from yogadl.format import provenance as provenances
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
from yogadl.format.contents import Contents
from yogadl.format.header import BODY_OFFSET, Header
from yogadl.format.provenance import METADATA_KEY, RECIPE_KEY, UNKNOWN, Provenance
from yogadl.format.record_keys import MOST_RECORDS
from yogadl.format.rows import rows_of

Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 4 << 20
_RUN = 4096
# Records do not wait for longer, so that progress tells of them.
_FLUSH_SECONDS = 0.5
_DEEPEST_METADATA = 100
# Python reads no more than 4,300 digits unless it is told to.
_LARGEST_INT_BITS = 14_000


def metadata_json(metadata: Mapping[str, Any] | None, provenance: Provenance) -> bytes:
    """A user's metadata, and what yogadl keeps beside it, as JSON.

    Raises:
        InvalidArgumentError: it is not a mapping of strings to JSON values.
    """
    for key in (METADATA_KEY, RECIPE_KEY):
        if isinstance(metadata, Mapping) and key in metadata:
            raise InvalidArgumentError(f"the key {key!r} of metadata is yogadl's own")
    try:
        if not isinstance(metadata, Mapping | None):
            raise TypeError("it is no dict")
        _check_json(metadata)
        own = {METADATA_KEY: provenance.to_json(), RECIPE_KEY: provenance.recipe_document}
        whole = {**(metadata or {}), **{key: value for key, value in own.items() if value}}
        found = json.dumps(whole, allow_nan=False, sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"metadata must be a dict that JSON can hold, and {_shown(metadata)} is not: {error}"
        ) from error
    if len(found) > headers.LARGEST_METADATA:
        raise InvalidArgumentError(
            f"metadata of {len(found):,} bytes of JSON are above the format's limit of "
            f"{headers.LARGEST_METADATA:,}; store them as a data set"
        )
    return found


def with_duration(document: bytes, seconds: float) -> bytes:
    """A metadata document that says how long it took to build the records, if there is room."""
    longer = provenances.with_duration(document, seconds)
    return longer if len(longer) <= headers.LARGEST_METADATA else document


def encoded_spec(spec: specs.Structure) -> bytes:
    """An element spec as JSON.

    Raises:
        InvalidArgumentError: it is too long.
    """
    found = json.dumps(spec_json.to_json(spec)).encode()
    if len(found) > headers.LARGEST_SPEC:
        raise InvalidArgumentError(
            f"an element spec of {len(found):,} bytes of JSON is above the format's limit of "
            f"{headers.LARGEST_SPEC:,}: make arrays of what it has many of"
        )
    return found


def _shown(metadata: Any) -> str:
    try:
        return f"{metadata!r:.200}"
    except (ValueError, RecursionError):
        # Too large a number, or too deep a nest.
        return f"this {type(metadata).__name__}"


def _check_json(value: Any, depth: int = 0) -> None:
    """JSON would make strings of keys that are none, and Python cannot read all that JSON holds."""
    if depth > _DEEPEST_METADATA:
        raise ValueError(f"it is nested more than {_DEEPEST_METADATA} levels deep")
    if isinstance(value, Mapping):
        for key, child in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r:.100} is no string")
            _check_json(child, depth + 1)
    elif isinstance(value, list | tuple):
        for child in value:
            _check_json(child, depth + 1)
    elif isinstance(value, int) and value.bit_length() > _LARGEST_INT_BITS:
        raise ValueError(f"it has an integer of {value.bit_length():,} bits")


class CacheWriter(Closing):
    """Writes records, in a file that appears at ``path`` when :meth:`commit` returns.

    Where they are cut into parts, each is handed over as soon as it is full, and the file is the
    table of them; records of less than a part are one file all the same.

    A context manager: leaving it without ``commit`` leaves nothing behind. Not thread-safe; any
    number of writers, in any processes, may write to one path: the last to commit wins.

    Args:
        path: of the cache file; its directory must exist.
        spec: the element spec.
        metadata: anything JSON can hold, for the user.
        total: number of records if known, for the progress bar and an early check of free space.
        provenance: how the records came to be.
        part_bytes: bytes from which on a part is full.
        take_part: takes a finished part and its header: commits it, or reads it; or returns that
            it cannot have a part of this name. Without it, all records are in one file.
        is_shown: tell how it is getting on.
        label: what is said to be written; the path without.
        first: what errors call the first record.
        began: when the data set began to be built, on the clock of ``time.monotonic``: the file
            then tells how long that took.
    """

    def __init__(
        self,
        path: pathlib.Path,
        spec: specs.Structure,
        metadata: Mapping[str, Any] | None = None,
        total: int | None = None,
        *,
        provenance: Provenance = UNKNOWN,
        part_bytes: int | None = None,
        take_part: Callable[[PartialFile, Header], object] | None = None,
        is_shown: bool = True,
        label: str | None = None,
        first: int = 0,
        began: float | None = None,
    ) -> None:
        self._path = path
        self._first = first
        self._began = began
        self._metadata = metadata_json(metadata, provenance)
        self._spec_json = encoded_spec(spec)
        self._codec = RecordCodec(spec)
        self._codec.layout.check_size()
        self._is_fixed = self._codec.layout.content_size is not None
        self._take_part = take_part
        self._part_bytes, self._part_records = sys.maxsize, MOST_RECORDS
        size = self._codec.layout.content_size
        if part_bytes is not None and take_part is not None:
            if size is None:
                self._part_bytes = BODY_OFFSET + part_bytes
            else:
                # Parts of as many records each are read a little faster.
                self._part_records = min(max(1, part_bytes // record_bytes(size)), MOST_RECORDS)
        self._parts = PartList()
        value_size = self._codec.layout.value_size
        if total is not None and value_size is not None:
            check_room(path, min(total, self._part_records) * value_size)
        self._writer = FileWriter(path, self._codec)
        self._written = 0
        self._table: PartialFile | None = None
        self._progress = Progress(f"Writing {label or shown(path)}", total, is_shown)
        self._waiting = WaitingRecords(self._codec)
        self._flush_at = time.monotonic() + _FLUSH_SECONDS

    # Appending

    def append(self, record: Any) -> None:
        """Appends one record, a nest as of the spec.

        Raises:
            SpecMismatchError, UnsupportedTypeError: the record does not fit the spec.
            StorageFullError: the disk is full, or nearly so.
        """
        if self.append_plain(record):
            return
        waiting = self._waiting
        try:
            waiting.add(self._codec.components(record))
        except (InvalidArgumentError, SpecMismatchError, UnsupportedTypeError) as error:
            raise type(error)(f"record {self._place}: {error}") from error
        self._flush_if_due()

    def append_plain(self, record: Any) -> bool:
        """Appends one record, if it is of arrays, numbers and strings that fit the spec as they
        are.

        Returns:
            Whether it was. If not, ``append`` may take it, as it is or when it is converted.

        Raises:
            InvalidArgumentError: it is above the format's limit.
            StorageFullError: the disk is full, or nearly so.
        """
        try:
            if not self._waiting.add_plain(record):
                return False
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"record {self._place}: {error}") from error
        self._flush_if_due()
        return True

    def _flush_if_due(self) -> None:
        if self._waiting.is_full or time.monotonic() > self._flush_at:
            self._flush_waiting()

    def _flush_waiting(self) -> None:
        count = self._waiting.count
        if count:
            if self._is_fixed:
                self._append_columns(self._waiting.take_columns(), count)
            else:
                self._append_contents(self._waiting.take_contents())
            self._flush_at = time.monotonic() + _FLUSH_SECONDS

    def _append_contents(self, contents: Contents) -> None:
        start = 0
        while start < len(contents):
            writer = self._writer
            if writer.count >= self._part_records or writer.file.size >= self._part_bytes:
                writer = self._begin_part()
            stop = start + min(self._part_records - writer.count, _RUN)
            taken = writer.add_contents(contents[start:stop], self._part_bytes)
            self._progress.update(taken, self.size)
            start += taken

    def append_columns(self, columns: Sequence[Any], count: int) -> None:
        """Appends ``count`` records, given as one column per component, of a spec whose components
        are in one array each; see ``format.rows.are_simple``.

        Args:
            columns: in the order of :func:`yogadl.format.layout.components_of`: arrays of shape
                ``[count, *component shape]``; of a component that varies a sequence of arrays or of
                strings, or these in a buffer, as ``Packed``.
            count: number of records.

        Raises:
            SpecMismatchError, UnsupportedTypeError: a column does not fit the spec. If it is one
                that varies, nothing was appended.
            StorageFullError: the disk is full, or nearly so.
        """
        self._flush_waiting()
        for column in columns:
            if len(column) != count:
                raise SpecMismatchError(f"a column of {len(column)} records stands beside {count}")
        if self._is_fixed:
            self._append_columns(columns, count)
            return
        self._append_contents(rows_of(self._codec, columns, count))

    def _append_columns(self, columns: Sequence[Any], count: int) -> None:
        content_size = self._codec.layout.content_size
        assert content_size is not None
        step = max(1, _BLOCK_BYTES // content_size)
        start = 0
        while start < count:
            if self._writer.count >= self._part_records:
                self._begin_part()
            stop = min(start + step, start + self._part_records - self._writer.count, count)
            self._writer.add_columns([column[start:stop] for column in columns], stop - start)
            self._progress.update(stop - start, self.size)
            start = stop

    # Parts

    @property
    def size(self) -> int:
        """Bytes that were written so far."""
        return self._written + self._writer.file.size

    @property
    def _count(self) -> int:
        """Records that were written."""
        return self._parts.record_count + self._writer.count

    @property
    def _place(self) -> int:
        """What errors call the next record."""
        return self._first + self._count + self._waiting.count

    def _begin_part(self) -> FileWriter:
        """Ends the part that is being written, which is full, and begins another."""
        if self._take_part is None:
            raise InvalidArgumentError(
                f"a file holds {MOST_RECORDS:,} records at most, and this would have more"
            )
        self._finish_part(self._take_part)
        self._writer = FileWriter(self._path, self._codec)
        return self._writer

    def _finish_part(self, take: Callable[[PartialFile, Header], object]) -> None:
        writer = self._writer
        # The same records are to be the same part, whenever they are written.
        header = writer.finish(self._spec_json, b"{}", 0)
        while take(writer.file, header):
            # By its time, it is another part, and has another name.
            header = writer.stamp(header, time.time_ns())
        self._parts.add(header, writer.checksums)
        self._written += writer.file.size
        writer.file.close()
        writer.count = 0

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
        now = time.time_ns()
        metadata = self._metadata
        if self._began is not None:
            metadata = with_duration(metadata, time.monotonic() - self._began)
        if self._parts and self._take_part is not None:
            if self._writer.count:
                self._finish_part(self._take_part)
            self._table = self._parts.write(self._path, self._spec_json, metadata, now)
        else:
            self._writer.finish(self._spec_json, metadata, now)
        self._progress.close(done=True)
        return self._table or self._writer.file

    def finish_parts(self) -> PartList:
        """Hands over the last part, too, for a table that somebody else writes.

        Nothing can be appended any more.

        Raises:
            StorageFullError: the disk is full, or nearly so.
        """
        assert self._take_part is not None
        self._flush_waiting()
        if self._writer.count:
            self._finish_part(self._take_part)
        self._progress.close(done=True)
        return self._parts

    def close(self) -> None:
        """Leaves what is not committed. May be called twice."""
        self._progress.close(done=False)
        self._writer.file.close()
        if self._table is not None:
            self._table.close()
