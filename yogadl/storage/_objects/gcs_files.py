"""Files as Google's SDK reads and writes them."""

from __future__ import annotations

import base64
import io
import os
import pathlib
from collections.abc import Callable
from typing import Any

from yogadl.cache.progress import ByteProgress
from yogadl.extras import require

UPLOAD_BYTES = 100 << 20
"""Held in memory, and sent again when the connection breaks. As large as the SDK's own pieces: the
store looks at an upload anew with each."""

_READ_BYTES = 1 << 20


def crc32c(path: pathlib.Path) -> str:
    """Of a file, as Google writes it."""
    google_crc32c = require("google_crc32c", "gcs")
    checksum = google_crc32c.Checksum()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_READ_BYTES):
            checksum.update(data)
    return base64.b64encode(checksum.digest()).decode()


class CountingFile(io.RawIOBase):
    """A file that tells how far it was read for the first time.

    Args:
        file: opened without a buffer.
        progress: is told.
        in_pieces: each piece read overwrites the one before, so that only one is in memory.
    """

    def __init__(self, file: io.FileIO, progress: ByteProgress, in_pieces: bool) -> None:
        self._file = file
        self._progress = progress
        self._furthest = 0
        self._buffer = bytearray(UPLOAD_BYTES if in_pieces else 0)

    def read(self, size: int = -1) -> Any:
        # Of a whole file at once, the SDK insists on bytes.
        data = self._read_piece(size) if self._buffer else self._file.read(size)
        at = self._file.tell()
        if at > self._furthest:
            self._progress.update(at - self._furthest)
            self._furthest = at
        return data

    def _read_piece(self, size: int) -> memoryview:
        view = memoryview(self._buffer)[:size]
        filled = 0
        while filled < len(view) and (read := self._file.readinto(view[filled:])):
            filled += read
        return view[:filled]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class Sink(io.RawIOBase):
    """A file to write to that is a function."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write_bytes = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._write_bytes(data)
        return len(data)
