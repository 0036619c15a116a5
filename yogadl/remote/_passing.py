"""What was fetched and is not kept, in memory until it is read."""

from __future__ import annotations

from typing import TypeAlias

from yogadl.remote._sparse_file import CELL, SparseFile
from yogadl.remote._work import Range, RemoteFile

# It has so many bytes, and those that are being read.
_PASSING_BYTES = 48 << 20

Key: TypeAlias = tuple[SparseFile, int]
"""The first cell of a range of a file."""


class Passing:
    """For one thread at a time.

    Attributes:
        held_bytes: that somebody is about to read.
    """

    def __init__(self) -> None:
        # In the order in which they came.
        self._ranges: dict[Key, Range] = {}
        self._nbytes = 0
        self.held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, passing: Range, data: memoryview) -> None:
        """Adds a range, and lets go of what was in memory for longest if there is too much."""
        file, start, stop = passing
        file.pieces.pass_on(start, data)
        self._forget(_key(file, start))
        for key in self._too_much(stop - start):
            self._drop(key)
        self._ranges[_key(file, start)] = passing
        self._nbytes += stop - start

    def _too_much(self, more: int) -> list[Key]:
        """What has to go so that there is room for more bytes, if anything can."""
        excess = self._nbytes + more - _PASSING_BYTES - self.held_bytes
        found: list[Key] = []
        for key, (file, start, stop) in self._ranges.items():
            if excess <= 0:
                break
            # What is held would stay in memory, and not be known of any more.
            if not file.pieces.is_held(start, stop):
                found.append(key)
                excess -= stop - start
        return found

    def drop(self, used: Range) -> None:
        """Lets go of what was read and is not read again, but for what somebody holds."""
        file, start, stop = used
        file.pieces.drop(start, stop)
        _, first, last = self._ranges.get(_key(file, start), used)
        # What was fetched with others stays until all of them have been read, or have to go.
        if last - CELL < stop and not file.pieces.is_held(first, last):
            self._forget(_key(file, start))

    def let_go_of_ended(self) -> None:
        """Lets go of what is of files that nobody reads any more."""
        for key in [key for key, (file, _, _) in self._ranges.items() if file.ended.is_set()]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        file, start, stop = self._ranges[key]
        self._forget(key)
        file.pieces.drop(start, stop)

    def _forget(self, key: Key) -> None:
        _, start, stop = self._ranges.pop(key, (None, 0, 0))
        self._nbytes -= stop - start


def _key(file: RemoteFile, start: int) -> Key:
    return file.pieces, start // CELL
