"""Builders and collectors of parts in a bucket, one request after the other, in any order."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import functools
import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore

from yogadl import conditional
from yogadl.cache.files import make_folders
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import parts_of
from yogadl.cache.writer import CacheWriter
from yogadl.errors import NetworkError, StoreError
from yogadl.format.header import Header
from yogadl.spec import TensorSpec
from yogadl.storage._buckets import part_builder, part_collector, part_control
from yogadl.storage._buckets.part_builder import PartBuilder, is_dead
from yogadl.storage._buckets.part_collector import GRACE, PartCollector
from yogadl.storage._buckets.part_control import Control, ControlObject
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._collected import CollectedParts

DAY = datetime.timedelta(days=1)
AT_ONCE = datetime.timedelta()
COUNT = 60
LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"
FOLDER = "data/a"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was overtaken tries again at once."""
    monkeypatch.setattr(part_control, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(conditional, "_LONGEST_PAUSE", 0.0)


def bucket(store: MemoryStore) -> BucketParts:
    return BucketParts(store, FOLDER)


def build(
    store: MemoryStore,
    folder: pathlib.Path,
    version: str,
    first: int = 0,
    *,
    is_safe: bool = True,
    may_stamp: bool = True,
) -> None:
    """Builds a version, as the storages do."""
    path = folder / "a" / version / "cache.mdb"
    make_folders(path.parent)
    builder = PartBuilder(
        bucket(store), lambda: folder / "a" / "yogadl.parts", lambda: is_safe, may_stamp
    )

    def take(part: PartialFile, header: Header) -> bool:
        return not builder.store(part, header.digest)

    with (
        builder,
        CacheWriter(path, TensorSpec("int64"), part_bytes=400, take_part=take) as writer,
    ):
        writer.append_columns([np.arange(first, first + COUNT)], COUNT)
        file = writer.finish()
        builder.before_publishing()
        key = f"{FOLDER}/{version}/cache.mdb"
        store.upload(file.path, key, {}, None, builder.check)
        builder.may_publish = False


def collect(
    store: MemoryStore, folder: pathlib.Path, older_than: datetime.timedelta | None = AT_ONCE
) -> CollectedParts:
    folders = [folder / "a" / "yogadl.parts"]
    return PartCollector(store, bucket(store), "a", folders).collect(older_than)


def stored_parts(store: MemoryStore) -> set[bytes]:
    found = map(bucket(store).digest_of, list(store._objects))
    return {digest for digest in found if digest}


def needed_parts(store: MemoryStore) -> set[bytes]:
    """Of all tables that are there."""
    tables = [data for key, (data, _) in store._objects.items() if key.endswith("cache.mdb")]
    return set().union(*map(named_parts, tables))


@functools.lru_cache
def named_parts(table: bytes) -> frozenset[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name, "table")
        path.write_bytes(table)
        return frozenset(parts_of(path))


class Killed(BaseException):
    """What a thread dies of that is killed."""


class Actor:
    """Something that goes on by one request each time it is told to."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._may_go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = self.is_over = False
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._stands.acquire()

    def _run(self, work: Callable[[], object]) -> None:
        actors[threading.get_ident()] = self
        try:
            self.pause()
            work()
        except Killed:
            pass
        except Exception as error:
            self.error = error
        finally:
            del actors[threading.get_ident()]
            self.is_over = True
            self._stands.release()

    def pause(self) -> None:
        """Called by its thread before each request, and after it."""
        self._stands.release()
        self._may_go.acquire()
        if self._is_killed:
            raise Killed

    def step(self) -> None:
        if not self.is_over:
            self._may_go.release()
            self._stands.acquire()

    def kill(self) -> None:
        self._is_killed = True
        while not self.is_over:
            self.step()


actors: dict[int, Actor] = {}


def _pause(_name: str, _key: str) -> None:
    actor = actors.get(threading.get_ident())
    if actor is not None:
        actor.pause()


KINDS = ["collect", "collect", "delete", "1 0", "1 10", "2 0"]
"""What an actor does; to build is a version and its first record."""


@settings(max_examples=150, deadline=None)
@given(
    is_there=st.booleans(),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), max_size=6),
    killed=st.sets(st.integers(0, 3)),
)
# A version is built again, whole, when some parts of it are deleted, and all are about to be.
@pytest.mark.once
@example(is_there=False, kinds=["1 0"], turns=[(0, 24), (1, 300)], killed=set())
@example(is_there=False, kinds=["1 0"], turns=[(0, 24), (1, 300)], killed={0})
def test_no_table_ever_lacks_a_part(
    is_there: bool, kinds: list[str], turns: list[tuple[int, int]], killed: set[int]
) -> None:
    """Some take turns, of so many requests each, before and after which others may come in."""
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_collector, "in_parallel", _one_after_the_other)
        folder = pathlib.Path(name)
        build(store, folder, "1")
        if not is_there:
            store.delete(f"{FOLDER}/1/cache.mdb")
        store.before = store.after = _pause

        def begin(number: int, kind: str) -> Actor:
            if kind == "collect":
                return Actor(lambda: collect(store, folder))
            if kind == "delete":
                return Actor(lambda: store.delete(f"{FOLDER}/1/cache.mdb"))
            version, first = kind.split()
            # Each on a machine of its own, so that nobody knows when it is dead.
            machine = folder / str(number)
            return Actor(functools.partial(build, store, machine, version, int(first)))

        def check() -> None:
            assert needed_parts(store) <= stored_parts(store)

        everybody = [begin(number, kind) for number, kind in enumerate(["collect", *kinds])]
        for number, steps in turns:
            for _ in range(steps):
                everybody[number % len(everybody)].step()
                check()
        for number, actor in enumerate(everybody):
            if number in killed:
                actor.kill()
            while not actor.is_over:
                actor.step()
                check()
        assert [actor.error for actor in everybody if actor.error] == []
        store.before = store.after = lambda _name, _key: None
        # When those that were killed are forgotten, all of what they left goes.
        store.offset += 8 * DAY
        assert collect(store, folder).skipped == {}
        assert stored_parts(store) == needed_parts(store)
        build(store, folder, "1")
        check()


def _one_after_the_other(works: list[Callable[[threading.Event], object]], _threads: int) -> None:
    for work in works:
        work(threading.Event())


def dates(store: MemoryStore) -> Control:
    return ControlObject(store, f"{FOLDER}/yogadl.parts/yogadl.control").read()[0]


def test_parts_stay_for_a_week(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    parts = stored_parts(store)
    store.delete(f"{FOLDER}/1/cache.mdb")
    done = collect(store, tmp_path, None)
    assert {part.digest for part in done.waiting} == {digest.hex() for digest in parts}
    store.offset += GRACE - datetime.timedelta(minutes=1)
    assert collect(store, tmp_path, None).removed == ()
    store.offset += datetime.timedelta(minutes=2)
    assert len(collect(store, tmp_path, None).removed) == len(parts)
    assert stored_parts(store) == set()
    assert dates(store).removed.keys() == parts
    assert collect(store, tmp_path, None).removed == ()


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
    assert skipped == [{"a": "1 builders are at work there"}]
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


def test_one_that_comes_while_parts_are_being_removed(tmp_path: pathlib.Path) -> None:
    """After the collector looked for such builders, and before it deletes anything."""
    store = MemoryStore()
    build(store, tmp_path, "1")
    store.delete(f"{FOLDER}/1/cache.mdb")
    writes = []

    def meanwhile(name: str, key: str) -> None:
        if name == "write" and key.endswith("yogadl.control"):
            writes.append(key)
            if len(writes) == 2:
                store.before = lambda _name, _key: None
                build(store, tmp_path, "2", is_safe=False)

    store.before = meanwhile
    done = collect(store, tmp_path)
    assert (done.removed, list(done.skipped)) == ((), ["a"])
    assert needed_parts(store) == stored_parts(store)
    assert dates(store).removed == {}


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


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": 2}',
        b'{"format": 1, "nonce": "", "builders": {}, "unused": [[1, "abc"]], "removed": []}',
        b'{"format": 1, "nonce": "", "builders": {"a": "b"}, "unused": [], "removed": []}',
        b'{"format": 1, "nonce": "", "builders": [], "unused": [], "removed": []}',
        b'{"format": 1, "nonce": "", "builders": {}, "unused": 5, "removed": []}',
    ],
)
def test_a_damaged_control(data: bytes, tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    before = stored_parts(store)
    store.delete(f"{FOLDER}/1/cache.mdb")
    store.write(f"{FOLDER}/yogadl.parts/yogadl.control", data)
    with pytest.raises(StoreError, match=r"yogadl\.control is"):
        collect(store, tmp_path)
    with pytest.raises(StoreError, match=r"yogadl\.control is"):
        build(store, tmp_path, "2")
    assert stored_parts(store) == before


@given(
    builders=st.dictionaries(st.text(), st.none() | st.floats(0, 2e9)),
    unused=st.dictionaries(st.binary(min_size=16, max_size=16), st.none() | st.floats(0, 2e9)),
)
def test_the_control_is_read_as_it_was_written(
    builders: dict[str, float | None], unused: dict[bytes, float | None]
) -> None:
    control = Control(builders, unused, dict(reversed(unused.items())))
    assert Control.parse(control.to_json("n"), "it") == (control, "n")


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_no_bit_of_the_control_may_be_another(at: int, bit: int) -> None:
    control = Control({"a": 1.5}, {b"0" * 16: 7.0}, {b"1" * 16: None})
    data = bytearray(control.to_json("nonce"))
    data[at % len(data)] ^= 1 << bit
    try:
        found = Control.parse(bytes(data), "it")
    except StoreError:
        return
    # The name of the checksum, without which all is taken as it is.
    assert found == (control, "nonce")
    assert at % len(data) < len('{"checksum": "')


def test_a_control_without_a_checksum_is_read() -> None:
    data = b'{"format": 1, "nonce": "n", "builders": {"b": 1}, "unused": [], "removed": []}'
    assert Control.parse(data, "it") == (Control({"b": 1}), "n")


def test_a_control_that_arrives_damaged_is_read_again(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    read, damaged = store.read, []

    def damage(key: str, *given: Any) -> tuple[bytes, str] | None:
        found = read(key, *given)
        if found is None or not key.endswith("yogadl.control") or len(damaged) % 3 == 2:
            return found
        damaged.append(key)
        return found[0].replace(b"nonce", b"Nonce"), found[1]

    store.read = damage  # type: ignore[method-assign]
    damaged.append("")
    build(store, tmp_path, "2", 100)
    assert len(damaged) > 1
    assert needed_parts(store) == stored_parts(store)


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


def test_a_write_whose_answer_was_lost(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    write, tries = store.write, iter([True, False, True, False])

    def twice(key: str, data: bytes, if_tag: str | None = None, *given: Any) -> str:
        if next(tries, False):
            write(key, data, if_tag)
        return write(key, data, if_tag, *given)

    store.write = twice  # type: ignore[method-assign, assignment]
    build(store, tmp_path, "1")
    assert needed_parts(store) == stored_parts(store)


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


def damaged(data: bytes) -> Iterator[bytes]:
    for place in (8192 + 18, 8192 + 30, 8192 + 200, len(data) - 6000):
        flipped = bytearray(data)
        flipped[place] ^= 4
        yield bytes(flipped)
    yield data[:-4096]


def test_a_damaged_table_keeps_all_parts(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    build(store, tmp_path, "2", 1000)
    store.delete(f"{FOLDER}/2/cache.mdb")
    before = stored_parts(store)
    key = f"{FOLDER}/1/cache.mdb"
    whole = store._objects[key][0]
    for data in damaged(whole):
        # As it is uploaded.
        store._put(key, data, {"yogadl-format": "1"}, None)
        assert list(collect(store, tmp_path).skipped) == ["a"]
        assert stored_parts(store) == before
    store._put(key, whole, {}, None)
    # What somebody else has put there may have been one.
    other = f"{FOLDER}/3/cache.mdb"
    store._put(other, b"x" * 5000, {}, None)
    assert list(collect(store, tmp_path).skipped) == ["a"]
    assert stored_parts(store) == before
    # What yogadl 0.1.4 wrote has no parts.
    store._put(other, LEGACY.read_bytes(), {}, None)
    assert collect(store, tmp_path).removed
    assert stored_parts(store) == needed_parts(store)


def test_a_collector_that_is_late_deletes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    store.delete(f"{FOLDER}/1/cache.mdb")
    started = time.monotonic()
    later = iter([started])
    monkeypatch.setattr(part_collector, "boot_seconds", lambda: next(later, started + 50_000))
    before = stored_parts(store)
    with pytest.raises(StoreError, match="took too long"):
        collect(store, tmp_path)
    assert stored_parts(store) == before
    monkeypatch.undo()
    with contextlib.suppress(StoreError):
        collect(store, tmp_path)
    assert stored_parts(store) == set()
