"""Writers that commit to one branch at once, and how to see that nothing of it is lost.

Each record says whose it is, so that in whatever order the commits come, those of one writer make
of its own records just what they do alone.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from yogadl.errors import StoreError
from yogadl.storage import CacheStorage

ID, BRANCH = "a", "main"
SLOTS = 3

Mine = dict[int, int]
"""The records of one writer: the value of each key."""


def begin(storage: CacheStorage[Any], writers: int) -> None:
    """Stores what they change: of each writer some records."""
    rows = [_row(writer, slot, 0) for slot in range(SLOTS) for writer in range(writers)]
    storage.submit(rows, ID, "0")
    storage.tag(ID, BRANCH, "0")


def _row(writer: int, key: int, value: int) -> dict[str, Any]:
    return {"writer": np.int64(writer), "key": np.int64(key), "value": np.int64(value)}


def expected(commits: list[int]) -> Mine:
    """What some commits of one writer make of its records."""
    mine = dict.fromkeys(range(SLOTS), 0)
    for number in commits:
        mine = _after(mine, number)
    return mine


def _after(mine: Mine, number: int) -> Mine:
    """One record is replaced, one comes, and every third time one goes."""
    gone = _gone(mine, number)
    found = {key: value for key, value in mine.items() if key != gone}
    found[number % SLOTS] = number + 1
    found[SLOTS + number] = number
    return found


def _gone(mine: Mine, number: int) -> int | None:
    extra = sorted(key for key in mine if key >= SLOTS)
    return extra[0] if extra and number % 3 == 2 else None


def commit(storage: CacheStorage[Any], writer: int, number: int) -> str:
    """The commit of a number; the version that it made."""
    with storage.change(ID, BRANCH, message=f"{writer}:{number}") as change:
        columns = change.base.read(np.arange(len(change.base)))
        places = np.flatnonzero(columns["writer"] == writer)
        at = {int(columns["key"][place]): int(place) for place in places}
        mine = {int(columns["key"][place]): int(columns["value"][place]) for place in places}
        after = _after(mine, number)
        gone = _gone(mine, number)
        if gone is not None:
            change.delete([at[gone]])
        slot = number % SLOTS
        change.replace([at[slot]], [_row(writer, slot, after[slot])])
        # Half of them move what others change.
        place = at[(slot + 1) % SLOTS] if writer % 2 else len(change.base)
        change.insert(place, [_row(writer, SLOTS + number, number)])
    return change.version


class Journal:
    """What became of a writer's commits, in a file that survives its process."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def note(self, *words: object) -> None:
        with open(self._path, "a") as file:
            file.write(" ".join(map(str, words)) + "\n")
            file.flush()

    def begun(self) -> list[int]:
        """The commits that were begun."""
        return [int(words[1]) for words in self._lines() if words[0] == "try"]

    def done(self) -> dict[int, str]:
        """Those that are known to be done, and their versions."""
        return {int(words[1]): words[2] for words in self._lines() if words[0] == "done"}

    def _lines(self) -> Iterator[list[str]]:
        if self._path.exists():
            lines = (line.split() for line in self._path.read_text().splitlines())
            yield from (words for words in lines if words and words[0] in ("try", "done"))


def journal(folder: pathlib.Path, writer: int) -> Journal:
    return Journal(folder / f"{writer}.journal")


def work(storage: CacheStorage[Any], folder: pathlib.Path, writer: int, count: int) -> None:
    """Commits what this writer has not begun yet, up to ``count`` commits in all."""
    own = journal(folder, writer)
    for number in range(len(own.begun()), count):
        own.note("try", number)
        try:
            version = commit(storage, writer, number)
        except StoreError as error:
            # It is not known what became of it.
            own.note("unknown", number, *traceback.format_exception(error))
            continue
        own.note("done", number, version)


def work_all(
    storage: CacheStorage[Any], folder: pathlib.Path, writers: list[int], count: int
) -> None:
    """The same by a thread for each of some writers; raises what one of them raises."""
    failures: list[BaseException] = []

    def run(writer: int) -> None:
        try:
            work(storage, folder, writer, count)
        except BaseException as error:
            journal(folder, writer).note("failed", type(error).__name__, str(error)[:300])
            failures.append(error)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def check(
    storage: CacheStorage[Any], folder: pathlib.Path, writers: int, count: int, most_unknown: int
) -> None:
    """Sees that all commits that are known to be done are, each once, and others not twice."""
    log = storage.log(ID, BRANCH)
    assert log[-1].dataset_version == "0"
    messages = [entry.message for entry in log[-2::-1]]
    assert max(collections.Counter(messages).values(), default=0) <= 1, "a commit is there twice"
    versions = {entry.dataset_version for entry in log}
    unknown = 0
    with storage.fetch(ID, BRANCH) as ref:
        ref.verify()
        columns = ref.read(np.arange(len(ref)))
        assert len(ref) == log[0].record_count
    for writer in range(writers):
        own = journal(folder, writer)
        done = own.done()
        assert len(own.begun()) == count, own._path.read_text()
        assert set(done.values()) <= versions, "a commit is lost"
        landed = [int(it.split(":")[1]) for it in messages if it.split(":")[0] == str(writer)]
        assert landed == sorted(landed)
        unknown += count - len(done)
        is_mine = columns["writer"] == writer
        found = dict(
            zip(columns["key"][is_mine].tolist(), columns["value"][is_mine].tolist(), strict=True)
        )
        assert found == expected(landed)
    assert unknown <= most_unknown


@contextlib.contextmanager
def watched(make: Callable[[], CacheStorage[Any]]) -> Iterator[list[int]]:
    """Meanwhile, somebody reads the catalogue and the branch all the time; how often, at the end.

    What goes wrong is raised at the end.
    """
    stop, reads, failures = threading.Event(), [0], []

    def watch() -> None:
        storage, seen = make(), 0
        try:
            while not stop.wait(0.02):
                at = storage.tags(ID)[BRANCH]
                assert storage.exists(ID, at)
                assert {entry.dataset_id for entry in storage.list(ID)} == {ID}
                with storage.fetch(ID, BRANCH) as ref:
                    assert len(ref) >= seen
                    seen = 0
                reads[0] += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield reads
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


IS_FULL_LENGTH = os.environ.get("YOGADL_OUTAGES") == "full"
WRITERS = 16
COMMITS = 100 if IS_FULL_LENGTH else 3
# A commit to a bucket is some twenty requests, more where many get in each other's way.
WRITERS_IN_BUCKETS, COMMITS_IN_BUCKETS = (16, 100) if IS_FULL_LENGTH else (4, 2)
