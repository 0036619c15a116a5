"""The storages in buckets: how versions are published, fetched, built once and listed."""

from __future__ import annotations

import abc
import contextlib
import datetime
import functools
import logging
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import PARTS_FOLDER, parts_of, read_header
from yogadl.cache.progress import waiting_for
from yogadl.dataref import LMDBDataRef, StoredDataRef
from yogadl.dataref._remote import RemoteDataRef
from yogadl.errors import (
    AccessDeniedError,
    CacheFormatError,
    ForeignFileError,
    LockLostError,
    StoreError,
    UnsafeStoreError,
)
from yogadl.format.header import FORMAT_VERSION
from yogadl.remote._reader import RemoteReader
from yogadl.storage._base import (
    CacheStorage,
    StoredVersion,
    Submission,
    Version,
    check_configurations,
)
from yogadl.storage._bucket_parts import DIGEST_KEY, FORMAT_KEY, BucketParts
from yogadl.storage._collected import CollectedParts
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._far import BYTES_KEY, MissingError, is_better_far, open_far
from yogadl.storage._lease import Lease
from yogadl.storage._lease_board import LeaseBoard
from yogadl.storage._lease_object import patience_of
from yogadl.storage._local_copy import LocalCopy
from yogadl.storage._local_folders import LocalFolders
from yogadl.storage._local_parts import LocalParts
from yogadl.storage._local_versions import LocalVersions
from yogadl.storage._locks import PublishLock
from yogadl.storage._object_store import (
    ABSENT,
    ObjectGoneError,
    ObjectInfo,
    ObjectStore,
    PreconditionFailedError,
)
from yogadl.storage._part_builder import PartBuilder
from yogadl.storage._part_collector import PartCollector
from yogadl.storage._paths import (
    CACHE_FILE,
    LEASE_OBJECT,
    LOCK_FILE,
    METADATA_FILE,
    PIECES_FOLDER,
    WAITING_FILE,
    relative_path,
)
from yogadl.storage._probe import cannot_be_trusted, check_conditional_writes
from yogadl.storage._transfer import file_digest

_RECORDS_KEY = "yogadl-records"
_PARTS_KEY = "yogadl-parts"
_RESERVED = (
    CACHE_FILE,
    LOCK_FILE,
    LEASE_OBJECT,
    METADATA_FILE,
    WAITING_FILE,
    PARTS_FOLDER,
    PIECES_FOLDER,
)
_ATTEMPTS = 5
# What is built needs so much room on this machine, and what breaks off is sent again; a request
# takes long enough for its latency not to count.
_PART_BYTES = 256 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ObjectVersion(Version):
    """A version that is an object in a bucket.

    Attributes:
        key: of the object.
        local: its copy on this machine.
        parts: of its id.
        folders: of this machine that something of it may be in.
    """

    key: str
    local: LocalCopy
    parts: BucketParts
    folders: LocalFolders

    def claim(self) -> pathlib.Path:
        return self.local.claim()

    def beside(self, name: str) -> str:
        """The key of another object of this version."""
        return str(pathlib.PurePosixPath(self.key).with_name(name))


