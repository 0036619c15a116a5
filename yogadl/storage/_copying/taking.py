"""Making the plain file of a version in a bucket a part, too."""

from __future__ import annotations

import logging
from collections.abc import Callable

from yogadl.cache.partial import PartialFile, claimed
from yogadl.dataref import LMDBDataRef
from yogadl.storage._buckets.conditions import ConditionalWrites
from yogadl.storage._buckets.part_builder import PartBuilder
from yogadl.storage._buckets.told import told_head
from yogadl.storage._buckets.version import ObjectVersion
from yogadl.storage._copying.copying import OpenOriginal
from yogadl.storage._objects.metadata_keys import CONTENT_KEY
from yogadl.storage._objects.store import ObjectGoneError, ObjectInfo, ObjectStore

_log = logging.getLogger(__name__)


def taken(
    store: ObjectStore,
    conditions: ConditionalWrites,
    version: ObjectVersion,
    digest: bytes,
    parts: PartBuilder,
    fetch: Callable[[ObjectInfo], LMDBDataRef],
) -> ObjectInfo | None:
    """Has the bucket copy a plain file as a part; by way of this machine where a slower process's
    copy could be one of what has taken the file's place.

    Args:
        store: the bucket.
        conditions: what is known of it.
        version: the version.
        digest: of its file.
        parts: by which the part is stored.
        fetch: opens the version's copy on this machine, after downloading it.

    Returns:
        The object; ``None`` if it is another one by now.

    Raises:
        StoreError: the bucket cannot be read or written to, or the part's name was removed of late.
    """
    info = told_head(store, version.key)
    if info is None or info.metadata.get(CONTENT_KEY) != digest.hex():
        return None
    if conditions.bind_copies(version.parts.key(digest)):
        try:
            parts.take(info, digest)
        except ObjectGoneError:
            return None
        return info
    _log.info("%s is transferred to be a part.", version)
    with (
        claimed(version.claim) as path,
        fetch(info) as ref,
        PartialFile(path) as file,
    ):
        if ref.info.digest != digest.hex():
            return None
        OpenOriginal(ref, None).append_to(file)
        parts.store(file, digest)
    return info
