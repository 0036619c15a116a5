"""Uploading a whole file as a version, and what of it stays on this machine."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import parts_of, read_header
from yogadl.catalogue import Entry
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ForeignFileError, StoreError
from yogadl.format.header import FORMAT_VERSION
from yogadl.storage._buckets.part_builder import PartBuilder
from yogadl.storage._buckets.version import ObjectVersion
from yogadl.storage._described import describe_file
from yogadl.storage._objects.metadata_keys import (
    BYTES_KEY,
    CONTENT_KEY,
    DIGEST_KEY,
    FORMAT_KEY,
    PARTS_KEY,
    RECORDS_KEY,
)
from yogadl.storage._objects.store import ObjectStore, PreconditionFailedError
from yogadl.storage._objects.transfer import file_digest

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """What was uploaded.

    Attributes:
        ref: the copy on this machine; ``None`` if there is none, or somebody else published since.
        entry: for the catalogue.
    """

    ref: LMDBDataRef | None
    entry: Entry


def publish(
    store: ObjectStore,
    file: PartialFile,
    version: ObjectVersion,
    parts: PartBuilder,
    if_tag: str | None,
    check_lock: Callable[[], None] = lambda: None,
) -> Published:
    """Uploads a whole file, makes it the local copy, and opens that if it is the last state; see
    :func:`upload_version`."""
    entry = upload_version(store, file, version, parts, if_tag, check_lock)
    return Published(_keep_copy(store, file, version, entry.object_tag), entry)


def upload_version(
    store: ObjectStore,
    file: PartialFile,
    version: ObjectVersion,
    parts: PartBuilder,
    if_tag: str | None,
    check_lock: Callable[[], None] = lambda: None,
) -> Entry:
    """Uploads a whole file as a version; its entry.

    Args:
        store: the bucket.
        file: made beside ``version.claim()``; if it is a table, its parts were stored.
        version: that it is.
        parts: by which its parts were stored.
        if_tag: the state of the object to replace; ``None`` for any.
        check_lock: called before each request that publishes; raises if that must not be.

    Raises:
        PreconditionFailedError: the object is in another state.
        StoreError: it cannot be uploaded.
    """

    def check() -> None:
        # In this order: what raises here has sent nothing.
        check_lock()
        parts.check()

    parts.before_publishing()
    metadata = {DIGEST_KEY: file_digest(file.path), **_told_of(file.path)}
    key = version.dataset_id, version.dataset_version
    entry = describe_file(key, file, lambda _parent: None)
    try:
        tag = store.upload(file.path, version.key, metadata, if_tag, check)
    except PreconditionFailedError:
        # After a lost answer, it was sent again and met its own work.
        info = store.head(version.key)
        if info is None or info.metadata.get(DIGEST_KEY) != metadata[DIGEST_KEY]:
            parts.may_publish = False
            raise
        tag = info.tag
    parts.may_publish = False
    _log.info("Stored %s in %s.", version.label, version.name)
    return dataclasses.replace(entry, object_tag=tag)


def _keep_copy(
    store: ObjectStore, file: PartialFile, version: ObjectVersion, tag: str
) -> LMDBDataRef | None:
    """Makes what was just published the local copy, and opens it.

    ``None`` if somebody else has published since, or if no copy could be kept.
    """
    try:
        info = store.head(version.key)
    except StoreError as error:
        # It is published, and who submitted it has nothing to do again.
        _log.warning(
            "%s is stored, and its copy compared at the next fetch: %s", version.name, error
        )
        info = None
    if info is not None and info.tag != tag:
        return None
    # If it has been deleted since, this is still what was asked for.
    return version.local.install(info, file)


def _told_of(path: pathlib.Path) -> dict[str, str]:
    """What the metadata of an object says of the file that it is."""
    parts, content = 0, {}
    try:
        header, _ = read_header(path)
    except ForeignFileError:
        with LMDBDataRef(path) as ref:
            count, version = ref.info.record_count, ref.info.format_version
    else:
        count, version, parts = header.record_count, FORMAT_VERSION, header.part_count
        content = {CONTENT_KEY: header.digest.hex()}
    size = path.stat().st_size + sum(parts_of(path).values())
    told = {RECORDS_KEY: str(count), FORMAT_KEY: str(version), BYTES_KEY: str(size), **content}
    return {**told, PARTS_KEY: str(parts)} if parts else told