class BaseCloudStorage(CacheStorage[ObjectVersion]):
    """Data sets in ``<bucket_directory_path>/<dataset_id>/<dataset_version>/cache.mdb``.

    What is fetched or submitted is kept in ``<local_cache_dir>/yogadl_local_cache``, too, and not
    transferred again while it is what the bucket has.

    Safe for threads and processes, also of other machines. Survives a fork; can be pickled, without
    secrets, if ``tensorflow_config`` is ``None``.

    Args:
        configurations: where.
        tensorflow_config: a ``tf.compat.v1.ConfigProto`` for reading data sets of graph mode.

    Raises:
        InvalidArgumentError: the local cache directory does not exist.
        StoreError: the bucket cannot be used; see its subclasses.
    """

    _default_part_bytes = _PART_BYTES

    def __init__(
        self, configurations: BaseCloudConfigurations, tensorflow_config: Any = None
    ) -> None:
        check_configurations(
            "local_cache_dir", configurations.local_cache_dir, configurations.cache_format
        )
        self._configurations = configurations
        self._tensorflow_config = tensorflow_config
        self._start()
        self._store.check()

    def _start(self) -> None:
        self._store = self._open_store()
        self._trusts_store: bool | None = self._configurations.conditional_writes
        self._decides: bool | None = None
        self._probing = os.getpid(), threading.Lock()

    # What a provider supplies

    @property
    @abc.abstractmethod
    def _storage_type(self) -> str:
        """Its name in the lock server's protocol."""

    @abc.abstractmethod
    def _open_store(self) -> ObjectStore:
        """The bucket, without asking it anything yet."""

    # Storage

    def fetch(
        self,
        dataset_id: str,
        dataset_version: str,
        *,
        check_records: bool = False,
        download: bool | None = None,
    ) -> StoredDataRef:
        """See ``CacheStorage.fetch``.

        Args:
            dataset_id: of the version.
            dataset_version: of the version.
            check_records: see ``LMDBDataRef``; what is not downloaded is always checked.
            download: whether to download all of it, before the first record can be read. If not,
                what is read is fetched when it is needed, and kept. ``None`` downloads it unless
                it is not here yet and has more than 8 GiB, or more than there is room for; or
                ``local_cache_bytes`` is configured.

        Raises:
            StoreError: the bucket cannot be read.
            StorageFullError: the copy does not fit on this machine; or, without a download, not
                even a folder does.
            ForeignFileError: it is to be read without a download, and yogadl 0.1.4 wrote it.
        """
        version = self._version(dataset_id, dataset_version)
        if download is None:
            return self._fetch_best(version, check_records)
        return self._fetch(version, check_records) if download else self._far(version)

    def _fetch_best(self, version: ObjectVersion, check_records: bool) -> StoredDataRef:
        info = self._store.head(version.key)
        if info is not None and self._is_better_far(version, info):
            return self._far(version)
        return self._fetch(version, check_records, info)

    def _far(self, version: ObjectVersion) -> RemoteDataRef:
        names = version.dataset_id, version.dataset_version
        return RemoteDataRef(functools.partial(self._open_far, *names))

    @property
    def local(self) -> LocalVersions:
        """What is kept on this machine of what was fetched without a download: to list, pin, and
        prune."""
        # All ids have it in one folder.
        folders = self._version("any", "any").folders
        return LocalVersions(folders.safe_pieces, lambda *names: self._version(*names).name)

    def _open_far(self, dataset_id: str, dataset_version: str) -> RemoteReader:
        version = self._version(dataset_id, dataset_version)
        try:
            limit = self._configurations.local_cache_bytes
            return open_far(self._store, version.key, version.folders, version.parts, limit)
        except MissingError:
            raise self._missing(version) from None

    def _is_better_far(self, version: ObjectVersion, info: ObjectInfo) -> bool:
        """Whether a version is not here, and too large to be downloaded unasked."""
        if info.metadata.get(FORMAT_KEY, "0") == "0" or version.local.has(info):
            return False
        told = info.metadata.get(BYTES_KEY, "")
        size = int(told) if told.isdecimal() else info.size
        given = self._configurations
        return is_better_far(size, given.local_cache_dir, given.local_cache_bytes)

    def _fetch(
        self, version: ObjectVersion, check_records: bool, info: ObjectInfo | None = None
    ) -> LMDBDataRef:
        for attempt in range(1, _ATTEMPTS + 1):
            info = info or self._store.head(version.key)
            if info is None:
                raise self._missing(version)
            try:
                return version.local.open(self._store, info, check_records)
            except ObjectGoneError:
                _log.info("%s was replaced while it was read (%d).", version.key, attempt)
                info = None
            except CacheFormatError:
                # Parts of what was replaced may be gone; what is there now has all of its own.
                found = self._store.head(version.key)
                if found is not None and found.tag == info.tag:
                    raise
                _log.info("%s was replaced while it was read (%d).", version.key, attempt)
                info = None
        raise StoreError(
            f"{version.name} was replaced {_ATTEMPTS} times while it was downloaded; fetch it when "
            "those who submit it have finished"
        )

    def _list(self, dataset_id: str | None) -> Iterator[StoredVersion]:
        root = self._configurations.bucket_directory_path
        folder = root if dataset_id is None else root / relative_path(dataset_id, "any").parent
        prefix = "" if str(folder) == "." else f"{folder}/"
        for info in self._store.list(prefix):
            path = pathlib.PurePosixPath(info.key)
            if path.name != CACHE_FILE or not path.is_relative_to(root):
                continue
            *folders, _ = path.relative_to(root).parts
            name = "/".join(folders[:-1])
            if name and dataset_id in (None, name):
                yield StoredVersion(name, folders[-1], info.size, info.created)

    def _delete(self, version: ObjectVersion) -> None:
        info = self._store.head(version.key)
        if info is None:
            raise self._nothing_to_delete(version)
        self._store.delete(version.key, info.tag)
        version.local.remove()
        if _PARTS_KEY in info.metadata:
            self._collect_after(version)

    # Collecting

    def _collect(
        self, dataset_id: str, older_than: datetime.timedelta | None, dry_run: bool
    ) -> CollectedParts:
        version = self._version(dataset_id, "any")
        if not self._decides_races(version.key):
            raise UnsafeStoreError(
                f"parts in {self._store.url} cannot be collected, since its conditional writes "
                "cannot be trusted, or are ruled out by conditional_writes=False: nobody could say "
                "which parts are about to be used"
            )
        folders = version.local.id_folders()
        for folder in folders:
            LocalParts(folder, dataset_id).collect(None, dry_run)
        collector = PartCollector(
            self._store, version.parts, dataset_id, [folder / PARTS_FOLDER for folder in folders]
        )
        return collector.collect(older_than, dry_run)

    def _ids_of_parts(self) -> Iterator[str]:
        root = self._configurations.bucket_directory_path
        prefix = "" if str(root) == "." else f"{root}/"
        for info in self._store.list(prefix):
            *folders, _ = info.key.removeprefix(prefix).split("/")
            if folders[-1:] == [PARTS_FOLDER] and folders[:-1]:
                yield "/".join(folders[:-1])

    def _decides_races(self, key: str) -> bool:
        """Whether the store decides who wins a race of conditional writes."""
        if self._decides is None:
            if self._configurations.url is None:
                self._publishes_conditionally(key)
                self._decides = self._trusts_store
            else:
                self._decides = self._configurations.conditional_writes
        if self._decides is None:
            self._decides = self._store.is_proven
            if not self._decides:
                try:
                    folder = pathlib.PurePosixPath(key).parent
                    check_conditional_writes(self._store, f"{folder}/")
                    self._decides = True
                except UnsafeStoreError as error:
                    _log.info("Parts cannot be collected: %s", error)
        return self._decides

    # Building

    def _build(self, submission: Submission, version: ObjectVersion) -> StoredDataRef:
        for _ in range(_ATTEMPTS):
            found = self._build_once(submission, version)
            if found is None:
                found = self._fetch_usable(version)
            if found is not None:
                return found
            _log.info("%s was deleted, or cannot be read, since it was built.", version.name)
        # Of a store that loses parts, for one, this tells what is wrong.
        return self._fetch_best(version, check_records=False)

    def _build_once(self, submission: Submission, version: ObjectVersion) -> StoredDataRef | None:
        """Returns once somebody has published; what was published, if there is a copy of it."""
        replaces = ABSENT
        broken = self._store.head(version.key)
        if broken is not None:
            found = self._fetch_usable(version)
            if found is not None:
                return found
            # It cannot be read, so only something else is what we wait for.
            replaces = broken.tag

        def is_published() -> bool:
            info = self._store.head(version.key, self._patience)
            return info is not None and info.tag != replaces

        with self._telling_readers(version):
            lock = self._lock(version)
        try:
            with self._telling_readers(version):
                with waiting_for(f"for another builder of {version.name}"):
                    is_mine = lock.acquire(is_published)
                if not is_mine:
                    return None
                # What cannot be tried out is told before anything is built.
                is_conditional = self._publishes_conditionally(version.key)
            with self._staged(submission, version) as (file, parts):
                return self._publish_locked(
                    file, version, parts, replaces, lock, is_published, is_conditional
                )
        finally:
            lock.release()

    @contextlib.contextmanager
    def _telling_readers(self, version: ObjectVersion) -> Iterator[None]:
        """Says it clearly to those who may read the bucket, but not write to it."""
        try:
            yield
        except AccessDeniedError as error:
            raise AccessDeniedError(
                f"no {version} is stored that can be read, and these credentials may not build "
                f"one: {error}"
            ) from error

    def _publish_locked(
        self,
        file: PartialFile,
        version: ObjectVersion,
        parts: PartBuilder,
        replaces: str,
        lock: PublishLock,
        is_published: Callable[[], bool],
        is_conditional: bool,
    ) -> LMDBDataRef | None:
        """Publishes what was built under a lock, unless that was lost and somebody else did.

        On condition that the object is as it was found, since a lock may be lost between the last
        look at it and the arrival of the request. Where the store knows no conditions, that gap
        remains, with a lock server; there are no leases then.
        """

        def check() -> None:
            if not is_conditional and is_published():
                raise PreconditionFailedError
            lock.check()

        refusals = 0
        while True:
            try:
                if_tag = replaces if is_conditional else None
                return self._upload(file, version, parts, if_tag, check)
            except LockLostError as error:
                _log.warning("Not publishing %s yet: %s", version.name, error)
                lock.release()
                if not lock.acquire(is_published):
                    return None
            except PreconditionFailedError:
                found = self._store.head(version.key)
                if found is not None and found.tag != replaces:
                    _log.warning("Somebody else published %s.", version.name)
                    return None
                if found is None and replaces != ABSENT:
                    _log.warning("%s was deleted while it was built again.", version.name)
                    replaces = ABSENT
                    continue
                # Some stores refuse for a moment while others write; some, always.
                refusals += 1
                if refusals == _ATTEMPTS:
                    raise cannot_be_trusted(
                        self._store,
                        f"it refused to write {version.key}, which is as it was asked to be",
                    ) from None

    def _lock(self, version: ObjectVersion) -> PublishLock:
        configurations = self._configurations
        if configurations.url is not None:
            from yogadl.storage._coordinated import CoordinatedLock

            return CoordinatedLock(configurations, self._storage_type, version.key)
        if configurations.conditional_writes is False:
            raise UnsafeStoreError(
                f"leases in {self._store.url} are ruled out by conditional_writes=False; give the "
                "address of a lock server as url="
            )
        return Lease(
            self._store,
            version.beside(LEASE_OBJECT),
            configurations.lease_seconds,
            board=LeaseBoard(version.claim().with_name(WAITING_FILE)),
            prove=functools.partial(self._prove_conditions, version.key),
        )

    @property
    def _patience(self) -> float | None:
        """Seconds for requests that others wait for, who share the answer."""
        given = self._configurations
        return patience_of(given.lease_seconds) if given.url is None else None

    def _prove_conditions(self, key: str) -> None:
        """Tries the store out, once, unless it is known.

        Raises:
            UnsafeStoreError: its conditional writes are not good enough for the kind of lock.
        """
        if self._probing[0] != os.getpid():
            # A child may have been born while a thread of its parent held it.
            self._probing = os.getpid(), threading.Lock()
        with self._probing[1]:
            if self._trusts_store is None:
                if not self._store.is_proven:
                    races = self._configurations.url is None
                    folder = pathlib.PurePosixPath(key).parent
                    check_conditional_writes(self._store, f"{folder}/", races=races)
                self._trusts_store = True

    def _publishes_conditionally(self, key: str) -> bool:
        """Whether the store heeds the condition of an upload; leases need that in any case."""
        if self._trusts_store is None:
            try:
                self._prove_conditions(key)
            except UnsafeStoreError as error:
                self._trusts_store = False
                _log.info("Publishing under the lock server's lock alone: %s", error)
        return bool(self._trusts_store)

    # Publishing

    def _adding(
        self, version: ObjectVersion, may_stamp: bool, /
    ) -> contextlib.AbstractContextManager[PartBuilder]:
        return PartBuilder(
            version.parts,
            lambda: version.claim().parent.parent / PARTS_FOLDER,
            lambda: self._decides_races(version.key),
            may_stamp,
        )

    def _publish(self, file: PartialFile, version: ObjectVersion, parts: PartBuilder) -> None:
        self._upload(file, version, parts, None)

    def _upload(
        self,
        file: PartialFile,
        version: ObjectVersion,
        parts: PartBuilder,
        if_tag: str | None,
        check_lock: Callable[[], None] = lambda: None,
    ) -> LMDBDataRef | None:
        """Uploads a whole file, makes it the local copy, and opens that if it is the last state."""

        def check() -> None:
            # In this order: what raises here has sent nothing.
            check_lock()
            parts.check()

        parts.before_publishing()
        metadata = {DIGEST_KEY: file_digest(file.path), **_told_of(file.path)}
        try:
            self._store.upload(file.path, version.key, metadata, if_tag, check)
        except PreconditionFailedError:
            # After a lost answer, it was sent again and met its own work.
            info = self._store.head(version.key)
            if info is None or info.metadata.get(DIGEST_KEY) != metadata[DIGEST_KEY]:
                parts.may_publish = False
                raise
        parts.may_publish = False
        _log.info("Stored %s in %s.", version.label, version.name)
        return self._keep_copy(file, version, metadata[DIGEST_KEY])

    def _keep_copy(
        self, file: PartialFile, version: ObjectVersion, digest: str
    ) -> LMDBDataRef | None:
        """Makes what was just published the local copy, and opens it.

        ``None`` if somebody else has published since, or if no copy could be kept.
        """
        try:
            info = self._store.head(version.key)
        except StoreError as error:
            # It is published, and who submitted it has nothing to do again.
            _log.warning(
                "%s is stored, and its copy compared at the next fetch: %s", version.name, error
            )
            info = None
        if info is not None and info.metadata.get(DIGEST_KEY) != digest:
            return None
        # If it has been deleted since, this is still what was asked for.
        return version.local.install(info, file)

    # Names

    def _version(self, dataset_id: str, dataset_version: str) -> ObjectVersion:
        given = self._configurations
        folder = relative_path(dataset_id, dataset_version, _RESERVED)
        key = str(given.bucket_directory_path / folder / CACHE_FILE)
        source = f"{self._store.origin}/{key}"
        origin = f"{self._store.origin}/{given.bucket_directory_path}"
        folders = LocalFolders(given.local_cache_dir, origin, folder, source)
        name = f"{self._store.url}/{key}"
        parts = BucketParts(self._store, str(given.bucket_directory_path / dataset_id))
        local = LocalCopy(folders, source, parts)
        return ObjectVersion(dataset_id, dataset_version, name, key, local, parts, folders)

    @property
    def _where(self) -> str:
        return f"{self._store.url}/{self._configurations.bucket_directory_path}"

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_configurations": self._configurations,
            "_tensorflow_config": self._tensorflow_config,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._configurations!r})"


def _told_of(path: pathlib.Path) -> dict[str, str]:
    """What the metadata of an object says of the file that it is."""
    parts = 0
    try:
        header, _ = read_header(path)
    except ForeignFileError:
        with LMDBDataRef(path) as ref:
            count, version = ref.info.record_count, ref.info.format_version
    else:
        count, version, parts = header.record_count, FORMAT_VERSION, header.part_count
    size = path.stat().st_size + sum(parts_of(path).values())
    told = {_RECORDS_KEY: str(count), FORMAT_KEY: str(version), BYTES_KEY: str(size)}
    return {**told, _PARTS_KEY: str(parts)} if parts else told
