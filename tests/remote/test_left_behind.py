"""What killed processes leave of what is kept on a machine, and that it goes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import pathlib
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from killing import file_events, killed_amid

from yogadl.cache.parts import OBJECTS_FOLDER, PARTS_FOLDER, parts_of, read_header
from yogadl.remote._local import collecting, pair
from yogadl.remote._local.becoming import become_parts
from yogadl.remote._local.collecting import collect, remove_unused
from yogadl.remote._local.in_memory import CELL
from yogadl.remote._local.kept import forget, kept_versions, set_pinned
from yogadl.remote._local.notes import load, lose_version, note_of, note_opened
from yogadl.remote._local.pair import cells_of
from yogadl.remote._local.sparse_file import SparseFile
from yogadl.storage import LFSStorage

pytestmark = pytest.mark.once

NAME, OTHER = "s3://bucket/a", "s3://bucket/b"
CELLS = 8
DATA = bytes(range(256)) * (CELL * CELLS // 256)


def left_in(folder: pathlib.Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    return sorted(path.name for path in found if path.suffix != ".lock")


class Store:
    """What is kept of a plain file and of a table that was made of it, which has that as a part."""

    def __init__(self, made: pathlib.Path, folder: pathlib.Path) -> None:
        shutil.copytree(made, folder, symlinks=True)
        self.folder = folder
        versions = sorted(
            (folder / OBJECTS_FOLDER).glob("*.mdb"), key=lambda path: bool(parts_of(path))
        )
        self.plain, self.table = versions

    def open(self, path: pathlib.Path, *names: str) -> None:
        link = self.folder / f"{path.stem}.link"
        link.symlink_to(path)
        for name in names:
            note_opened(path, name, link)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory, folder = (tmp_path_factory.mktemp(name) for name in ("storage", "made"))
    storage = LFSStorage(directory)
    storage.submit(np.arange(1000), "a", "0")
    storage.tag("a", "main", "0")
    with storage.change("a", "main", version="1") as change:
        change.append(np.arange(2000))
    for inner in (OBJECTS_FOLDER, PARTS_FOLDER):
        (folder / inner).mkdir()
    digests = []
    for own in sorted(directory.glob("a/?/cache.mdb")):
        digests.append(read_header(own)[0].digest.hex())
        shutil.copy(own, folder / OBJECTS_FOLDER / f"{digests[-1]}.mdb")
    for part in directory.glob("a/yogadl.parts/*.mdb"):
        if part.stem not in digests:
            shutil.copy(part, folder / PARTS_FOLDER)
    for path in folder.glob("*/*.mdb"):
        cells = path.stat().st_size // CELL
        cells_of(path).write_bytes(b"\1" * cells + bytes(8))
        path.with_name(f"{path.name}.whole").write_text("[]")
    assert len(list(folder.glob("*/*.mdb"))) == 3
    return folder


Work = Callable[[Store], object]
# What is done before, and what is killed at any step.
WORKS: dict[str, tuple[Work, Work]] = {
    "open": (lambda _: None, lambda it: it.open(it.plain, NAME)),
    "open again": (
        lambda it: it.open(it.plain, OTHER),
        lambda it: note_opened(it.plain, NAME),
    ),
    "delete": (lambda it: it.open(it.table, NAME), lambda it: forget(it.folder, NAME)),
    "replace": (
        lambda it: (it.open(it.plain, NAME, OTHER), it.open(it.table, NAME)),
        lambda it: forget(it.folder, NAME, it.table),
    ),
    "make room": (
        lambda it: (it.open(it.plain, NAME, OTHER), it.open(it.table, NAME)),
        lambda it: remove_unused([it.folder], 1 << 40),
    ),
    "collect": (
        lambda it: (it.open(it.table, NAME), forget(it.folder, NAME), it.open(it.plain, NAME)),
        lambda it: collect(it.folder),
    ),
    "become a part": (
        lambda it: (it.open(it.plain, NAME, OTHER), it.open(it.table, NAME)),
        lambda it: become_parts(it.folder, NAME, it.table),
    ),
}


@pytest.mark.parametrize("name", WORKS)
def test_nothing_stays_of_who_was_killed_at_any_step(
    made: pathlib.Path, tmp_path: pathlib.Path, name: str
) -> None:
    before, work = WORKS[name]

    def store(at: int) -> Store:
        made_anew = Store(made, tmp_path / str(at))
        before(made_anew)
        return made_anew

    count = file_events(lambda: work(store(0)))
    assert count > 5
    for event in range(1, count + 1):
        it = store(event)
        if not killed_amid(functools.partial(work, it), event):
            break
        collect(it.folder)
        if kept_versions(it.folder):
            # Whatever was opened as some object is found when that is deleted.
            forget(it.folder, NAME)
            forget(it.folder, OTHER)
            assert not kept_versions(it.folder), event
            collect(it.folder)
        assert not [one for one in left_in(it.folder) if not one.endswith(".link")], event
        shutil.rmtree(it.folder)


def test_what_who_made_room_left_goes_when_room_is_made(
    made: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Without anybody who collects."""
    it = Store(made, tmp_path / "kept")
    shutil.rmtree(it.folder / PARTS_FOLDER)
    (it.folder / PARTS_FOLDER).mkdir()
    for path in (it.plain, it.table):
        note_opened(path, NAME)
        path.unlink()
    assert len(left_in(it.folder)) > 5
    remove_unused([it.folder], 0)
    assert [pathlib.Path(name).suffix for name in left_in(it.folder)] == [".names"]
    collect(it.folder)
    assert left_in(it.folder) == []


