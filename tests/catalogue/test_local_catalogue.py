"""Lists and tags of the local storage."""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import os
import pathlib
import pickle
import random
import shutil
import signal
import stat
import tempfile
import time
from typing import Any

import pytest
from catalogued import CatalogueSuite, names

from yogadl.errors import CatalogueError, TagMovedError
from yogadl.storage import LFSStorage, _listing

SPAWN = multiprocessing.get_context("spawn")


class Disk:
    """See ``Place``."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._root = folder / "storage"

    def storage(self) -> LFSStorage:
        return LFSStorage(self._root)

    def put(self, path: str, data: bytes) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name("partial")
        partial.write_bytes(data)
        partial.rename(target)

    def get(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def remove(self, path: str) -> None:
        (self._root / path).unlink()

    def paths(self) -> list[str]:
        found = (path for path in self._root.rglob("*") if path.is_file())
        return [path.relative_to(self._root).as_posix() for path in found]

    def other(self) -> LFSStorage:
        return LFSStorage(self._folder / "other")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a file system of such times")
@pytest.mark.parametrize("seconds", [1 << 50, -(1 << 50)])
def test_times_that_no_calendar_has(seconds: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        storage = LFSStorage(folder)
        for version in "12":
            storage.submit([int(version)], "a", version)
        os.utime(f"{folder}/a/1/cache.mdb", (seconds, seconds))
        # Which tells when it was made.
        shutil.rmtree(f"{folder}/yogadl.catalogue")
        first, second = LFSStorage(folder).list()
        assert first.created.year in (1, 9999)
        assert first.created.astimezone(datetime.timezone(datetime.timedelta(hours=14)))
        newest = "1" if seconds > 0 else "2"
        assert storage.latest("a") == newest
        storage.gc(keep_last=1, older_than=datetime.timedelta())
        assert [it.dataset_version for it in storage.list()] == [newest]
        assert second.created.year > 2000


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Disk:
    return Disk(tmp_path)


def test_what_goes_while_it_is_listed_is_left_out(
    place: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    storage = place.storage()
    storage.submit([1], "a", "1")
    old = tmp_path / "storage" / "yogadl.catalogue" / "old.entries"
    old.touch()
    scandir = os.scandir

    @contextlib.contextmanager
    def scan(path: Any) -> Any:
        # As who merges segments does, without the lock.
        with scandir(path) as found:
            entries = list(found)
        old.unlink(missing_ok=True)
        yield iter(entries)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scan)
        assert set(storage._catalogue._objects.times()) == {"root.json", "yogadl.lock"}
    assert not old.exists()


class TestLocalCatalogue(CatalogueSuite):
    """All of it."""


class TestLookedUpLocally(CatalogueSuite):
    """All of it, where whoever looks enters at once what others are about to enter, or never do."""

    @pytest.fixture(autouse=True)
    def _nothing_is_young(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_listing, "_YOUNG", -datetime.timedelta(days=400))
        monkeypatch.setattr(LFSStorage, "_looking_begins_catalogue", True)


def test_a_storage_can_be_pickled(place: Disk) -> None:
    storage = place.storage()
    storage.submit([1], "a", "1")
    storage.tag("a", "prod", "1")
    again = pickle.loads(pickle.dumps(storage))
    assert again.list() == storage.list()
    assert again.tags("a") == {"prod": "1"}


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o002])
def test_who_may_write_stays_as_it_is(mask: int, place: Disk) -> None:
    """Whatever the umask of who writes next: several users may share a storage."""
    before = os.umask(0o002)
    try:
        place.storage().submit([1], "a", "1")
        os.umask(mask)
        place.storage().submit([1], "a", "2")
    finally:
        os.umask(before)
    folder = place._root / "yogadl.catalogue"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o775
    assert stat.S_IMODE((folder / "root.json").stat().st_mode) == 0o664


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_storage_that_is_read_only_is_listed(place: Disk) -> None:
    storage = place.storage()
    storage.submit([1], "a", "1")
    storage.tag("a", "prod", "1")
    folder = place._root / "yogadl.catalogue"
    folder.chmod(0o555)
    (folder / "yogadl.lock").chmod(0o444)
    try:
        assert names(place.storage().list()) == [("a", "1")]
        assert place.storage().tags("a") == {"prod": "1"}
        storage.submit([2], "a", "2")
        assert names(place.storage().list()) == [("a", "1"), ("a", "2")]
    finally:
        folder.chmod(0o755)


def test_nothing_is_made_by_looking(place: Disk) -> None:
    storage = place.storage()
    assert storage.list() == []
    assert storage.tags("a") == {}
    assert not storage.exists("a", "1")
    assert place.paths() == []


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_something_else_in_the_place_of_the_root(kind: str, place: Disk) -> None:
    """It is told, and nobody waits for it."""
    storage = place.storage()
    storage.submit([1], "a", "1")
    path = place._root / "yogadl.catalogue" / "root.json"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises((CatalogueError, OSError), match=r"root\.json"):
        place.storage().list()
    storage.submit([1], "a", "2")


# Processes


def _commits(folder: pathlib.Path, who: int, count: int) -> None:
    """Adds versions to a branch, each on the one before, like ``storage.change`` does."""
    from catalogue_rig import entry

    storage = LFSStorage(folder)
    for number in range(count):
        made = entry("a", f"{who}-{number}", f"{who}-{number}")
        while True:
            try:
                storage._catalogue.commit(made, "main", storage.tags("a").get("main"))
                break
            except TagMovedError:
                continue


@pytest.mark.once
def test_processes_that_commit_to_one_branch(tmp_path: pathlib.Path) -> None:
    writers = [SPAWN.Process(target=_commits, args=(tmp_path, who, 40)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    entries = LFSStorage(tmp_path)._catalogue.load().entries
    made = {(f"{who}-{number}") for who in range(4) for number in range(40)}
    assert {version for _, version in entries} == made
    assert len({entry.number for entry in entries.values()}) == 160


def _change_for_ever(folder: pathlib.Path, told: Any) -> None:
    """Submits, tags and deletes, and tells what is done."""
    storage = LFSStorage(folder)
    number = 0
    while True:
        number += 1
        version = f"{os.getpid()}-{number}"
        storage.submit([number], "a", version)
        os.write(told, f"stored {version}\n".encode())
        storage.tag("a", "last", version)
        os.write(told, f"tagged {version}\n".encode())
        if number % 3 == 0:
            storage.tag("a", "last", f"{os.getpid()}-{number - 1}")
            storage.delete("a", version)
            os.write(told, f"deleted {version}\n".encode())


@pytest.mark.once
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_writers_that_are_killed(tmp_path: pathlib.Path) -> None:
    """At any moment: what they said was done is, and the catalogue can be read."""
    chance = random.Random(5)
    folder = tmp_path / "storage"
    storage = LFSStorage(folder)
    stored: set[str] = set()
    kills = changes = 0
    for _ in range(25):
        ends = [os.pipe() for _ in range(2)]
        children = []
        for read_end, write_end in ends:
            child = os.fork()
            if child == 0:
                try:
                    os.close(read_end)
                    _change_for_ever(folder, write_end)
                finally:
                    os._exit(1)
            os.close(write_end)
            children.append(child)
        time.sleep(chance.uniform(0.02, 0.3))
        for child in children:
            os.kill(child, signal.SIGKILL)
        tagged = set()
        for child, (read_end, _) in zip(children, ends, strict=True):
            os.waitpid(child, 0)
            with open(read_end) as told:
                for line in told:
                    done, _, version = line.strip().partition(" ")
                    changes += 1
                    if done == "stored":
                        stored.add(version)
                    elif done == "deleted":
                        stored.discard(version)
                    else:
                        tagged.add(version)
            kills += 1
        found = {entry.dataset_version for entry in LFSStorage(folder).list("a")}
        # One more may be stored, or deleted, that had no time to say so.
        assert len(found ^ stored) <= 2
        stored = found
        tag = storage.tags("a").get("last")
        assert tag is None or tag in found
        assert not tagged or tag is not None
    assert kills == 50
    assert changes > 50
    # And anybody goes on.
    storage.submit([1], "a", "end")
    storage.tag("a", "last", "end")
    assert storage.fetch("a", "last").info.record_count == 1


def test_files_of_any_time_are_compacted(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(str(tmp_path))
    for version in "12":
        storage.submit([int(version)], "a", version)
    os.utime(tmp_path / "a/1/cache.mdb", (-5, -5))
    storage.compact("a", "1")
    assert [one.dataset_version for one in storage.list()] == ["1", "2"]
    assert storage.latest("a") == "2"
