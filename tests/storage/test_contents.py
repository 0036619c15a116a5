"""A download that completes a file which others have open, and write to."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from yogadl.cache import noted
from yogadl.cache.parts import read_header
from yogadl.remote._local import whole
from yogadl.remote._local.sparse_file import CELL, SparseFile, open_sparse
from yogadl.storage import LFSStorage
from yogadl.storage._disk import contents


class Opened:
    """A whole file, and what is kept of the same, which somebody has open."""

    def __init__(self, folder: pathlib.Path) -> None:
        storage = LFSStorage(folder / "stored")
        storage.submit([{"x": os.urandom(1 + at)} for at in range(1000)], "a", "1")
        (source,) = folder.rglob("cache.mdb")
        self.data = source.read_bytes()
        self.size = len(self.data)
        self.path = folder / f"{read_header(source)[0].digest.hex()}.mdb"
        self.kept = open_sparse(self.path, self.size)
        self.source = os.open(source, os.O_RDONLY)

    def complete(self) -> bool:
        return contents._is_completed(self.source, self.path, self.size)

    def write_blindly(self, start: int, data: bytes) -> None:
        """As who has looked at what is there before it came."""
        os.pwrite(self.kept._data.number, data, start)


@pytest.fixture
def opened(tmp_path: pathlib.Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    os.close(made.source)


def none(opened: Opened) -> None:
    pass


def some(opened: Opened) -> None:
    opened.kept.write(4 * CELL, memoryview(opened.data)[4 * CELL : 9 * CELL])
    opened.kept.mark(4 * CELL, 9 * CELL)


def damaged(opened: Opened) -> None:
    opened.kept.write(0, memoryview(os.urandom(opened.size)))
    opened.kept.mark(0, opened.size)


def in_memory(opened: Opened) -> None:
    """And what is not in the file is."""
    opened.kept.memory.add(0, memoryview(opened.data))


@pytest.mark.parametrize("there", [none, some, damaged, in_memory])
def test_whatever_is_there(opened: Opened, there: Callable[[Opened], None]) -> None:
    there(opened)
    assert opened.complete()
    assert opened.path.read_bytes() == opened.data
    assert noted.is_noted(opened.path)
    # What comes afterwards is not written.
    opened.kept.write(0, memoryview(os.urandom(opened.size)))
    assert opened.path.read_bytes() == opened.data
    assert noted.is_noted(opened.path)


@pytest.mark.parametrize("times", [1, 2, 1000])
def test_others_write_what_came_damaged(
    opened: Opened, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it was written, and before it is compared."""
    synced, sync = [], SparseFile.sync

    def sync_and_spoil(file: SparseFile) -> None:
        sync(file)
        synced.append(file)
        if len(synced) <= times:
            opened.write_blindly(7 * CELL + 3, os.urandom(2 * CELL))

    monkeypatch.setattr(SparseFile, "sync", sync_and_spoil)
    assert opened.complete() == (times < 1000)
    assert noted.is_noted(opened.path) == (times < 1000)
    if times < 1000:
        assert opened.path.read_bytes() == opened.data


_OTHER = """
import os, pathlib, sys
from yogadl.remote._local.sparse_file import CELL, open_sparse
kept = open_sparse(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
assert kept.claim(7 * CELL, 9 * CELL) == 9 * CELL
print("claimed", flush=True)
sys.stdin.readline()
os.pwrite(kept._data.number, os.urandom(CELL), 7 * CELL)
"""


@contextlib.contextmanager
def other_process(opened: Opened) -> Iterator[Callable[[], None]]:
    """One that has claimed some, and looked for it; yields what has it write, and end."""
    command = [sys.executable, "-c", _OTHER, str(opened.path), str(opened.size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"

        def write() -> None:
            process.communicate(b"\n")

        yield write
    assert process.returncode == 0


@contextlib.contextmanager
def other_thread(opened: Opened) -> Iterator[Callable[[], None]]:
    """The same, of this process; it need not be a thread."""
    assert opened.kept.claim(7 * CELL, 9 * CELL) == 9 * CELL

    def write() -> None:
        opened.write_blindly(7 * CELL, os.urandom(CELL))
        opened.kept.release(7 * CELL, 9 * CELL)

    yield write


@pytest.mark.parametrize("other", [other_thread, other_process])
def test_who_has_looked_before_writes_late(
    opened: Opened,
    other: Callable[[Opened], contextlib.AbstractContextManager[Callable[[], None]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it was written and marked, and only then."""
    looks: list[float] = []
    with other(opened) as write:

        def look(seconds: float) -> None:
            assert not opened.kept.missing(0, opened.size)
            looks.append(seconds)
            if len(looks) == 3:
                write()

        monkeypatch.setattr("time.sleep", look)
        assert opened.complete()
    assert len(looks) == 3
    assert opened.path.read_bytes() == opened.data
    assert noted.is_noted(opened.path)


@pytest.mark.parametrize("other", [other_thread, other_process])
def test_who_has_stopped_writes_much_later(
    opened: Opened,
    other: Callable[[Opened], contextlib.AbstractContextManager[Callable[[], None]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contents, "_FETCH_SECONDS", 0.05)
    with other(opened) as write:
        assert not opened.complete()
        write()
    assert not noted.is_noted(opened.path)


def test_a_pipe_instead_of_the_cells(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.mdb").write_bytes(bytes(CELL))
    os.mkfifo(tmp_path / "a.mdb.cells")
    assert not whole.is_whole(tmp_path / "a.mdb", CELL)
