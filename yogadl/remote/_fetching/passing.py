"""What was fetched and is not kept, in memory until it is read."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from yogadl.remote._fetching.work import Range, RemoteFile
from yogadl.remote._local.in_memory import Passed
from yogadl.remote._local.open_files import most_passing

# It has so many bytes, and those that are being read.
_PASSING_BYTES = 48 << 20
AHEAD_BYTES = 32 << 20
"""Of these, so many may wait to be read, or be on their way, for more to be fetched ahead."""
# What nobody has read for so long was fetched for a stream that was left, or that is slow.
_LEFT_SECONDS = 10.0
# Between two looks for what is of files that nobody reads any more.
_LOOK_SECONDS = 1.0
# What is in the files, too, is looked for all over so often; for some time, while all others wait,
# and then not for a while.
_ROUND_SECONDS, _TURN_SECONDS = 5.0, 0.005
KEPT_PAUSE_SECONDS = 0.1
"""Between two turns of :meth:`Passing.let_go_of_kept`."""


def most_passing_bytes() -> int:
    """Bytes that a process has in memory beside what is being read."""
    return _PASSING_BYTES


class _Ranges:
    """Ranges, each with its file, and when it came; the oldest first. They keep files open."""

    def __init__(self) -> None:
        self._ranges: collections.OrderedDict[Passed, tuple[RemoteFile, float]]
        self._ranges = collections.OrderedDict()
        self._counts: dict[RemoteFile, int] = {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[tuple[Passed, RemoteFile]]:
        for passed, (file, _) in self._ranges.items():
            yield passed, file

    @property
    def file_count(self) -> int:
        return len(self._counts)

    def count_with(self, others: Iterable[RemoteFile]) -> int:
        """How many files there are, together with others; none if nothing is here."""
        return len(self._counts.keys() | set(others)) if self._counts else 0

    def of_file(self, file: RemoteFile) -> int:
        """How many are of a file."""
        return self._counts.get(file, 0)

    def of_ended(self) -> list[tuple[Passed, RemoteFile]]:
        """Those of files that nobody reads any more."""
        # There are far fewer files than ranges.
        if not any(file.ended.is_set() for file in self._counts):
            return []
        return [(passed, file) for passed, file in self if file.ended.is_set()]

    def file_of(self, passed: Passed) -> RemoteFile | None:
        """That of one, if it is here."""
        found = self._ranges.get(passed)
        return None if found is None else found[0]

    def oldest(self) -> tuple[Passed, float]:
        """One, and when it came."""
        passed, (_, came) = next(iter(self._ranges.items()))
        return passed, came

    def add(self, passed: Passed, file: RemoteFile, came: float) -> None:
        self._ranges[passed] = file, came
        self._counts[file] = self.of_file(file) + 1

    def pop(self, passed: Passed) -> tuple[RemoteFile, float] | None:
        found = self._ranges.pop(passed, None)
        if found is not None:
            file = found[0]
            self._counts[file] -= 1
            if not self._counts[file]:
                del self._counts[file]
        return found


@dataclass(eq=False)
class Hold:
    """Ranges that somebody is about to read, which stay until that is done."""

    ranges: Sequence[Range]

    @property
    def nbytes(self) -> int:
        return sum(stop - start for _, start, stop in self.ranges)


class Passing:
    """For one thread at a time."""

    def __init__(self) -> None:
        # Each with its file, and when it came. What somebody has read some of goes first.
        self._waiting = _Ranges()
        self._read = _Ranges()
        self._most_files = most_passing()
        self._nbytes = 0
        self._waiting_bytes = 0
        # What somebody is about to read: bytes.
        self._held: dict[Hold, int] = {}
        self._next_look = self._next_turn = 0.0
        # Without their files, which it would keep open.
        self._not_looked_at: collections.deque[Passed] = collections.deque()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._read)

    def hold(self, hold: Hold) -> None:
        """Has what is here of some ranges, or will be, stay."""
        self._held[hold] = hold.nbytes
        for file, start, stop in hold.ranges:
            file.pieces.memory.hold(start, stop, hold)

    def let_go(self, hold: Hold) -> None:
        """Ends that, if it was begun and has not ended, or has but halfway."""
        for file, *_ in hold.ranges:
            file.pieces.memory.let_go(hold)
        self._held.pop(hold, None)

    def add(self, passing: Range, data: memoryview) -> None:
        """Adds a range, and lets go of others if there is too much."""
        file, start, stop = passing
        passed, gone = file.pieces.memory.add(start, data)
        self._forget(gone)
        for other, its_file in self._too_much(stop - start):
            self._drop_all(its_file, other)
        self._waiting.add(passed, file, time.monotonic())
        self._nbytes += passed.nbytes
        self._waiting_bytes += passed.nbytes

    def room(self, coming: Iterable[RemoteFile]) -> int:
        """How many bytes more may be on their way before somebody waits for them.

        Args:
            coming: the files of what is on its way.
        """
        now = time.monotonic()
        # Who fetches may be too busy ever to be idle.
        if now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self.let_go_of_ended()
        left = now - _LEFT_SECONDS
        while self._waiting:
            passed, came = self._waiting.oldest()
            if came > left:
                break
            self._note_read(passed)
        # What arrives while too many files are open has what came before it go, unread.
        is_full = self._waiting.count_with(coming) >= self._most_files
        return 0 if is_full else AHEAD_BYTES - self._waiting_bytes

    def note_read(self, ranges: Iterable[Range]) -> None:
        """To be called when some ranges have been read, which may begin and end anywhere."""
        for file, start, stop in ranges:
            for passed in file.pieces.memory.within(start, stop):
                self._note_read(passed)

    def drop(self, ranges: Iterable[Range]) -> None:
        """Lets go of some ranges, which may begin and end anywhere, but for what somebody holds."""
        for file, start, stop in ranges:
            self._forget(file.pieces.memory.drop(start, stop))

    def drop_kept(self, ranges: Iterable[Range]) -> None:
        """The same of what is in their files, too."""
        for file, start, stop in ranges:
            if file.pieces.memory:
                self.drop((file, *kept) for kept in file.pieces.kept(start, stop))

    def discard(self, ranges: Iterable[Range]) -> None:
        """Lets go of some ranges, whoever holds them."""
        for file, start, stop in ranges:
            self._forget(file.pieces.memory.discard(start, stop))

    def let_go_of_ended(self) -> None:
        """Lets go of what is of files that nobody reads any more."""
        for kind in (self._waiting, self._read):
            for passed, file in kind.of_ended():
                self._drop_all(file, passed)

    def let_go_of_kept(self) -> bool:
        """Lets go of what is in the files, too, since others have brought it.

        Of very many ranges, it goes over some at a time, since all others wait meanwhile.

        Returns:
            Whether it is to be called again soon, for the rest.
        """
        now = time.monotonic()
        if now >= self._next_turn:
            self._not_looked_at = self._not_looked_at or collections.deque(self._all())
            self._look_until(now + _TURN_SECONDS)
            pause = KEPT_PAUSE_SECONDS if self._not_looked_at else _ROUND_SECONDS
            self._next_turn = time.monotonic() + pause
        return bool(self._not_looked_at)

    def _all(self) -> Iterator[Passed]:
        for kind in (self._waiting, self._read):
            yield from (passed for passed, _ in kind)

    def _look_until(self, until: float) -> None:
        """Goes over some ranges; over one at least, however busy the machine is."""
        while self._not_looked_at:
            passed = self._not_looked_at.popleft()
            file = self._waiting.file_of(passed) or self._read.file_of(passed)
            if file is not None:
                self.drop_kept([(file, passed.start, passed.stop)])
            if time.monotonic() >= until:
                break

    def _too_much(self, more: int) -> list[tuple[Passed, RemoteFile]]:
        """What has to go so that there is room for more bytes, if anything can, and that not too
        many files are open."""
        excess = self._nbytes + more - _PASSING_BYTES - sum(self._held.values())
        files = self._read.file_count + self._waiting.file_count + 1 - self._most_files
        found: list[tuple[Passed, RemoteFile]] = []
        for kind in (self._read, self._waiting):
            gone: collections.Counter[int] = collections.Counter()
            for passed, file in kind:
                if excess <= 0 and files <= 0:
                    return found
                # What is held would stay in memory, and not be known of any more.
                if not file.pieces.memory.is_held(passed.start, passed.stop):
                    found.append((passed, file))
                    excess -= passed.nbytes
                    gone[id(file)] += 1
                    files -= gone[id(file)] == kind.of_file(file)
        return found

    def _drop_all(self, file: RemoteFile, passed: Passed) -> None:
        """Drops what nobody holds of it."""
        file.pieces.memory.drop(passed.start, passed.stop, passed)
        if passed.left <= 0:
            self._forget([passed])

    def _note_read(self, passed: Passed) -> None:
        found = self._waiting.pop(passed)
        if found is not None:
            self._read.add(passed, *found)
            self._waiting_bytes -= passed.nbytes

    def _forget(self, gone: Iterable[Passed]) -> None:
        for passed in gone:
            if self._waiting.pop(passed) is not None:
                self._waiting_bytes -= passed.nbytes
            elif self._read.pop(passed) is None:
                continue
            self._nbytes -= passed.nbytes
