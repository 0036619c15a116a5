"""Files and folders that data is made of, as users declare them."""

from __future__ import annotations

import os
import pathlib
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import xxhash

from yogadl.dataref import IndexedDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.recipes._document import Item, digest_of

_PIECE = 4 << 20
_MOST_KNOWN = 100_000
_SETTLED_NS = 2_000_000_000

_known: dict[tuple[str, int, int, int, int], str] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class FileInput:
    """A file or folder that data is made of.

    Where it is does not count, nor do times and rights of files. Of a folder, the names and
    contents of all files in it count, and the names of empty folders. Links are followed.

    Args:
        path: of the file or folder.
        by: ``"content"``, which reads all of it, once as long as it does not change; or ``"time"``,
            which is fast: the sizes of the files and when they were changed.

    Raises:
        InvalidArgumentError: it is no path, or there is no such way to compare.
    """

    path: str | os.PathLike[str]
    by: str = "content"

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise InvalidArgumentError(f"an input is the path of a file, not {self.path!r:.100}")
        if self.by not in ("content", "time"):
            raise InvalidArgumentError(f"by= must be 'content' or 'time', not {self.by!r:.100}")

    def __fspath__(self) -> str:
        """The path, so that a function which gets this as an argument can open it."""
        return os.fsdecode(self.path)


def item_of(given: Any) -> tuple[str, Item]:
    """The path, if it has one, and the item of an input as users give it.

    Raises:
        InvalidArgumentError: it is none, or not there.
    """
    if isinstance(given, IndexedDataRef):
        content = given.reader.content_id
        return "", Item("input", repr(given), digest_of([content]), content)
    if isinstance(given, str | os.PathLike) and not isinstance(given, FileInput):
        given = FileInput(given)
    if not isinstance(given, FileInput):
        raise InvalidArgumentError(
            f"inputs= takes paths, yogadl.FileInput and DataRefs, not {given!r:.100}"
        )
    return str(pathlib.PurePath(given.path)), measured(given)


def measured(given: FileInput) -> Item:
    """What a file or folder is now.

    Raises:
        InvalidArgumentError: it is not there, or cannot be read.
    """
    path = os.fspath(given.path)
    try:
        status = os.stat(path)
        parts, count, size = [given.by], 0, 0
        if stat.S_ISDIR(status.st_mode):
            for name, file in sorted(_files(path, set())):
                if not file:
                    parts += [name, "folder"]
                    continue
                status = os.stat(file)
                parts += [name, _measure(file, status, given.by)]
                count, size = count + 1, size + status.st_size
            shown = f"{count:,} files, {size:,} bytes"
        else:
            parts.append(_measure(path, status, given.by))
            shown = f"{status.st_size:,} bytes"
    except OSError as error:
        raise InvalidArgumentError(
            f"the input {path!r} cannot be read, so it cannot be told whether it changed: {error}"
        ) from error
    return Item("input", path, digest_of(parts), f"{shown}, compared by {given.by}")


def _files(folder: str, above: set[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """All files below a folder: their names in it, and their paths. So with empty folders, whose
    names may be those of classes, say: with a slash, and no paths."""
    status = os.stat(folder)
    place = status.st_dev, status.st_ino
    if place in above:
        raise OSError(f"{folder} is a link to a folder that it is in")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                inner = list(_files(entry.path, {*above, place})) or [("", "")]
                for name, path in inner:
                    yield f"{entry.name}/{name}", path
            else:
                yield entry.name, entry.path


def _measure(path: str, status: os.stat_result, by: str) -> str:
    if by == "time":
        return f"{status.st_size} {status.st_mtime_ns}"
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    times = status.st_mtime_ns, status.st_ctime_ns
    key = os.path.abspath(path), status.st_ino, status.st_size, *times
    known = _known.get(key)
    if known is None:
        known = _content(path)
        if time.time_ns() - max(key[-2:]) < _SETTLED_NS:
            # It may change again without being told from what was read.
            return known
        with _lock:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[key] = known
    return known


def _content(path: str) -> str:
    found = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            found.update(piece)
    return found.hexdigest()
