"""Reading records of format version 1 out of files that are mapped into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl.cache.columns import Column, ColumnReader
from yogadl.cache.content_id import TokenSums, entry_tokens
from yogadl.cache.gather import gather
from yogadl.cache.mapping import Extents, MappedExtents, Memory
from yogadl.cache.record_reader import MappedRecords, RecordReader
from yogadl.errors import REPAIR, ChecksumError, ClosedError
from yogadl.format.codec import RecordCodec
from yogadl.format.index import Index
from yogadl.format.layout import INLINE_LIMIT, LEAD
from yogadl.format.pages import PAGE_SIZE

Array = np.ndarray[Any, Any]

# Values of up to so many bytes that lie all over several files are fetched from memory one by one,
# which reads faster from end to end. Those of all records, if they are this few, are put side by
# side.
_LARGEST_VALUE = 4096
_MOST_VALUES_BYTES = 32 << 20
_STEP = 1 << 16


class MappedReader(RecordReader):
    """Records in mapped memory, found by an index.

    With ``check_records``, every record is compared with its checksum whenever it is looked up.

    Args:
        memory: what is mapped.
        codec: of the records.
        alignment: of their contents.
        name: what to call it in errors.
        sums: of the records' tokens.
        check_records: see above.
    """

    def __init__(
        self,
        memory: Memory,
        codec: RecordCodec,
        index: Index,
        alignment: int,
        name: str,
        sums: TokenSums,
        check_records: bool,
    ) -> None:
        self.codec = codec
        self.spec = codec.spec
        self._name = name
        self._check_records = check_records
        self._alignment = alignment
        self._column_reader = ColumnReader(codec)
        self._sums = sums
        self._count = len(index)
        # What files have beside records is more where they are small, and is not read with them.
        self._record_bytes = max(codec.layout.content_size or int(index.record_bytes), 1)
        self._open_index: Index | None = index
        self._open_memory: Memory | None = memory
        self._value_size = codec.layout.value_size or 0
        self._can_hold_values = (
            0 < self._value_size <= _LARGEST_VALUE
            and self._value_size * len(index) <= _MOST_VALUES_BYTES
            and not check_records
        )
        # Of all records in the order of positions, uint8.
        self._values: Array | None = None

    @property
    def _memory(self) -> Memory:
        if self._open_memory is None:
            raise self._closed()
        return self._open_memory

    @property
    def _index(self) -> Index:
        if self._open_index is None:
            raise self._closed()
        return self._open_index

    def _closed(self) -> ClosedError:
        return ClosedError(f"the reader of {self._name} is closed; open it again")

    def _where(self, position: int) -> tuple[str, int]:
        """What to call in errors what a record is in, and its position there."""
        return self._name, position

    def __len__(self) -> int:
        return self._count

    @property
    def content_id(self) -> str:
        return self._sums.content_id(self.spec)

    def tokens(self, positions: Array) -> Array:
        return entry_tokens(self._index.lookup(positions), self._index.marks(positions))

    @property
    def buffer(self) -> Array:
        """What is mapped, uint8. Must not be written to."""
        return self._memory.array

    @property
    def record_bytes(self) -> int:
        return self._record_bytes

    def lookup(self, positions: Array) -> Array:
        """Index entries of some records; see :meth:`yogadl.format.index.Index.lookup`.

        Raises:
            ChecksumError: the index is damaged there, or with ``check_records`` a record is.
        """
        entries = self._index.lookup(positions)
        if self._check_records:
            self._check(positions, entries)
        return entries

    def _offsets(self, positions: Array) -> Array:
        """The offsets of :meth:`lookup` alone, int64 ``[n]``."""
        if self._check_records:
            self.lookup(positions)
        return self._index.offsets(positions)

    def extents(self, positions: Array | range) -> list[Extents]:
        if not len(positions):
            return []
        if isinstance(positions, range):
            return [
                self._stretches(
                    min(positions[0], positions[-1]), max(positions[0], positions[-1]) + 1
                )
            ]
        entries = self._index.lookup(positions)
        starts = entries["offset"].astype("<i8")
        return [MappedExtents(self._memory, starts, starts + entries["length"])]

    def _stretches(self, start: int, stop: int) -> Extents:
        """Where the records from a position to before another lie."""
        index = self._index
        edges = np.stack(index.stretches(start, stop))
        # In the order of positions they lie one behind the other, or nearly so.
        entries = index.lookup(edges.reshape(-1)).reshape(edges.shape)
        offsets = entries["offset"].astype("<i8")
        starts, ends = offsets.min(axis=0), (offsets + entries["length"]).max(axis=0)
        if index.runs is None:
            # What is not mapped cannot be announced.
            self._memory.reach(int(starts[0]), int(ends[0]))
        return MappedExtents(self._memory, starts, ends)

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        buffer = self.buffer
        if self.codec.layout.content_size is not None:
            lengths = None
            values = self._values_in_order()
            if values is None:
                offsets = self._offsets(positions)
            else:
                buffer, offsets = values, positions * self._value_size
        else:
            entries = self.lookup(positions)
            offsets, lengths = entries["offset"].astype("i8"), entries["length"].astype("i8")
        try:
            return self._column_reader.read(buffer, offsets, lengths, out, spans)
        except ChecksumError as error:
            names = sorted({self._where(position)[0] for position in positions.tolist()})
            raise ChecksumError(f"{', '.join(names)}: {error}; {REPAIR}") from error

    def _values_in_order(self) -> Array | None:
        """The values of all records, uint8, where that is worth its memory."""
        if self._values is None and self._can_hold_values:
            offsets, size = self._index.ordered_offsets, self._value_size
            if offsets is not None:
                # Two threads may make it: it is the same.
                values = np.empty((len(offsets), size), "u1")
                for start in range(0, len(offsets), _STEP):
                    stop = start + _STEP
                    values[start:stop] = gather(self.buffer, offsets[start:stop], size)
                self._values = values.reshape(-1)
        return self._values

    def _record(self, position: int) -> Any:
        content = self.read_content(position)
        try:
            return self.codec.decode(content)
        except ChecksumError as error:
            name, position = self._where(position)
            raise ChecksumError(f"{name}, record {position}: {error}; {REPAIR}") from error

    def _mapped_records(self) -> MappedRecords | None:
        if self.codec.layout.content_size is None:
            return None
        return MappedRecords(
            self.buffer,
            self.codec.layout,
            self._value_size,
            self._alignment,
            self._offsets,
        )

    def read_value(self, position: int) -> memoryview:
        """The LMDB value of a record, without a copy."""
        offset, length, _ = self.lookup(np.array([position])).tolist()[0]
        if length > PAGE_SIZE:
            # Else its pages are fetched one by one.
            self._memory.will_need(np.array([offset]), np.array([offset + length]))
        return memoryview(self.buffer)[offset : offset + length]

    def read_content(self, position: int) -> memoryview:
        value = self.read_value(position)
        return value[LEAD:] if len(value) > INLINE_LIMIT else value

    def _check(self, positions: Array, entries: Array) -> None:
        """Compares some records with their checksums."""
        view = memoryview(self.buffer)
        checksums = entries["checksum"] ^ self._index.marks(positions)
        for position, (offset, length, _), checksum in zip(
            positions.tolist(), entries.tolist(), checksums.tolist(), strict=True
        ):
            content = view[offset : offset + length]
            if length > INLINE_LIMIT:
                content = content[LEAD:]
            if xxhash.xxh3_64_intdigest(content) & 0xFFFFFFFF != checksum:
                name, at = self._where(position)
                raise ChecksumError(f"{name}: record {at} is not what was written; {REPAIR}")

    def close(self) -> None:
        self._open_memory = None
        self._open_index = None
        self._values = None
        RecordReader.closings += 1

    def check_open(self) -> None:
        if self._open_memory is None:
            raise self._closed()
