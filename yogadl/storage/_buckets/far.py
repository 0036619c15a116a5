"""Versions in a bucket that are read without downloading them first; when that is better."""

from __future__ import annotations

import logging
import pathlib
import shutil

from yogadl.cache.partial import reserve_of
from yogadl.cache.parts import OBJECTS_FOLDER
from yogadl.errors import CacheReplacedError, ForeignFileError
from yogadl.remote._fetching.remote_object import ChangedError, GoneError
from yogadl.remote._local.becoming import become_parts
from yogadl.remote._open import look_at, open_remote
from yogadl.remote._records import RemoteRecords
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._disk.folders import LocalFolders
from yogadl.storage._objects.store import ObjectStore

LARGE_BYTES = 8 << 30
"""From which on a version is not downloaded by itself: at 100 MB/s, that takes over a minute."""

_ATTEMPTS = 5

_log = logging.getLogger(__name__)


class MissingError(Exception):
    """There is no such object."""


def open_far(
    store: ObjectStore,
    key: str,
    folders: LocalFolders,
    parts: BucketParts,
    local_bytes: int | None,
) -> RemoteRecords:
    """Opens a version where it is.

    Args:
        store: the bucket.
        key: of the version's object.
        folders: where something of it can be kept on this machine.
        parts: of its id.
        local_bytes: that may be kept so on this machine; ``None`` for as many as there is room for.

    Raises:
        MissingError: it is not stored.
        CacheFormatError: it cannot be read.
        StoreError: the bucket cannot be.
        LocalDirectoryError, StorageFullError: nothing can be kept on this machine.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            head = look_at(store.remote(key))
        except GoneError as error:
            raise MissingError from error
        except ChangedError as error:
            # Its answer does not say whether there is such a bucket; this one does.
            info = store.head(key)
            if info is None:
                raise MissingError from error
            if not info.size:
                raise ForeignFileError(
                    f"{store.url}/{key} is not a yogadl cache: it is empty"
                ) from error
            continue
        asked = store.remote(key, store.tag_of(key, head.answer))
        folders.claim_pieces()
        try:
            found = open_remote(
                asked,
                head,
                folders.claim_pieces,
                lambda digest: store.remote(parts.key(digest)),
                folders.space(local_bytes),
            )
        except CacheReplacedError:
            _log.info("%s was replaced while it was opened (%d).", key, attempt)
        except ForeignFileError as error:
            raise ForeignFileError(
                f"{error}. What yogadl 0.1.4 wrote can be read once it is downloaded, "
                "fetch(…, download=True)"
            ) from error
        else:
            table = folders.pieces / OBJECTS_FOLDER / f"{found.version.info.digest}.mdb"
            become_parts(folders.pieces, asked.name, table)
            return found
    raise CacheReplacedError(
        f"{store.url}/{key} was replaced {_ATTEMPTS} times while it was opened; fetch it when "
        "those who submit it have finished"
    )


def is_better_far(size: int, directory: pathlib.Path, local_bytes: int | None) -> bool:
    """Whether so many bytes are too many to wait for, or to have on a disk; or there is a limit,
    of which no more should be taken than is read."""
    if local_bytes is not None:
        return True
    usage = shutil.disk_usage(directory)
    return size > LARGE_BYTES or size > usage.free - reserve_of(usage.total)
