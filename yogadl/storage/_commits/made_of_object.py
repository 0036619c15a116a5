"""Of what a version in a bucket is made, by few requests."""

from __future__ import annotations

import logging
import tempfile

import numpy as np

from yogadl.backoff import retried
from yogadl.errors import CacheFormatError, TruncatedCacheError
from yogadl.storage._buckets.version import ObjectVersion
from yogadl.storage._commits.made import Made, read_made
from yogadl.storage._objects.store import ObjectInfo, ObjectStore

# Read at once, which a table of parts mostly is; of a large file, only what is needed.
_SMALL_BYTES = 1 << 20
_READS = 3

_log = logging.getLogger(__name__)


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
    for _ in range(_READS - 1):
        try:
            return _read(store, info, version)
        except CacheFormatError as error:
            # It may be the answer that is damaged.
            _log.info("%s is read again: %s", version.name, error)
    return _read(store, info, version)


def _read(store: ObjectStore, info: ObjectInfo, version: ObjectVersion) -> Made:
    def read(start: int, stop: int) -> bytes:
        def once() -> bytes:
            found = bytearray()
            store.read_range(info, start, stop, found.extend)
            if len(found) != stop - start:
                raise TruncatedCacheError(
                    f"{version.name}: {len(found):,} bytes came of {stop - start:,}; try again"
                )
            return bytes(found)

        return retried(once, lambda _error: None) if start < stop else b""

    if info.size <= _SMALL_BYTES:
        whole = read(0, info.size)
        return read_made(
            version.dataset_version,
            info.size,
            lambda start, stop: whole[start:stop],
            np.empty(info.size, "u1"),
            version.name,
        )
    with tempfile.TemporaryFile(prefix="yogadl") as file:
        # Mostly holes: of a plain file, little is read.
        file.truncate(info.size)
        buffer = np.memmap(file, "u1", "r+", shape=info.size)
        return read_made(version.dataset_version, info.size, read, buffer, version.name)
