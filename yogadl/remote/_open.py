"""Opening a version from afar: its first bytes say what it is, mostly in one request."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
import operator
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any

import numpy as np
import xxhash

from yogadl.cache.content_id import TokenSums
from yogadl.cache.file_reader import CacheInfo
from yogadl.cache.grouped import leaf_map
from yogadl.cache.parts import OBJECTS_FOLDER, PARTS_FOLDER
from yogadl.cache.sections import load_codec, load_metadata
from yogadl.cache.whole_file import digest_of
from yogadl.errors import CacheFormatError, ChecksumError
from yogadl.format import header as headers
from yogadl.format import table as tables
from yogadl.format.entries import ENTRY, salt_of
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.opening import opened
from yogadl.remote._fetching.remote_object import RemoteObject
from yogadl.remote._fetching.right_bytes import WrongBytesError, right_bytes
from yogadl.remote._fetching.work import RemoteFile, Space
from yogadl.remote._files import RemoteFiles
from yogadl.remote._groups import RemoteGroups
from yogadl.remote._local.notes import note_opened
from yogadl.remote._local.sparse_file import CELL
from yogadl.remote._near import Near
from yogadl.remote._reader import RemoteReader
from yogadl.remote._records import RemoteRecords, Version

Array = np.ndarray[Any, Any]

HEAD_BYTES = 256 << 10
"""Read at first: takes no longer than less, and has all of a table of a thousand parts."""

# For the answer to begin, and then for all of it; what came until then is enough if the header is
# whole, since all else can be fetched like any other range. If not, the next try may take twice as
# long.
_HEAD_SECONDS = 3.0
_FETCHES = 3
# In bytes, since it is read as a whole: of ten million parts.
_LARGEST_TABLE = 1 << 30


@dataclass(frozen=True)
class Head:
    """The beginning of an object.

    Attributes:
        size: of the object, in bytes.
        data: its first bytes.
        answer: the headers of the answer that had them.
    """

    size: int
    data: bytes
    answer: Message


def look_at(asked: RemoteObject) -> Head:
    """The beginning of an object; asked for again if it is no cache's, and so perhaps damaged.

    Raises:
        ChangedError: it is not there.
        StoreError: it cannot be read.
    """
    # Only who fetches needs it.
    from yogadl.remote._fetching.connections import Connections
    from yogadl.remote._fetching.judging import NoRangesError

    connections = Connections()
    # Of a network that is slow at any time, it is in the end enough.
    seconds = itertools.accumulate(itertools.repeat(2.0), operator.mul, initial=_HEAD_SECONDS)

    def ask() -> Head:
        return Head(*connections.head(asked, headers.BODY_OFFSET, HEAD_BYTES, next(seconds)))

    try:
        for _ in range(_FETCHES - 1):
            # It may be the answer that is damaged, or that something on the way gave.
            with contextlib.suppress(CacheFormatError, NoRangesError):
                head = opened(ask, asked.server)
                _header_of(head, asked.name)
                return head
        return opened(ask, asked.server)
    finally:
        connections.close()


def open_remote(
    asked: RemoteObject,
    head: Head,
    claim: Callable[[], pathlib.Path],
    part_of: Callable[[bytes], RemoteObject],
    space: Space,
) -> RemoteRecords:
    """Reads the records of a version where they are.

    Args:
        asked: the version's object.
        head: its beginning.
        claim: makes the folder for what is fetched of it and of its parts, with ``OBJECTS_FOLDER``
            and ``PARTS_FOLDER`` in it, if it is not there; it is trusted.
        part_of: where the part of a digest is.
        space: says what may be kept there.

    Raises:
        CacheFormatError: it is no cache, or a damaged one.
        StoreError: it cannot be read.
        OSError: nothing can be kept on this machine.
    """
    name = asked.name
    page, header = _header_of(head, name)
    _check_sizes(header, name)
    folder = claim()
    main = RemoteFiles(
        np.array([header.record_count]),
        np.array([header.file_size]),
        np.array([header.index.offset]),
        salt_of([header.token_sums[0]]),
        lambda _number: asked,
        lambda _number: folder / OBJECTS_FOLDER / f"{header.digest.hex()}.mdb",
        claim,
        space,
        # Who commits on a plain file makes it a part of a table.
        elsewhere=None if header.part_count else lambda _number: part_of(header.digest),
    )
    _keep(main.file(0), head.data)
    sections = _Sections(main.file(0), page, header)
    codec = load_codec(sections.spec, _at_start(header.spec), header.value_size, name)
    metadata, provenance = load_metadata(sections.metadata, _at_start(header.metadata), name)
    table = _load_table(main, header) if header.part_count else None
    kinds = [main] if table is None else _parts_files(table, claim, part_of, space)
    if header.index_checksums.length != 8 * sum(files.block_count for files in kinds):
        raise ChecksumError(f"{name} has checksums of the wrong size; rebuild it")
    info = CacheInfo(
        record_count=header.record_count,
        format_version=headers.FORMAT_VERSION,
        library_version=header.library_version,
        created=datetime.datetime.fromtimestamp(header.created_ns / 1e9, datetime.timezone.utc),
        metadata=metadata,
        file_size=header.file_size + (0 if table is None else sum(it.nbytes for it in kinds)),
        digest=header.digest.hex(),
        provenance=provenance,
    )
    sums = TokenSums(header.record_count, header.token_sums)
    note_opened(main.paths()[0], name)
    near = Near(main.paths()[0], main, *([] if table is None else kinds))
    version = Version(name, info, codec, header.alignment, sums)
    checksums = [
        functools.partial(_checksums, main, header, *blocks) for blocks in _block_ranges(kinds)
    ]
    if table is None or table.leaves is None:
        return RemoteReader(version, kinds[0], checksums[0], near)
    leaves, codecs = leaf_map(codec.spec, table, name)
    readers = [
        RemoteReader(
            dataclasses.replace(version, codec=own, alignment=group.alignment), files, sums, None
        )
        for group, own, files, sums in zip(table.groups, codecs, kinds, checksums, strict=True)
    ]
    return RemoteGroups(version, leaves, readers, near)


def _block_ranges(kinds: Sequence[RemoteFiles]) -> list[tuple[int, int]]:
    """Which blocks of indexes are those of each of some kinds of files, from one to another."""
    ends = list(itertools.accumulate(files.block_count for files in kinds))
    return list(zip([0, *ends], ends, strict=False))


def _header_of(head: Head, name: str) -> tuple[bytes, headers.Header]:
    """The header page of an object, and what it says."""
    page = head.data[headers.HEADER_OFFSET : headers.BODY_OFFSET]
    return page, headers.unpack(page, head.size, name)


def _check_sizes(header: headers.Header, name: str) -> None:
    """Sees that a header has no sizes for which there could be no room."""
    index_bytes = header.index.length
    entry_bytes = header.part_count * tables.PART.itemsize or header.record_count * ENTRY.itemsize
    if (
        header.file_size > tables.MOST_BYTES
        or header.record_count > tables.MOST_BYTES
        or (header.part_count and header.file_size > _LARGEST_TABLE)
        or index_bytes < entry_bytes
        or header.index_checksums.length > _LARGEST_TABLE
    ):
        raise ChecksumError(f"{name} has an index of the wrong size; rebuild it")


def _keep(file: RemoteFile, data: bytes) -> None:
    """Keeps the beginning of a file."""
    whole = len(data) // CELL * CELL
    if file.pieces.has(0, whole):
        return
    with fetcher().claiming(file, 0, whole) as end:
        if not end or not file.space.take(end):
            return
        try:
            file.pieces.write(0, memoryview(data)[:end])
            file.pieces.mark(0, end)
        except OSError:
            # What is read of it is fetched again.
            file.space.is_full()
        finally:
            file.space.written(end)


def _at_start(section: headers.Section) -> headers.Section:
    return headers.Section(0, section.length, section.checksum)


class _Sections:
    """The spec and the metadata of a file, uint8 each, from its header page or fetched."""

    def __init__(self, file: RemoteFile, page: bytes, header: headers.Header) -> None:
        copies = headers.copied_sections(page, header)
        if copies is None:
            places = header.spec, header.metadata
            copies = tuple(_section(file, place) for place in places)  # type: ignore[assignment]
        self.spec, self.metadata = [np.frombuffer(data, "u1") for data in copies or ()]


def _section(file: RemoteFile, place: headers.Section) -> bytes:
    """The bytes of a section, compared with its checksum."""

    def is_right(data: Array) -> bool:
        return xxhash.xxh3_64_intdigest(data) == place.checksum

    return _fetched(file, (place.offset, place.offset + place.length), is_right).tobytes()


def _fetched(file: RemoteFile, where: tuple[int, int], is_right: Callable[[Array], bool]) -> Array:
    """A range of bytes, uint8, fetched again while it is not right."""
    try:
        ((_, data),) = right_bytes([(file, *where)], lambda _number, found: is_right(found))
    except WrongBytesError as error:
        name = file.asked.name
        raise ChecksumError(f"{name} is damaged at byte {where[0]:,}; rebuild it") from error
    return data


def _checksums(main: RemoteFiles, header: headers.Header, first: int, stop: int) -> Array:
    """Those of some blocks of the index, or of all parts' indexes."""
    return np.frombuffer(_section(main.file(0), header.index_checksums), "<u8")[first:stop]


