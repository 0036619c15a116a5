"""A name that a version had which was replaced and deleted may be that of a commit."""

from __future__ import annotations

import datetime
import itertools
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import time

import numpy as np
import pytest

from yogadl.catalogue import Catalogue
from yogadl.errors import CacheNotFoundError, CatalogueError
from yogadl.storage import LFSStorage

FORK = multiprocessing.get_context("fork")
MANY = 100
"""Of so many newer versions, older entries are put into a segment."""


def commit_and_die(folder: pathlib.Path) -> None:
    """Stores a commit, and is killed before it is on its branch."""
    Catalogue.commit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, method-assign]
    with LFSStorage(folder).change("d", "main", version="v") as change:
        change.append(np.arange(5))


@pytest.mark.parametrize("replaced_by", ["submit", "compact"])
def test_what_was_never_committed_is_not_there(tmp_path: pathlib.Path, replaced_by: str) -> None:
    storage = LFSStorage(tmp_path)
    storage.submit(np.arange(10), "d", "base")
    storage.tag("d", "main", "base")
    storage.submit(np.arange(10), "d", "v")
    for number in range(MANY):
        storage.submit(np.arange(3), "other", str(number))
    if replaced_by == "submit":
        storage.submit(np.arange(11), "d", "v")
    else:
        storage.compact("d", "v")
    storage.delete("d", "v")
    killed = FORK.Process(target=commit_and_die, args=(tmp_path,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    storage = LFSStorage(tmp_path)
    assert [entry.dataset_version for entry in storage.list("d")] == ["base"]
    assert storage.latest("d") == "base"
    assert len(storage.fetch("d")) == 10
    with pytest.raises(CacheNotFoundError):
        storage.tag("d", "another", "v")
    # And who comes later makes it.
    storage.delete("d", "v")
    with storage.change("d", "main", version="v") as change:
        change.append(np.arange(5))
    assert len(storage.fetch("d", "main")) == 15


def newest_first(storage: LFSStorage) -> list[str]:
    """As ``gc`` and ``latest`` have it, which have to agree."""
    age = datetime.timedelta(0)
    collected = [
        storage.gc("d", keep_last=count, older_than=age, dry_run=True)
        for count in range(len(storage.list("d")) + 1)
    ]
    gone = [{it.dataset_version for it in each.versions} for each in collected]
    found = [next(iter(more - fewer)) for more, fewer in itertools.pairwise(gone)]
    assert storage.latest("d") == found[0]
    assert [it[0].dataset_version for it in storage._newest_first("d")] == found
    return found


@pytest.mark.parametrize("seed", range(6))
def test_versions_keep_their_order_when_a_program_copies_the_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Which gives all files new times, in another order; whatever the clock was by which they were
    made."""
    storage, roll = LFSStorage(tmp_path / "here"), random.Random(seed)
    wide = {str(number): np.zeros(2) for number in range(700)}
    clock = time.time_ns
    names = random.Random(seed).sample("abcdef", 6)
    for at, name in enumerate(names):
        skew = roll.choice([0, -(10**14), 10**14])
        monkeypatch.setattr(time, "time_ns", lambda skew=skew: clock() + skew)
        if at and roll.random() < 0.3:
            storage.copy("d", roll.choice(names[:at]), to=storage, new_version=name)
        else:
            # The entries of some are too long to be kept.
            storage.submit(wide if roll.random() < 0.3 else np.arange(at), "d", name)
        if roll.random() < 0.3:
            storage.compact("d", roll.choice(names[: at + 1]))
    monkeypatch.undo()
    order = newest_first(storage)
    assert order == names[::-1]
    shutil.copytree(tmp_path / "here", tmp_path / "there", copy_function=shutil.copyfile)
    for name in names:
        when = roll.uniform(1e9, 1.7e9)
        os.utime(tmp_path / "there" / "d" / name / "cache.mdb", (when, when))
    copied = LFSStorage(tmp_path / "there")
    assert newest_first(copied) == order
    # What is stored there later is newer, and stays so.
    for _ in range(2):
        copied.submit(np.arange(3), "d", "later")
        assert newest_first(copied) == ["later", *order]
        copied.compact("d", "later")
        for listed in copied.list("d"):
            if roll.random() < 0.5:
                copied.compact("d", listed.dataset_version)
        assert newest_first(copied) == ["later", *order]
        copied.delete("d", "later")


def delete_and_die(folder: pathlib.Path) -> None:
    """Deletes a version, and is killed before its file is gone."""
    pytest.MonkeyPatch().setattr(LFSStorage, "_delete", kill_oneself)
    LFSStorage(folder).delete("d", "1")


def kill_oneself(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("compacts", [True, False])
def test_what_is_being_deleted_is_not_the_newest(tmp_path: pathlib.Path, compacts: bool) -> None:
    storage = LFSStorage(tmp_path)
    for name in ("1", "2", "3"):
        storage.submit(np.arange(3), "d", name)
    if compacts:
        storage.compact("d", "1")
    for at, name in enumerate("321"):
        os.utime(tmp_path / "d" / name / "cache.mdb", (at + 1e9, at + 1e9))
    killed = FORK.Process(target=delete_and_die, args=(tmp_path,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    storage = LFSStorage(tmp_path)
    assert (tmp_path / "d" / "1" / "cache.mdb").exists()
    assert storage.latest("d") == "3"


def test_what_cannot_be_entered_is_not_compacted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be the newest."""

    def refuse(*_: object, **__: object) -> None:
        raise CatalogueError("somebody else is at it")

    storage = LFSStorage(tmp_path)
    for name in ("1", "2"):
        storage.submit(np.arange(3), "d", name)
    with monkeypatch.context() as patch:
        patch.setattr(Catalogue, "enter", refuse)
        # Its file says since when it is stored, as long as the entry of the one before is there.
        storage.compact("d", "1")
        assert storage.latest("d") == "2"
        with pytest.raises(CatalogueError, match="would be the newest version"):
            storage.compact("d", "1")
        assert storage.latest("d") == "2"
    storage.compact("d", "1")
    assert storage.latest("d") == "2"


@pytest.mark.parametrize("data", [b"", b"no cache", bytes(8192)])
def test_what_cannot_be_read_keeps_no_version_from_being_kept(
    tmp_path: pathlib.Path, data: bytes
) -> None:
    storage = LFSStorage(tmp_path)
    for name in ("a", "b"):
        storage.submit(np.arange(3), "d", name)
    (tmp_path / "d" / "c").mkdir()
    (tmp_path / "d" / "c" / "cache.mdb").write_bytes(data)
    gone = storage.gc("d", keep_last=1, older_than=datetime.timedelta(0)).versions
    assert [it.dataset_version for it in gone] == ["a"]
