"""Versions that are not to be kept go, and what killed changes left; never what somebody needs."""

from __future__ import annotations

import datetime
import os
import pathlib
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from killing import file_events, killed_amid

from yogadl.cache import partial
from yogadl.errors import (
    CacheNotFoundError,
    CacheReplacedError,
    InvalidArgumentError,
    StorageFullError,
    VersionExistsError,
)
from yogadl.storage import LFSStorage, _kept_versions
from yogadl.storage._disk import scratch

AT_ONCE = datetime.timedelta()
DAY = datetime.timedelta(days=1)

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "data")


def commit(storage: Any, records: Any, version: str | None = None, on: str = "main") -> str:
    with storage.change("a", on, version=version) as change:
        change.append(np.asarray(records))
    return str(change.version)


def first(storage: Any, count: int = 100) -> None:
    storage.submit(np.arange(count), "a", "1")
    storage.tag("a", "main", "1")


def versions(storage: Any, dataset_id: str = "a") -> list[str]:
    return [entry.dataset_version for entry in storage.list(dataset_id)]


def numbers(storage: Any, version: str | None = None) -> list[int]:
    with storage.fetch("a", version) as ref:
        return [int(record) for record in ref.stream()]


def parts(directory: pathlib.Path) -> set[str]:
    return {path.stem for path in (directory / "a" / "yogadl.parts").glob("*.mdb")}


def test_the_last_versions_and_tagged_ones_are_kept(storage: LFSStorage) -> None:
    first(storage)
    for number in range(2, 8):
        commit(storage, [100 + number], str(number))
    storage.submit([5], "b", "1")
    storage.tag("a", "paper", "3")
    would = storage.gc(keep_last=2, older_than=AT_ONCE, dry_run=True)
    assert len(storage.list()) == 8
    done = storage.gc(keep_last=2, older_than=AT_ONCE)
    assert [one.dataset_version for one in done.versions] == ["1", "2", "4", "5"]
    assert would.versions == done.versions
    assert versions(storage) == ["3", "6", "7"]
    assert versions(storage, "b") == ["1"]
    # Each of them is whole, without those that it was made from.
    for version in ("3", "6", "7"):
        expected = [*range(100), *range(102, 101 + int(version))]
        assert numbers(storage, version) == expected
        with storage.fetch("a", version) as ref:
            ref.verify()
    assert storage.tags("a") == {"main": "7", "paper": "3"}
    assert storage.gc(keep_last=2, older_than=AT_ONCE).versions == ()


def test_nothing_young_goes_and_nothing_unasked(storage: LFSStorage) -> None:
    first(storage)
    commit(storage, [1])
    assert storage.gc(keep_last=0).versions == ()
    assert storage.gc(keep_last=0, older_than=DAY).versions == ()
    assert storage.gc(older_than=AT_ONCE).versions == ()
    assert len(versions(storage)) == 2
    # The tagged one stays whatever is asked.
    assert len(storage.gc("a", keep_last=0, older_than=AT_ONCE).versions) == 1
    assert numbers(storage, "main") == [*range(100), 1]


