"""Storage on a local file system."""

from __future__ import annotations

import datetime
import logging
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from yogadl.adapters import open_source
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.writer import CacheWriter
from yogadl.core import Submittable
from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheNotFoundError
from yogadl.storage._base import CacheStorage, StoredVersion, check_configurations
from yogadl.storage._local_lock import local_lock
from yogadl.storage._paths import CACHE_FILE, LOCK_FILE, relative_path

_log = logging.getLogger(__name__)


class LFSConfigurations:
    """Where an :class:`LFSStorage` keeps its data sets.

    Args:
        storage_dir_path: an existing directory. Renames within it must be atomic and file locks
            must work: a local file system, not NFS.
    """

    def __init__(self, storage_dir_path: str | pathlib.Path) -> None:
        self.storage_dir_path = pathlib.Path(storage_dir_path)
        self.cache_format = "LMDB"


class LFSStorage(CacheStorage):
    """Data sets in ``<storage_dir_path>/<dataset_id>/<dataset_version>/cache.mdb``.

    Safe for threads and processes; can be pickled if ``tensorflow_config`` is ``None``.

    Args:
        configurations: where.
        tensorflow_config: a ``tf.compat.v1.ConfigProto`` for reading data sets of graph mode.

    Raises:
        InvalidArgumentError: the directory does not exist.
    """

    def __init__(self, configurations: LFSConfigurations, tensorflow_config: Any = None) -> None:
        check_configurations(
            "storage_dir_path", configurations.storage_dir_path, configurations.cache_format
        )
        self._configurations = configurations
        self._tensorflow_config = tensorflow_config

    def submit(
        self,
        data: Submittable,
        dataset_id: str,
        dataset_version: str,
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """See ``Storage.submit``. Readers of a version that is replaced keep the old one."""
        path = self._cache_path(dataset_id, dataset_version)
        source = open_source(data, spec, self._tensorflow_config)
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        with CacheWriter(path, source.spec, metadata, source.count) as writer:
            source.feed(writer)
            count = writer.commit()
        _log.info("Stored %s:%s, %d records, in %s.", dataset_id, dataset_version, count, path)

    def fetch(
        self, dataset_id: str, dataset_version: str, *, check_records: bool = False
    ) -> LMDBDataRef:
        """See ``Storage.fetch``; for ``check_records``, see ``LMDBDataRef``."""
        path = self._cache_path(dataset_id, dataset_version)
        try:
            return LMDBDataRef(path, check_records=check_records)
        except CacheNotFoundError as error:
            raise CacheNotFoundError(
                f"no data set {dataset_id!r} of version {dataset_version!r} in "
                f"{self._configurations.storage_dir_path}; submit it first, or use cacheable"
            ) from error

    def list_versions(self, dataset_id: str | None = None) -> list[StoredVersion]:
        """See ``CacheStorage.list_versions``."""
        root = self._configurations.storage_dir_path
        folder = root
        if dataset_id is not None:
            folder = self._cache_path(dataset_id, "any").parent.parent
        found = []
        for path in folder.rglob(CACHE_FILE):
            *parts, version = path.parent.relative_to(root).parts or ("",)
            name = "/".join(parts)
            if not name or dataset_id not in (None, name) or not path.is_file():
                continue
            status = path.stat()
            created = datetime.datetime.fromtimestamp(status.st_mtime, datetime.timezone.utc)
            found.append(StoredVersion(name, version, status.st_size, created))
        return sorted(found, key=lambda stored: (stored.dataset_id, stored.dataset_version))

    def delete(self, dataset_id: str, dataset_version: str) -> None:
        """See ``CacheStorage.delete``."""
        path = self._cache_path(dataset_id, dataset_version)
        try:
            path.unlink()
        except FileNotFoundError as error:
            raise CacheNotFoundError(
                f"there is no data set {dataset_id!r} of version {dataset_version!r} to delete in "
                f"{self._configurations.storage_dir_path}"
            ) from error

    def _build(
        self,
        make: Callable[[], Any],
        dataset_id: str,
        dataset_version: str,
        spec: Any,
        metadata: Mapping[str, Any] | None,
    ) -> LMDBDataRef:
        lock = self._cache_path(dataset_id, dataset_version).with_name(LOCK_FILE)
        with local_lock(lock, f"builder of {dataset_id}:{dataset_version}"):
            found = self._fetch_usable(dataset_id, dataset_version)
            if found is not None:
                return found
            self.submit(make(), dataset_id, dataset_version, spec=spec, metadata=metadata)
            return self.fetch(dataset_id, dataset_version)

    def _publish_copy(self, ref: LMDBDataRef, dataset_id: str, dataset_version: str) -> None:
        path = self._cache_path(dataset_id, dataset_version)
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        with PartialFile(path) as file:
            for piece in ref.reader.pieces():
                file.append(piece)
            file.commit()

    def _name(self, dataset_id: str, dataset_version: str) -> str:
        return str(self._cache_path(dataset_id, dataset_version).absolute())

    def _cache_path(self, dataset_id: str, dataset_version: str) -> pathlib.Path:
        folder = relative_path(dataset_id, dataset_version)
        return self._configurations.storage_dir_path / folder / CACHE_FILE
