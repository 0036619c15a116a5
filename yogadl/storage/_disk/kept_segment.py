"""The segment of a bucket's catalogue that was last read or written on this machine."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Callable

import xxhash

from yogadl.cache.mapping import Descriptor
from yogadl.catalogue import SEGMENT_ENDING
from yogadl.remote._local.own_file import replace_file

LARGEST = 4 << 20
"""Bytes of what is kept: of some 50,000 versions."""

_NAME = "segment"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_log = logging.getLogger(__name__)


class KeptSegment:
    """Keeps one, so that it is not transferred again. Safe for threads and processes.

    It is told by its name, which is a digest. So what two write at once, or who is killed, is not
    taken for one. That it cannot be kept is no error.

    Args:
        folder: where, if it can be anywhere; asked each time.
    """

    def __init__(self, folder: Callable[[], pathlib.Path | None]) -> None:
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        """The object of a key; ``None`` if it is no segment, or not kept."""
        folder = self._folder() if key.endswith(SEGMENT_ENDING) else None
        if folder is None:
            return None
        try:
            file = Descriptor(os.open(folder / _NAME, _FLAGS))
            data = os.read(file.number, LARGEST + 1)
        except OSError:
            return None
        return data if _key(data) == key else None

    def put(self, key: str, data: bytes) -> None:
        """Keeps the object of a key instead of any other, if it is a segment."""
        if not key.endswith(SEGMENT_ENDING) or len(data) > LARGEST or _key(data) != key:
            return
        folder = self._folder()
        if folder is not None:
            try:
                replace_file(folder / _NAME, [data])
            except OSError as error:
                _log.debug("A segment of the catalogue is not kept: %s", error)


def _key(data: bytes) -> str:
    return f"{xxhash.xxh3_128_hexdigest(data)}{SEGMENT_ENDING}"
