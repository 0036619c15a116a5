"""What builders of parts in a bucket keep from collectors, and what they leave when they die."""

from __future__ import annotations

import datetime
import fcntl
import os
import pathlib

import pytest
from memory_store import MemoryStore
from parts_in_memory import (
    AT_ONCE,
    DAY,
    FOLDER,
    bucket,
    build,
    collect,
    dates,
    needed_parts,
    stored_parts,
)

from yogadl.errors import NetworkError, StoreError
from yogadl.storage._buckets import part_builder, part_collector
from yogadl.storage._buckets.part_builder import is_dead
from yogadl.storage._buckets.part_collector import GRACE, PartCollector
from yogadl.storage._collected import CollectedParts

pytestmark = pytest.mark.usefixtures("no_pauses")


def test_a_builder_takes_back_what_is_unused(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    store.delete(f"{FOLDER}/1/cache.mdb")
    collect(store, tmp_path, None)
    store.offset += 6 * DAY
    build(store, tmp_path, "2")
    store.delete(f"{FOLDER}/2/cache.mdb")
    store.offset += 2 * DAY
    # Eight days after the first time, and two after the last.
    assert collect(store, tmp_path, None).removed == ()
    store.offset += GRACE
    assert collect(store, tmp_path, None).removed


def test_a_removed_name_is_not_used_again_soon(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    parts = stored_parts(store)
    store.delete(f"{FOLDER}/1/cache.mdb")
    collect(store, tmp_path)
    with pytest.raises(StoreError, match="collected less than two days ago"):
        build(store, tmp_path, "2", may_stamp=False)
    build(store, tmp_path, "2")
    assert len(stored_parts(store)) == len(parts)
    assert not stored_parts(store) & parts
    assert needed_parts(store) == stored_parts(store)
    store.offset += 3 * DAY
    collect(store, tmp_path)
    build(store, tmp_path, "3", may_stamp=False)
    assert parts < needed_parts(store)


@pytest.mark.parametrize("collects", [True, False])
def test_a_removed_name_is_used_again_later(tmp_path: pathlib.Path, collects: bool) -> None:
    """Also where no part is left, and whether anybody has collected since or not."""
    store = MemoryStore()
    build(store, tmp_path, "1")
    parts = stored_parts(store)
    store.delete(f"{FOLDER}/1/cache.mdb")
    collect(store, tmp_path)
    assert not stored_parts(store)
    store.offset += 1.5 * DAY
    if collects:
        collect(store, tmp_path)
    with pytest.raises(StoreError, match="collected less than two days ago"):
        build(store, tmp_path, "2", may_stamp=False)
    store.offset += 0.6 * DAY
    if collects:
        assert collect(store, tmp_path) == CollectedParts()
    build(store, tmp_path, "2", may_stamp=False)
    assert stored_parts(store) == needed_parts(store) == parts
    # And is safe then.
    assert collect(store, tmp_path).removed == ()
    assert stored_parts(store) == parts


def test_a_builder_that_was_away_for_too_long_does_not_publish(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()

    def meanwhile(name: str, key: str) -> None:
        if name == "upload" and len(stored_parts(store)) == 3:
            store.before = lambda _name, _key: None
            store.offset += 8 * DAY
            assert collect(store, tmp_path).removed

    store.before = meanwhile
    with pytest.raises(StoreError, match="not heard of for so long"):
        build(store, tmp_path, "1")
    assert not [key for key in store._objects if key.endswith("cache.mdb")]


def test_a_builder_at_work_keeps_all_parts(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    store.delete(f"{FOLDER}/1/cache.mdb")
    skipped = []

    def meanwhile(name: str, key: str) -> None:
        if name == "upload" and key.endswith("/2/cache.mdb"):
            store.before = lambda _name, _key: None
            store.offset += DAY
            skipped.append(collect(store, tmp_path).skipped)

    store.before = meanwhile
    build(store, tmp_path, "2", 1000)
    ((why,),) = (found.values() for found in skipped)
    assert why.startswith("1 builders are at work there, or were killed")
    assert collect(store, tmp_path).removed


def test_a_builder_without_conditional_writes_keeps_all_parts_for_ever(
    tmp_path: pathlib.Path,
) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    build(store, tmp_path, "2", 1000, is_safe=False)
    store.delete(f"{FOLDER}/1/cache.mdb")
    (why,) = collect(store, tmp_path).skipped.values()
    assert "delete data/a/yogadl.parts/yogadl.uncollectable" in why
    store.delete(bucket(store).forbidding_key)
    assert collect(store, tmp_path).removed
    assert needed_parts(store) == stored_parts(store)


def test_a_killed_builder_of_this_machine_is_soon_forgotten(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    folder = tmp_path / "parts"
    gone = part_builder.BuilderSign(folder, "ab")
    assert not is_dead(folder, "ab")
    assert not is_dead(folder, "cd")
    # What the system does when a process dies.
    os.close(gone._descriptor)
    assert is_dead(folder, "ab")
    (folder / "ab.builder").write_bytes(b"another machine")
    assert not is_dead(folder, "ab")
    (folder / "ab.builder").write_bytes(part_builder._machine())
    build(store, tmp_path, "1")
    store.delete(f"{FOLDER}/1/cache.mdb")
    bucket(store).control.change(lambda control: control.builders.update(ab=None))
    collector = PartCollector(store, bucket(store), "a", [folder])
    assert collector.collect(AT_ONCE).skipped
    store.offset += datetime.timedelta(seconds=part_collector.DEAD_SECONDS + 1)
    assert collector.collect(AT_ONCE).removed
    assert not list(folder.iterdir())


def test_builders_that_died_on_two_machines_are_forgotten(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    folders = [tmp_path / "one", tmp_path / "two"]
    for number, folder in enumerate(folders):
        gone = part_builder.BuilderSign(folder, str(number))
        os.close(gone._descriptor)
    bucket(store).control.change(lambda control: control.builders.update({"0": None, "1": None}))
    # One that died before it could enter its name, and one that lives.
    os.close(part_builder.BuilderSign(folders[1], "2")._descriptor)
    alive = part_builder.BuilderSign(folders[1], "3")
    store.delete(f"{FOLDER}/1/cache.mdb")
    store.offset += datetime.timedelta(seconds=part_collector.DEAD_SECONDS + 1)
    collectors = [PartCollector(store, bucket(store), "a", [folder]) for folder in folders]
    assert collectors[0].collect(AT_ONCE, dry_run=True).skipped
    assert dates(store).builders.keys() == {"0", "1"}
    # Each knows of its own only, and the last one has no others to wait for.
    assert collectors[0].collect(AT_ONCE).skipped
    assert dates(store).builders.keys() == {"1"}
    assert len(collectors[1].collect(AT_ONCE).removed) > 0
    assert stored_parts(store) == set()
    assert [path.name for path in tmp_path.glob("*/*.builder")] == ["3.builder"]
    alive.give_up(forget=True)


@pytest.mark.parametrize("has_parts", [False, True])
def test_what_builders_leave_that_die_at_once(has_parts: bool, tmp_path: pathlib.Path) -> None:
    """They die before the file says whose it is, before they enter their names, or after that."""
    store, folder = MemoryStore(), tmp_path / "parts"
    if has_parts:
        build(store, tmp_path, "1")
    os.close(part_builder.BuilderSign(folder, "known")._descriptor)
    bucket(store).control.change(lambda control: control.builders.update(known=None))
    os.close(part_builder.BuilderSign(folder, "unknown")._descriptor)
    (folder / "blank.builder").touch()
    collector = PartCollector(store, bucket(store), "a", [folder])
    assert collector.collect(AT_ONCE).skipped
    store.offset += datetime.timedelta(seconds=part_collector.DEAD_SECONDS + 1)
    collector.collect(AT_ONCE, dry_run=True)
    assert len(list(folder.iterdir())) == 3
    assert collector.collect(AT_ONCE).skipped == {}
    assert dates(store).builders == {}
    assert list(folder.iterdir()) == []


def test_a_bucket_is_not_written_to_for_strays_of_an_id_without_parts(
    tmp_path: pathlib.Path,
) -> None:
    store, folder = MemoryStore(), tmp_path / "parts"
    os.close(part_builder.BuilderSign(folder, "unknown")._descriptor)
    assert PartCollector(store, bucket(store), "a", [folder]).collect(AT_ONCE).skipped == {}
    assert list(folder.iterdir()) == []
    assert list(store.list("")) == []


def test_a_sign_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What removes it locks, too.
    lock, removals = fcntl.flock, iter([True])

    def remove_before(descriptor: int, how: int) -> None:
        if next(removals, False):
            part_builder.remove_strays(tmp_path, ())
            assert list(tmp_path.iterdir()) == []
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_before)
    sign = part_builder.BuilderSign(tmp_path, "a")
    part_builder.remove_strays(tmp_path, ())
    assert [path.name for path in tmp_path.iterdir()] == ["a.builder"]
    sign.give_up(forget=True)


def test_a_builder_that_does_not_know_whether_it_has_published(tmp_path: pathlib.Path) -> None:
    """The request may arrive when the builder has given up."""
    store = MemoryStore()
    late = []

    def lost(name: str, key: str) -> None:
        if name == "upload" and key.endswith("cache.mdb"):
            late.append(sorted((tmp_path / "a" / "1").glob("*.partial"))[-1].read_bytes())
            raise NetworkError("no answer")

    store.before = lost
    with pytest.raises(NetworkError):
        build(store, tmp_path, "1")
    assert collect(store, tmp_path).skipped
    store._put(f"{FOLDER}/1/cache.mdb", late[0], {}, None)
    store.offset += DAY
    assert collect(store, tmp_path).skipped == {}
    assert needed_parts(store) == stored_parts(store)
    assert not list(tmp_path.rglob("*.builder"))
