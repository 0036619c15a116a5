"""Versions in buckets that are copied without downloading more than is missing elsewhere."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import check_file, parts_of, read_header
from yogadl.errors import CacheFormatError, ChecksumError
from yogadl.storage._buckets.version import ObjectVersion
from yogadl.storage._commits.made import Made, read_made
from yogadl.storage._copying.copying import MakeFile, OpenOriginal
from yogadl.storage._objects.metadata_keys import CONTENT_KEY
from yogadl.storage._objects.store import ObjectInfo, ObjectStore
from yogadl.storage._objects.transfer import download

_DOWNLOADS = 3


class FarOriginal:
    """See ``Original``; a table whose parts are downloaded when they are asked for.

    Args:
        store: the bucket.
        info: the version's object.
        version: the version.
        folder: on this machine, for its own file.
        near: the copy on this machine, of which parts are used if they are whole.

    Raises:
        ObjectGoneError: it was deleted or replaced.
        CacheFormatError: it is damaged.
    """

    def __init__(
        self,
        store: ObjectStore,
        info: ObjectInfo,
        version: ObjectVersion,
        folder: pathlib.Path,
        near: OpenOriginal | None,
    ) -> None:
        self._version = version
        self._near = near
        self._path = folder / "table.mdb"
        _download_table(store, info, self._path)
        self.parts: Mapping[bytes, int] = parts_of(self._path)
        header, mapped = read_header(self._path)
        self.made: Made | None = read_made(
            version.dataset_version,
            header.file_size,
            lambda start, stop: mapped.array[start:stop].tobytes(),
            mapped.array.copy(),
            version.name,
        )

    def append_to(self, file: PartialFile) -> None:
        """See ``Original``."""
        file.append(self._path.read_bytes())

    def part(self, digest: bytes, make_file: MakeFile) -> PartialFile:
        """See ``Original``."""
        if self._near is not None and digest in self._near.parts:
            try:
                return self._near.part(digest, make_file)
            except CacheFormatError:
                # The copy's disk has damaged it.
                self._near = None
        found = self._version.local.copied(digest, self.parts[digest], make_file)
        return found or self._version.parts.load(digest, make_file, self._version.name)


def _download_table(store: ObjectStore, info: ObjectInfo, path: pathlib.Path) -> None:
    digest = info.metadata.get(CONTENT_KEY, "")
    for attempt in range(1, _DOWNLOADS + 1):
        with PartialFile(path) as file:
            download(store, info, file)
            try:
                check_file(file.path, bytes.fromhex(digest))
            except ChecksumError:
                if attempt == _DOWNLOADS:
                    raise
                continue
            file.commit()
            return
