"""A storage is brought up to date with another one: only what is missing, and nothing lost."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import random
from typing import Any

import numpy as np
import pytest
from killing import file_events, killed_amid

from yogadl.errors import (
    CacheNotFoundError,
    ChecksumError,
    ConflictError,
    InvalidArgumentError,
)
from yogadl.storage import LFSStorage, _kept_versions
from yogadl.storage._copying import copying

AT_ONCE = datetime.timedelta()
LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "images.mdb"
COUNT = 1000

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "here")


@pytest.fixture
def other(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "there")


def commit(storage: Any, records: Any, version: str, on: str = "main") -> None:
    with storage.change("a", on, version=version) as change:
        change.append(np.asarray(records))


def history(storage: Any) -> None:
    storage.submit(np.arange(COUNT), "a", "1")
    storage.tag("a", "main", "1")
    commit(storage, [1], "2")
    commit(storage, [2, 3], "3")
    with storage.change("a", "main", version="4") as change:
        change.delete([0, 5])
    storage.tag("a", "paper", "2")
    storage.submit({"x": np.arange(50)}, "b/c", "1", metadata={"k": 1})


def names(storage: Any) -> list[str]:
    return [f"{entry.dataset_id}:{entry.dataset_version}" for entry in storage.list()]


def check_alike(storage: Any, other: Any) -> None:
    """All that the storages have in common is the same to the byte, and whole."""
    for entry in other.list():
        key = entry.dataset_id, entry.dataset_version
        with storage.fetch(*key) as one, other.fetch(*key) as two:
            two.verify()
            assert one.info.digest == two.info.digest
            mine, theirs = (list(ref.stream()) for ref in (one, two))
            assert len(mine) == len(theirs) == entry.record_count
            np.testing.assert_equal(mine, theirs)


def part_times(directory: pathlib.Path) -> dict[str, int]:
    return {path.stem: path.stat().st_ctime_ns for path in directory.glob("*/yogadl.parts/*.mdb")}


def test_everything_is_copied_once(
    storage: LFSStorage, other: LFSStorage, tmp_path: pathlib.Path
) -> None:
    history(storage)
    would = storage.sync(other, dry_run=True)
    assert other.list() == []
    done = storage.sync(other)
    assert done == would
    assert len(done.versions) == 5
    assert done.tags == (("a", "main", "4"), ("a", "paper", "2"))
    assert names(other) == names(storage)
    assert other.tags("a") == storage.tags("a")
    check_alike(storage, other)
    for mine, theirs in zip(storage.list("a"), other.list("a"), strict=True):
        for field in ("parents", "message", "change", "user", "own_size", "content_id", "tags"):
            assert getattr(mine, field) == getattr(theirs, field), field
    # The first version is one file, and a part of the others: stored once there, too.
    plain, digest = tmp_path / "there/a/1/cache.mdb", other.fetch("a", "1").info.digest
    part = tmp_path / "there" / "a" / "yogadl.parts" / f"{digest}.mdb"
    assert plain.stat().st_ino == part.stat().st_ino
    before = part_times(tmp_path / "there")
    assert storage.sync(other) == type(done)()
    commit(storage, [9], "5")
    assert [one.dataset_version for one in storage.sync(other).versions] == ["5"]
    after = part_times(tmp_path / "there")
    assert len(after) == len(before) + 1
    assert after.items() > before.items()
    assert other.tags("a") == {"main": "5", "paper": "2"}
    # And what was copied can be changed there, and comes back.
    commit(other, [10], "6")
    assert [one.dataset_version for one in other.sync(storage).versions] == ["6"]
    assert storage.tags("a")["main"] == "6"
    check_alike(other, storage)


def test_some_versions_and_tags(storage: LFSStorage, other: LFSStorage) -> None:
    history(storage)
    done = storage.sync(other, "a", names=["paper", "3"])
    assert names(other) == ["a:2", "a:3"]
    assert done.tags == (("a", "paper", "2"),)
    assert other.tags("a") == {"paper": "2"}
    check_alike(storage, other)
    storage.sync(other, "b/c")
    assert names(other) == ["a:2", "a:3", "b/c:1"]
    with pytest.raises(CacheNotFoundError, match="no version or tag 'nothing'"):
        storage.sync(other, "a", names=["nothing"])
    with pytest.raises(CacheNotFoundError, match="no data set 'b' in"):
        storage.sync(other, "b")
    assert storage.sync(other, "a", names="main").tags == (("a", "main", "4"),)
    storage.copy("a", "main", other, new_id="copied")
    assert other.fetch("copied", "4").reader.content_id == storage.fetch("a", "4").reader.content_id
    for given in ({"names": ["1"]}, {"to": storage}, {"to": 3}):
        with pytest.raises(InvalidArgumentError):
            storage.sync(**{"to": other, **given})  # type: ignore[arg-type]


def test_a_branch_that_went_another_way_is_not_moved(
    storage: LFSStorage, other: LFSStorage
) -> None:
    history(storage)
    storage.sync(other)
    commit(storage, [1], "mine")
    commit(other, [2], "theirs")
    with pytest.raises(ConflictError, match="a:main"):
        storage.sync(other)
    assert not other.exists("a", "mine")
    assert other.tags("a")["main"] == "theirs"
    # Backwards is no step forward either.
    storage.sync(other, "a", names=["mine"])
    storage.tag("a", "paper", "1")
    with pytest.raises(ConflictError, match="a:paper"):
        storage.sync(other, "a", names=["paper"])
    done = storage.sync(other, force=True)
    assert {tag for _, tag, _ in done.tags} == {"main", "paper"}
    assert other.tags("a") == {"main": "mine", "paper": "1"}
    assert other.exists("a", "theirs")


def test_other_records_under_the_same_name_are_not_replaced(
    storage: LFSStorage, other: LFSStorage
) -> None:
    storage.submit([1, 2], "a", "1")
    storage.submit([1], "a", "2")
    other.submit([3], "a", "1")
    with pytest.raises(ConflictError, match="a:1"):
        storage.sync(other)
    assert names(other) == ["a:1"]
    storage.sync(other, force=True)
    check_alike(storage, other)
    other.delete("a", "2")
    other.tag("a", "2", "1")
    with pytest.raises(InvalidArgumentError, match="'2' is a version"):
        storage.sync(other)
    # The same records that were stored otherwise are the same.
    other.untag("a", "2")
    other.submit([1], "a", "2", part_bytes=10)
    assert storage.sync(other).versions == ()


def test_a_cache_of_0_1_4_is_copied_once(
    storage: LFSStorage, other: LFSStorage, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "here" / "old" / "1" / "cache.mdb"
    path.parent.mkdir(parents=True)
    path.write_bytes(LEGACY.read_bytes())
    assert len(storage.sync(other).versions) == 1
    assert (tmp_path / "there/old/1/cache.mdb").read_bytes() == path.read_bytes()
    assert storage.sync(other).versions == ()


def test_what_was_not_committed_is_not_copied(
    storage: LFSStorage, other: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(storage)

    def broken(*_given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage._catalogue, "commit", broken)
        with pytest.raises(KeyboardInterrupt):
            commit(storage, [1], "5")
    assert storage.exists("a", "5")
    assert len(storage.sync(other).versions) == 5
    assert not other.exists("a", "5")


def test_a_commit_that_was_put_back_is_kept(
    storage: LFSStorage, other: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(storage)
    storage.sync(other)
    storage.delete("a", "3")
    other.copy("a", "3", to=storage)
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    assert storage.gc(older_than=AT_ONCE).unfinished == ()
    check_alike(other, storage)

    # Without an entry, it would be taken for one that was not committed.

    storage.delete("a", "3")
    monkeypatch.setattr(storage, "_enter", lambda _entry: None)
    with pytest.raises(RuntimeError, match="could not be entered"):
        other.copy("a", "3", to=storage)


@pytest.mark.parametrize("where", ["here", "there"])
def test_damaged_parts(
    where: str, storage: LFSStorage, other: LFSStorage, tmp_path: pathlib.Path
) -> None:
    storage.submit(np.arange(COUNT), "a", "1", part_bytes=4000)
    if where == "there":
        storage.sync(other)
        other.delete("a", "1", force=True)
        storage.copy("a", "1", other)
        other.submit([1], "a", "2")
        (tmp_path / "there" / "a" / "1" / "cache.mdb").unlink()
    path = min((tmp_path / where / "a" / "yogadl.parts").glob("*.mdb"))
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    if where == "here":
        with pytest.raises(ChecksumError):
            storage.sync(other)
        assert other.list() == []
    else:
        storage.sync(other)
        other.fetch("a", "1").verify()


def test_the_parts_that_a_copy_found_are_not_collected(
    storage: LFSStorage, other: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before they are looked for until the copy refers to them."""
    storage.submit(np.arange(COUNT), "a", "1", part_bytes=4000)
    storage.sync(other)
    publish = LFSStorage._publish
    skipped = []

    def meanwhile(to: LFSStorage, *given: Any) -> None:
        if given[1].dataset_version == "2":
            other.delete("a", "1")
            skipped.append(other.gc(older_than=AT_ONCE).parts.skipped)
        publish(to, *given)

    monkeypatch.setattr(LFSStorage, "_publish", meanwhile)
    storage.copy("a", "1", other, new_version="2")
    assert [list(found) for found in skipped] == [["a"]]
    other.fetch("a", "2").verify()


