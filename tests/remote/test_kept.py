"""What stays of versions on this machine when objects are replaced, deleted, or collected."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.cache.partial import remove_all_leftovers
from yogadl.cache.parts import OBJECTS_FOLDER, PARTS_FOLDER, parts_of, read_header
from yogadl.remote._local.collecting import collect, remove_unused
from yogadl.remote._local.kept import forget, kept_versions, set_pinned
from yogadl.remote._local.notes import note_opened
from yogadl.remote._local.own_file import replace_file
from yogadl.storage import LFSStorage

pytestmark = pytest.mark.once

VERSIONS = 5
NAMES = ["s3://bucket/a", "s3://bucket/b", "s3://bucket/\udc80"]
PART_RECORDS = 20


def records(first: int, count: int) -> Iterator[dict[str, Any]]:
    for number in range(first, first + count):
        yield {"x": np.full(1000, number, "u1")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of versions and their parts: tables of which each shares parts with the one before,
    and the last a file without parts."""
    folder = tmp_path_factory.mktemp("made")
    directory = tmp_path_factory.mktemp("storage")
    storage = LFSStorage(directory)
    storage.submit(records(0, 3 * PART_RECORDS), "a", "0", part_bytes=PART_RECORDS * 1000)
    storage.tag("a", "main", "0")
    for number in range(1, VERSIONS - 1):
        with storage.change("a", "main", version=str(number)) as change:
            change.append(records(100 + number, PART_RECORDS))
    storage.submit(records(200, 3), "a", str(VERSIONS - 1))
    (folder / OBJECTS_FOLDER).mkdir()
    for number in range(VERSIONS):
        own = directory / "a" / str(number) / "cache.mdb"
        digest = read_header(own)[0].digest.hex()
        shutil.copy(own, folder / OBJECTS_FOLDER / f"{digest}.mdb")
    (parts,) = directory.rglob(PARTS_FOLDER)
    shutil.copytree(parts, folder / PARTS_FOLDER)
    return folder


def parts_in(table: pathlib.Path) -> set[str]:
    return {f"{digest.hex()}.mdb" for digest in parts_of(table)}


class Kept:
    """A folder of what is kept, beside a plain account of which names its versions have."""

    def __init__(self, made: pathlib.Path, folder: pathlib.Path) -> None:
        self.made = made
        self.folder = folder
        self.originals = sorted((made / OBJECTS_FOLDER).iterdir())
        self.names: dict[int, set[str]] = {}
        # Names that have each looked for, should it have none any more.
        self.known: dict[int, set[str]] = {}
        self.pinned: set[int] = set()
        self.held: dict[int, int] = {}
        for inner in (OBJECTS_FOLDER, PARTS_FOLDER):
            (folder / inner).mkdir()

    def path(self, number: int) -> pathlib.Path:
        return self.folder / OBJECTS_FOLDER / self.originals[number].name

    def open(self, number: int, name: str) -> None:
        if number not in self.names:
            shutil.copy(self.originals[number], self.path(number))
            for part in parts_in(self.originals[number]):
                shutil.copy(self.made / PARTS_FOLDER / part, self.folder / PARTS_FOLDER / part)
        self.names.setdefault(number, set()).add(name)
        self.known.setdefault(number, set()).add(name)
        note_opened(self.path(number), name)

    def pin(self, number: int) -> None:
        if number in self.names:
            (found,) = [it for it in kept_versions(self.folder) if it.path == self.path(number)]
            assert set_pinned(found, True)
            self.pinned.add(number)

    def hold(self, number: int) -> None:
        if number in self.names and number not in self.held:
            self.held[number] = os.open(self.path(number), os.O_RDONLY)
            fcntl.flock(self.held[number], fcntl.LOCK_SH)

    def let_go(self) -> None:
        while self.held:
            os.close(self.held.popitem()[1])

    def forget(self, name: str, but: int | None) -> None:
        if but is not None and but in self.names:
            self.open(but, name)
        else:
            but = None
        forget(self.folder, name, None if but is None else self.path(but))
        for number in [it for it in self.names if name in self.known[it] and it != but]:
            if name in self.names[number]:
                if number in self.pinned and but is not None:
                    self.pinned.add(but)
                self.names[number].remove(name)
                if not self.names[number]:
                    self.pinned.discard(number)
            if self.names[number]:
                self.known[number].remove(name)
            else:
                self._gone(number)

    def collect(self) -> None:
        collect(self.folder)
        for number in [it for it in self.names if not self.names[it]]:
            self._gone(number)

    def make_room(self) -> None:
        remove_unused([self.folder], sys.maxsize)
        for number in list(self.names):
            self._gone(number)

    def _gone(self, number: int) -> None:
        if number not in self.held and number not in self.pinned:
            del self.names[number], self.known[number]

    def check(self) -> None:
        found = {version.path.name: version for version in kept_versions(self.folder)}
        assert set(found) == {self.originals[number].name for number in self.names}
        needed = set()
        for number, names in self.names.items():
            version = found[self.originals[number].name]
            assert set(version.names) == names
            assert version.is_pinned == (number in self.pinned)
            needed |= parts_in(self.originals[number])
        assert {path.name for path in (self.folder / PARTS_FOLDER).glob("*.mdb")} == needed


NUMBERS = st.integers(0, VERSIONS - 1)
STEPS = st.one_of(
    st.tuples(st.just("open"), NUMBERS, st.sampled_from(NAMES)),
    st.tuples(st.just("forget"), st.sampled_from(NAMES), st.none() | NUMBERS),
    st.tuples(st.sampled_from(["pin", "hold"]), NUMBERS),
    st.tuples(st.sampled_from(["collect", "let_go", "make_room"])),
)


