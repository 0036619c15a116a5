"""The header page: what a cache file says of itself, at a fixed place.

It is page 2 of the file (bytes 8192 to 12287), the value of the key ``__yogadl__``. With it a
reader finds everything else by offset, without walking the B+tree.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

import xxhash

from yogadl.errors import (
    CacheFormatError,
    ChecksumError,
    ForeignFileError,
    TruncatedCacheError,
    UnsupportedFormatError,
)
from yogadl.format.pages import PAGE_HEADER, PAGE_SIZE, overflow_header

FORMAT_VERSION = 1
MAGIC = b"\x89YOGADL\n"

HEADER_PAGE = 2
HEADER_OFFSET = HEADER_PAGE * PAGE_SIZE
BODY_OFFSET = HEADER_OFFSET + PAGE_SIZE
"""Where records may begin; the bytes before it are the meta pages and the header."""

PAYLOAD = PAGE_SIZE - PAGE_HEADER

LARGEST_SPEC = 4 << 20
LARGEST_METADATA = 16 << 20
"""Bytes of the JSON documents, which are read as a whole when a file is opened."""

_FIELDS = struct.Struct("<8sIIQQQQQ12Q32sQ2Q16s")
_CHECKSUM = struct.Struct("<Q")
_PARTS_OFFSET = PAGE_HEADER + struct.calcsize("<8sIIQQQQQ12Q32s")
_VERSIONED = struct.Struct("<8sI")
_DIGEST_SIZE = 16


@dataclass(frozen=True)
class Section:
    """Bytes of the file: offset, length, XXH3-64. That of an index is 0, since it has checksums of
    its own, unless it is a table's with runs."""

    offset: int
    length: int
    checksum: int


@dataclass(frozen=True)
class Header:
    """The fields of the header page, in their order on disk. Offsets and sizes are in bytes.

    Attributes:
        record_count: records in the file.
        alignment: every content starts on a multiple of this.
        value_size: length of every record's value, or 0 where lengths differ.
        file_size: size of the whole file.
        created_ns: creation time, nanoseconds since 1970-01-01 UTC.
        spec, metadata: JSON documents.
        index: the table of records; ``index_checksums``: one XXH3-64 per block of it.
        library_version: the yogadl release that wrote the file.
        part_count: parts that the records are in, if this is a table of them, else 0.
        token_sums: of the records' tokens, see ``cache.content_id``.
        digest: XXH3-128 of the file; its digest and checksum fields count as zero, and the
            bytes before ``BODY_OFFSET`` come after the others.
    """

    record_count: int
    alignment: int
    value_size: int
    file_size: int
    created_ns: int
    spec: Section
    metadata: Section
    index: Section
    index_checksums: Section
    library_version: str
    part_count: int
    token_sums: tuple[int, int]
    digest: bytes

    def pack(self, copies: bytes = b"") -> bytes:
        """The whole page.

        Args:
            copies: what to put behind the fields; see :func:`copies_of`.
        """
        sections = (self.spec, self.metadata, self.index, self.index_checksums)
        fields = _FIELDS.pack(
            MAGIC,
            FORMAT_VERSION,
            PAGE_SIZE,
            self.record_count,
            self.alignment,
            self.value_size,
            self.file_size,
            self.created_ns,
            *[number for section in sections for number in astuple(section)],
            self.library_version.encode()[:32],
            self.part_count,
            *self.token_sums,
            self.digest,
        )
        payload = fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields))
        return overflow_header(HEADER_PAGE, PAYLOAD) + (payload + copies).ljust(PAYLOAD, b"\0")


def copies_of(spec: bytes, metadata: bytes) -> bytes:
    """What a header page has of the two sections: both if there is room for them, else nothing.

    Who reads a file from far away has what it needs to know of its records in one request.
    """
    room = PAYLOAD - _FIELDS.size - _CHECKSUM.size
    return spec + metadata if len(spec) + len(metadata) <= room else b""


