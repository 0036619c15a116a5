"""Reading the records of a version that lies in many parts as those of one file."""

from __future__ import annotations

import datetime
import errno
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.address_space import AddressSpace
from yogadl.cache.content_id import TokenSums
from yogadl.cache.file_reader import CacheInfo
from yogadl.cache.files import shown, telling
from yogadl.cache.mapped_reader import MappedReader
from yogadl.cache.mapping import Access, Descriptor, Extents, MappedFile, ReservedRange
from yogadl.cache.reader import CacheFile
from yogadl.cache.sections import load_codec, load_metadata, section
from yogadl.cache.whole_file import check_digest, pieces
from yogadl.errors import (
    ChecksumError,
    FileSystemError,
    ForeignFileError,
    TruncatedCacheError,
)
from yogadl.format import header as headers
from yogadl.format import index as indexes
from yogadl.format import table as tables

Array = np.ndarray[Any, Any]

PARTS_FOLDER = "yogadl.parts"
"""Of an id: beside the folders of its versions."""


def part_path(table: pathlib.Path, digest: bytes) -> pathlib.Path:
    """Where the part of a digest lies that a table at some path refers to."""
    return table.parent.parent / PARTS_FOLDER / f"{digest.hex()}.mdb"


class PartsReader(MappedReader):
    """The parts that a table names, mapped one behind the other, each when it is first needed.

    Args:
        path: of the table.
        file: the table.
        check_records: compare every record with its checksum whenever it is looked up.
        access: what to tell the system of reads that are not announced.

    Raises:
        CacheFormatError: the table is damaged, or a part is missing; see its subclasses.
    """

    def __init__(
        self, path: pathlib.Path, file: MappedFile, check_records: bool, access: Access
    ) -> None:
        self.path = path
        self._table = file
        self._access = access
        name, buffer = shown(path), file.array
        page = buffer[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
        self.header = header = headers.unpack(page, len(buffer), name)
        codec = load_codec(buffer, header.spec, header.value_size, name)
        metadata, provenance = load_metadata(buffer, header.metadata, name)
        self.parts = _load_parts(buffer, header, name)
        if header.index_checksums.length != 8 * tables.block_total(self.parts):
            raise ChecksumError(f"{name} has checksums of the wrong size; rebuild it")
        checksums = section(buffer, header.index_checksums, "index", name).view("<u8")
        self._digests = [part.tobytes() for part in self.parts["digest"]]
        self._check_files()
        sizes = self.parts["size"].astype("i8")
        self.info = CacheInfo(
            record_count=header.record_count,
            format_version=headers.FORMAT_VERSION,
            library_version=header.library_version,
            created=datetime.datetime.fromtimestamp(header.created_ns / 1e9, datetime.timezone.utc),
            metadata=metadata,
            file_size=header.file_size + int(sizes.sum()),
            digest=header.digest.hex(),
            provenance=provenance,
        )
        self._space = space = AddressSpace(sizes, self._map_part)
        index = indexes.Index(
            space.array,
            indexes.Places(
                self.parts["count"].astype("i8"),
                space.bases,
                sizes,
                self.parts["entries"].astype("i8"),
            ),
            checksums,
            layout=codec.layout,
            alignment=header.alignment,
            name=name,
            touch=space.touch,
        )
        sums = TokenSums(header.record_count, header.token_sums)
        super().__init__(space, codec, index, header.alignment, name, sums, check_records)

    def parts_by_digest(self) -> dict[bytes, pathlib.Path]:
        return {digest: part_path(self.path, digest) for digest in self._digests}

    def _check_files(self) -> None:
        """Sees that all parts are there, and as long as they should be."""
        sizes = dict(zip(self._digests, self.parts["size"].tolist(), strict=True))
        for digest, path in self.parts_by_digest().items():
            try:
                with telling("look for", path):
                    found = os.stat(path).st_size
            except FileSystemError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                raise self._missing(path) from error
            size = sizes[digest]
            if found != size:
                raise TruncatedCacheError(
                    f"{shown(path)} has {found} bytes and should have {size}; it was cut off or "
                    "added to. Rebuild the data set"
                )

    def _missing(self, path: pathlib.Path) -> ChecksumError:
        return ChecksumError(
            f"{shown(path)}, a part of {shown(self.path)}, is not there; rebuild the data set"
        )

    def _map_part(self, number: int, place: ReservedRange, offset: int) -> MappedFile:
        """Maps a part after seeing that it is the one that the table names."""
        path = part_path(self.path, self._digests[number])
        part = self.parts[number]
        with telling("map", path):
            file = MappedFile(self._open(path), path, (place, offset, int(part["size"])))
        file.expect(self._access)
        self._check_part(file, path, part)
        return file

    def _open(self, path: pathlib.Path) -> Descriptor:
        try:
            with telling("open", path):
                return Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileSystemError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise self._missing(path) from error

    def _check_part(self, file: MappedFile, path: pathlib.Path, part: Any) -> None:
        """Sees that a file is what the table says of a part, by its header."""
        page = file.array[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
        header = headers.unpack(page, len(file.array), shown(path))
        if tables.part_of(header) != part or header.spec.checksum != self.header.spec.checksum:
            raise ChecksumError(
                f"{shown(path)} is not the part that {shown(self.path)} names; rebuild the data set"
            )

    def extents(self, positions: Array | range) -> list[Extents]:
        if isinstance(positions, range) and len(positions):
            # What is not mapped cannot be announced.
            edges = np.array([positions[0], positions[-1]])
            first, last = self._index.files_of(edges).tolist()
            for number in range(first, last + 1):
                self._space.file(number)
        return super().extents(positions)

    def verify(self) -> None:
        check_digest(self._table, self.header, self._name)
        parts = dict(zip(self._digests, self.parts, strict=True))
        for digest, path in self.parts_by_digest().items():
            with telling("map", path):
                file = MappedFile(self._open(path), path)
            self._check_part(file, path, parts[digest])
            with CacheFile(path, file) as reader:
                reader.verify()

    def pieces(self) -> Iterator[Array]:
        return pieces(self._table)


def read_header(path: pathlib.Path) -> tuple[headers.Header, MappedFile]:
    """The header of a file of format 1, and the file, mapped.

    Raises:
        CacheFormatError: it is none.
        FileSystemError: it cannot be opened.
    """
    with telling("open", path):
        descriptor = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        file = MappedFile(descriptor, path)
    page = file.array[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
    return headers.unpack(page, len(file.array), shown(path)), file


def parts_of(path: pathlib.Path) -> dict[bytes, int]:
    """The digests of the parts that a file names, if it is a table, and their bytes.

    Raises:
        CacheFormatError: it is damaged.
        FileSystemError: it cannot be opened.
    """
    try:
        header, file = read_header(path)
    except ForeignFileError:
        # Of yogadl 0.1.4, or none of yogadl's, which is for who opens it to say.
        return {}
    if not header.part_count:
        return {}
    parts = _load_parts(file.array, header, shown(path))
    digests = [digest.tobytes() for digest in parts["digest"]]
    return dict(zip(digests, parts["size"].tolist(), strict=True))


def _load_parts(buffer: Array, header: headers.Header, name: str) -> Array:
    """The entries of a table, checked.

    Raises:
        ChecksumError: there can be no such parts.
    """
    place = header.index
    if place.length != header.part_count * tables.PART.itemsize:
        raise ChecksumError(f"{name} has a list of parts of the wrong size; rebuild it")
    parts = buffer[place.offset : place.offset + place.length].view(tables.PART)
    tables.check_parts(parts, header, name)
    return parts