@given(steps=st.lists(STEPS, min_size=4, max_size=25))
def test_what_stays(made: pathlib.Path, steps: list[tuple[Any, ...]]) -> None:
    """Exactly what has a name, or is pinned or open, and the parts of that."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Kept(made, pathlib.Path(folder))
        try:
            for step, *arguments in steps:
                getattr(kept, step)(*arguments)
                kept.check()
        finally:
            kept.let_go()


@pytest.mark.parametrize("inner", [OBJECTS_FOLDER, PARTS_FOLDER])
def test_what_stands_beside_no_file_goes(tmp_path: pathlib.Path, inner: str) -> None:
    """As who was killed between two renames leaves it."""
    for each in (OBJECTS_FOLDER, PARTS_FOLDER):
        (tmp_path / each).mkdir()
    folder = tmp_path / inner
    (folder / "00.mdb").touch()
    beside = {folder / f"00.mdb{suffix}" for suffix in (".cells", ".whole")}
    for path in (*beside, folder / "11.mdb.cells", folder / "11.mdb.whole"):
        path.write_bytes(b"1")
    if inner == OBJECTS_FOLDER:
        note_opened(folder / "00.mdb", "name")
    collect(tmp_path)
    left = set(folder.glob("*.cells")) | set(folder.glob("*.whole"))
    assert left == (beside if inner == OBJECTS_FOLDER else set())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"versions": 7}',
        '{"versions": [7, null, "../../passwd", "x", ""]}',
        '{"versions": ["' + "a" * 100_000 + '"]}',
        "[" * 100_000,
    ],
    ids=range(7),
)
def test_names_that_make_no_sense(made: pathlib.Path, tmp_path: pathlib.Path, text: str) -> None:
    kept = Kept(made, tmp_path)
    kept.open(0, NAMES[0])
    (names,) = (tmp_path / OBJECTS_FOLDER).glob("*.names")
    names.write_text(text)
    forget(tmp_path, NAMES[0])
    kept.check()
    # Whoever opens it again has it found.
    kept.open(0, NAMES[0])
    kept.forget(NAMES[0], None)
    kept.check()
    assert not list((tmp_path / OBJECTS_FOLDER).glob("*.names"))


def test_names_of_what_is_not_there(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    kept = Kept(made, tmp_path)
    kept.open(0, NAMES[0])
    kept.open(1, NAMES[1])
    (names,) = [
        path
        for path in (tmp_path / OBJECTS_FOLDER).glob("*.names")
        if json.loads(path.read_text())["object"] == NAMES[0]
    ]
    # The note is what counts: the other version is not of this name, and the third is not there.
    stems = [kept.path(number).stem for number in (1, 2)]
    names.write_text(json.dumps({"versions": stems}))
    forget(tmp_path, NAMES[0])
    kept.check()


def test_what_replaces_nothing_reads_no_notes(tmp_path: pathlib.Path) -> None:
    """Whoever fetches the thousandth version need not look at the others."""
    objects = tmp_path / OBJECTS_FOLDER
    objects.mkdir()
    for number in range(1000):
        path = objects / f"{number:032x}.mdb"
        path.touch()
        note_opened(path, f"s3://bucket/{number}")
    opened: list[str] = []
    is_over = False

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not is_over and str(arguments[0]).startswith(str(objects)):
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    forget(tmp_path, "s3://bucket/7", objects / f"{7:032x}.mdb")
    forget(tmp_path, "s3://bucket/other")
    is_over = True
    assert len(opened) == 2


KILLED = """
import pathlib, sys
from yogadl.remote._local.own_file import replace_file


def data():
    yield b"some"
    print("ready", flush=True)
    sys.stdin.read()


replace_file(pathlib.Path(sys.argv[1]), data())
"""


@pytest.mark.parametrize("folder", [OBJECTS_FOLDER, PARTS_FOLDER])
@pytest.mark.parametrize("removes", [collect, lambda folder: remove_unused([folder], 0)])
def test_what_a_killed_process_was_writing_goes(
    made: pathlib.Path, tmp_path: pathlib.Path, folder: str, removes: Callable[..., Any]
) -> None:
    """And what a living one writes stays."""
    shutil.copytree(made, tmp_path / "kept")
    for version in kept_versions(tmp_path / "kept"):
        note_opened(version.path, NAMES[0])
    before = sorted((tmp_path / "kept" / folder).iterdir())
    note = before[0].with_name(f"{before[0].name}.whole")
    command = [sys.executable, "-c", KILLED, note]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            removes(tmp_path / "kept")
            (partial,) = note.parent.glob(f"{note.name}*")
        finally:
            process.kill()
    assert partial.exists()
    removes(tmp_path / "kept")
    assert not partial.exists()
    assert set(before) <= set(note.parent.iterdir())


def test_what_is_being_written_is_not_taken_for_a_leftover(tmp_path: pathlib.Path) -> None:
    """Not even between being made and being locked, or before it is renamed."""
    is_over = threading.Event()

    def remove() -> None:
        while not is_over.is_set():
            remove_all_leftovers(tmp_path)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for number in range(2000):
            replace_file(tmp_path / "note", [str(number).encode()])
            assert (tmp_path / "note").read_text() == str(number)
    finally:
        is_over.set()
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["note"]
