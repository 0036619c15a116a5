"""The storages in buckets: how versions are fetched, listed and deleted."""

from __future__ import annotations

import abc
import contextlib
import datetime
import functools
import logging
import pathlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from yogadl.arguments import as_flag
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.cache.record_reader import RecordReader
from yogadl.catalogue import Catalogue, Entry, Key
from yogadl.dataref import LMDBDataRef, StoredDataRef
from yogadl.dataref._remote import RemoteDataRef
from yogadl.errors import (
    AccessDeniedError,
    CacheFormatError,
    CacheNotFoundError,
    CacheReplacedError,
    CatalogueError,
    InvalidArgumentError,
    StorageFullError,
    StoreError,
    UnsafeStoreError,
    VersionExistsError,
)
from yogadl.remote._records import RemoteRecords
from yogadl.storage._base import CacheStorage, check_configurations
from yogadl.storage._buckets.conditions import ConditionalWrites
from yogadl.storage._buckets.entries import described_objects
from yogadl.storage._buckets.far import MissingError, is_better_far, open_far
from yogadl.storage._buckets.local_copy import LocalCopy
from yogadl.storage._buckets.part_builder import PartBuilder
from yogadl.storage._buckets.part_collector import PartCollector
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._buckets.publisher import publish, upload_version
from yogadl.storage._buckets.told import told_head, told_of
from yogadl.storage._buckets.version import ObjectVersion
from yogadl.storage._building.pieces import BucketPieces
from yogadl.storage._collected import CollectedParts
from yogadl.storage._commits.made import Made
from yogadl.storage._commits.made_of_object import made_of_object
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._copying.copying import OpenOriginal, Original
from yogadl.storage._copying.objects import FarOriginal
from yogadl.storage._copying.taking import taken
from yogadl.storage._disk.contents import Contents
from yogadl.storage._disk.folders import LocalFolders
from yogadl.storage._disk.kept_segment import KeptSegment
from yogadl.storage._disk.parts import LocalParts
from yogadl.storage._disk.versions import LocalVersions
from yogadl.storage._listed import Listed
from yogadl.storage._objects.bucket_objects import BucketObjects
from yogadl.storage._objects.metadata_keys import BYTES_KEY, FORMAT_KEY, PARTS_KEY
from yogadl.storage._objects.store import (
    ABSENT,
    ObjectGoneError,
    ObjectInfo,
    ObjectStore,
    PreconditionFailedError,
)
from yogadl.storage._one_builder import ATTEMPTS, ObjectTurn, OneBuilder
from yogadl.storage._paths import (
    CACHE_FILE,
    CATALOGUE_FOLDER,
    beyond_parts,
    is_version,
    relative_path,
)

# What is built needs so much room on this machine, and what breaks off is sent again; a request
# takes long enough for its latency not to count.
_PART_BYTES = 256 << 20

_log = logging.getLogger(__name__)


