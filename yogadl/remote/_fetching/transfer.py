"""Fetching one range."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from yogadl.backoff import Backoff
from yogadl.cache.memory import private_memory
from yogadl.errors import StoreError
from yogadl.remote._fetching.remote_object import ChangedError
from yogadl.remote._fetching.work import EndedError, Work
from yogadl.remote._local.sparse_file import CELL

if TYPE_CHECKING:
    from yogadl.remote._fetching.connections import Connections


# What is large stays with the heaps of the C library otherwise, of which many threads have many.
_LARGE_BYTES = 64 << 10


class CutError(Exception):
    """It is to be cut off.

    Args:
        at: the offset of what is fetched no more.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        super().__init__(at)


class RefusedError(CutError):
    """The server refuses it over this connection, and others bring what they ask for."""


class DiskError(Exception):
    """The local disk does not take what is to be kept."""


class Transfer:
    """Fetches a range, however often the connection breaks.

    Args:
        work: what to fetch.
        is_kept: write it to the disk; otherwise it is in memory when it is done.
        arrived: called when some of it can be read, or all of it if it is bulk.

    Attributes:
        memory: all of it, if it is not kept; otherwise nothing.
    """

    def __init__(self, work: Work, is_kept: bool, arrived: Callable[[], object]) -> None:
        self._work = work
        self._is_kept = is_kept
        self._arrived = arrived
        self._at = work.start
        self._has_come: Callable[[int], bool] = lambda _nbytes: False
        self.memory = memoryview(b"" if is_kept else _memory(work.stop - work.start))

    def run(
        self,
        connections: Connections,
        answered: Callable[[float], object],
        is_for_others: Callable[[Work, int, StoreError], bool],
    ) -> None:
        """Does it.

        Args:
            connections: of this thread.
            answered: called with the seconds that each answer took to begin, or to go on.
            is_for_others: whether others are to do some work after a failure that brought nothing
                from an offset on.

        Raises:
            StoreError, ChangedError: it cannot be had.
            DiskError: it cannot be written.
            EndedError: nobody wants it any more.
            CutError: the rest is not wanted so.
            RefusedError: likewise, for this reason.
        """
        work, file = self._work, self._work.file
        pauses = Backoff(stop=file.ended)
        self._has_come, connections.ended = connections.has_come, file.ended
        furthest = work.start
        asked, gone = file.asked, ""
        while self._at < work.stop:
            # A cell is marked as a whole, so it is fetched as a whole.
            self._at = self._at // CELL * CELL
            work.requests += 1
            try:
                into = None if self._is_kept else self.memory[self._at - work.start :]
                connections.read(asked, file.size, self._at, work.stop, self._take, into)
                answered(connections.longest_wait)
                if gone:
                    file.asked = asked
            except ChangedError as error:
                if gone:
                    raise ChangedError(gone) from error
                if file.elsewhere in (None, asked):
                    raise
                asked, gone = file.elsewhere, str(error)
            except StoreError as error:
                # Of a cell, the same bytes may come again and again, now more and now fewer.
                reached = self._at // CELL * CELL
                if reached <= furthest and is_for_others(work, reached, error):
                    raise RefusedError(reached) from None
                if reached > furthest:
                    furthest = reached
                    pauses.progressed()
                if not pauses.waits(error):
                    # Who may not list a bucket is not told that something is not there.
                    if gone and not error.is_transient:
                        raise ChangedError(gone) from error
                    raise

    def _take(self, offset: int, data: memoryview) -> None:
        work, pieces = self._work, self._work.file.pieces
        before, self._at = self._at, offset + len(data)
        if work.file.ended.is_set():
            raise EndedError
        if self._is_kept:
            try:
                for start, stop in self._own(before):
                    pieces.write(start, data[start - offset : stop - offset])
                    # A cell that is whole now began in this answer, or in one before it.
                    pieces.mark(start, stop)
            except OSError as error:
                raise DiskError(error.strerror) from error
        work.progressed = time.monotonic()
        work.answered = work.answered or work.progressed
        work.nbytes += len(data)
        left = work.stop - self._at
        # What has come would come twice: of a machine that is too busy to read it, megabytes.
        if work.is_cut and left and not self._has_come(left):
            raise CutError(self._at // CELL * CELL)
        if self._is_kept and not work.is_bulk and left:
            self._arrived()

    def _own(self, start: int) -> Iterator[tuple[int, int]]:
        """What nobody else writes of the bytes that came last, from an offset on."""
        for begin, end in self._work.others:
            if begin >= self._at:
                break
            if start < begin:
                yield start, begin
            start = max(start, end)
        if start < self._at:
            yield start, self._at


def _memory(nbytes: int) -> bytearray | mmap.mmap:
    return private_memory(nbytes) if nbytes >= _LARGE_BYTES else bytearray(nbytes)
