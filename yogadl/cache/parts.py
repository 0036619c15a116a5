"""The files of the parts that a table names."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.files import shown, telling
from yogadl.cache.mapping import Access, Descriptor, MappedFile, ReservedRange, open_file
from yogadl.cache.noted import is_noted
from yogadl.cache.whole_file import check_digest
from yogadl.errors import ChecksumError, FileSystemError, ForeignFileError, TruncatedCacheError
from yogadl.format import header as headers
from yogadl.format import table as tables

Array = np.ndarray[Any, Any]

PARTS_FOLDER = "yogadl.parts"
"""Of an id: beside the folders of its versions."""

OBJECTS_FOLDER = "yogadl.objects"
"""Files of versions that are named by their contents; their parts are in a folder beside it."""

_DIGEST_BYTES = 16
# By which the system counts what a file has on the disk.
_BLOCK_BYTES = 512


def is_kept(path: pathlib.Path) -> bool:
    """Whether a file is one of those that are named by their contents."""
    return path.parent.name == OBJECTS_FOLDER


def followed(path: pathlib.Path) -> pathlib.Path:
    """The file named by its contents that a link leads to; of anything else, the path itself."""
    try:
        is_link = is_kept(pathlib.Path(os.readlink(path)))
    except OSError:
        return path
    return pathlib.Path(os.path.realpath(path)) if is_link else path


def part_path(table: pathlib.Path, digest: bytes) -> pathlib.Path:
    """Where the part of a digest lies that a table at some path refers to."""
    return _folder(table) / f"{digest.hex()}.mdb"


def _folder(table: pathlib.Path) -> pathlib.Path:
    return table.parent.parent / PARTS_FOLDER


class PartFiles:
    """The parts of a table, of all column groups. Safe for threads and forks.

    Args:
        table: the path of the table.
        header: its header.
        buffer: its bytes, uint8.
        access: what to tell the system of reads of the parts that are not announced.
        lock: a descriptor to keep open for as long as parts may be mapped.

    Attributes:
        table: what it says, checked.
        entries: of it, ``PART`` ``[n]``.

    Raises:
        ChecksumError: there can be no such parts.
    """

    def __init__(
        self,
        table: pathlib.Path,
        header: headers.Header,
        buffer: Array,
        access: Access,
        lock: Descriptor | None = None,
    ) -> None:
        self._path = table
        self._access = access
        self._lock = lock
        place = header.index
        section = buffer[place.offset : place.offset + place.length]
        self.table = tables.load(section, header, shown(table))
        self.entries = self.table.parts
        self._digests = self.entries["digest"].tobytes()

    def __len__(self) -> int:
        return len(self.entries)

    def digest(self, number: int) -> bytes:
        """The digest of a part."""
        return self._digests[number * _DIGEST_BYTES : (number + 1) * _DIGEST_BYTES]

    def by_digest(self) -> dict[bytes, int]:
        """The numbers of the parts, of those that come more than once the last."""
        return {self.digest(number): number for number in range(len(self))}

    def path(self, number: int) -> pathlib.Path:
        """The file of a part."""
        return part_path(self._path, self.digest(number))

    def check_sizes(self) -> None:
        """Sees that all parts are there, and as long as they should be.

        Raises:
            ChecksumError, TruncatedCacheError: one is not.
            FileSystemError: that cannot be said.
        """
        # Of ten thousand parts, a path object each would take most of the time.
        folder, digests = os.fspath(_folder(self._path)), self._digests.hex()
        width = 2 * _DIGEST_BYTES
        for number, size in enumerate(self.entries["size"].tolist()):
            name = digests[number * width : (number + 1) * width]
            try:
                found = os.stat(f"{folder}/{name}.mdb").st_size
            except OSError:
                with self._telling_missing(self.path(number)):
                    raise
            if found != size:
                self._check_size(number, found)

    def _check_size(self, number: int, found: int) -> None:
        size = int(self.entries["size"][number])
        if found != size:
            raise TruncatedCacheError(
                f"{shown(self.path(number))} has {found} bytes and should have {size}; it was "
                "cut off or added to. Rebuild the data set"
            )

    def map_into(self, number: int, place: ReservedRange, offset: int) -> MappedFile:
        """Maps a part after seeing that it is the one that the table names.

        Raises:
            CacheFormatError: it is not, or not there.
            FileSystemError: it cannot be opened.
        """
        path = self.path(number)
        descriptor = self._open(path)
        with telling("map", path):
            size = os.fstat(descriptor.number).st_size
        self._check_size(number, size)
        with telling("map", path):
            file = MappedFile(descriptor, path, (place, offset, size))
        file.expect(self._access)
        self._check(number, file, descriptor)
        return file

    def map(self, number: int) -> MappedFile:
        """The same, by itself."""
        path = self.path(number)
        descriptor = self._open(path)
        with telling("map", path):
            file = MappedFile(descriptor, path)
        self._check(number, file, descriptor)
        return file

    def _check(self, number: int, file: MappedFile, descriptor: Descriptor) -> None:
        """Sees that a file is what the table says of a part.

        One that may be removed to make room may have been since all were compared with their
        digests; then another process may be just fetching it, and the file lack any bytes.

        Raises:
            CacheFormatError: it is not.
        """
        self.check_header(number, file)
        path = self.path(number)
        if is_kept(self._path) and not is_noted(path, descriptor):
            name = shown(path)
            check_digest(file, header_of(file, name), name)

    def check_header(self, number: int, file: MappedFile) -> None:
        """Sees that a file is what the table says of a part, by its header.

        Raises:
            CacheFormatError: it is not.
        """
        name = shown(self.path(number))
        part = self.entries[number : number + 1]
        spec_checksum = self.table.group_of(number).spec_checksum
        if not tables.is_part(header_of(file, name), part, spec_checksum):
            raise ChecksumError(
                f"{name} is not the part that {shown(self._path)} names; rebuild the data set"
            )

    def _open(self, path: pathlib.Path) -> Descriptor:
        with self._telling_missing(path):
            return open_file(path)

    @contextlib.contextmanager
    def _telling_missing(self, path: pathlib.Path) -> Iterator[None]:
        """Makes an error of a part that is not there, and others of the file system's."""
        try:
            with telling("look for", path):
                yield
        except FileSystemError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise ChecksumError(
                f"{shown(path)}, a part of {shown(self._path)}, is not there; rebuild the data set"
            ) from error


