"""Which folder of this machine the copy of an object is in.

All storages with one local cache directory would keep a version of one name in one folder, as
yogadl 0.1.4 does. The first object to use that folder keeps it: its note says which. Other objects,
and other users of the machine, have folders below a root of their own beside it.

Who can write to a folder could have others read what he likes. So a folder counts only if nobody
but this user and root can, from the root down; see ``is_trusted``. What is above the root is the
choice of who configured the local cache directory.
"""

from __future__ import annotations

import errno
import os
import pathlib
import weakref
from collections.abc import Iterator

import xxhash

from yogadl.cache.parts import OBJECTS_FOLDER, PARTS_FOLDER
from yogadl.errors import LocalDirectoryError, StorageFullError
from yogadl.per_process import PerProcess
from yogadl.remote._fetching.work import Space
from yogadl.remote._local.space import FreeSpace, LimitedSpace
from yogadl.storage._disk.lock import local_lock
from yogadl.storage._disk.note import (
    FOLDER_MODE,
    load_note,
    remove_partial_notes,
    save_note,
    trusted_status,
)
from yogadl.storage._paths import CATALOGUE_FOLDER, LOCK_FILE, PIECES_FOLDER

_ROOT = "yogadl_local_cache"


class LocalFolders:
    """The folders that the copy of one object may be in. Safe for threads and processes.

    Args:
        directory: the local cache directory; also an attribute.
        origin: of the bucket and what all its keys begin with; no other store has the same.
        version: the version's folder below a root.
        source: of the object; no other object has the same.

    Attributes:
        pieces: the folder of files that are named by their contents, if there is any.
    """

    def __init__(
        self, directory: pathlib.Path, origin: str, version: pathlib.PurePosixPath, source: str
    ) -> None:
        self.directory = directory
        self._source = source
        digest = xxhash.xxh3_64_hexdigest(origin.encode())
        self._own_root = directory / f"{_ROOT}-{os.geteuid()}-{digest}"
        self.pieces = self._own_root / PIECES_FOLDER
        self._ledger_folder = directory / f"{_ROOT}-{os.geteuid()}"
        self._ledger = self._ledger_folder / "space"
        self._folders = [root / version for root in (directory / _ROOT, self._own_root)]

    def ours(self) -> Iterator[pathlib.Path]:
        """The folders that this object has used."""
        for folder in self._folders:
            if self._is_safe(folder) and load_note(folder).get("source") == self._source:
                yield folder

    def unclaimed(self) -> Iterator[pathlib.Path]:
        """Those that no object has used, though there may be a copy that yogadl 0.1.4 made."""
        for folder in self._folders:
            if self._is_safe(folder) and "source" not in load_note(folder):
                yield folder

    def remove_partial_notes(self) -> None:
        """Removes what was left by who was killed before he had made a folder this object's."""
        for folder in self.unclaimed():
            remove_partial_notes(folder)

    def of_id(self) -> Iterator[pathlib.Path]:
        """The folders of the version's id that are there and safe, whoever uses them."""
        for folder in self._folders:
            if self._is_safe(folder.parent):
                yield folder.parent

    def claim(self) -> pathlib.Path:
        """A folder to write to, which no other object uses.

        Raises:
            LocalDirectoryError: there is none.
            StorageFullError: there is no room to make one.
        """
        for folder in self.ours():
            if _is_writable(folder):
                return folder
        refused = []
        for folder in self._folders:
            try:
                reason = self._claim(folder)
            except OSError as error:
                reason = self._why_not(error)
            if reason is None:
                return folder
            refused.append(reason)
        raise LocalDirectoryError(
            f"no copy can be kept in {self.directory}: {'; '.join(refused)}. Choose a "
            "local_cache_dir that this user may write to"
        )

    def safe_pieces(self) -> pathlib.Path | None:
        """Where what is fetched piece by piece is, if there is any that can be trusted."""
        return self.pieces if _are_pieces_safe(self.directory, self.pieces) else None

    def space(self, limit: int | None) -> Space:
        """Room for that, after :meth:`claim_pieces`.

        Args:
            limit: bytes of what all storages together keep so in the local cache directory.
        """
        if limit is None:
            return FreeSpace(self.directory)
        return _limited(self._ledger, limit, self.directory)

    def limited_space(self, limit: int) -> LimitedSpace:
        """The same, for one download."""
        return _new_limited(self._ledger, limit, self.directory)

    def claim_pieces(self) -> pathlib.Path:
        """The folder for what is fetched of the objects of the same origin, piece by piece.

        Raises:
            LocalDirectoryError: nothing can be kept there.
            StorageFullError: there is no room to make it.
        """
        folder = self.pieces
        try:
            refused = None
            for made in (folder / OBJECTS_FOLDER, folder / PARTS_FOLDER, self._ledger_folder):
                refused = refused or self._make_safe(made)
        except OSError as error:
            refused = self._why_not(error)
        if refused is None and _is_writable(folder):
            return folder
        raise LocalDirectoryError(
            f"nothing can be kept in {self.directory}: {refused or f'{folder} is read-only'}. "
            "Choose a local_cache_dir that this user may write to"
        )

    def catalogue(self) -> pathlib.Path | None:
        """The folder for what is kept of the catalogue; ``None`` if there can be none."""
        folder = self._own_root / CATALOGUE_FOLDER
        try:
            return folder if self._make_safe(folder) is None else None
        except OSError:
            return None

    def _make_safe(self, folder: pathlib.Path) -> str | None:
        """Makes a folder that nobody else can write to; says why that cannot be."""
        for part in _down_to(self.directory, folder):
            if not os.path.lexists(part):
                part.mkdir(FOLDER_MODE, exist_ok=True)
            if trusted_status(part) is None:
                return f"{part} is another user's, or others may write to it"
        return None

    def _claim(self, folder: pathlib.Path) -> str | None:
        """Makes a folder this object's; says why that cannot be."""
        refused = self._make_safe(folder)
        if refused is not None:
            return refused
        with local_lock(folder / LOCK_FILE, f"process that uses {folder}"):
            note = load_note(folder)
            source = note.get("source")
            if isinstance(source, str) and source != self._source:
                return f"{folder} is used for {source}"
            # What 0.1.4 wrote stays: it tells of what state its copy is.
            save_note(folder, {"time_created": 0.0, **note, "source": self._source})
        return None

    def _why_not(self, error: OSError) -> str:
        """Why no folder could be made.

        Raises:
            StorageFullError: there is no room for any.
        """
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(
                f"{self.directory} has no room for another folder; free some, or choose another "
                "local_cache_dir"
            ) from error
        return str(error)

    def _is_safe(self, folder: pathlib.Path) -> bool:
        return _is_safe(self.directory, folder)


