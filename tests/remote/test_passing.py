"""What is in memory until it is read: nothing that is still wanted goes while there is room."""

from __future__ import annotations

import itertools
import pathlib
import threading
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.cache.traffic import Traffic
from yogadl.remote._fetching import passing
from yogadl.remote._fetching.passing import Passing
from yogadl.remote._fetching.work import RemoteFile
from yogadl.remote._local.sparse_file import CELL, open_sparse

CELLS = 64
ROOM = 16

pytestmark = pytest.mark.once

_numbers = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("passing")


class Memory:
    """What is fetched into memory, in pieces of some cells, and read; beside a plain account."""

    def __init__(self, folder: pathlib.Path, cells: int) -> None:
        pieces = open_sparse(folder / f"{next(_numbers)}", CELLS * CELL)
        nothing = cast(Any, None)
        self.file = RemoteFile(nothing, CELLS * CELL, pieces, Traffic(), nothing, threading.Event())
        self.cells = cells
        self.passing = Passing()
        self.wanted: list[int] = []
        self.held: list[int] = []
        self.holds: list[passing.Hold] = []

    def range_of(self, number: int) -> tuple[RemoteFile, int, int]:
        start = number * self.cells * CELL
        return self.file, start, start + self.cells * CELL

    def has(self, number: int) -> bool:
        return self.file.pieces.has(*self.range_of(number)[1:])

    def has_in_memory(self, number: int) -> bool:
        start, stop = self.range_of(number)[1:]
        return len(self.file.pieces.memory.cells(start // CELL, stop // CELL)) == self.cells

    def fetch(self, number: int) -> None:
        data = bytes([number]) * (self.cells * CELL)
        self.passing.add(self.range_of(number), memoryview(data))
        self.wanted = [other for other in self.wanted if other != number]
        while len(self.wanted) >= ROOM // self.cells + len(self.held):
            # The oldest goes that nobody is reading.
            oldest = [other for other in self.wanted if other not in self.held][:1]
            if not oldest:
                break
            self.wanted.remove(*oldest)
        self.wanted.append(number)

    def hold(self, number: int) -> None:
        self.holds.append(passing.Hold([self.range_of(number)]))
        self.passing.hold(self.holds[-1])
        self.held.append(number)

    def read(self, number: int, is_last: bool) -> None:
        at = self.held.index(number)
        self.held.pop(at)
        hold = self.holds.pop(at)
        self.passing.let_go(hold)
        # It may be told again, when somebody was ended halfway.
        self.passing.let_go(hold)
        if is_last:
            self.passing.drop([self.range_of(number)])
            if number not in self.held:
                self.wanted = [other for other in self.wanted if other != number]


@given(st.data())
def test_nothing_goes_that_there_is_room_for(folder: pathlib.Path, data: st.DataObject) -> None:
    memory = Memory(folder, data.draw(st.sampled_from([1, 2, 4])))
    numbers = st.integers(0, CELLS // memory.cells - 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passing, "_PASSING_BYTES", ROOM * CELL)
        for _ in range(data.draw(st.integers(1, 40))):
            kind = data.draw(st.sampled_from(["fetch", "fetch", "hold", "read"]))
            if kind == "fetch":
                memory.fetch(data.draw(numbers))
            elif kind == "hold" and memory.wanted:
                memory.hold(data.draw(st.sampled_from(memory.wanted)))
            elif kind == "read" and memory.held:
                memory.read(data.draw(st.sampled_from(memory.held)), data.draw(st.booleans()))
            there = [number for number in range(CELLS // memory.cells) if memory.has(number)]
            assert there == sorted(memory.wanted)


def test_what_was_read_takes_no_room(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_PASSING_BYTES", ROOM * CELL)
    memory = Memory(folder, 1)
    memory.fetch(0)
    for number in range(1, CELLS):
        memory.fetch(number)
        memory.hold(number)
        memory.read(number, is_last=True)
    assert memory.has(0)
    assert not any(map(memory.has, range(1, CELLS)))


def test_what_is_kept_as_well_goes(folder: pathlib.Path) -> None:
    """But for what somebody is reading; what is nowhere else stays."""
    memory = Memory(folder, 4)
    for number in range(4):
        memory.fetch(number)
    memory.hold(1)
    pieces = memory.file.pieces
    pieces.mark(2 * CELL, 10 * CELL)
    memory.passing.drop_kept([memory.range_of(number) for number in range(4)])
    assert pieces.memory.cells(0, CELLS) == [0, 1, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15]
    memory.read(1, is_last=False)
    pieces.mark(12 * CELL, 16 * CELL)
    memory.passing.let_go_of_kept()
    assert pieces.memory.cells(0, CELLS) == [0, 1, 10, 11]


def test_what_others_have_kept_goes_by_and_by(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very much, some at a time, since all others wait meanwhile; then from the beginning."""
    monkeypatch.setattr(passing, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(passing, "KEPT_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(passing, "_ROUND_SECONDS", 0.0)
    memory, ended = Memory(folder, 1), Memory(folder, 1)
    ended.passing = memory.passing
    for number in range(8):
        memory.fetch(number)
        ended.fetch(number)
    memory.passing.note_read([memory.range_of(number) for number in (1, 3)])
    memory.file.pieces.mark(0, 8 * CELL)
    assert memory.passing.let_go_of_kept()
    assert sum(map(memory.has_in_memory, range(8))) == 7
    ended.file.ended.set()
    memory.passing.let_go_of_ended()
    assert not any(map(ended.has, range(8)))
    while memory.passing.let_go_of_kept():
        pass
    assert not memory.passing
    memory.file.pieces.discard(0, CELL)
    memory.fetch(0)
    memory.file.pieces.mark(0, CELL)
    assert not memory.passing.let_go_of_kept()
    assert not memory.passing


def test_what_was_kept_is_not_looked_for_all_the_time(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By however many threads."""
    monkeypatch.setattr(passing, "_ROUND_SECONDS", 1000.0)
    memory = Memory(folder, 1)
    memory.fetch(0)
    assert not memory.passing.let_go_of_kept()
    memory.file.pieces.mark(0, CELL)
    for _ in range(100):
        assert not memory.passing.let_go_of_kept()
    assert memory.has_in_memory(0)


def test_what_is_of_ended_files_holds_nothing_back(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "_LOOK_SECONDS", 0.0)
    memory, other = Memory(folder, 1), Memory(folder, 1)
    other.passing = memory.passing
    for number in range(4):
        memory.fetch(number)
        other.fetch(number)
    memory.passing.note_read([memory.range_of(0)])
    memory.hold(1)
    assert memory.passing.room([]) == passing.AHEAD_BYTES - 7 * CELL
    memory.file.ended.set()
    # Somebody is reading one of them.
    assert memory.passing.room([]) == passing.AHEAD_BYTES - 5 * CELL
    assert [number for number in range(4) if memory.has(number)] == [1]
    assert all(map(other.has, range(4)))


def test_files_of_what_is_coming_count_with_those_of_what_waits(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what arrives would have what came before it go, unread."""
    monkeypatch.setattr(passing, "most_passing", lambda: 4)
    first, *others = [Memory(folder, 1) for _ in range(4)]
    coming = [memory.file for memory in others]
    assert first.passing.room(coming * 2) == passing.AHEAD_BYTES
    first.fetch(0)
    assert first.passing.room([first.file, *coming[:2], coming[0]]) > 0
    assert first.passing.room(coming) == 0