@fork
@forking
@pytest.mark.once
def test_killed_syncs_go_on(
    storage: LFSStorage,
    other: LFSStorage,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history(storage)
    for number in range(10):
        commit(storage, np.arange(number, number + 100), f"more-{number}")
    events = file_events(lambda: storage.sync(LFSStorage(tmp_path / "measured")))
    chance, killed, before = random.Random(1), 0, 0
    # A few times as it begins, and the rest anywhere in what is left to do.
    for share in (0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.0):
        at = chance.randint(1, max(1, int(share * events)))
        killed += killed_amid(lambda: storage.sync(other), at)
        found = len(other.list())
        assert found >= before
        before = found
        check_alike(storage, other)
    storage.sync(other)
    assert killed >= 3
    assert other.tags("a") == storage.tags("a")
    assert names(other) == names(storage)
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    assert other.gc(older_than=AT_ONCE).unfinished == ()
    parts = {path.stem for path in (tmp_path / "there/a/yogadl.parts").glob("*.mdb")}
    wanted = {path.stem for path in (tmp_path / "here/a/yogadl.parts").glob("*.mdb")}
    assert parts == wanted
    check_alike(storage, other)


def test_a_copy_reads_no_part_that_is_there(
    storage: LFSStorage, other: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.submit(np.arange(COUNT), "a", "1", part_bytes=4000)
    storage.sync(other)
    asked = []
    part = copying.OpenOriginal.part
    monkeypatch.setattr(
        copying.OpenOriginal, "part", lambda *given: asked.append(given[1]) or part(*given)
    )
    storage.copy("a", "1", other, new_version="2")
    assert asked == []
    storage.copy("a", "1", other, new_id="b")
    assert len(asked) > 1


class Meddled(LFSStorage):
    """One in which something happens right before a version is copied."""

    meddle: Any = None

    def _original(self, version: Any) -> Any:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        return super()._original(version)


def test_what_others_store_meanwhile_is_not_replaced(tmp_path: pathlib.Path) -> None:
    source, other = Meddled(tmp_path / "here"), LFSStorage(tmp_path / "there")
    source.submit([1, 2], "a", "1")
    source.meddle = lambda: other.submit([3], "a", "1")
    with pytest.raises(ConflictError, match="somebody else has stored another"):
        source.sync(other)
    assert list(other.fetch("a", "1").stream()) == [3]
    source.meddle = lambda: other.submit([4], "a", "1")
    source.sync(other, force=True)
    assert list(other.fetch("a", "1").stream()) == [1, 2]


def test_two_may_copy_the_same_at_once(tmp_path: pathlib.Path) -> None:
    source, other = Meddled(tmp_path / "here"), LFSStorage(tmp_path / "there")
    history(source)
    source.meddle = lambda: LFSStorage(tmp_path / "here").sync(other)
    source.sync(other)
    check_alike(source, other)
    assert names(source) == names(other)
    assert other.tags("a") == source.tags("a")


def test_tags_of_what_is_deleted_meanwhile_are_left_out(tmp_path: pathlib.Path) -> None:
    source, other = Meddled(tmp_path / "here"), LFSStorage(tmp_path / "there")
    source.submit([1, 2], "a", "1")
    source.submit([3], "a", "2")
    source.tag("a", "old", "1")
    source.tag("a", "new", "2")
    source.meddle = lambda: source.delete("a", "1", force=True)
    done = source.sync(other)
    assert [version.dataset_version for version in done.versions] == ["2"]
    assert done.tags == (("a", "new", "2"),)
    assert other.tags("a") == {"new": "2"}


class StoredAgain(Meddled):
    """One in which a version that was deleted before it was copied is there again right after."""

    again: Any = None

    def _look(self, version: Any) -> Any:
        again, self.again = self.again, None
        if again is not None:
            again()
        return super()._look(version)


def test_what_is_stored_again_meanwhile_is_copied(tmp_path: pathlib.Path) -> None:
    source, other = StoredAgain(tmp_path / "here"), LFSStorage(tmp_path / "there")
    source.submit([1, 2], "a", "1")
    source.submit([3], "a", "2")

    def meddle() -> None:
        source.delete("a", "1")
        source.again = lambda: source.submit([4], "a", "1")

    source.meddle = meddle
    assert len(source.sync(other).versions) == 2
    assert list(other.fetch("a", "1").stream()) == [4]
    assert list(other.fetch("a", "2").stream()) == [3]


def test_what_was_compacted_is_copied_in_the_order_in_which_it_was_stored(
    storage: LFSStorage, other: LFSStorage
) -> None:
    history(storage)
    newest = storage.latest("a")
    names_before = [it.dataset_version for it in storage.sync(other, dry_run=True).versions]
    for name in names_before[:-1]:
        storage.compact("a", name)
    done = storage.sync(other)
    assert [it.dataset_version for it in done.versions] == names_before
    assert other.latest("a") == newest


class Killed(BaseException):
    """What a process dies of that is killed."""


def die(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_commit_that_is_put_back_may_be_killed(
    storage: LFSStorage, other: LFSStorage, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    history(storage)
    storage.sync(other)
    storage.tag("a", "main", "1")
    storage.delete("a", "4")
    with monkeypatch.context() as patch:
        patch.setattr(storage._catalogue, "enter", die)
        with pytest.raises(Killed):
            other.sync(storage, "a", names=["4"])
    assert not storage.exists("a", "4") or "a:4" not in names(storage)
    if is_deleted:
        with monkeypatch.context() as patch:
            patch.setattr(storage, "_delete", die)
            with pytest.raises(Killed):
                storage.delete("a", "4")
    other.sync(storage, "a", names=["4"])
    assert "a:4" in names(storage)
    check_alike(storage, other)


def test_what_is_being_committed_there_is_not_replaced(
    storage: LFSStorage, other: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(storage)
    storage.sync(other)
    commit(storage, [8], "5")
    with monkeypatch.context() as patch:
        patch.setattr(other._catalogue, "commit", die)
        with pytest.raises(Killed):
            commit(other, [9], "5")
    with pytest.raises(ConflictError, match="is committing it"):
        storage.sync(other, "a", names=["5"])
    storage.sync(other, "a", names=["5"], force=True)
    check_alike(storage, other)


def test_parents_of_a_copy_may_have_any_names(storage: LFSStorage, other: LFSStorage) -> None:
    history(storage)
    made = storage._made

    def hostile(version: Any) -> Any:
        found = made(version)
        parents = (("a", "../../1"), ("..", "\0"))
        told = dataclasses.replace(found.provenance, parents=parents)
        return dataclasses.replace(found, provenance=told)

    storage._made = hostile  # type: ignore[method-assign]
    storage.copy("a", "2", other)
    check_alike(storage, other)


@pytest.mark.parametrize("is_collected", [False, True])
def test_a_branch_is_told_by_its_records_and_not_by_names(
    storage: LFSStorage, other: LFSStorage, is_collected: bool
) -> None:
    storage.submit(np.arange(3), "a", "1")
    storage.tag("a", "main", "1")
    storage.sync(other)
    commit(storage, [100], "2")
    commit(storage, [101], "3")
    # Of the same name, and another one.
    commit(other, [200], "2")
    if is_collected:
        storage.gc("a", keep_last=1, older_than=AT_ONCE)
    with pytest.raises(ConflictError, match=r"was not made from|another one than here"):
        storage.sync(other)
    with pytest.raises(ConflictError, match="was not made from"):
        storage.sync(other, "a", names="main")
    assert other.tags("a") == {"main": "2"}
    assert 200 in [int(record) for record in other.fetch("a", "main").stream()]
    storage.sync(other, force=True)
    assert other.tags("a") == {"main": "3"}


def test_a_branch_moves_on_from_what_was_collected_here(
    storage: LFSStorage, other: LFSStorage
) -> None:
    storage.submit(np.arange(3), "a", "1")
    storage.tag("a", "main", "1")
    commit(storage, [100], "2")
    storage.sync(other)
    commit(storage, [101], "3")
    storage.gc("a", keep_last=1, older_than=AT_ONCE)
    storage.sync(other)
    assert other.tags("a") == {"main": "3"}


def test_names_that_are_none(storage: LFSStorage, other: LFSStorage) -> None:
    with pytest.raises(InvalidArgumentError, match="names are versions and tags, not 5"):
        storage.sync(other, "a", names=5)  # type: ignore[arg-type]
    for name in ([], {}, None):
        with pytest.raises(InvalidArgumentError, match="names are versions and tags, not"):
            storage.sync(other, "a", names=[name])  # type: ignore[list-item]
