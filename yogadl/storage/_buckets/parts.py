"""The parts of an id in a bucket, and their copies on this machine.

A part is named by its digest, so whatever has its name and that digest is the part: it is written
without conditions, and copies of it serve all versions that refer to it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import xxhash

from yogadl.cache.files import telling
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.parts import PARTS_FOLDER, check_file, part_path, parts_of
from yogadl.errors import ChecksumError, LocalDirectoryError, StoreError
from yogadl.remote._local.whole import is_whole
from yogadl.storage._buckets.part_control import CONTROL_OBJECT, ControlObject
from yogadl.storage._disk.contents import Contents
from yogadl.storage._disk.lock import local_lock
from yogadl.storage._disk.note import FOLDER_MODE, make_trusted, trusted_status
from yogadl.storage._objects.metadata_keys import DIGEST_KEY
from yogadl.storage._objects.probe import is_probe
from yogadl.storage._objects.store import (
    ABSENT,
    ObjectInfo,
    ObjectStore,
    PreconditionFailedError,
)
from yogadl.storage._objects.transfer import download, file_digest
from yogadl.storage._paths import LOCK_FILE
from yogadl.storage._receipt import LARGEST, RECEIPT_NAME

UNCOLLECTABLE_OBJECT = "yogadl.uncollectable"
"""Says that some builders cannot tell that they build."""

_DOWNLOADS = 3
# One for all parts, so that what a killed process left is removed whichever part is next.
_STAGED = "download.mdb"
# More parts than that are looked for in a list.
_HEADS = 4
# Sent without asking whether it is there.
_SMALL_BYTES = 1 << 20
_PART = re.compile(r"([0-9a-f]{32})\.mdb")

_log = logging.getLogger(__name__)


class Looked(NamedTuple):
    """What there is of the parts of an id."""

    has_any: bool = False
    has_control: bool = False


class BucketParts:
    """The parts of one id. Safe for threads and processes.

    Args:
        store: the bucket.
        folder: of the id in it, a key without its last slash.

    Attributes:
        folder: likewise.
        where: their place, for people.
        control: what builders and collectors agree by.
        forbidding_key: of an object that keeps parts from being collected.
    """

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self.folder = folder
        self._prefix = f"{folder}/{PARTS_FOLDER}/"
        self.where = f"{store.url}/{self._prefix}"
        self.control = ControlObject(store, f"{self._prefix}{CONTROL_OBJECT}")
        self.forbidding_key = f"{self._prefix}{UNCOLLECTABLE_OBJECT}"
        # Which to upload although there is an object that looks like it.
        self._damaged: set[bytes] = set()

    def key(self, digest: bytes) -> str:
        """The key of a part."""
        return f"{self._prefix}{digest.hex()}.mdb"

    def digest_of(self, key: str) -> bytes | None:
        """The digest of the part of a key; ``None`` if it is not that of a part."""
        found = _PART.fullmatch(key.removeprefix(self._prefix))
        return bytes.fromhex(found[1]) if found and key.startswith(self._prefix) else None

    def is_receipt(self, key: str) -> bool:
        """Whether a key is that of the receipt of a piece."""
        name = key.removeprefix(self._prefix)
        return key.startswith(self._prefix) and RECEIPT_NAME.fullmatch(name) is not None

    def looked_at(self) -> Looked:
        """Whether there is any part, or what is left of storing one; else, whether there is a
        control."""
        has_control = False
        for info in self._store.list(self._prefix):
            if self.digest_of(info.key) or self.is_receipt(info.key) or is_probe(info.key):
                return Looked(has_any=True)
            has_control |= info.key == f"{self._prefix}{CONTROL_OBJECT}"
        return Looked(has_control=has_control)

    def have(self, sizes: Mapping[bytes, int]) -> bool:
        """Whether parts of these digests are there, of these sizes."""
        return not self.missing(sizes)

    def missing(self, sizes: Mapping[bytes, int]) -> set[bytes]:
        """Which parts of these digests are not there, or have another size."""
        if len(sizes) <= _HEADS:
            heads = {digest: self._store.head(self.key(digest)) for digest in sizes}
            found = {digest: info.size for digest, info in heads.items() if info is not None}
        else:
            infos = [(self.digest_of(it.key), it.size) for it in self._store.list(self._prefix)]
            found = {digest: size for digest, size in infos if digest is not None}
        return {digest for digest, size in sizes.items() if found.get(digest) != size}

    # Receipts of pieces, see ``pieces``

    def read_receipt(self, name: str) -> bytes | None:
        """The bytes of a receipt; ``None`` if it is not there."""
        found = self._store.read(f"{self._prefix}{name}", largest=LARGEST)
        return None if found is None else found[0]

    def write_receipt(self, name: str, data: bytes) -> None:
        """Stores a receipt, in place of any other of its name."""
        self._store.write(f"{self._prefix}{name}", data)

    def remove_receipts(self, build: str) -> None:
        """Removes all receipts of a build."""
        for info in list(self._store.list(f"{self._prefix}{build}.")):
            if self.is_receipt(info.key):
                self._store.delete(info.key)

    def forbid_collecting(self) -> None:
        """Keeps all parts from being collected, until somebody removes an object by hand."""
        if not self.is_collecting_forbidden():
            _log.info("No parts in %s are removed from now on.", self.where)
            self._store.write(self.forbidding_key, b"{}")

    def is_collecting_forbidden(self) -> bool:
        """Whether somebody has done so."""
        return self._store.head(self.forbidding_key) is not None

    def store(self, file: PartialFile, digest: bytes, has_conditions: bool = False) -> None:
        """Uploads a part, unless it is there and was not found damaged by :meth:`fetch`.

        Args:
            file: the part.
            digest: of it.
            has_conditions: whether the bucket's conditional writes can be trusted.

        Raises:
            StoreError: the bucket cannot be written to.
        """
        key, metadata = self.key(digest), {DIGEST_KEY: file_digest(file.path)}
        if has_conditions and file.size <= _SMALL_BYTES and digest not in self._damaged:
            # Mostly it is new, so that to ask first would be in vain.
            with contextlib.suppress(PreconditionFailedError):
                self._store.upload(file.path, key, metadata, ABSENT)
                return
        found = self._store.head(key)
        is_there = found is not None and (found.size, dict(found.metadata)) == (file.size, metadata)
        if is_there and digest not in self._damaged:
            _log.info("%s is stored already.", key)
            return
        self._store.upload(file.path, key, metadata)
        self._damaged.discard(digest)

    def take(self, info: ObjectInfo, digest: bytes) -> None:
        """Has the bucket copy the object of a version as the part of its digest.

        Raises:
            ObjectGoneError: it was deleted or replaced.
            StoreError: the bucket cannot be written to.
        """
        told = info.metadata.get(DIGEST_KEY)
        # Of what another program has uploaded, it is not known; who reads parts compares contents.
        key, metadata = self.key(digest), {} if told is None else {DIGEST_KEY: told}
        found = self._store.head(key)
        if found is None or (found.size, dict(found.metadata)) != (info.size, metadata):
            self._store.copy(info, key, metadata)

    def fetch(self, table: pathlib.Path, check: bool, contents: Contents | None = None) -> None:
        """Sees to it that the parts that a table names are on this machine; of a file that is no
        table, nothing.

        Args:
            table: a file on this machine, checked.
            check: also compare those that are there with their digests.
            contents: with the table, if it is one of them; the caller holds it.

        Raises:
            ChecksumError: a part is not in the bucket, or not what was uploaded.
            StoreError: it cannot be read, or arrives differently each time.
            LocalDirectoryError, StorageFullError: nothing can be kept on this machine.
        """
        sizes = parts_of(table)
        if contents is not None:
            self._fetch_contents(table, sizes, check, contents)
            return
        if not self._missing(table, sizes, check):
            return
        folder = part_path(table, b"").parent
        with telling("make the folder", folder):
            folder.mkdir(FOLDER_MODE, exist_ok=True)
        if trusted_status(folder) is None:
            raise LocalDirectoryError(
                f"{folder} is another user's, or others may write to it; choose another "
                "local_cache_dir"
            )
        with local_lock(folder / LOCK_FILE, f"process that downloads parts to {folder}"):
            remove_leftovers(folder / _STAGED)
            for digest in self._missing(table, sizes, check):
                path = part_path(table, digest)
                staged = functools.partial(_staged, path)
                with self._downloaded(staged, str(table), digest) as file:
                    make_trusted(file).commit(path)

    def _fetch_contents(
        self, table: pathlib.Path, sizes: dict[bytes, int], check: bool, contents: Contents
    ) -> None:
        def missing() -> list[bytes]:
            wanted = ((it, part_path(table, it), size) for it, size in sizes.items())
            return [it for it, path, size in wanted if not is_whole(path, size, check)]

        if not missing():
            return
        contents.claim()
        # Those of another id may be downloaded at the same time.
        lock = table.with_name(f"{xxhash.xxh3_64_hexdigest(self.where.encode())}.lock")
        with local_lock(lock, f"process that downloads parts of {self.where}"):
            found = missing()
            with contents.room(sum(sizes[digest] for digest in found)):
                for digest in found:
                    path = part_path(table, digest)
                    staged = functools.partial(contents.staged, path)
                    # What was a plain file, and is here, need not come again.
                    copied = contents.copied(digest, sizes[digest], staged)
                    with copied or self._downloaded(staged, str(table), digest) as file:
                        contents.place(file, path)

    def _missing(self, table: pathlib.Path, sizes: dict[bytes, int], check: bool) -> list[bytes]:
        return [
            digest
            for digest, size in sizes.items()
            if not _is_there(part_path(table, digest), digest, size, check)
        ]

    def load(self, digest: bytes, make_file: Callable[[], PartialFile], table: str) -> PartialFile:
        """A file with just a part, downloaded and compared with its digest.

        Args:
            digest: of the part.
            make_file: makes an empty file.
            table: that names the part, for errors.

        Raises:
            ChecksumError, StoreError, StorageFullError: see :meth:`fetch`.
        """
        file = self._downloaded(make_file, table, digest)
        file.size = os.fstat(file.fileno()).st_size
        return file

    def _downloaded(
        self, staged: Callable[[], PartialFile], table: str, digest: bytes
    ) -> PartialFile:
        """A part in a file that is staged for it, compared with its digest."""
        key = self.key(digest)
        seen = set()
        for attempt in range(1, _DOWNLOADS + 1):
            info = self._store.head(key)
            if info is None:
                raise ChecksumError(
                    f"{self._store.url}/{key}, a part of {table}, is not there; submit the data "
                    "set again, or copy it from where it is whole"
                )
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(staged())
                download(self._store, info, file)
                try:
                    check_file(file.path, digest)
                except ChecksumError as error:
                    _log.warning("Download %d of %s: %s", attempt, key, error)
                    seen.add(file_digest(file.path))
                    continue
                stack.pop_all()
                return file
        if len(seen) > 1:
            raise StoreError(
                f"{_DOWNLOADS} downloads of {self._store.url}/{key} differ from what was uploaded "
                "and from one another, so this machine or its network alters them; fetch the data "
                "set on another one"
            )
        self._damaged.add(digest)
        raise ChecksumError(
            f"{self._store.url}/{key} is not what was uploaded: {_DOWNLOADS} downloads had the "
            "same other digest. Delete that object and submit the data set again, or use "
            "cacheable, which uploads it anew"
        )


def _staged(path: pathlib.Path) -> PartialFile:
    return PartialFile(path.with_name(_STAGED))


def _is_there(path: pathlib.Path, digest: bytes, size: int, check: bool) -> bool:
    try:
        if trusted_status(path) is None or path.stat().st_size != size:
            return False
        if check:
            check_file(path, digest)
    except (OSError, ChecksumError) as error:
        _log.warning("%s is downloaded again: %s", path, error)
        return False
    return True
