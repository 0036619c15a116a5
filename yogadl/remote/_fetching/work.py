"""What is fetched, and for whom."""

from __future__ import annotations

import collections
import copy
import enum
import math
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from yogadl import backoff
from yogadl.cache.traffic import Traffic
from yogadl.errors import CacheReplacedError, ClosedError, StoreError
from yogadl.remote._fetching.remote_object import ChangedError, RemoteObject
from yogadl.remote._local.sparse_file import CELL, SparseFile

_FAILURES = 64
MOST_FAILED = 4096
"""Files of a version of which it is known that some of them could not be had."""
_MOST_LEFT = 4096
# After so long it can be told how fast an answer comes.
_TOLD_SECONDS = 0.5
# And if none has begun for so long, that it does not come soon.
_ANSWER_SECONDS = 0.6


class EndedError(Exception):
    """Nobody wants it any more."""


class Space(Protocol):
    """Room on the local disk."""

    def take(self, nbytes: int) -> bool:
        """Whether so many bytes may be written, which then count as used."""

    def written(self, nbytes: int) -> None:
        """What was taken at a time is written, or is not going to be."""

    def is_full(self) -> None:
        """The disk has none left, whatever was thought."""


@dataclass(eq=False)
class Twice:
    """Bytes of all files of a version that come once more, where that costs less than a request.

    Attributes:
        most: how many may.
        nbytes: how many have.
    """

    most: int = 0
    nbytes: int = 0

    def has_room(self, more: int) -> bool:
        """Whether so many more may."""
        return self.nbytes + more <= self.most


@dataclass(eq=False)
class Others:
    """Other processes that fetch files of a version.

    Attributes:
        late_until: until when what they fetch is not waited for.
    """

    late_until: float = 0.0


@dataclass(eq=False)
class RemoteFile:
    """A file that is fetched: what is there of it, and where it comes from.

    Attributes:
        asked: where it comes from.
        elsewhere: where the same bytes are once they are not there any more, if anywhere.
        size: of it, in bytes.
        pieces: what is there.
        traffic: where to count.
        failures: the last ranges that could not be had: start, stop, when, and why.
        failed: those of the files of a version that have any.
        twice, others: of its version.
        space: says whether there is room to keep so many bytes more.
        passed: the ranges that bulk has gone over, so that it does not bring what is missing there.
        refused_since: when the first of the refusals was since which nothing of it came, or 0.
        refused: since when what begins at an offset was refused, each time.
        ended: set when nobody can want anything of it any more.
    """

    asked: RemoteObject
    size: int
    pieces: SparseFile
    traffic: Traffic
    space: Space
    ended: threading.Event
    elsewhere: RemoteObject | None = None
    failures: collections.deque[tuple[int, int, float, BaseException]] = field(
        default_factory=lambda: collections.deque(maxlen=_FAILURES)
    )
    failed: Failed = field(default_factory=lambda: collections.deque(maxlen=MOST_FAILED))
    twice: Twice = field(default_factory=Twice)
    others: Others = field(default_factory=Others)
    passed: list[tuple[int, int]] = field(default_factory=list)
    refused_since: float = 0.0
    refused: dict[int, float] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """See ``RemoteObject.server``."""
        return self.asked.server

    def note_passed(self, start: int, stop: int) -> None:
        """Says that bulk has gone over a range, mostly one behind the last."""
        if start >= stop:
            return
        if self.passed and self.passed[-1][1] == start:
            start = self.passed.pop()[0]
        self.passed.append((start, stop))

    def note_failure(self, start: int, stop: int, error: BaseException) -> None:
        """Says that a range could not be had."""
        if not self.failures:
            self.failed.append(weakref.ref(self))
        self.failures.append((start, stop, time.monotonic(), error))
        if self.ended.is_set():
            self.failures.clear()

    def raise_failure(self, ranges: Sequence[Range], since: float) -> None:
        """Raises why some bytes could not be had, if they have been waited for for long enough.

        Args:
            ranges: of this file and of others.
            since: when they began to be waited for.
        """
        name = self.asked.name
        if self.ended.is_set():
            raise ClosedError(f"{name} was closed while it was read; fetch it again")
        # What began long before may fail now, and what somebody waits for since is asked for again.
        soonest = since + backoff.LIMITS.patience / 2
        # A copy, since the end may come meanwhile, which forgets them.
        for first, last, when, error in list(self.failures):
            is_old = when < soonest and isinstance(error, StoreError) and error.is_transient
            if when < since or is_old:
                continue
            if any(file is self and first < stop and start < last for file, start, stop in ranges):
                if isinstance(error, ChangedError):
                    raise CacheReplacedError(
                        f"{name} was replaced or deleted while it was read, or is not there: "
                        f"{error}; fetch it again, and if it still says so, store it again"
                    ) from error
                raise _another(error)


def _another(error: BaseException) -> BaseException:
    """One like it for who waits, since it gets the frames of whoever it is raised in, too."""
    try:
        made = copy.copy(error)
    except Exception:
        # It cannot be made of what it says it is made of.
        return error
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    return made.with_traceback(error.__traceback__)


