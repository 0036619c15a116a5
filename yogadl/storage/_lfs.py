"""Storage on a local file system."""

from __future__ import annotations

import contextlib
import functools
import logging
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import filelock

from yogadl.adapters import open_source
from yogadl.cache.partial import remove_leftovers
from yogadl.cache.writer import CacheWriter
from yogadl.core import Params, Storage, Submittable
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    InvalidArgumentError,
    UnsupportedFormatError,
    YogadlError,
)
from yogadl.storage._paths import CACHE_FILE, LOCK_FILE, relative_path

_POLL_SECONDS = 0.05

_log = logging.getLogger(__name__)
_held = threading.local()


class LFSConfigurations:
    """Where an :class:`LFSStorage` keeps its data sets.

    Args:
        storage_dir_path: an existing directory. Renames within it must be atomic and file locks
            must work: a local file system, not NFS.
    """

    def __init__(self, storage_dir_path: str | pathlib.Path) -> None:
        self.storage_dir_path = pathlib.Path(storage_dir_path)
        self.cache_format = "LMDB"


class LFSStorage(Storage):
    """Data sets in ``<storage_dir_path>/<dataset_id>/<dataset_version>/cache.mdb``.

    Safe for threads and processes; can be pickled if ``tensorflow_config`` is ``None``.

    Args:
        configurations: where.
        tensorflow_config: a ``tf.compat.v1.ConfigProto`` for reading data sets of graph mode.

    Raises:
        InvalidArgumentError: the directory does not exist.
    """

    def __init__(self, configurations: LFSConfigurations, tensorflow_config: Any = None) -> None:
        if not configurations.storage_dir_path.is_dir():
            raise InvalidArgumentError(
                f"storage_dir_path {str(configurations.storage_dir_path)!r} is not a directory; "
                "create it first"
            )
        if configurations.cache_format != "LMDB":
            raise InvalidArgumentError(
                f"cache_format must be 'LMDB', not {configurations.cache_format!r}"
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

    def cacheable(
        self,
        dataset_id: str,
        dataset_version: str,
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[Params, Any]], Callable[Params, LMDBDataRef]]:
        """See ``Storage.cacheable``.

        A stored file that cannot be read, as a killed yogadl 0.1.4 leaves it, is built again; one
        of a newer yogadl is an error. The wait for another builder can be interrupted, and ends at
        once when that builder dies.
        """
        self._cache_path(dataset_id, dataset_version)

        def decorate(function: Callable[Params, Any]) -> Callable[Params, LMDBDataRef]:
            @functools.wraps(function)
            def create_dataref(*args: Params.args, **kwargs: Params.kwargs) -> LMDBDataRef:
                # A published file is whole, so reading it takes no lock, which on a read-only
                # file system could not be had.
                found = self._fetch_usable(dataset_id, dataset_version)
                if found is not None:
                    return found
                with self._lock(dataset_id, dataset_version):
                    found = self._fetch_usable(dataset_id, dataset_version)
                    if found is not None:
                        return found
                    data = function(*args, **kwargs)
                    self.submit(data, dataset_id, dataset_version, spec=spec, metadata=metadata)
                    return self.fetch(dataset_id, dataset_version)

            return create_dataref

        return decorate

    def _fetch_usable(self, dataset_id: str, dataset_version: str) -> LMDBDataRef | None:
        try:
            return self.fetch(dataset_id, dataset_version)
        except CacheNotFoundError:
            return None
        except UnsupportedFormatError:
            raise
        except CacheFormatError as error:
            _log.warning("Building %s:%s again: %s", dataset_id, dataset_version, error)
            return None

    @contextlib.contextmanager
    def _lock(self, dataset_id: str, dataset_version: str) -> Iterator[None]:
        path = self._cache_path(dataset_id, dataset_version).with_name(LOCK_FILE)
        path.parent.mkdir(parents=True, exist_ok=True)
        held: set[pathlib.Path] = _held.__dict__.setdefault("paths", set())
        if path in held:
            raise YogadlError(
                f"the function that makes {dataset_id!r} version {dataset_version!r} calls itself "
                "through cacheable; it would wait for itself for ever"
            )
        lock = filelock.FileLock(path)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            _log.info("Waiting for another builder of %s:%s.", dataset_id, dataset_version)
            lock.acquire(poll_interval=_POLL_SECONDS)
        held.add(path)
        try:
            yield
        finally:
            held.discard(path)
            lock.release()

    def _cache_path(self, dataset_id: str, dataset_version: str) -> pathlib.Path:
        folder = relative_path(dataset_id, dataset_version)
        return self._configurations.storage_dir_path / folder / CACHE_FILE
