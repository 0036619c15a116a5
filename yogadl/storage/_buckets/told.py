"""What the object of a version says of itself, also where it was not yogadl that uploaded it."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from yogadl.backoff import retried
from yogadl.errors import CacheFormatError, StoreError
from yogadl.format import header as headers
from yogadl.format.table import load_parts
from yogadl.storage._objects.metadata_keys import BYTES_KEY, FORMAT_KEY, PARTS_KEY, told_by
from yogadl.storage._objects.store import ObjectGoneError, ObjectInfo, ObjectStore

# What is read of a table to add up the sizes of its parts.
_MOST_BYTES = 256 << 20
_ATTEMPTS = 5


def told_head(store: ObjectStore, key: str) -> ObjectInfo | None:
    """See :func:`told_of`; ``None`` if there is no such object."""
    for _ in range(_ATTEMPTS):
        info = store.head(key)
        if info is None:
            return None
        with contextlib.suppress(ObjectGoneError):
            return told_of(store, info)
    raise StoreError(f"{store.url}/{key} is replaced again and again while it is read")


def told_of(store: ObjectStore, info: ObjectInfo) -> ObjectInfo:
    """An object of a version with what its metadata lacks, by the file that it is.

    Whoever copies a storage to a bucket by a program of the store's, or reads it by fsspec, has
    files without that. Those of yogadl 0.1.4 say nothing in either way.

    Args:
        store: the bucket.
        info: the object, as its metadata has it.

    Raises:
        ObjectGoneError: it was deleted or replaced.
        StoreError: it cannot be read.
    """
    told = info.metadata
    if FORMAT_KEY in told and (BYTES_KEY in told or PARTS_KEY not in told):
        return info

    name = f"{store.url}/{info.key}"
    if info.size < headers.BODY_OFFSET:
        return info
    try:
        header = headers.unpack(
            bytes_of(store, info, headers.HEADER_OFFSET, headers.BODY_OFFSET), info.size, name
        )
        found = told_by(header)
        place = header.index
        if header.part_count and place.length <= _MOST_BYTES:
            index = bytes_of(store, info, place.offset, place.offset + place.length)
            sizes = load_parts(np.frombuffer(index, "u1"), header, name)["size"].tolist()
            found[BYTES_KEY] = str(info.size + sum(sizes))
    except CacheFormatError:
        # Who opens it says so.
        return info
    return dataclasses.replace(info, metadata={**found, **told})


def bytes_of(store: ObjectStore, info: ObjectInfo, start: int, stop: int) -> bytes:
    """A few bytes of an object.

    Raises:
        ObjectGoneError: it was deleted or replaced.
        StoreError: they cannot be read.
    """

    def ask() -> bytes:
        data = bytearray()
        store.read_range(info, start, stop, data.extend)
        return bytes(data)

    return retried(ask, lambda _error: None)