Failed: TypeAlias = "collections.deque[weakref.ref[RemoteFile]]"


def forget_failures(failed: Failed) -> None:
    """To be called when nobody can want anything of some files any more: errors have the frames
    that they went through, and these have the file, which would stay open until the interpreter
    looks for what has but itself."""
    for file in filter(None, (found() for found in list(failed))):
        file.failures.clear()


class Small(enum.Enum):
    """What becomes of small ranges that somebody waits for, and that bulk will bring, too."""

    WAIT = "left to bulk, as long as that is quick"
    ASK = "asked for by themselves, unless they are in flight already"
    ASK_AGAIN = "asked for by themselves though they are in flight"


@dataclass(eq=False)
class Bulk:
    """Ranges of which everything will be needed, some time.

    Attributes:
        ranges: them; quick to iterate over.
        nbytes: of all of them.
        traffic: that of their files.
        processes: of this machine that fetch them; when it begins, as is expected.
        is_small: whether the records are, so that the first of them come by themselves.
        has_many_files: so that requests are what it takes, and the first records wait for none.
        is_begun: whether records of it were read already.
        begun: when it did.
        work: what is left of the range that it is at; ``None`` before the first and behind each.
        passed: bytes of them that are here, or that somebody is at; and since when so many.
        counted: when the processes were counted last.
        left: what is fetched soon once it ends; of very much, the last.
        piece: bytes that are fetched at a time, if it came so late that they are fewer than usual;
            otherwise 0.
        taken_back: ranges that others were to bring, and have not; they come first.
        cut_off: ranges that are to be fetched once more, since somebody waited for some of them.
        has_failed: whether the rest of it is not fetched as a whole.
    """

    ranges: Iterator[Range]
    nbytes: int
    traffic: Traffic
    processes: int = 1
    is_small: bool = False
    has_many_files: bool = False
    is_begun: bool = False
    begun: float = field(default_factory=time.monotonic)
    work: Work | None = None
    passed: int = 0
    moved: float = field(default_factory=time.monotonic)
    counted: float = 0.0
    left: collections.deque[Work] = field(
        default_factory=lambda: collections.deque(maxlen=_MOST_LEFT)
    )
    piece: int = 0
    taken_back: collections.deque[Range] = field(default_factory=collections.deque)
    cut_off: collections.deque[Range] = field(default_factory=collections.deque)
    has_failed: bool = False

    @property
    def is_late(self) -> bool:
        return self.piece > 0

    def forget_ranges(self) -> None:
        """To be called when the rest is not fetched: its files would stay open until the
        interpreter looks for what has but itself, as its work does, and is what has it."""
        self.ranges, self.work = iter(()), None
        self.taken_back.clear()
        self.cut_off.clear()


@dataclass(eq=False)
class Work:
    """A range of a file to fetch."""

    file: RemoteFile
    start: int
    stop: int
    # What it comes from, if that is bulk.
    bulk: Bulk | None = None
    # Otherwise it is asked for though somebody else is at it, who is late.
    is_claimed: bool = True
    # What is there comes again if it is no more between two ranges that are not.
    bridge: int = 0
    # Of it, what somebody else has claimed, who writes it.
    others: Sequence[tuple[int, int]] = ()
    # Whether it is fetched to be kept, and not at all if there is no room.
    must_keep: bool = False
    progressed: float = 0.0
    # When it was taken.
    began: float = 0.0
    requests: int = 0
    nbytes: int = 0
    # When the first of these came.
    answered: float = 0.0
    # Whether the rest of it is not waited for any more.
    is_cut: bool = False
    # Whether it is claimed, and no thread has begun with it.
    is_waiting: bool = False

    @property
    def is_bulk(self) -> bool:
        return self.bulk is not None

    def touches(self, file: RemoteFile, start: int, stop: int) -> bool:
        """Whether it brings any bytes of a range."""
        return self.file.pieces is file.pieces and self.start < stop and start < self.stop

    def rate(self, now: float) -> float:
        """Bytes of it that come in a second, as far as can be told; else as if it were done soon.

        That nothing has come tells something after a while, too.
        """
        seconds = now - (self.answered or self.progressed)
        is_told = seconds >= (_TOLD_SECONDS if self.answered else _ANSWER_SECONDS)
        return self.nbytes / seconds if is_told else math.inf

    def seconds_to(self, offset: int, now: float) -> float:
        """How long it still takes to an offset of its file, as far as can be told."""
        left = max(0, min(offset, self.stop) - self.start - self.nbytes)
        rate = self.rate(now)
        return left / rate if rate else math.inf


Range = tuple[RemoteFile, int, int]
"""Bytes of a file, from a start to a stop."""


def cells(start: int, stop: int) -> tuple[int, int]:
    """A range widened to whole cells."""
    return start // CELL * CELL, -(-stop // CELL) * CELL
