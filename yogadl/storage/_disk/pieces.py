"""The pieces of a build on a file system."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Mapping

from yogadl.cache.files import make_folders, telling
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.parts import PARTS_FOLDER, part_path
from yogadl.storage._disk.note import FOLDER_MODE
from yogadl.storage._receipt import LARGEST, UNFINISHED_RECEIPT, receipt_name


class LocalPieces:
    """See ``Pieces``.

    Args:
        path: of the version to be.
        build: its name.
    """

    def __init__(self, path: pathlib.Path, build: str) -> None:
        self._path = path
        self._build = build
        self._folder = path.parent.parent / PARTS_FOLDER

    def store(self, file: PartialFile, digest: bytes) -> bool:
        make_folders(self._folder, FOLDER_MODE)
        file.commit(part_path(self._path, digest))
        return True

    def has(self, sizes: Mapping[bytes, int]) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return all(
                part_path(self._path, digest).stat().st_size == size
                for digest, size in sizes.items()
            )
        return False

    def read(self, number: int) -> bytes | None:
        path = self._folder / receipt_name(self._build, number)
        with telling("read", path), contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            return file.read(LARGEST)
        return None

    def write(self, number: int, receipt: bytes) -> None:
        make_folders(self._folder, FOLDER_MODE)
        path = self._folder / receipt_name(self._build, number)
        with PartialFile(path) as file:
            file.append(receipt)
            file.commit()

    def forget(self) -> None:
        for path in self._folder.glob(f"{self._build}.*.piece"):
            with telling("delete", path):
                path.unlink(missing_ok=True)
        # Of workers that were killed.
        for path in self._folder.glob(f"{self._build}.*.partial"):
            if unfinished := UNFINISHED_RECEIPT.fullmatch(path.name):
                remove_leftovers(self._folder / unfinished[1])
