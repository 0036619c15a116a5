"""What a version's own file says of it, as an entry of the catalogue."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable, Mapping

import xxhash

from yogadl.cache.content_id import TokenSums
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import parts_of
from yogadl.catalogue import Entry, GoingTo, Key, Renewed, parsed_spec
from yogadl.errors import CacheFormatError, ChecksumError, ForeignFileError
from yogadl.format import header as headers
from yogadl.format.provenance import METADATA_KEY, Provenance

Parents = tuple[tuple[str, str], ...]
ReadBytes = Callable[[int, int], bytes]
PartSizes = Mapping[bytes, int]

_log = logging.getLogger(__name__)


def describe(
    key: Key,
    size: int,
    tag: str,
    read: ReadBytes,
    sizes: Callable[[Parents], tuple[int, int | None]],
) -> Entry:
    """The entry of a version, by its header. Of a file that cannot be read, little is known.

    Args:
        key: of the version.
        size: bytes of its own file.
        tag: of that.
        read: its bytes, given where they begin and how many; one or two short runs are read.
        sizes: called for a table of parts: bytes of all parts, and of those that some parents do
            not have, ``None`` if that is not known.

    Raises:
        YogadlError: what ``read`` raises, and what ``sizes`` does but for a damaged file.
    """
    bare = Entry(*key, object_size=size, object_tag=tag, size=size)
    name = ":".join(key)
    try:
        page = read(headers.HEADER_OFFSET, headers.BODY_OFFSET - headers.HEADER_OFFSET)
        header = headers.unpack(page, size, name)
        copies = headers.copied_sections(page, header) or (
            _section(read, header.spec, name),
            _section(read, header.metadata, name),
        )
        spec = copies[0].decode()
        sums = TokenSums(header.record_count, header.token_sums)
        content_id = sums.content_id(parsed_spec(spec))
        metadata = json.loads(copies[1])
        found = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
        provenance = Provenance.from_json(found)
        parents = provenance.parents
        parts, own = sizes(parents) if header.part_count else (0, 0)
    except ForeignFileError as error:
        _log.info("Of %s, little is known: %s", name, error)
        return dataclasses.replace(bare, is_sure=not headers.is_nearly_header(page, size))
    except (CacheFormatError, ValueError, RecursionError) as error:
        _log.info("Of %s, little is known: %s", name, error)
        return dataclasses.replace(bare, is_sure=False)
    return Entry(
        *key,
        object_size=size,
        object_tag=tag,
        record_count=header.record_count,
        size=size + parts,
        own_size=None if own is None else size + own,
        spec=spec,
        content_id=content_id,
        provenance=provenance,
        going_to=GoingTo.of(found),
        renewed=Renewed.of(found),
    )


def describe_file(
    key: Key, file: PartialFile, parts_of_parent: Callable[[Key], PartSizes | None]
) -> Entry:
    """The entry of a version that is about to be published; the tag of its object is not known yet.

    Args:
        key: of the version.
        file: its own.
        parts_of_parent: the digests of the parts of another version, and their bytes; ``None`` if
            they are not known.
    """

    def read(offset: int, length: int) -> bytes:
        return os.pread(file.fileno(), length, offset)

    def sizes(parents: Parents) -> tuple[int, int | None]:
        return sizes_of(parts_of(file.path), parents, parts_of_parent)

    size = os.fstat(file.fileno()).st_size
    return describe(key, size, "", read, sizes)


def sizes_of(
    parts: PartSizes, parents: Parents, parts_of_parent: Callable[[Key], PartSizes | None]
) -> tuple[int, int | None]:
    """Bytes of some parts, and of those that no parent has; ``None`` if that is not known."""
    own = dict(parts)
    for parent in parents:
        theirs = parts_of_parent(parent)
        if theirs is None:
            return sum(parts.values()), None
        for digest in theirs:
            own.pop(digest, None)
    return sum(parts.values()), sum(own.values())


def _section(read: ReadBytes, place: headers.Section, name: str) -> bytes:
    data = read(place.offset, place.length)
    if xxhash.xxh3_64_intdigest(data) != place.checksum:
        raise ChecksumError(f"{name} is damaged at byte {place.offset:,}; rebuild it")
    return data
