"""Storage on a local file system."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import logging
import os
import pathlib
import stat
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.cache.files import make_folders, moment, shown, telling
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import PARTS_FOLDER, check_file, part_path, parts_of, read_header
from yogadl.cache.record_reader import RecordReader
from yogadl.catalogue import Catalogue, Entry, Key
from yogadl.dataref import LMDBDataRef, StoredDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    CacheReplacedError,
    FileSystemError,
    InvalidArgumentError,
    VersionExistsError,
)
from yogadl.storage._base import CacheStorage, check_configurations
from yogadl.storage._collected import CollectedParts
from yogadl.storage._commits.made import Made, read_made
from yogadl.storage._configurations import LFSConfigurations
from yogadl.storage._copying.copying import OpenOriginal
from yogadl.storage._described import Parents, describe, describe_file, sizes_of
from yogadl.storage._disk.lock import local_lock
from yogadl.storage._disk.objects import LocalObjects
from yogadl.storage._disk.parts import LocalParts
from yogadl.storage._disk.pieces import LocalPieces
from yogadl.storage._disk.scratch import ids_with_leftovers
from yogadl.storage._listed import Listed
from yogadl.storage._paths import (
    CACHE_FILE,
    CATALOGUE_FOLDER,
    LOCK_FILE,
    is_version,
    relative_path,
)
from yogadl.storage._version import Version

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileVersion(Version):
    """A version that is a file.

    Attributes:
        path: of the file.
    """

    path: pathlib.Path

    @property
    def parts(self) -> LocalParts:
        """Of its id."""
        return LocalParts(self.path.parent.parent, self.dataset_id)

    def claim(self) -> pathlib.Path:
        folder = self.path.parent
        make_folders(folder)
        # An empty one that nobody has claimed for long is removed.
        with contextlib.suppress(OSError):
            os.utime(folder)
        return self.path


class _PartFiles:
    """See ``Parts``. From the first part on, nothing is collected.

    Attributes:
        has_replaced_table: whether what was published did.
        removed: see ``Parts``.
    """

    def __init__(self, version: FileVersion, stack: contextlib.ExitStack) -> None:
        self._version = version
        self._stack = stack
        self._is_kept = False
        self.has_replaced_table = False
        self.removed: frozenset[bytes] = frozenset()

    def begin(self) -> None:
        """Has nothing collected from now on."""
        if not self._is_kept:
            self._stack.enter_context(self._version.parts.kept())
            self._is_kept = True

    def store(self, file: PartialFile, digest: bytes) -> bool:
        self.begin()
        file.commit(part_path(self._version.path, digest))
        return True

    def adopt(self, digests: Iterable[bytes]) -> None:
        """See ``Parts.adopt``: while nothing is collected, there is nothing to tell anybody."""


@dataclass(frozen=True)
class _FileTurn:
    """See ``Turn``."""

    storage: LFSStorage
    version: FileVersion

    def publish(self, file: PartialFile, parts: _PartFiles) -> StoredDataRef | None:
        self.storage._publish(file, self.version, parts)
        try:
            return self.storage._fetch(self.version, check_records=False)
        except CacheNotFoundError:
            # Somebody has deleted it.
            return None


class LFSStorage(CacheStorage[FileVersion]):
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
        self._catalogue = Catalogue(LocalObjects(directory / CATALOGUE_FOLDER))

    # It would be of the user who looks, and as his umask has it.
    _looking_begins_catalogue = False

    def _fetch(self, version: FileVersion, check_records: bool) -> LMDBDataRef:
        try:
            return LMDBDataRef(version.path, check_records=check_records)
        except CacheNotFoundError as error:
            raise self._missing(version) from error

    def _listed(self, dataset_id: str | None) -> Iterator[Listed]:
        root = self._configurations.storage_dir_path
        folder = root
        if dataset_id is not None:
            folder = self._version(dataset_id, "any").path.parent.parent
        for path, status in _cache_files(folder):
            *parts, version = path.parent.relative_to(root).parts or ("",)
            name = "/".join(parts)
            if dataset_id in (None, name) and is_version(name, version):
                yield _listed(name, version, path, status)

    def _look(self, version: FileVersion) -> Listed | None:
        try:
            with telling("look for", version.path):
                status = os.stat(version.path)
        except FileSystemError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return None
        return _listed(version.dataset_id, version.dataset_version, version.path, status)

    def _described(self, listed: Sequence[Listed]) -> Iterator[tuple[Listed, Entry]]:
        for each in listed:
            with contextlib.suppress(FileNotFoundError):
                yield self._describe(each)

    def _describe(self, listed: Listed) -> tuple[Listed, Entry]:
        """What a file says of its version, and how it was found to be."""
        path = listed.source
        try:
            with open(path, "rb", buffering=0) as file:
                found = _listed(*listed.key, path, os.fstat(file.fileno()))
                has_parents = True

                def read(offset: int, length: int) -> bytes:
                    return os.pread(file.fileno(), length, offset)

                def sizes(parents: Parents) -> tuple[int, int | None]:
                    return sizes_of(parts_of(path), parents, parts_of_parent)

                def parts_of_parent(key: Key) -> dict[bytes, int]:
                    nonlocal has_parents
                    theirs = self._parts_of(key)
                    has_parents = has_parents and bool(theirs)
                    return theirs

                entry = describe(found.key, found.size, found.tag, read, sizes)
                # They may be copied a moment later.
                return found, dataclasses.replace(entry, is_sure=entry.is_sure and has_parents)
        except FileNotFoundError:
            raise
        except OSError as error:
            _log.warning("Of %s, nothing is known: %s", shown(path), error.strerror)
            size = listed.size
            return listed, Entry(*listed.key, size, listed.tag, size=size, is_sure=False)

    def _parts_of(self, key: Key) -> dict[bytes, int]:
        """The parts of a version, and their bytes; none of one that cannot be read.

        A plain file is a part of what is made of it.
        """
        with contextlib.suppress(CacheFormatError, FileSystemError, InvalidArgumentError):
            path = self._version(*key).path
            header, _ = read_header(path)
            return parts_of(path) or {header.digest: header.file_size}
        return {}

    def _prove_tags(self, version: FileVersion) -> None:
        """Locks and renames are what a local file system has."""

    def _delete(self, version: FileVersion, listed: Listed, collects: bool = True) -> bool:
        try:
            was_table = version.parts.remove(
                version.path, lambda: self._check_state(version, listed.tag)
            )
        except CacheReplacedError:
            _log.info("%s was replaced or deleted meanwhile.", version.label)
            return False
        except FileSystemError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            _log.info("%s was deleted by somebody else.", version.label)
            return True
        if was_table and collects:
            self._collect_after(version)
        return True

    # Copying

    @contextlib.contextmanager
    def _original(self, version: FileVersion) -> Iterator[OpenOriginal]:
        with self._fetch(version, check_records=False) as ref:
            made = self._made(version) if ref.reader.parts_by_digest() else None
            yield OpenOriginal(ref, made)

    def _missing_parts(self, version: FileVersion, sizes: Mapping[bytes, int]) -> set[bytes]:
        return {it for it in sizes if not _is_whole(part_path(version.path, it), it)}

    # Versions made of others

    def _made(self, version: FileVersion) -> Made:
        try:
            header, file = read_header(version.path)
        except FileSystemError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise self._missing(version) from error
        del header
        array, name = file.array, shown(version.path)
        return read_made(
            version.dataset_version,
            len(array),
            lambda start, stop: array[start:stop].tobytes(),
            np.empty(len(array), "u1"),
            name,
        )

    def _open_here(self, version: FileVersion) -> StoredDataRef:
        return self._fetch(version, check_records=False)

    def _open_part(self, version: FileVersion, digest: bytes) -> RecordReader:
        return open_cache(part_path(version.path, digest))

    def _take(self, version: FileVersion, made: Made, parts: _PartFiles) -> bool:
        parts.begin()
        path = part_path(version.path, made.digest)
        staged = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
        with telling("link", path):
            if path.exists():
                return True
            try:
                os.link(version.path, staged)
                # It may have been replaced.
                if read_header(staged)[0].digest != made.digest:
                    return False
                os.replace(staged, path)
            except FileNotFoundError:
                return False
            finally:
                # Of two names of one file, none is replaced.
                staged.unlink(missing_ok=True)
        return True

    def _publish_new(self, file: PartialFile, version: FileVersion, parts: _PartFiles) -> Entry:
        del parts
        entry = describe_file((version.dataset_id, version.dataset_version), file, self._parts_of)
        tag = _tag(os.fstat(file.fileno()))
        try:
            version.parts.publish(file, version.path, replaces=False)
        except FileSystemError as error:
            if error.errno != errno.EEXIST:
                raise
            raise VersionExistsError(f"there is a {version} already") from error
        _log.info("Stored %s in %s.", version.label, shown(version.path))
        return dataclasses.replace(entry, object_tag=tag)

    def _publish_again(
        self, file: PartialFile, version: FileVersion, parts: _PartFiles, listed: Listed
    ) -> Entry:
        entry = describe_file((version.dataset_id, version.dataset_version), file, self._parts_of)
        tag = _tag(os.fstat(file.fileno()))
        parts.has_replaced_table = version.parts.publish(
            file, version.path, check=lambda: self._check_state(version, listed.tag)
        )
        return dataclasses.replace(entry, object_tag=tag)

    def _withdraw(self, version: FileVersion, tag: str) -> None:
        with contextlib.suppress(CacheReplacedError):
            version.parts.remove(version.path, lambda: self._check_state(version, tag))

    def _check_state(self, version: FileVersion, tag: str) -> None:
        """Raises if a version is not in this state."""
        found = self._look(version)
        if found is None or found.tag != tag:
            raise self._replaced(version)

    @contextlib.contextmanager
    def _adding(self, version: FileVersion, _may_stamp: bool, /) -> Iterator[_PartFiles]:
        with contextlib.ExitStack() as stack:
            parts = _PartFiles(version, stack)
            yield parts
        if parts.has_replaced_table:
            self._collect_after(version)

    def _publish(
        self, file: PartialFile, version: FileVersion, parts: _PartFiles, replaces: bool = True
    ) -> None:
        if not replaces:
            self._enter(self._publish_new(file, version, parts))
            return
        entry = describe_file((version.dataset_id, version.dataset_version), file, self._parts_of)
        tag = _tag(os.fstat(file.fileno()))
        parts.has_replaced_table = version.parts.publish(file, version.path)
        _log.info("Stored %s in %s.", version.label, shown(version.path))
        self._enter(dataclasses.replace(entry, object_tag=tag))

    def _collect(
        self,
        dataset_id: str,
        older_than: datetime.timedelta | None,
        dry_run: bool,
        doomed: Collection[str] = (),
    ) -> CollectedParts:
        return self._version(dataset_id, "any").parts.collect(older_than, dry_run, doomed)

    def _collect_copies(self) -> None:
        """What is here is no copy."""

    def _folders_here(self, dataset_id: str) -> list[pathlib.Path]:
        return [self._version(dataset_id, "any").path.parent.parent]

    def _ids_with_leftovers(self) -> Iterator[str]:
        for name in ids_with_leftovers(self._configurations.storage_dir_path):
            if is_version(name, "any"):
                yield name

    def _ids_of_parts(self) -> Iterator[str]:
        root = self._configurations.storage_dir_path
        for at, folders, _ in os.walk(root):
            if PARTS_FOLDER in folders:
                folders.remove(PARTS_FOLDER)
                name = pathlib.Path(at).relative_to(root).as_posix()
                if is_version(name, "any"):
                    yield name

    @contextlib.contextmanager
    def _turn(self, version: FileVersion) -> Iterator[_FileTurn | StoredDataRef]:
        lock = version.claim().with_name(LOCK_FILE)
        with local_lock(lock, f"builder of {version.label}"):
            found = self._fetch_usable(version)
            yield _FileTurn(self, version) if found is None else found

    def _pieces(
        self, version: FileVersion, build: str, _removed: frozenset[bytes], /
    ) -> LocalPieces:
        return LocalPieces(version.path, build)

    def _version(self, dataset_id: str, dataset_version: str) -> FileVersion:
        folder = relative_path(dataset_id, dataset_version)
        path = self._configurations.storage_dir_path / folder / CACHE_FILE
        return FileVersion(dataset_id, dataset_version, str(path.absolute()), path)

    @property
    def _where(self) -> str:
        return shown(self._configurations.storage_dir_path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._where!r})"


def _is_whole(path: pathlib.Path, digest: bytes) -> bool:
    """Whether a file is there and is the part of a digest."""
    try:
        check_file(path, digest)
    except FileSystemError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return False
    except CacheFormatError as error:
        _log.warning("%s is stored again: %s", shown(path), error)
        return False
    return True


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
                # Of parts, there may be a hundred thousand, and none is a version.
                if entry.name not in (PARTS_FOLDER, CATALOGUE_FOLDER):
                    folders.append(entry.path)
            elif entry.name == CACHE_FILE:
                try:
                    status = os.stat(entry.path)
                except OSError as error:
                    _log.debug("Cannot ask for %s: %s", shown(entry.path), error.strerror)
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield pathlib.Path(entry.path), status


def _listed(name: str, version: str, path: pathlib.Path, status: os.stat_result) -> Listed:
    created = moment(status.st_mtime)
    return Listed(name, version, status.st_size, _tag(status), created, path)


def _tag(status: os.stat_result) -> str:
    """Tells a file from any that has its name before or after it."""
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}"