def header_of(file: MappedFile, name: str) -> headers.Header:
    """The header of a file of format 1.

    Raises:
        CacheFormatError: it has none, or a damaged one.
    """
    page = file.array[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
    return headers.unpack(page, len(file.array), name)


def read_header(path: pathlib.Path) -> tuple[headers.Header, MappedFile]:
    """The header of a file of format 1, and the file, mapped.

    Raises:
        CacheFormatError: it is none.
        FileSystemError: it cannot be opened.
    """
    with telling("open", path):
        file = MappedFile(open_file(path), path)
    return header_of(file, shown(path)), file


def check_file(path: pathlib.Path, digest: bytes) -> None:
    """Sees that a whole file of format 1 has a digest.

    Raises:
        CacheFormatError: it has not.
        FileSystemError: it cannot be opened.
    """
    header, file = read_header(path)
    if header.digest != digest:
        raise ChecksumError(f"{shown(path)} is another file than it should be; copy it again")
    check_digest(file, header, shown(path))


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
    place = header.index
    return _named(file.array[place.offset : place.offset + place.length], header, shown(path))


def parts_of_sparse(path: pathlib.Path) -> dict[bytes, int]:
    """The same of a file that may lack any bytes.

    It is not mapped: of a full disk in memory, a process dies that touches a hole of a map.

    Raises:
        CacheFormatError: it is damaged, or lacks what names them.
        FileSystemError: it cannot be opened, or read.
    """
    name = shown(path)
    with telling("read", path):
        file = open_file(path)
        status = os.fstat(file.number)
        page = os.pread(
            file.number, headers.BODY_OFFSET - headers.HEADER_OFFSET, headers.HEADER_OFFSET
        )
        header = headers.unpack(page, status.st_size, name)
        if not header.part_count:
            return {}
        place = header.index
        if place.length > _BLOCK_BYTES * status.st_blocks:
            raise TruncatedCacheError(f"{name} lacks its list of parts")
        section = os.pread(file.number, place.length, place.offset)
    return _named(np.frombuffer(section, "u1"), header, name)


def _named(section: Array, header: headers.Header, name: str) -> dict[bytes, int]:
    """The parts that a table's index names."""
    parts = tables.load_parts(section, header, name)
    digests = (digest.tobytes() for digest in parts["digest"])
    return dict(zip(digests, parts["size"].tolist(), strict=True))