def test_of_names_those_that_are_there_stay(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    it = Store(made, tmp_path / "kept")
    for path in (it.plain, it.table):
        note_opened(path, NAME)
    note_opened(it.plain, OTHER)
    (it.folder / OBJECTS_FOLDER / "nonsense.names").write_text("[7")
    it.plain.unlink()
    collect(it.folder)
    (names,) = (it.folder / OBJECTS_FOLDER).glob("*.names")
    assert json.loads(names.read_text()) == {"object": NAME, "versions": [it.table.stem]}
    forget(it.folder, NAME)
    assert left_in(it.folder) == []


def test_who_opens_it_again_is_not_forgotten(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """When it was about to be forgotten that it was that object."""
    it = Store(made, tmp_path / "kept")
    note_opened(it.plain, NAME)
    lose_version(it.plain, NAME)
    forget(it.folder, NAME)
    assert not it.plain.exists()


def test_a_name_too_many_does_no_harm(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As who was killed before he had written the note leaves it."""
    it = Store(made, tmp_path / "kept")
    note_opened(it.plain, OTHER)
    before = note_of(it.plain).read_bytes()
    note_opened(it.plain, NAME)
    note_of(it.plain).write_bytes(before)
    forget(it.folder, NAME)
    assert load(it.plain).names == (OTHER,)
    assert it.plain.exists()
    assert len(list((it.folder / OBJECTS_FOLDER).glob("*.names"))) == 1


def test_nobody_waits_long_for_who_was_stopped(
    made: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "_PATIENCE", 0.1)
    it = Store(made, tmp_path / "kept")
    with collecting.settled(it.folder, fcntl.LOCK_SH), pytest.raises(TimeoutError):
        collect(it.folder)
    collect(it.folder)
    assert left_in(it.folder) == []


# Who opens what is being removed; reading from afar, he takes no lock of the store.


def keep_some(path: pathlib.Path) -> SparseFile:
    kept = SparseFile(path, len(DATA))
    kept.write(0, memoryview(DATA))
    kept.mark(0, len(DATA))
    return kept


def check_kept(path: pathlib.Path) -> None:
    """The data is where it is looked for, and what says that it is there is of it."""
    assert path.read_bytes() == DATA
    assert cells_of(path).read_bytes()[:CELLS] == b"\1" * CELLS


@pytest.fixture
def stray(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file that is gone, beside which its cells still are."""
    for inner in (OBJECTS_FOLDER, PARTS_FOLDER):
        (tmp_path / inner).mkdir()
    path = tmp_path / PARTS_FOLDER / "00.mdb"
    cells_of(path).write_bytes(b"\1" * CELLS + bytes(8))
    return path


def remove_strays(path: pathlib.Path) -> None:
    """Of its folder; as there is no table, all parts would go otherwise."""
    collecting._remove_leftovers(path.parent.parent)


def test_cells_of_who_begins_while_those_of_another_file_go(
    stray: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, found = pathlib.Path.unlink, []
    thread = threading.Thread(target=lambda: found.append(keep_some(stray)))

    def late(path: pathlib.Path, missing_ok: bool = False) -> None:
        if path == cells_of(stray) and thread.ident is None:
            thread.start()
            thread.join(0.3)
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "unlink", late)
        remove_strays(stray)
        assert thread.ident is not None
        thread.join(10)
    assert found
    check_kept(stray)


@pytest.mark.parametrize("is_held", [True, False])
def test_what_somebody_keeps_before_it_is_locked_stays(
    stray: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    alone, held = collecting.alone, []

    @contextlib.contextmanager
    def late(path: pathlib.Path) -> Iterator[bool]:
        held.append(keep_some(path))
        if not is_held:
            held.clear()
        with alone(path) as is_alone:
            yield is_alone

    monkeypatch.setattr(collecting, "alone", late)
    remove_strays(stray)
    check_kept(stray)


def test_what_somebody_keeps_before_it_is_made_stays(
    stray: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = collecting._remove_stray

    def late(path: pathlib.Path) -> None:
        keep_some(path)
        remove(path)

    monkeypatch.setattr(collecting, "_remove_stray", late)
    remove_strays(stray)
    check_kept(stray)


@pytest.fixture
def before_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[], object]], None]:
    """Has something be done between the opening of a file and its lock, once."""

    def arrange(do: Callable[[], object]) -> None:
        lock = pair._lock_first

        def late(data: Any) -> bool:
            monkeypatch.setattr(pair, "_lock_first", lock)
            do()
            return lock(data)

        monkeypatch.setattr(pair, "_lock_first", late)

    return arrange


def test_a_file_that_is_renamed_before_it_is_locked(
    tmp_path: pathlib.Path, before_the_lock: Callable[[Callable[[], object]], None]
) -> None:
    """Of which nothing is there yet."""
    path = tmp_path / "00.mdb"
    before_the_lock(lambda: path.rename(tmp_path / "11.mdb"))
    keep_some(path)
    check_kept(path)
    assert (tmp_path / "11.mdb").stat().st_size == 0


def test_a_file_that_is_removed_before_it_is_locked_and_kept_by_another(
    tmp_path: pathlib.Path, before_the_lock: Callable[[Callable[[], object]], None]
) -> None:
    path, kept = tmp_path / "00.mdb", []

    def replace() -> None:
        path.unlink()
        kept.append(keep_some(path))

    before_the_lock(replace)
    assert SparseFile(path, len(DATA)).is_kept(0, len(DATA))
    check_kept(path)


def test_nothing_is_pinned_that_has_become_a_part(
    made: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Store(made, tmp_path / "kept")
    note_opened(it.plain, NAME)
    (version,) = [one for one in kept_versions(it.folder) if one.path == it.plain]
    flock = fcntl.flock

    def late(file: Any, kind: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        become_parts(it.folder, NAME, it.table)
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    assert not set_pinned(version, True)
    assert not it.plain.exists()
    assert not note_of(it.plain).exists()