class BaseCloudStorage(CacheStorage[ObjectVersion]):
    """Data sets in ``<bucket_directory_path>/<dataset_id>/<dataset_version>/cache.mdb``.

    What is fetched or submitted is kept in ``local_cache_dir``, too, and not transferred again
    while it is what the bucket has; ``<local_cache_dir>/yogadl_local_cache`` leads to it.

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
    _takes: ClassVar[type[BaseCloudConfigurations]] = BaseCloudConfigurations

    def __init__(
        self, configurations: BaseCloudConfigurations, tensorflow_config: Any = None
    ) -> None:
        if not isinstance(configurations, self._takes):
            raise InvalidArgumentError(
                f"{type(self).__name__} takes {self._takes.__name__}, not a "
                f"{type(configurations).__name__}; by its URL, yogadl.open_storage opens a storage"
            )
        check_configurations(
            "local_cache_dir", configurations.local_cache_dir, configurations.cache_format
        )
        self._configurations = configurations
        self._tensorflow_config = tensorflow_config
        self._start()
        self._store.check()

    def _start(self) -> None:
        self._store = self._open_store()
        self._conditions = conditions = ConditionalWrites(self._store, self._configurations)
        folder = self._configurations.bucket_directory_path / CATALOGUE_FOLDER
        kept = KeptSegment(self._kept_folder)
        self._catalogue = Catalogue(
            BucketObjects(self._store, str(folder), lambda: conditions.are_ruled_out, kept)
        )

    def _kept_folder(self) -> pathlib.Path | None:
        # All versions have it in one place.
        return self._version("any", "any").folders.catalogue()

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
        dataset_version: str | None = None,
        *,
        check_records: bool = False,
        download: bool | None = None,
    ) -> StoredDataRef:
        """See ``CacheStorage.fetch``.

        Args:
            dataset_id: of the version.
            dataset_version: of the version, or a tag, or ``None`` for the newest.
            check_records: see ``LMDBDataRef``; what is not downloaded is always checked.
            download: whether to download all of it, before the first record can be read. If not,
                what is read is fetched when it is needed, and kept. ``None`` downloads it unless
                it is not here yet and has more than 8 GiB, or more than there is room for; or
                ``local_cache_bytes`` is configured.

        Raises:
            InvalidArgumentError: ``download`` or ``check_records`` is none of these.
            StoreError: the bucket cannot be read.
            StorageFullError: the copy does not fit on this machine, or into ``local_cache_bytes``
                with those that are open or pinned; or, without a download, not even a folder does.
            ForeignFileError: it is to be read without a download, and yogadl 0.1.4 wrote it.
        """
        wanted = None if download is None else as_flag("download", download)
        check_records = as_flag("check_records", check_records)

        def fetch(version: ObjectVersion) -> StoredDataRef:
            if wanted is None:
                return self._fetch_best(version, check_records)
            return self._fetch(version, check_records) if wanted else self._far(version)

        return self._fetch_named(dataset_id, dataset_version, fetch)

    def _fetch_best(self, version: ObjectVersion, check_records: bool) -> StoredDataRef:
        info = self._store.head(version.key)
        if info is not None and self._is_better_far(version, info):
            return self._far(version)
        try:
            return self._fetch(version, check_records, info)
        except StorageFullError:
            if info is None or not self._may_be_far(info):
                raise
            # It was here when it was looked for, and others have taken its room since.
            return self._far(version)

    def _may_be_far(self, info: ObjectInfo) -> bool:
        """Whether a version can be read from afar, and should be before it is an error."""
        if self._configurations.local_cache_bytes is None:
            return False
        return self._told(info).metadata.get(FORMAT_KEY, "0") != "0"

    def _told(self, info: ObjectInfo) -> ObjectInfo:
        with contextlib.suppress(ObjectGoneError):
            return told_of(self._store, info)
        # Who opens it sees that it is gone, or another.
        return info

    def _far(self, version: ObjectVersion) -> RemoteDataRef:
        names = version.dataset_id, version.dataset_version
        return RemoteDataRef(functools.partial(self._open_far, *names))

    @property
    def local(self) -> LocalVersions:
        """What is kept on this machine, downloaded or not: to list, pin, and prune."""
        # All ids have it in one folder.
        folders = self._version("any", "any").folders
        return LocalVersions(folders.safe_pieces, lambda *names: self._version(*names).name)

    def _open_far(self, dataset_id: str, dataset_version: str) -> RemoteRecords:
        version = self._version(dataset_id, dataset_version)
        try:
            return self._open_object(version, version.key)
        except MissingError:
            raise self._missing(version) from None

    def _open_object(self, version: ObjectVersion, key: str) -> RemoteRecords:
        """Opens a version, or a part of its id, where it is."""
        limit = self._configurations.local_cache_bytes
        return open_far(self._store, key, version.folders, version.parts, limit)

    def _is_better_far(self, version: ObjectVersion, info: ObjectInfo) -> bool:
        """Whether a version is not here, and too large to be downloaded unasked."""
        if version.local.has(info):
            return False
        info = self._told(info)
        if info.metadata.get(FORMAT_KEY, "0") == "0":
            return False
        told = info.metadata.get(BYTES_KEY, "")
        size = int(told) if told.isdecimal() else info.size
        given = self._configurations
        return is_better_far(size, given.local_cache_dir, given.local_cache_bytes)

    def _fetch(
        self, version: ObjectVersion, check_records: bool, info: ObjectInfo | None = None
    ) -> LMDBDataRef:
        for attempt in range(1, ATTEMPTS + 1):
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
            f"{version.name} was replaced {ATTEMPTS} times while it was downloaded; fetch it when "
            "those who submit it have finished"
        )

    def _listed(self, dataset_id: str | None) -> Iterator[Listed]:
        root = self._configurations.bucket_directory_path
        folder = root if dataset_id is None else root / relative_path(dataset_id, "any").parent
        prefix = "" if str(folder) == "." else f"{folder}/"
        for info in self._store.list(prefix, beyond_parts):
            path = pathlib.PurePosixPath(info.key)
            if path.name != CACHE_FILE or not path.is_relative_to(root):
                continue
            *folders, _ = path.relative_to(root).parts
            name, version = "/".join(folders[:-1]), "".join(folders[-1:])
            if dataset_id in (None, name) and is_version(name, version):
                yield _listed((name, version), info)

    def _look(self, version: ObjectVersion) -> Listed | None:
        info = self._store.head(version.key)
        names = version.dataset_id, version.dataset_version
        return None if info is None else _listed(names, info)

    def _described(self, listed: Sequence[Listed]) -> Iterator[tuple[Listed, Entry]]:
        for entry in described_objects(self._store, [(it.key, it.source) for it in listed]):
            info, found = entry
            yield _listed(found.key, info), found

    def _prove_tags(self, version: ObjectVersion) -> None:
        if not self._conditions.decide_races(version.key):
            raise UnsafeStoreError(
                f"versions in {self._store.url} cannot be tagged or changed, since of two who move "
                f"a tag, both might think that they did: {self._conditions.why_ruled_out}"
            )

    def _delete(self, version: ObjectVersion, listed: Listed, collects: bool = True) -> bool:
        is_table = collects and PARTS_KEY in self._told(listed.source).metadata
        if not self._store.delete(version.key, listed.tag):
            return False
        version.local.remove()
        if is_table:
            self._collect_after(version)
        return True

    # Collecting

    def _collect(
        self,
        dataset_id: str,
        older_than: datetime.timedelta | None,
        dry_run: bool,
        doomed: Collection[str] = (),
    ) -> CollectedParts:
        version = self._version(dataset_id, "any")
        if not self._conditions.decide_races(version.key):
            raise UnsafeStoreError(
                f"parts in {self._store.url} cannot be collected, since nobody could say which are "
                f"about to be used: {self._conditions.why_ruled_out}"
            )
        folders = version.local.id_folders()
        for folder in folders:
            LocalParts(folder, dataset_id).collect(None, dry_run)
        collector = PartCollector(
            self._store, version.parts, dataset_id, [folder / PARTS_FOLDER for folder in folders]
        )
        return collector.collect(older_than, dry_run, doomed)

    def _collect_copies(self) -> None:
        # All ids have it in one folder; and whom the bucket lets change what does not matter.
        self._version("any", "any").local.collect()

    def _folders_here(self, dataset_id: str) -> list[pathlib.Path]:
        return self._version(dataset_id, "any").local.id_folders()

    def _ids_with_leftovers(self) -> Iterator[str]:
        # The local cache directory is that of other storages, too.
        return iter(())

    def _ids_of_parts(self) -> Iterator[str]:
        root = self._configurations.bucket_directory_path
        prefix = "" if str(root) == "." else f"{root}/"
        for info in self._store.list(prefix, beyond_parts):
            *folders, _ = info.key.removeprefix(prefix).split("/")
            if folders[-1:] == [PARTS_FOLDER] and folders[:-1]:
                yield "/".join(folders[:-1])

    # Building

    def _turn(
        self, version: ObjectVersion
    ) -> contextlib.AbstractContextManager[ObjectTurn | StoredDataRef | None]:
        builder = OneBuilder(
            self._store,
            self._configurations,
            self._conditions,
            self._storage_type,
            self._fetch_usable,
            self._enter,
        )
        return builder.turn(version)

    def _pieces(
        self, version: ObjectVersion, build: str, removed: frozenset[bytes], /
    ) -> BucketPieces:
        return BucketPieces(version.parts, build, removed)

    # Copying

    @contextlib.contextmanager
    def _original(self, version: ObjectVersion) -> Iterator[Original]:
        info = told_head(self._store, version.key)
        if info is None:
            raise self._missing(version)
        with contextlib.ExitStack() as stack:
            near: OpenOriginal | None = None
            is_table = PARTS_KEY in info.metadata
            if not is_table or version.local.has(info):
                ref = stack.enter_context(self._fetch(version, not is_table, info))
                near = OpenOriginal(ref, None)
            if near is not None and not near.parts:
                yield near
                return
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="yogadl"))
            try:
                far = FarOriginal(self._store, info, version, pathlib.Path(folder), near)
            except ObjectGoneError:
                raise self._replaced(version) from None
            yield far

    def _missing_parts(self, version: ObjectVersion, sizes: Mapping[bytes, int]) -> set[bytes]:
        return version.parts.missing(sizes)

    # Versions made of others

    def _made(self, version: ObjectVersion) -> Made:
        for _ in range(ATTEMPTS):
            info = self._store.head(version.key)
            if info is None:
                raise self._missing(version)
            with contextlib.suppress(ObjectGoneError):
                return made_of_object(self._store, info, version)
        raise StoreError(f"{version.name} is replaced again and again while it is read")

    def _open_here(self, version: ObjectVersion) -> StoredDataRef:
        return self._far(version)

    def _open_part(self, version: ObjectVersion, digest: bytes) -> RecordReader:
        key = version.parts.key(digest)
        try:
            return self._open_object(version, key)
        except MissingError:
            raise CacheNotFoundError(
                f"{self._store.url}/{key} was lost since it was stored"
            ) from None

    def _take(self, version: ObjectVersion, made: Made, parts: PartBuilder) -> bool:
        def fetch(info: ObjectInfo) -> LMDBDataRef:
            return self._fetch(version, True, info)

        if parts.is_removed(made.digest):
            # It may get this name in two days, and others at once.
            with contextlib.suppress(CacheReplacedError):
                self.compact(version.dataset_id, version.dataset_version)
            return False
        info = taken(self._store, self._conditions, version, made.digest, parts, fetch)
        if info is None:
            return False
        if self._conditions.decide_races(version.key):
            names = version.dataset_id, version.dataset_version
            try:
                self._make_table(version, _listed(names, info), made, parts)
            except (AccessDeniedError, CacheReplacedError, CatalogueError) as error:
                # Then it is stored twice. Whoever replaced it may have done just this.
                _log.info("%s stays a plain file: %s", version, error)
                parts.may_publish = False
        return True

    def _publish_new(self, file: PartialFile, version: ObjectVersion, parts: PartBuilder) -> Entry:
        try:
            return upload_version(self._store, file, version, parts, ABSENT)
        except PreconditionFailedError:
            raise VersionExistsError(f"there is a {version} already") from None

    def _publish_again(
        self, file: PartialFile, version: ObjectVersion, parts: PartBuilder, listed: Listed
    ) -> Entry:
        try:
            return upload_version(self._store, file, version, parts, listed.tag)
        except PreconditionFailedError:
            raise self._replaced(version) from None

    def _withdraw(self, version: ObjectVersion, tag: str) -> None:
        self._store.delete(version.key, tag)

    # Publishing

    def _adding(
        self, version: ObjectVersion, may_stamp: bool, /
    ) -> contextlib.AbstractContextManager[PartBuilder]:
        return PartBuilder(
            version.parts,
            lambda: version.claim().parent.parent / PARTS_FOLDER,
            lambda: self._conditions.decide_races(version.key),
            may_stamp,
        )

    def _publish(
        self, file: PartialFile, version: ObjectVersion, parts: PartBuilder, replaces: bool = True
    ) -> None:
        # Without conditional writes, nobody can say that it replaces nothing.
        is_told = not replaces and self._conditions.are_heeded(version.key)
        if_tag = ABSENT if is_told else None
        try:
            self._enter(publish(self._store, file, version, parts, if_tag).entry)
        except PreconditionFailedError:
            raise VersionExistsError(f"there is a {version} already") from None

    # Names

    def _version(self, dataset_id: str, dataset_version: str) -> ObjectVersion:
        given = self._configurations
        folder = relative_path(dataset_id, dataset_version)
        key = str(given.bucket_directory_path / folder / CACHE_FILE)
        source = f"{self._store.origin}/{key}"
        origin = f"{self._store.origin}/{given.bucket_directory_path}"
        folders = LocalFolders(given.local_cache_dir, origin, folder, source)
        name = f"{self._store.url}/{key}"
        parts = BucketParts(self._store, str(given.bucket_directory_path / dataset_id))
        contents = Contents(folders, name, given.local_cache_bytes)
        local = LocalCopy(folders, source, parts, contents)
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


def _listed(key: Key, info: ObjectInfo) -> Listed:
    return Listed(*key, info.size, info.tag, info.created, info)