def copied_sections(page: bytes, header: Header) -> tuple[bytes, bytes] | None:
    """The spec and the metadata, of which a header page has copies; ``None`` if it has none."""
    start = PAGE_HEADER + _FIELDS.size + _CHECKSUM.size
    middle = start + header.spec.length
    found = page[start:middle], page[middle : middle + header.metadata.length]
    for data, section in zip(found, (header.spec, header.metadata), strict=True):
        if xxhash.xxh3_64_intdigest(data) != section.checksum or len(data) != section.length:
            return None
    return found


def clear_digest(page: bytes) -> bytes:
    """A header page as the digest covers it: digest and header checksum are zero."""
    start = PAGE_HEADER + _FIELDS.size - _DIGEST_SIZE
    size = _DIGEST_SIZE + _CHECKSUM.size
    return page[:start] + bytes(size) + page[start + size :]


def is_header(page: bytes) -> bool:
    return page[PAGE_HEADER : PAGE_HEADER + len(MAGIC)] == MAGIC


def is_table(page: bytes) -> bool:
    """Whether a header page says, unchecked, that the file is a table of parts."""
    return any(page[_PARTS_OFFSET : _PARTS_OFFSET + 8])


def is_nearly_header(page: bytes, file_size: int) -> bool:
    """Whether a page that is none would be one but for its magic, which is damaged then."""
    mended = page[:PAGE_HEADER] + MAGIC + page[PAGE_HEADER + len(MAGIC) :]
    try:
        unpack(mended, file_size, "")
    except CacheFormatError:
        return False
    return True


def unpack(page: bytes, file_size: int, name: str) -> Header:
    """The header of a file.

    Args:
        page: the bytes at ``HEADER_OFFSET``, at most one page of them.
        file_size: what the file really has, in bytes.
        name: what to call the file in errors.

    Raises:
        ForeignFileError, UnsupportedFormatError, ChecksumError, TruncatedCacheError
    """
    if not is_header(page):
        raise ForeignFileError(f"{name} is not a yogadl cache: it has no yogadl header")
    if len(page) < PAGE_HEADER + _FIELDS.size + _CHECKSUM.size:
        raise TruncatedCacheError(f"{name} ends inside its header, at byte {file_size}; rebuild it")
    version = _VERSIONED.unpack_from(page, PAGE_HEADER)[1]
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(
            f"{name} has cache format {version}; this yogadl reads {FORMAT_VERSION}. "
            "Upgrade yogadl, or build the cache again with this one"
        )
    end = PAGE_HEADER + _FIELDS.size
    if xxhash.xxh3_64_intdigest(page[PAGE_HEADER:end]) != _CHECKSUM.unpack_from(page, end)[0]:
        raise ChecksumError(f"{name} has a damaged header; rebuild it")
    fields = _FIELDS.unpack_from(page, PAGE_HEADER)
    count, alignment, value_size, size, created = fields[3:8]
    places = fields[8:20]
    spec, metadata, index, sums = [Section(*places[at : at + 3]) for at in range(0, 12, 3)]
    version_name = fields[20].rstrip(b"\0").decode("ascii", "replace")
    header = Header(
        record_count=count,
        alignment=alignment,
        value_size=value_size,
        file_size=size,
        created_ns=created,
        spec=spec,
        metadata=metadata,
        index=index,
        index_checksums=sums,
        library_version=version_name,
        part_count=fields[21],
        token_sums=fields[22:24],
        digest=fields[24],
    )
    if header.file_size != file_size:
        raise TruncatedCacheError(
            f"{name} has {file_size} bytes and should have {header.file_size}; it was cut off or "
            "added to. Rebuild it"
        )
    for section in (header.spec, header.metadata, header.index, header.index_checksums):
        if section.offset < BODY_OFFSET or section.offset + section.length > file_size:
            raise ChecksumError(f"{name} has a header that points outside the file; rebuild it")
    if (
        fields[2] != PAGE_SIZE
        or file_size % PAGE_SIZE
        or header.alignment not in (8, 64)
        or header.spec.length > LARGEST_SPEC
        or header.metadata.length > LARGEST_METADATA
    ):
        raise ChecksumError(f"{name} has a header with impossible values; rebuild it")
    return header
