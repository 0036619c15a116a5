"""What had to be looked up in the files of versions is entered, and they stay in their order."""

from __future__ import annotations

import datetime
import os
import pathlib
import random
import shutil
from typing import Any

import numpy as np
import pytest

from yogadl.catalogue._state import FEWEST_MERGED
from yogadl.storage import LFSStorage, _lfs, _listing

COUNT = FEWEST_MERGED + 6
AT_ONCE = datetime.timedelta(0)


@pytest.fixture(autouse=True)
def _nothing_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_listing, "_YOUNG", -datetime.timedelta(days=400))


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions whose files were asked, in a list that grows."""
    found: list[str] = []
    describe = LFSStorage._describe

    def noted(storage: LFSStorage, listed: Any) -> Any:
        found.append(listed.dataset_version)
        return describe(storage, listed)

    monkeypatch.setattr(LFSStorage, "_describe", noted)
    return found


def copied(folder: pathlib.Path, to: pathlib.Path) -> LFSStorage:
    """By a program that gives all files new times."""
    shutil.copytree(folder, to, copy_function=shutil.copyfile)
    return LFSStorage(to)


@pytest.mark.parametrize("count", [3, COUNT])
def test_files_that_another_program_has_copied_are_asked_once(
    tmp_path: pathlib.Path, described: list[str], count: int
) -> None:
    storage = LFSStorage(tmp_path / "here")
    for number in range(count):
        storage.submit(np.arange(number), "a", str(number))
    there = copied(tmp_path / "here", tmp_path / "there")
    assert described == []
    entries = there.list()
    assert len(described) == len(entries) == count
    for again in (there, LFSStorage(tmp_path / "there")):
        assert again.list() == entries
        assert again.latest("a") == str(count - 1)
    assert len(described) == count
    assert len(there._catalogue.load().entries) == count


def test_no_catalogue_is_begun_by_looking(tmp_path: pathlib.Path) -> None:
    """It would be of whoever looks, and others who share the storage could not write to it."""
    storage = LFSStorage(tmp_path)
    for number in range(COUNT):
        storage.submit([number], "a", str(number))
    shutil.rmtree(tmp_path / "yogadl.catalogue")
    for do in (storage.list, lambda: storage.latest("a"), lambda: storage.card("a")):
        do()
        assert not (tmp_path / "yogadl.catalogue").exists()
    storage.submit([1], "a", "new")
    storage.list()
    assert len(storage._catalogue.load().entries) == COUNT + 1


def test_what_cannot_be_read_now_is_not_entered(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    LFSStorage(tmp_path / "here").submit([1, 2], "a", "1")
    storage = copied(tmp_path / "here", tmp_path / "there")

    def refuse(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(_lfs, "open", refuse, raising=False)
        (entry,) = storage.list()
        assert entry.record_count is None
    assert "nothing is known" in caplog.text
    (entry,) = storage.list()
    assert entry.record_count == 2


def test_what_is_there_before_what_it_was_made_from(
    tmp_path: pathlib.Path, described: list[str]
) -> None:
    """As while another program copies a folder: how much is its own is known later."""
    storage = LFSStorage(tmp_path / "here")
    storage.submit(np.arange(5000), "a", "2")
    storage.tag("a", "main", "2")
    with storage.change("a", "main", version="1") as change:
        change.append([1])
    own = {it.dataset_version: it.own_size for it in storage.list()}
    there = tmp_path / "there"
    shutil.copytree(
        tmp_path / "here", there, copy_function=shutil.copyfile, ignore=lambda _, __: ["2"]
    )
    again = LFSStorage(there)
    assert [it.dataset_version for it in again.list()] == ["1"]
    shutil.copytree(tmp_path / "here" / "a" / "2", there / "a" / "2")
    for _ in range(2):
        assert {it.dataset_version: it.own_size for it in again.list()} == own
    described.clear()
    again.list()
    assert described == []


def order(storage: LFSStorage) -> Any:
    """Of all versions, and since when they are stored, as far as that can be told without a list
    that enters anything."""
    collected = [
        storage.gc("d", keep_last=count, older_than=AT_ONCE, dry_run=True) for count in range(8)
    ]
    return (
        [it[0].dataset_version for it in storage._newest_first("d")],
        [[it.dataset_version for it in each.versions] for each in collected],
    )


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_newer_by_an_entry(
    tmp_path: pathlib.Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor older: whatever has entries already, was compacted, also by who was killed, or has files
    of whatever time."""
    roll = random.Random(seed)
    folder = tmp_path / "0"
    storage = LFSStorage(folder)
    names = roll.sample("abcdefgh", 8)
    for at, name in enumerate(names):
        killed = LFSStorage(folder)
        killed._enter = lambda *_: False  # type: ignore[method-assign]
        doing = storage if at == 0 or roll.random() < 0.6 else killed
        doing.submit(np.arange(at), "d", name)
        other = roll.choice(names[: at + 1])
        listed = storage._look(storage._version("d", other))
        assert listed is not None
        # Of what has no entry, a file that is written anew says nothing.
        if roll.random() < 0.4 and listed.entry_in(storage._catalogue.load()) is not None:
            roll.choice([storage, killed]).compact("d", other)
    for step in range(4):
        for name in names:
            if roll.random() < 0.4:
                when = roll.uniform(-1e6, 1.7e9)
                os.utime(folder / "d" / name / "cache.mdb", (when, when))
        told = order(storage)
        with monkeypatch.context() as patch:
            patch.setattr(LFSStorage, "_enter_found", lambda *_: None)
            entries = storage.list()
        keys = storage._catalogue.load().entries
        for look in roll.sample([storage.list, storage.latest], 2):
            look("d")
            assert order(storage) == told
        assert storage.list() == entries
        assert keys.keys() <= storage._catalogue.load().entries.keys()
        if roll.random() < 0.5:
            storage.submit([1], "d", "z")
            assert storage.latest("d") == "z"
            before = order(storage)
            storage.compact("d", roll.choice(names))
            assert order(storage) == before
            storage.delete("d", "z")
            assert order(storage) == told
        folder = tmp_path / str(step + 1)
        storage = copied(tmp_path / str(step), folder)
