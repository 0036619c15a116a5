"""Of what a version in a bucket is made, by few requests."""

from __future__ import annotations

import tempfile

import numpy as np

from yogadl.storage._made import Made, read_made
from yogadl.storage._object_store import ObjectInfo, ObjectStore
from yogadl.storage._object_version import ObjectVersion


def made_of_object(store: ObjectStore, info: ObjectInfo, version: ObjectVersion) -> Made:
    """See ``read_made``.

    Args:
        store: the bucket.
        info: the version's object.
        version: the version.

    Raises:
        ObjectGoneError: the object was deleted or replaced.
        CacheFormatError: it is damaged, or of yogadl 0.1.4.
        StoreError: it cannot be read.
    """

    def read(start: int, stop: int) -> bytes:
        found = bytearray()
        if start < stop:
            store.read_range(info, start, stop, found.extend)
        return bytes(found)

    with tempfile.TemporaryFile(prefix="yogadl") as file:
        # Mostly holes: of a plain file, little is read.
        file.truncate(max(info.size, 1))
        buffer = np.memmap(file, "u1", "r+", shape=max(info.size, 1))
        return read_made(version.dataset_version, info.size, read, buffer, version.name)
