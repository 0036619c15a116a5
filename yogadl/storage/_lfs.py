"""Storage on a local file system."""

from __future__ import annotations

import datetime
import errno
import logging
import os
import pathlib
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yogadl.adapters import open_source
from yogadl.cache.files import make_folders, shown, telling
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.writer import CacheWriter
from yogadl.core import Submittable
from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheNotFoundError, FileSystemError, InvalidArgumentError
from yogadl.storage._base import CacheStorage, StoredVersion, check_configurations
from yogadl.storage._configurations import LFSConfigurations
from yogadl.storage._local_lock import local_lock
from yogadl.storage._paths import CACHE_FILE, LOCK_FILE, relative_path

_log = logging.getLogger(__name__)


class LFSStorage(CacheStorage):
    """Data sets in ``<storage_dir_path>/<dataset_id>/<dataset_version>/cache.mdb``.

    Safe for threads and processes; can be pickled if ``tensorflow_config`` is ``None``.

    Args:
        configurations: where: a directory, or an ``LFSConfigurations`` of it.
        tensorflow_config: a ``tf.compat.v1.ConfigProto`` for reading data sets of graph mode.

    Raises:
        InvalidArgumentError: there is no such directory, nor one to make it in.
        FileSystemError: it cannot be made.
    """

    def __init__(
        self,
        configurations: LFSConfigurations | str | os.PathLike[str],
        tensorflow_config: Any = None,
    ) -> None:
        if isinstance(configurations, str | os.PathLike):
            configurations = LFSConfigurations(configurations)
        if not isinstance(configurations, LFSConfigurations):
            raise InvalidArgumentError(
                f"LFSStorage takes a directory or LFSConfigurations, not {configurations!r:.100}"
            )
        directory = configurations.storage_dir_path
        with telling("use", directory):
            is_new = not directory.exists() and directory.parent.is_dir()
        if is_new:
            make_folders(directory)
        check_configurations("storage_dir_path", directory, configurations.cache_format)
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
        make_folders(path.parent)
        remove_leftovers(path)
        with CacheWriter(path, source.spec, metadata, source.count) as writer:
            source.feed(writer)
            count = writer.commit()
        _log.info(
            "Stored %s:%s, %d records, in %s.", dataset_id, dataset_version, count, shown(path)
        )

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
                f"{self._shown_directory}; submit it first, or use cacheable"
            ) from error

    def list_versions(self, dataset_id: str | None = None) -> list[StoredVersion]:
        """See ``CacheStorage.list_versions``."""
        root = self._configurations.storage_dir_path
        folder = root
        if dataset_id is not None:
            folder = self._cache_path(dataset_id, "any").parent.parent
        found = []
        for path, status in _cache_files(folder):
            *parts, version = path.parent.relative_to(root).parts or ("",)
            name = "/".join(parts)
            if dataset_id in (None, name) and _is_version(name, version):
                created = datetime.datetime.fromtimestamp(status.st_mtime, datetime.timezone.utc)
                found.append(StoredVersion(name, version, status.st_size, created))
        return sorted(found, key=lambda stored: (stored.dataset_id, stored.dataset_version))

    def delete(self, dataset_id: str, dataset_version: str) -> None:
        """See ``CacheStorage.delete``."""
        path = self._cache_path(dataset_id, dataset_version)
        try:
            with telling("delete", path):
                path.unlink()
        except FileSystemError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise CacheNotFoundError(
                f"there is no data set {dataset_id!r} of version {dataset_version!r} to delete in "
                f"{self._shown_directory}"
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
        make_folders(path.parent)
        remove_leftovers(path)
        with PartialFile(path) as file:
            for piece in ref.reader.pieces():
                file.append(piece)
            file.commit()

    def _name(self, dataset_id: str, dataset_version: str) -> str:
        return str(self._cache_path(dataset_id, dataset_version).absolute())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown_directory!r})"

    @property
    def _shown_directory(self) -> str:
        return shown(self._configurations.storage_dir_path)

    def _cache_path(self, dataset_id: str, dataset_version: str) -> pathlib.Path:
        folder = relative_path(dataset_id, dataset_version)
        return self._configurations.storage_dir_path / folder / CACHE_FILE


def _cache_files(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, os.stat_result]]:
    """The cache files below a folder, and what the system says of them.

    What is deleted meanwhile is left out, and so is what this user may not read, with a warning.
    """
    folders = [str(folder)]
    while folders:
        at = folders.pop()
        try:
            with os.scandir(at) as found:
                entries = list(found)
        except (FileNotFoundError, NotADirectoryError):
            _log.debug("%s was deleted meanwhile.", shown(at))
            continue
        except OSError as error:
            _log.warning("Cannot list what is in %s: %s", shown(at), error.strerror)
            continue
        for entry in entries:
            # Links to folders may lead round in a circle.
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.name == CACHE_FILE:
                try:
                    status = os.stat(entry.path)
                except OSError as error:
                    _log.debug("Cannot ask for %s: %s", shown(entry.path), error.strerror)
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield pathlib.Path(entry.path), status


def _is_version(dataset_id: str, dataset_version: str) -> bool:
    """Whether a version can be fetched by these names."""
    try:
        relative_path(dataset_id, dataset_version)
    except InvalidArgumentError:
        return False
    return True