@pytest.mark.parametrize("given", [{"keep_last": -1}, {"keep_last": 1.5}, {"older_than": 3}])
def test_nonsense_is_refused(storage: LFSStorage, given: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        storage.gc(**given)


def test_a_dry_run_tells_which_parts_would_go(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    storage.submit(np.arange(1000), "a", "1", part_bytes=4000)
    storage.submit(np.arange(500, 2000), "a", "2", part_bytes=4000)
    before = parts(tmp_path / "data")
    would = storage.gc(keep_last=1, older_than=AT_ONCE, dry_run=True)
    assert parts(tmp_path / "data") == before
    assert versions(storage) == ["1", "2"]
    done = storage.gc(keep_last=1, older_than=AT_ONCE)
    assert done.parts.removed
    assert set(done.parts.removed) == set(would.parts.removed)
    assert done.size == would.size > 8000
    assert parts(tmp_path / "data") == before - {part.digest for part in done.parts.removed}
    assert numbers(storage, "2") == list(range(500, 2000))


def test_a_reader_keeps_what_it_reads(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    storage.submit(np.arange(1000), "a", "1", part_bytes=4000)
    storage.submit([1], "a", "2")
    with storage.fetch("a", "1") as ref:
        assert len(storage.gc(keep_last=1, older_than=AT_ONCE).versions) == 1
        assert [int(record) for record in ref.stream()] == list(range(1000))
        assert parts(tmp_path / "data")
    assert len(storage.gc(older_than=AT_ONCE).parts.removed) > 0
    assert not parts(tmp_path / "data")


def test_a_version_that_is_tagged_or_replaced_meanwhile_stays(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in "123":
        storage.submit([int(version)], "a", version)
    plan = _kept_versions._outdated

    def meanwhile(*given: Any) -> Any:
        found = plan(*given)
        storage.tag("a", "best", "1")
        storage.submit([22], "a", "2")
        return found

    monkeypatch.setattr(_kept_versions, "_outdated", meanwhile)
    assert storage.gc(keep_last=1, older_than=AT_ONCE).versions == ()
    assert [numbers(storage, version) for version in "123"] == [[1], [22], [3]]
    assert numbers(storage, "best") == [1]


def test_a_commit_on_a_version_that_is_deleted_goes_on(storage: LFSStorage) -> None:
    first(storage)
    storage.submit([1], "a", "2")
    storage.untag("a", "main")
    with storage.change("a", "1", version="3") as change:
        change.append(np.arange(5))
        assert len(storage.gc(keep_last=1, older_than=AT_ONCE).versions) == 1
        assert versions(storage) == ["2"]
        change.append(np.arange(2))
    assert numbers(storage, "3") == [*range(100), *range(5), *range(2)]
    storage.gc(older_than=AT_ONCE)
    with storage.fetch("a", "3") as ref:
        ref.verify()


def killed_at(storage: LFSStorage, name: str, action: Callable[[], object]) -> None:
    """Has a child do something that is killed as soon as it calls a method of the catalogue."""
    pid = os.fork()
    if pid == 0:
        try:
            setattr(storage._catalogue, name, lambda *_given, **_names: os._exit(9))
            action()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@fork
@forking
def test_what_a_killed_commit_published_goes_after_a_day(
    storage: LFSStorage, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(storage)
    commit(storage, [1], "2")
    killed_at(storage, "commit", lambda: commit(storage, [7, 8, 9], "3"))
    assert (tmp_path / "data" / "a" / "3" / "cache.mdb").exists()
    assert versions(storage) == ["1", "2"]
    with pytest.raises(VersionExistsError, match="was left by one who was killed; if so, storage"):
        commit(storage, [7, 8, 9], "3")
    # It may still be under way.
    done = storage.gc(keep_last=1, older_than=AT_ONCE)
    assert [one.dataset_version for one in done.versions] == ["1"]
    assert done.unfinished == ()
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    would = storage.gc(dry_run=True)
    before = parts(tmp_path / "data")
    done = storage.gc(older_than=AT_ONCE)
    assert [one.dataset_version for one in done.unfinished] == ["3"]
    assert (would.unfinished, len(done.parts.removed)) == (done.unfinished, 1)
    assert parts(tmp_path / "data") < before
    assert versions(storage) == ["2"]
    assert numbers(storage, "main") == [*range(100), 1]
    assert commit(storage, [7, 8, 9], "3") == "3"
    assert storage.gc(older_than=AT_ONCE).unfinished == ()
    assert numbers(storage, "main") == [*range(100), 1, 7, 8, 9]


@fork
@forking
def test_what_a_killed_commit_published_is_never_the_newest(storage: LFSStorage) -> None:
    first(storage)
    killed_at(storage, "commit", lambda: commit(storage, [7], "2"))
    assert storage.latest("a") == "1"
    assert numbers(storage) == list(range(100))
    # Where it is all that there is, there is nothing.
    storage.delete("a", "1", force=True)
    assert not storage.exists("a")
    assert storage.list() == []
    with pytest.raises(CacheNotFoundError):
        storage.fetch("a")
    storage.delete("a", "2")
    storage.submit([1], "a", "2")
    assert storage.latest("a") == "2"


def test_what_is_being_committed_is_not_there_yet(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(storage)
    commits = storage._catalogue.commit
    seen = []

    def slow(*given: Any) -> None:
        for _ in range(2):
            other = LFSStorage(storage._configurations)
            seen.append((versions(other), other.latest("a"), other.exists("a")))
            if len(seen) == 1:
                commits(*given)

    monkeypatch.setattr(storage._catalogue, "commit", slow)
    commit(storage, [1], "2")
    assert seen == [(["1"], "1", True), (["1", "2"], "2", True)]


@fork
@forking
def test_a_killed_deletion_is_finished(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.submit([1], "a", "1")
    storage.submit([2], "a", "2")
    pid = os.fork()
    if pid == 0:
        try:
            monkeypatch.setattr(LFSStorage, "_delete", lambda *_given, **_names: os._exit(9))
            storage.delete("a", "1")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert versions(storage) == ["1", "2"]
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    assert [one.dataset_version for one in storage.gc().unfinished] == ["1"]
    assert versions(storage) == ["2"]


def test_what_is_being_deleted_is_not_the_newest(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.submit([1], "a", "1")
    storage.submit([2], "a", "2")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_delete", lambda *_given, **_names: _interrupt())
        with pytest.raises(KeyboardInterrupt):
            storage.delete("a", "2")
    assert storage.latest("a") == "1"
    assert storage.card("a").to_markdown().startswith("# a 1\n")


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_a_commit_that_took_longer_than_a_day_fails_clearly(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(storage)
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    late = storage._catalogue.commit

    def suspended(*given: Any) -> None:
        assert len(LFSStorage(storage._configurations).gc().unfinished) == 1
        late(*given)

    monkeypatch.setattr(storage._catalogue, "commit", suspended)
    with pytest.raises(RuntimeError, match="deleted before it was committed"):
        commit(storage, [1])
    assert storage.tags("a") == {"main": "1"}
    assert versions(storage) == ["1"]


def test_commits_stay_where_the_catalogue_was_lost(
    storage: LFSStorage, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or copied without it, or damaged: nothing tells them from what was never committed."""
    first(storage)
    commit(storage, [1], "2")
    for path in (tmp_path / "data" / "yogadl.catalogue").iterdir():
        path.unlink()
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    storage.tag("a", "other", "1")
    assert storage.gc(older_than=AT_ONCE).unfinished == ()
    assert numbers(storage, "2") == [*range(100), 1]


def test_commits_stay_where_older_entries_are_damaged(
    storage: LFSStorage, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(storage)
    commit(storage, [1], "2")
    for number in range(100):
        storage.submit([number], "b", str(number))
    commit(storage, [2], "3")
    (segment,) = (tmp_path / "data" / "yogadl.catalogue").glob("*.entries")
    segment.write_bytes(segment.read_bytes()[:-1])
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    fresh = LFSStorage(tmp_path / "data")
    assert fresh.gc("a", older_than=AT_ONCE).unfinished == ()
    assert versions(fresh) == ["1", "2", "3"]
    # Once others have written what is left of them, too.
    for number in range(200):
        fresh.submit([number], "c", str(number))
    assert segment not in (tmp_path / "data" / "yogadl.catalogue").glob("*.entries")
    assert fresh.gc("a", older_than=AT_ONCE).unfinished == ()
    assert versions(LFSStorage(tmp_path / "data")) == ["1", "2", "3"]
    assert commit(fresh, [3], "4") == fresh.latest("a") == "4"


def test_the_folders_of_what_was_deleted_go(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    """Once it is certain that nobody is about to write to them."""
    first(storage)
    for number in range(3):
        commit(storage, [number], str(number + 2))
    folder = tmp_path / "data" / "a"
    storage.gc(keep_last=1, older_than=AT_ONCE)
    storage.delete("a", "4", force=True)
    assert {"2", "3", "4"} <= {it.name for it in folder.iterdir()}
    long_ago = time.time() - 90_000
    for number in (2, 3, 4):
        os.utime(folder / str(number), (long_ago, long_ago))
    commit_to = storage._version("a", "4").claim()
    storage.gc("a")
    assert [it.name for it in folder.iterdir() if it.name in "234"] == ["4"]
    assert commit_to.parent.is_dir()


def test_also_those_of_ids_without_any_version(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    first(storage)
    storage.submit([1], "b/c", "1")
    storage.delete("b/c", "1")
    left = tmp_path / "data" / "b" / "c"
    storage.gc()
    assert (left / "1").is_dir()
    for folder in (left / "1", left):
        os.utime(folder, (time.time() - 90_000,) * 2)
        storage.gc(dry_run=True)
        assert folder.is_dir()
        storage.gc()
        assert not folder.exists()
    assert versions(storage) == ["1"]


@fork
@forking
def test_scratch_folders_of_killed_changes_go(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    first(storage)
    pid = os.fork()
    if pid == 0:
        try:
            with storage.change("a", "main", version="dead") as change:
                change.append([1])
                os._exit(9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    folder = tmp_path / "data" / "a" / "dead"
    assert [path.name for path in folder.iterdir()]
    assert storage.gc().scratch == ()
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
    with storage.change("a", "main", version="alive") as change:
        change.append([1, 2])
        done = storage.gc(older_than=AT_ONCE)
        assert [path.parent.name for path in done.scratch] == ["dead"]
        assert not folder.exists()
        # The parts of who was killed wait for who is at work.
        assert "a" in done.parts.skipped
    assert numbers(storage, "main") == [*range(100), 1, 2]
    assert len(storage.gc(older_than=AT_ONCE).parts.removed) == 1


def test_what_was_killed_before_its_first_file_goes(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    first(storage)
    # Killed before the scratch folder had its lock, and an id that has no version yet.
    left = tmp_path / "data" / "a" / "dead" / "yogadl.scratch.x"
    left.mkdir(parents=True)
    partial = tmp_path / "data" / "b" / "c" / "1" / f"cache.mdb.{'0' * 32}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"1")
    assert storage.gc(dry_run=True).scratch == storage.gc().scratch == ()
    assert not partial.exists()
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
    assert storage.gc().scratch == (left,)
    assert not left.exists()


def test_nothing_of_users_is_taken_for_scratch(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
    for dataset_id, version in (("a/b/yogadl.scratch.x", "1"), ("a", "yogadl.scratch.x")):
        with pytest.raises(InvalidArgumentError, match="begins with"):
            storage.submit([1], dataset_id, version)


def test_room_is_made_where_hardly_any_is_left(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(storage)
    commit(storage, [1], "2")
    storage.submit([1], "b", "1")
    # What is kept free for others is all that is free.
    monkeypatch.setattr(partial, "reserve_of", lambda total: total)
    with pytest.raises(StorageFullError):
        storage.submit([2], "b", "2")
    storage.delete("b", "1")
    done = storage.gc(keep_last=1, older_than=AT_ONCE)
    assert [version.dataset_version for version in done.versions] == ["1"]
    assert versions(storage) == ["2"]


def before(storage: Any, name: str, do: Callable[[], object]) -> None:
    """Does something before the next call of a method."""
    method = getattr(storage, name)

    def call(*args: Any, **options: Any) -> Any:
        setattr(storage, name, method)
        do()
        return method(*args, **options)

    setattr(storage, name, call)


@pytest.mark.parametrize(("step", "stays"), [("_take_out", False), ("_delete", True)])
def test_what_is_replaced_while_it_is_deleted(storage: LFSStorage, step: str, stays: bool) -> None:
    first(storage)
    commit(storage, [1], "2")
    storage.tag("a", "main", "1")
    there = LFSStorage(storage._configurations)
    before(storage, step, lambda: there.submit([5], "a", "2"))
    storage.delete("a", "2")
    # When it is about to go, what replaces it is newer.
    assert versions(there) == (["1", "2"] if stays else ["1"])


def test_what_is_deleted_while_it_is_compacted_does_not_come_back(storage: LFSStorage) -> None:
    first(storage)
    commit(storage, [1], "2")
    storage.tag("a", "main", "1")
    there = LFSStorage(storage._configurations)

    def compact() -> None:
        # What deletes it, and what has begun to compact it before.
        before(there, "_publish_again", lambda: storage._take_out(found, False))
        with pytest.raises(CacheReplacedError):
            there.compact("a", "2")

    found = storage._look(storage._version("a", "2"))
    assert found is not None
    compact()
    assert versions(there) == ["1"]
    assert not there.exists("a", "2")
    # And the other way round.
    commit(storage, [1], "3")
    storage.tag("a", "main", "1")
    before(storage, "_take_out", lambda: there.compact("a", "3"))
    storage.delete("a", "3")
    assert versions(there) == ["1"]
    assert not there.exists("a", "3")


def test_what_is_deleted_beside_a_compact_that_is_killed_is_gone(storage: LFSStorage) -> None:
    first(storage)
    commit(storage, [1], "2")
    storage.untag("a", "main")
    there = LFSStorage(storage._configurations)

    publish = there._publish_again

    class KilledError(Exception):
        pass

    def published_amid(*args: Any) -> Any:
        before(storage, "_delete", lambda: publish(*args))
        storage.delete("a", "2")
        raise KilledError

    there._publish_again = published_amid  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        there.compact("a", "2")
    assert versions(there) == ["1"]
    assert not there.exists("a", "2")
    # What has replaced it stays, though.
    before(storage, "_delete", lambda: there.submit([5], "a", "1"))
    storage.delete("a", "1")
    assert numbers(there, "1") == [5]


def test_what_was_compacted_is_as_old_as_before(storage: LFSStorage) -> None:
    first(storage)
    commit(storage, [1], "2")
    storage.submit([1], "a", "3")
    storage.untag("a", "main")
    time.sleep(1.5)
    storage.compact("a", "2")
    age = datetime.timedelta(seconds=1)
    gone = storage.gc(keep_last=1, older_than=age)
    assert [version.dataset_version for version in gone.versions] == ["1", "2"]
    assert versions(storage) == ["3"]


def test_what_is_replaced_while_it_is_collected_stays(storage: LFSStorage) -> None:
    storage.submit([1], "a", "1")
    storage.submit([2], "a", "2")
    there = LFSStorage(storage._configurations)
    before(storage, "_take_out", lambda: there.submit([5], "a", "1"))
    assert storage.gc(keep_last=1, older_than=AT_ONCE).versions == ()
    assert versions(storage) == ["1", "2"]
    assert numbers(storage, "1") == [5]


def test_what_is_not_stored_is_not_found(storage: LFSStorage) -> None:
    done = storage.gc("never", keep_last=1)
    assert (done.versions, done.unfinished, done.scratch, done.size) == ((), (), (), 0)
    with pytest.raises(CacheNotFoundError):
        storage.fetch("never")
    assert time.time() - storage._catalogue.now() < 60


def test_what_a_recipe_made_can_be_changed(storage: LFSStorage) -> None:
    @storage.cacheable("a")
    def make(count: int) -> Any:
        return np.arange(count)

    make(5).close()
    storage.tag("a", "main", storage.latest("a"))
    version = commit(storage, [7])
    storage.gc(keep_last=1, older_than=AT_ONCE)
    assert versions(storage) == [version]
    assert numbers(storage, version) == [*range(5), 7]
    assert [bool(entry.recipe) for entry in storage.list("a")] == [False]


@fork
@forking
@pytest.mark.once
def test_a_killed_collection_is_finished_by_the_next(
    storage: LFSStorage, tmp_path: pathlib.Path
) -> None:
    directory = tmp_path / "data"
    chance, killed, count = random.Random(2), 0, 12
    for number in range(12):
        storage.submit(np.arange(number, number + 500), "a", f"{number}-0", part_bytes=4000)
        storage.tag("a", f"kept-{number}", f"{number}-0")
        storage.tag("a", "main", f"{number}-0")
        for more in range(1, 4):
            commit(storage, [more], f"{number}-{more}")
        events = file_events(lambda: storage.gc(keep_last=1, older_than=AT_ONCE, dry_run=True))
        killed += killed_amid(
            lambda: storage.gc(keep_last=1, older_than=AT_ONCE), chance.randint(1, 3 * events)
        )
        # What is to be kept is whole at any time.
        for tag, version in storage.tags("a").items():
            with storage.fetch("a", tag) as ref:
                ref.verify()
                first, _, more = version.partition("-")
                assert len(ref) == 500 + int(more)
                assert int(ref[0]) == int(first)
        storage.untag("a", "main")
        if number % 3 == 2:
            storage.gc(keep_last=1, older_than=AT_ONCE)
            assert len(versions(storage)) == number + 2
    assert killed >= count // 3
    storage.gc(keep_last=0, older_than=AT_ONCE)
    assert len(versions(storage)) == count
    kept = set()
    for version in versions(storage):
        with storage.fetch("a", version) as ref:
            kept |= {digest.hex() for digest in ref.reader.parts_by_digest()}
    assert parts(directory) == kept
