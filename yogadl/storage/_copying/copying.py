"""Copying versions from one storage into another: only what is missing there, and compared."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from yogadl.cache.file_reader import FileReader
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile, claimed, remove_leftovers
from yogadl.cache.parts import check_file
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    CatalogueError,
    InvalidArgumentError,
)
from yogadl.storage._commits.made import Made
from yogadl.storage._version import Version

_log = logging.getLogger(__name__)

MakeFile = Callable[[], PartialFile]


class Original(Protocol):
    """A stored version that is copied, whose parts stay meanwhile.

    Attributes:
        parts: digests and bytes of its parts, in order; none of a plain file.
        made: of what it is made, if it is a table.
    """

    @property
    def parts(self) -> Mapping[bytes, int]: ...

    @property
    def made(self) -> Made | None: ...

    def append_to(self, file: PartialFile) -> None:
        """Writes its own file into another one.

        Raises:
            CacheFormatError: it is damaged.
        """

    def part(self, digest: bytes, make_file: MakeFile) -> PartialFile:
        """A file with just the part of this digest.

        Args:
            digest: of the part.
            make_file: makes an empty file.

        Raises:
            CacheFormatError: it is damaged.
        """


class OpenOriginal:
    """See ``Original``; one that is on this machine, and open.

    Args:
        ref: the version.
        made: of what it is made, if it is a table.
    """

    def __init__(self, ref: LMDBDataRef, made: Made | None) -> None:
        self._reader = ref.reader
        self._paths = ref.reader.parts_by_digest()
        self.made = made
        self.parts = {digest: os.stat(path).st_size for digest, path in self._paths.items()}
        if ref.info.format_version == 0:
            # That is no digest to compare it with when it is copied.
            ref.verify()

    def append_to(self, file: PartialFile) -> None:
        """See ``Original``."""
        _append_pieces(file, self._reader)
        if self._reader.info.format_version:
            check_file(file.path, bytes.fromhex(self._reader.info.digest))

    def part(self, digest: bytes, make_file: MakeFile) -> PartialFile:
        """See ``Original``."""
        file = make_file()
        try:
            with open_cache(self._paths[digest]) as reader:
                _append_pieces(file, reader)
            check_file(file.path, digest)
        except BaseException:
            file.close()
            raise
        return file


class Copier:
    """Copies versions of an id into a storage, one after another. Not thread-safe.

    Args:
        to: the storage.
        parts: by which parts are stored there, of the id that the copies get.
    """

    def __init__(self, to: Any, parts: Any) -> None:
        self._to = to
        self._parts = parts
        # These were compared, or stored.
        self._known: set[bytes] = set()

    def copy(self, original: Original, target: Version, replaces: bool = True) -> None:
        """Copies a version.

        Args:
            original: it.
            target: what it is to be.
            replaces: whether to replace what is there.

        Raises:
            VersionExistsError: it is not to be replaced, and there.
            CacheFormatError: the original is damaged; the version was not copied.
            StoreError: a bucket cannot be read or written to.
            CatalogueError: a commit that is put back cannot be entered.
        """
        with claimed(target.claim) as path:
            remove_leftovers(path)
            if original.parts:
                # Before they are looked for: from now on, none is collected.
                self._parts.begin()
                self._store_missing(original, target, path)
            with PartialFile(path) as file:
                original.append_to(file)
                self._to._publish(file, target, self._parts, replaces)
        self._see_entered(original.made, target)

    def _store_missing(self, original: Original, target: Version, path: pathlib.Path) -> None:
        sizes = {it: size for it, size in original.parts.items() if it not in self._known}
        missing = self._to._missing_parts(target, sizes) | (self._parts.removed & sizes.keys())
        there = sizes.keys() - missing
        self._parts.adopt(there)
        self._known |= there
        if missing:
            missing -= self._taken(original.made, target, missing)
        for digest in sizes:
            if digest in missing:
                with original.part(digest, lambda: PartialFile(path)) as file:
                    self._parts.store(file, digest)
                self._known.add(digest)
        _log.info("%s: %d of %d parts were there.", target.label, len(there), len(sizes))

    def _taken(self, made: Made | None, target: Version, missing: set[bytes]) -> set[bytes]:
        """Makes parts of the plain file of a parent that was copied before; which."""
        found: set[bytes] = set()
        for _, parent in () if made is None else made.provenance.parents:
            try:
                # What a file says may be anything.
                version = self._to._version(target.dataset_id, parent)
                plain = self._to._made(version)
                may_be = not plain.is_table and plain.digest in missing - self._parts.removed
                if may_be and self._to._take(version, plain, self._parts):
                    found.add(plain.digest)
            except (CacheNotFoundError, CacheFormatError, InvalidArgumentError) as error:
                _log.debug("Nothing is taken of %r: %s", parent, error)
        self._known |= found
        return found

    def _see_entered(self, made: Made | None, target: Version) -> None:
        """Without an entry, a commit that is put back could not be told from one that was killed
        in the storage that made it."""
        going_to = None if made is None else made.going_to
        key = target.dataset_id, target.dataset_version
        if going_to is None or going_to.key != key:
            return
        if self._to._catalogue.load(target.dataset_id).is_uncommitted(key, going_to):
            raise CatalogueError(
                f"{target} is stored, and could not be entered in the catalogue; copy it again"
            )


def _append_pieces(file: PartialFile, reader: FileReader) -> None:
    """Appends all bytes of an open file."""
    for piece in reader.pieces():
        file.append(piece)
