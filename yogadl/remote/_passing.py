"""What was fetched and is not kept, in memory until it is read."""

from __future__ import annotations

import collections

from yogadl.remote._work import Range

# It has so many bytes, and those that are being read.
_PASSING_BYTES = 48 << 20


class Passing:
    """For one thread at a time.

    Attributes:
        held_bytes: that somebody is about to read.
    """

    def __init__(self) -> None:
        self._ranges: collections.deque[Range] = collections.deque()
        self._nbytes = 0
        self.held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, passing: Range, data: memoryview) -> None:
        """Adds a range, and lets go of what was in memory for longest if there is too much."""
        file, start, stop = passing
        file.pieces.pass_on(start, data)
        self._ranges.append(passing)
        self._nbytes += stop - start
        most = _PASSING_BYTES + self.held_bytes
        while self._nbytes > most and len(self._ranges) > 1:
            self._drop(self._ranges.popleft())

    def let_go_of_ended(self) -> None:
        """Lets go of what is of files that nobody reads any more."""
        for passing in [it for it in self._ranges if it[0].ended.is_set()]:
            self._ranges.remove(passing)
            self._drop(passing)

    def _drop(self, passing: Range) -> None:
        file, start, stop = passing
        self._nbytes -= stop - start
        file.pieces.drop(start, stop)