def _load_table(main: RemoteFiles, header: headers.Header) -> tables.Table:
    """What a table says of its parts."""
    at = header.index.offset

    def is_right(data: Array) -> bool:
        head, body = data[: headers.BODY_OFFSET], data[headers.BODY_OFFSET :]
        return digest_of(head, [body]) == header.digest

    # Its list of parts has no checksum of its own.
    table = _fetched(main.file(0), (0, header.file_size), is_right)
    return tables.load(table[at : at + header.index.length], header, main.file(0).asked.name)


def _parts_files(
    table: tables.Table,
    claim: Callable[[], pathlib.Path],
    part_of: Callable[[bytes], RemoteObject],
    space: Space,
) -> list[RemoteFiles]:
    """The parts of each column group that a table names."""
    folder = claim()

    def files_of(group: tables.Group) -> RemoteFiles:
        parts, digests = group.parts, group.parts["digest"].tobytes()

        def digest(number: int) -> bytes:
            return digests[16 * number : 16 * number + 16]

        return RemoteFiles(
            parts["count"].astype("i8"),
            parts["size"].astype("i8"),
            parts["entries"].astype("i8"),
            salt_of(parts["token_sums"][:, 0]),
            lambda number: part_of(digest(number)),
            lambda number: folder / PARTS_FOLDER / f"{digest(number).hex()}.mdb",
            claim,
            space,
            group.indexed_runs(),
        )

    return list(map(files_of, table.groups))
