"""Builders and collectors of parts in a bucket, one request after the other, in any order."""

from __future__ import annotations

import contextlib
import datetime
import functools
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from parts_in_memory import DAY, FOLDER, build, collect, dates, needed_parts, stored_parts

from yogadl.errors import StoreError
from yogadl.storage._buckets import part_collector
from yogadl.storage._buckets.part_collector import GRACE

pytestmark = pytest.mark.usefixtures("no_pauses")

LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"


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
