"""Tables of parts that are open: what they say of themselves, and the files of their parts."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.address_space import AddressSpace
from yogadl.cache.content_id import TokenSums, sums_of_tokens
from yogadl.cache.file_reader import CacheInfo
from yogadl.cache.files import shown
from yogadl.cache.mapping import Access, Descriptor, MappedFile
from yogadl.cache.parts import PartFiles, header_of
from yogadl.cache.reader import CacheFile
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.sections import load_codec, load_metadata, section
from yogadl.cache.whole_file import check_digest, pieces
from yogadl.errors import ChecksumError
from yogadl.format import index as indexes
from yogadl.format import table as tables
from yogadl.format.codec import RecordCodec
from yogadl.format.entries import salt_of

Array = np.ndarray[Any, Any]


class OpenTable:
    """A table of parts that is open. Safe for threads and forks.

    Args:
        path: of the table.
        file: the table.
        lock: of the table, see ``cache.held``: kept for as long as parts may be mapped.
        access: what to tell the system of reads that are not announced.

    Attributes:
        header: of the table.
        info: what it says of itself.
        codec: of the records of the version.
        parts: all of them.

    Raises:
        CacheFormatError: the table is damaged, or a part is missing; see its subclasses.
    """

    def __init__(
        self,
        path: pathlib.Path,
        file: MappedFile,
        lock: Descriptor,
        access: Access,
    ) -> None:
        self._file = file
        self._name, buffer = shown(path), file.array
        self.header = header = header_of(file, self._name)
        self.codec = load_codec(buffer, header.spec, header.value_size, self._name)
        metadata, provenance = load_metadata(buffer, header.metadata, self._name)
        self.parts = PartFiles(path, header, buffer, access, lock)
        blocks = tables.block_total(self.parts.entries)
        if header.index_checksums.length != 8 * blocks:
            raise ChecksumError(f"{self._name} has checksums of the wrong size; rebuild it")
        checksums = section(buffer, header.index_checksums, "index", self._name)
        self._checksums = checksums.view("<u8")
        self.parts.check_sizes()
        total = int(self.parts.entries["size"].sum())
        self.info = CacheInfo.of_header(header, metadata, provenance, total)

    @property
    def sums(self) -> TokenSums:
        """Of the tokens of the records."""
        return TokenSums(self.header.record_count, self.header.token_sums)

    def map_group(self, number: int, codec: RecordCodec) -> tuple[AddressSpace, indexes.Index]:
        """The parts of a column group, mapped one behind the other when they are needed, and the
        index of its records.

        Args:
            number: of the group.
            codec: of its records.
        """
        groups = self.parts.table.groups
        group, before = groups[number], groups[:number]
        first = sum(len(other.parts) for other in before)
        first_block = sum(other.block_count for other in before)
        parts, runs = self.parts, group.indexed_runs()
        sizes = group.parts["size"].astype("i8")
        counts = group.parts["count"].astype("i8")
        space = AddressSpace(
            sizes, lambda number, place, offset: parts.map_into(first + number, place, offset)
        )
        starts = np.cumsum(counts) - counts
        name = self._name

        def where(file: int, place: int) -> tuple[str, int]:
            if runs is not None:
                return shown(parts.path(first + file)), place
            return name, int(starts[file]) + place

        index = indexes.Index(
            space.array,
            indexes.IndexedFiles(
                counts,
                space.bases,
                sizes,
                group.parts["entries"].astype("i8"),
                salt_of(group.parts["token_sums"][:, 0]),
            ),
            self._checksums[first_block : first_block + group.block_count],
            layout=codec.layout,
            alignment=group.alignment,
            where=where,
            touch=space.touch,
            runs=runs,
        )
        return space, index

    def parts_by_digest(self) -> dict[bytes, pathlib.Path]:
        """See ``FileReader.parts_by_digest``."""
        return {digest: self.parts.path(at) for digest, at in self.parts.by_digest().items()}

    def verify(self) -> None:
        """See ``FileReader.verify``."""
        check_digest(self._file, self.header, self._name)
        for number in self.parts.by_digest().values():
            with CacheFile(self.parts.path(number), self.parts.map(number)) as part:
                part.verify()

    def check_sums(self, reader: RecordReader) -> None:
        """Sees that the records are those by which the table tells itself from others.

        Args:
            reader: of the records.

        Raises:
            ChecksumError: they are not.
        """
        if sums_of_tokens(len(reader), reader.tokens) != self.sums:
            raise ChecksumError(
                f"{self._name} has token sums that are not those of its records; rebuild it"
            )

    def pieces(self) -> Iterator[Array]:
        """See ``FileReader.pieces``."""
        return pieces(self._file)
