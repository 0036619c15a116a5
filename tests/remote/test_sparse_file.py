"""The files that keep what was fetched: what is there of them, and what knowing that takes."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes_ready import READY

from yogadl.remote._local.sparse_file import CELL, open_sparse

STATUS = pathlib.Path("/proc/self/status")


def own_bytes() -> int:
    """Memory of this process that is not a file's."""
    found = re.search(r"RssAnon:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])


KEPT, IN_MEMORY, OF_ANOTHER = "kept", "in memory", "of another process"


@given(cells=st.lists(st.sampled_from([KEPT, IN_MEMORY, OF_ANOTHER, ""]), min_size=1, max_size=12))
def test_what_is_known_is_what_this_process_brought(cells: list[str]) -> None:
    """And what others did once somebody has looked; nothing that is not there."""
    with tempfile.TemporaryDirectory() as folder:
        file = open_sparse(pathlib.Path(folder, "a"), len(cells) * CELL)
        marks = bytearray(len(cells))
        for number, kind in enumerate(cells):
            start = number * CELL
            if kind == KEPT:
                file.mark(start, start + CELL)
            elif kind == IN_MEMORY:
                file.memory.add(start, memoryview(bytes(CELL)))
            elif kind == OF_ANOTHER:
                with open(pathlib.Path(folder, "a.cells"), "r+b") as opened:
                    opened.seek(number)
                    opened.write(b"\1")
            marks[number] = bool(kind)
        runs = list(itertools.combinations(range(len(cells) + 1), 2))
        for first, last in runs:
            is_own = OF_ANOTHER not in cells[first:last] and all(cells[first:last])
            assert file.is_known(first * CELL, last * CELL) == is_own
        for first, last in runs:
            assert file.has(first * CELL + 1, last * CELL - 1) == all(marks[first:last])
        for first, last in runs:
            # To find that one is missing, the others need not have been looked for.
            if all(marks[first:last]):
                assert file.is_known(first * CELL + 1, last * CELL - 1)


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's /proc")
def test_of_a_large_file_little_is_in_memory(tmp_path: pathlib.Path) -> None:
    """Whatever is fetched of it, from wherever in it."""
    file = open_sparse(tmp_path / "a", 64 << 30)
    starts = range(0, 64 << 30, 4 << 20)
    before = own_bytes()
    for start in starts:
        assert file.claim(start, start + CELL) == start + CELL
        file.mark(start, start + CELL)
        file.release(start, start + CELL)
    assert own_bytes() - before < 48 << 20
    for start in starts:
        assert file.is_kept(start, start + CELL)
        assert not file.has(start, start + 2 * CELL)
    assert own_bytes() - before < 48 << 20


def test_what_is_missing(tmp_path: pathlib.Path) -> None:
    """Is neither kept, nor in memory, nor being fetched; of others' files, not what they mark.
    Bulk, which is to be kept, brings what is only in memory, too."""
    file = open_sparse(tmp_path / "a", 20 * CELL)
    data = os.urandom(3 * CELL)
    file.write(0, memoryview(data[:CELL]))
    file.mark(0, CELL)
    assert file.claim(2 * CELL, 4 * CELL) == 4 * CELL
    file.memory.add(5 * CELL, memoryview(data))
    assert file.missing(0, 20 * CELL) == [
        (CELL, 2 * CELL),
        (4 * CELL, 5 * CELL),
        (8 * CELL, 20 * CELL),
    ]
    assert file.missing(0, 20 * CELL, bridge=2 * CELL) == [(CELL, 5 * CELL), (8 * CELL, 20 * CELL)]
    in_bulk = [(CELL, 2 * CELL), (4 * CELL, 20 * CELL)]
    assert file.missing(0, 20 * CELL, for_bulk=True) == in_bulk
    assert file.count(0, 20 * CELL) == 3 * CELL
    assert file.has(5 * CELL + 1, 8 * CELL - 1)
    assert not file.is_kept(5 * CELL, 8 * CELL)
    assert not file.has(4 * CELL, 6 * CELL)
    read = bytearray(2 * CELL)
    file.read_into(5 * CELL + 7, memoryview(read))
    assert read == data[7 : 2 * CELL + 7]
    # As another process does.
    with open(tmp_path / "a.cells", "r+b") as cells:
        cells.seek(9)
        cells.write(b"\1\1")
    file.release(2 * CELL, 4 * CELL)
    file.memory.drop(6 * CELL, 8 * CELL)
    assert file.missing(0, 20 * CELL) == [
        (CELL, 5 * CELL),
        (6 * CELL, 9 * CELL),
        (11 * CELL, 20 * CELL),
    ]
    file.discard(0, 6 * CELL)
    file.memory.discard(0, 6 * CELL)
    assert file.missing(0, 20 * CELL) == [(0, 9 * CELL), (11 * CELL, 20 * CELL)]


def _claim(path: pathlib.Path, ranges: list[tuple[int, int]], told: Any, ending: Any) -> None:
    """In a process of its own."""
    file = open_sparse(path, 100 * CELL)
    for start, stop in ranges:
        assert file.claim_bulk(start * CELL, stop * CELL) == stop * CELL
    told.set()
    assert ending.wait(60)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has locks")
def test_who_fetches_in_bulk_is_counted(tmp_path: pathlib.Path) -> None:
    """Each process once, whatever it has claimed; and this one, whether it has or not."""
    file = open_sparse(tmp_path / "a", 100 * CELL)
    assert file.claims.processes_in_bulk() == 1
    children = []
    for begin in (0, 3):
        told, ending = READY.Event(), READY.Event()
        ranges = [(at, at + 2) for at in range(begin, 90, 6)]
        child = READY.Process(target=_claim, args=(tmp_path / "a", ranges, told, ending))
        child.start()
        assert told.wait(60)
        children.append((child, ending))
        assert file.claims.processes_in_bulk() == 1 + len(children)
    assert file.claim_bulk(95 * CELL, 97 * CELL) == 97 * CELL
    # What is claimed by itself is not bulk.
    assert file.claim(98 * CELL, 99 * CELL) == 99 * CELL
    for left, (child, ending) in zip((2, 1), children, strict=True):
        assert file.claims.processes_in_bulk() == left + 1
        ending.set()
        child.join()
        assert child.exitcode == 0
        assert file.claims.processes_in_bulk() == left
