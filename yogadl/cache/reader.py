"""Reading the records of a cache file by position."""

from __future__ import annotations

import copy
import datetime
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.cache.columns import Column, ColumnReader
from yogadl.cache.content_id import content_id_of, record_tokens
from yogadl.cache.file_reader import PIECE_BYTES, CacheInfo, FileReader
from yogadl.cache.files import shown
from yogadl.cache.mapping import Extents, MappedFile
from yogadl.cache.record_reader import MappedRecords
from yogadl.errors import (
    REPAIR,
    ChecksumError,
    ClosedError,
    InvalidArgumentError,
    YogadlError,
)
from yogadl.format import header as headers
from yogadl.format import index as indexes
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
from yogadl.format.layout import INLINE_LIMIT, LEAD
from yogadl.format.pages import PAGE_SIZE
from yogadl.format.provenance import METADATA_KEY, Provenance

Array = np.ndarray[Any, Any]


class CacheFile(FileReader):
    """A cache file of format version 1, mapped into memory.

    With ``check_records``, every record is compared with its checksum whenever it is looked up.
    """

    def __init__(self, path: pathlib.Path, file: MappedFile, check_records: bool = False) -> None:
        self.path = path
        self._name = shown(path)
        self._check_records = check_records
        buffer = file.array
        page = buffer[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
        self.header = header = headers.unpack(page, len(buffer), self._name)
        self.spec = self._load_spec(buffer)
        metadata = self._load_json(buffer, header.metadata, "metadata")
        provenance = Provenance.from_json(metadata.pop(METADATA_KEY, None))
        self.info = CacheInfo(
            record_count=header.record_count,
            format_version=headers.FORMAT_VERSION,
            library_version=header.library_version,
            created=datetime.datetime.fromtimestamp(header.created_ns / 1e9, datetime.timezone.utc),
            metadata=metadata,
            file_size=header.file_size,
            digest=header.digest.hex(),
            provenance=provenance,
        )
        self.codec = self._make_codec()
        self._column_reader = ColumnReader(self.codec)
        self._known_content_id = ""
        self._index: indexes.Index | None = self._load_index(file)
        self._file: MappedFile | None = file

    def _section(self, buffer: Array, place: headers.Section, what: str) -> Array:
        """The bytes of a section where they lie, uint8."""
        data = buffer[place.offset : place.offset + place.length]
        if xxhash.xxh3_64_intdigest(data) != place.checksum:
            raise ChecksumError(f"{self._name} has a damaged {what}; rebuild it")
        return data

    def _load_json(self, buffer: Array, place: headers.Section, what: str) -> dict[str, Any]:
        try:
            value = json.loads(self._section(buffer, place, what).tobytes())
        except (ValueError, RecursionError) as error:
            raise ChecksumError(f"{self._name}: its {what} is no JSON; rebuild it") from error
        if not isinstance(value, dict):
            raise ChecksumError(f"{self._name}: its {what} is no JSON object; rebuild it")
        return value

    def _load_spec(self, buffer: Array) -> specs.Structure:
        node = self._load_json(buffer, self.header.spec, "element spec")
        try:
            return spec_json.from_json(node)
        except YogadlError as error:
            raise ChecksumError(f"{self._name}: {error}; rebuild it") from error

    def _make_codec(self) -> RecordCodec:
        """What all that reads records goes by, checked for all of it."""
        codec = RecordCodec(self.spec)
        try:
            codec.layout.check_size()
        except InvalidArgumentError as error:
            raise ChecksumError(f"{self._name}: {error}; rebuild it") from error
        if (codec.layout.value_size or 0) != self.header.value_size:
            raise ChecksumError(
                f"{self._name} has a header that contradicts its element spec; rebuild it"
            )
        return codec

    def _load_index(self, file: MappedFile) -> indexes.Index:
        header, buffer = self.header, file.array
        count, item = header.record_count, indexes.ENTRY.itemsize
        if (
            header.index_checksums.length != -(-count // indexes.BLOCK) * 8
            or count * item > header.index.length
        ):
            raise ChecksumError(f"{self._name} has an index of the wrong size; rebuild it")
        sums = self._section(buffer, header.index_checksums, "index").view("<u8")
        start = header.index.offset
        return indexes.Index(
            buffer[start : start + count * item].view(indexes.ENTRY),
            sums,
            limit=header.file_size,
            layout=self.codec.layout,
            alignment=header.alignment,
            name=self._name,
            announce=lambda first, end: file.will_need(
                np.array([start + first * item]), np.array([start + end * item])
            ),
        )

    @property
    def content_id(self) -> str:
        if not self._known_content_id:
            self._known_content_id = content_id_of(self.spec, len(self), self.tokens)
        return self._known_content_id

    def tokens(self, positions: Array) -> Array:
        entries = self._entries(positions)
        lengths = entries["length"]
        leads = np.where(lengths > INLINE_LIMIT, np.uint32(LEAD), np.uint32(0))
        return record_tokens(lengths - leads, entries["checksum"])

    @property
    def buffer(self) -> Array:
        """The whole file, uint8. Must not be written to."""
        return self._open_file.array

    @property
    def _open_file(self) -> MappedFile:
        if self._file is None:
            raise ClosedError(f"the reader of {self._name} is closed; open it again")
        return self._file

    @property
    def record_bytes(self) -> int:
        return max(self.header.file_size // max(self.header.record_count, 1), 1)

    def lookup(self, positions: Array) -> Array:
        """Index entries of some records; see :meth:`yogadl.format.index.Index.lookup`.

        Raises:
            ChecksumError: the index is damaged there, or with ``check_records`` a record is.
        """
        entries = self._entries(positions)
        if self._check_records:
            self._check(positions, entries)
        return entries

    def _entries(self, positions: Array) -> Array:
        if self._index is None:
            raise ClosedError(f"the reader of {self._name} is closed; open it again")
        return self._index.lookup(positions)

    def extents(self, positions: Array | range) -> list[Extents]:
        if not len(positions):
            return []
        if isinstance(positions, range):
            # In the order of positions they lie one behind the other, or nearly so.
            edges = self._entries(np.array([positions[0], positions[-1]]))
            starts = edges["offset"].astype("<i8")
            first, end = starts.min(keepdims=True), (starts + edges["length"]).max(keepdims=True)
            return [Extents(self._open_file, first, end)]
        entries = self._entries(positions)
        starts = entries["offset"].astype("<i8")
        return [Extents(self._open_file, starts, starts + entries["length"])]

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        entries = self.lookup(positions)
        try:
            return self._column_reader.read(self.buffer, entries, out, spans)
        except ChecksumError as error:
            raise ChecksumError(f"{self._name}: {error}; {REPAIR}") from error

    def _record(self, position: int) -> Any:
        content = self.read_content(position)
        try:
            return self.codec.decode(content)
        except ChecksumError as error:
            raise ChecksumError(f"{self._name}, record {position}: {error}; {REPAIR}") from error

    def _mapped_records(self) -> MappedRecords | None:
        if self.codec.layout.content_size is None:
            return None
        header = self.header
        return MappedRecords(
            self.buffer,
            self.codec.layout,
            header.value_size,
            header.alignment,
            lambda positions: self.lookup(positions)["offset"].astype("i8"),
        )

    def read_value(self, position: int) -> memoryview:
        """The LMDB value of a record, without a copy."""
        offset, length, _ = self.lookup(np.array([position])).tolist()[0]
        if length > PAGE_SIZE:
            # Else its pages are fetched one by one.
            self._open_file.will_need(np.array([offset]), np.array([offset + length]))
        return memoryview(self.buffer)[offset : offset + length]

    def read_content(self, position: int) -> memoryview:
        value = self.read_value(position)
        return value[LEAD:] if len(value) > INLINE_LIMIT else value

    def _check(self, positions: Array, entries: Array) -> None:
        """Compares some records with their checksums."""
        view = memoryview(self.buffer)
        for position, (offset, length, checksum) in zip(
            positions.tolist(), entries.tolist(), strict=True
        ):
            content = view[offset : offset + length]
            if length > INLINE_LIMIT:
                content = content[LEAD:]
            if xxhash.xxh3_64_intdigest(content) & 0xFFFFFFFF != checksum:
                raise ChecksumError(
                    f"{self._name}: record {position} is not what was written; {REPAIR}"
                )

    def verify(self) -> None:
        step = 1 << 16
        checking = copy.copy(self)
        checking._check_records = True
        for start in range(0, len(self), step):
            positions = np.arange(start, min(start + step, len(self)))
            checking.announce(positions)
            checking.lookup(positions)
            self.forget(start, int(positions[-1]) + 1)
        digest = xxhash.xxh3_128()
        for piece in self._pieces_from(headers.BODY_OFFSET):
            digest.update(piece)
        digest.update(self.buffer[: headers.HEADER_OFFSET])
        page = self.buffer[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
        digest.update(headers.clear_digest(page))
        if digest.digest() != self.header.digest:
            raise ChecksumError(
                f"{self._name} is not what was written, though every record is; {REPAIR}"
            )

    def pieces(self) -> Iterator[Array]:
        return self._pieces_from(0)

    def _pieces_from(self, offset: int) -> Iterator[Array]:
        for start in range(offset, len(self.buffer), PIECE_BYTES):
            yield self.buffer[start : start + PIECE_BYTES]
            self._open_file.forget(start, start + PIECE_BYTES)

    def close(self) -> None:
        self._file = None
        self._index = None