def _is_safe(directory: pathlib.Path, folder: pathlib.Path) -> bool:
    return all(trusted_status(part) is not None for part in _down_to(directory, folder))


def _are_pieces_safe(directory: pathlib.Path, folder: pathlib.Path) -> bool:
    # What is removed to make room is in these, which could lead anywhere.
    inner = (folder / OBJECTS_FOLDER, folder / PARTS_FOLDER)
    return all(_is_safe(directory, each) for each in inner)


def _down_to(directory: pathlib.Path, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The root, and every folder from there down."""
    part = directory
    for name in folder.relative_to(directory).parts:
        part = part / name
        yield part


def _is_writable(folder: pathlib.Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=effective)


# One for all who share it, as long as there are any: each may hold some megabytes that it has not
# used yet, and a descriptor.
_limits: PerProcess[weakref.WeakValueDictionary[tuple[pathlib.Path, int], LimitedSpace]] = (
    PerProcess(weakref.WeakValueDictionary)
)


def _limited(ledger: pathlib.Path, limit: int, directory: pathlib.Path) -> LimitedSpace:
    known, key = _limits(), (ledger.absolute(), limit)
    # It may go at any time, but not while it is had here.
    found = known.get(key)
    if found is None:
        found = known.setdefault(key, _new_limited(ledger, limit, directory))
    return found


def _new_limited(ledger: pathlib.Path, limit: int, directory: pathlib.Path) -> LimitedSpace:
    pattern = f"{_ROOT}-{os.geteuid()}-*/{PIECES_FOLDER}"

    def folders() -> list[pathlib.Path]:
        # Anybody may make folders of such names in a directory that many share.
        return [it for it in directory.glob(pattern) if _are_pieces_safe(directory, it)]

    return LimitedSpace(ledger, limit, folders)
