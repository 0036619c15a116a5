"""Reading the records of a version that lies in many parts as those of one file."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.address_space import AddressSpace
from yogadl.cache.content_id import TokenSums
from yogadl.cache.file_reader import CacheInfo, FileReader
from yogadl.cache.files import shown
from yogadl.cache.mapped_reader import MappedReader
from yogadl.cache.mapping import Access, Descriptor, MappedFile
from yogadl.cache.parts import PartFiles, header_of
from yogadl.cache.reader import CacheFile
from yogadl.cache.sections import load_codec, load_metadata, section
from yogadl.cache.whole_file import check_digest, pieces
from yogadl.errors import ChecksumError
from yogadl.format import index as indexes
from yogadl.format import table as tables
from yogadl.format.entries import salt_of

Array = np.ndarray[Any, Any]


class PartsReader(MappedReader, FileReader):
    """The parts that a table names, mapped one behind the other, each when it is first needed.

    Args:
        path: of the table.
        file: the table.
        lock: of the table, see ``cache.held``: kept for as long as parts may be mapped.
        check_records: compare every record with its checksum whenever it is looked up.
        access: what to tell the system of reads that are not announced.

    Raises:
        CacheFormatError: the table is damaged, or a part is missing; see its subclasses.
    """

    def __init__(
        self,
        path: pathlib.Path,
        file: MappedFile,
        lock: Descriptor,
        check_records: bool,
        access: Access,
    ) -> None:
        self.path = path
        self._table = file
        name, buffer = shown(path), file.array
        self.header = header = header_of(file, name)
        codec = load_codec(buffer, header.spec, header.value_size, name)
        metadata, provenance = load_metadata(buffer, header.metadata, name)
        self._parts = parts = PartFiles(path, header, buffer, access, lock)
        entries = parts.entries
        if header.index_checksums.length != 8 * tables.block_total(entries):
            raise ChecksumError(f"{name} has checksums of the wrong size; rebuild it")
        checksums = section(buffer, header.index_checksums, "index", name).view("<u8")
        parts.check_sizes()
        sizes = entries["size"].astype("i8")
        self.info = CacheInfo.of_header(header, metadata, provenance, int(sizes.sum()))
        space = AddressSpace(sizes, parts.map_into)
        index = indexes.Index(
            space.array,
            indexes.IndexedFiles(
                entries["count"].astype("i8"),
                space.bases,
                sizes,
                entries["entries"].astype("i8"),
                salt_of(entries["token_sums"][:, 0]),
            ),
            checksums,
            layout=codec.layout,
            alignment=header.alignment,
            where=lambda position: (name, position),
            touch=space.touch,
        )
        sums = TokenSums(header.record_count, header.token_sums)
        super().__init__(space, codec, index, header.alignment, name, sums, check_records)

    def parts_by_digest(self) -> dict[bytes, pathlib.Path]:
        return {digest: self._parts.path(at) for digest, at in self._parts.by_digest().items()}

    def verify(self) -> None:
        check_digest(self._table, self.header, self._name)
        for number in self._parts.by_digest().values():
            with CacheFile(self._parts.path(number), self._parts.map(number)) as part:
                part.verify()

    def pieces(self) -> Iterator[Array]:
        return pieces(self._table)
