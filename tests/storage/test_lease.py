"""The lease: never two holders, whatever becomes of them, and no wait longer than it says."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from memory_store import MemoryStore

from yogadl.errors import AccessDeniedError, LockLostError, NetworkError, UnsafeStoreError
from yogadl.storage._lease import Lease, LeaseContent, Watch
from yogadl.storage._object_store import PreconditionFailedError
from yogadl.storage._probe import check_conditional_writes

KEY = "folder/yogadl.lease"
SECONDS = 1.0
PATIENCE = 60.0


def never() -> bool:
    return False


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def lease(store: MemoryStore, clock: Callable[[], float] = time.monotonic) -> Lease:
    return Lease(store, KEY, SECONDS, clock)


# The rules, with clocks of our own


@hypothesis.given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(0, 2)), max_size=40))
def test_a_lease_expires_only_when_it_was_seen_unchanged_for_long_enough(
    steps: list[tuple[float, int]],
) -> None:
    watch, now, changed = Watch(), 100.0, 100.0
    last = None
    for passed, tag in steps:
        now += passed
        if tag != last:
            last, changed = tag, now
        assert watch.is_expired(str(tag), SECONDS, now) == (now - changed >= 0.8 * SECONDS)


def test_clocks_that_differ_do_not_matter() -> None:
    store = MemoryStore()
    early, late = Clock(5.0), Clock(1e9)
    one, other = lease(store, early), lease(store, late)
    assert one._try() is None
    assert other._try() is not None
    late.now += 0.79 * SECONDS
    early.now += 0.79 * SECONDS
    assert other._try() is not None
    one.check()  # late, but nobody took over, so it was renewed
    late.now += 0.5 * SECONDS
    assert other._try() is not None
    late.now += 0.81 * SECONDS
    assert other._try() is None
    early.now += 10 * SECONDS
    with pytest.raises(LockLostError):
        one.check()
    other.check()
    one.release()
    assert json.loads(store.read(KEY)[0])["holder"] == other._holder  # type: ignore[index]


def test_a_holder_gives_up_before_anybody_takes_over() -> None:
    store = MemoryStore()
    clock = Clock(0.0)
    held = lease(store, clock)
    assert held._try() is None

    def unreachable(_name: str, _key: str) -> None:
        raise NetworkError("no route")

    store.before = unreachable
    clock.now = 0.59 * SECONDS
    held.check()
    clock.now = 0.61 * SECONDS
    with pytest.raises(LockLostError):
        held.check()
    store.before = lambda _name, _key: None
    held.check()


@pytest.mark.parametrize("failing", ["create", "renew", "release"])
def test_an_answer_that_is_lost_is_found_out(failing: str) -> None:
    store = MemoryStore()
    held = lease(store)
    lost = iter([True])

    def retried(name: str, _key: str) -> None:
        """What an SDK does when the answer to a write is lost: it sends it again."""
        if name == "write" and next(lost, False):
            raise PreconditionFailedError

    if failing == "create":
        store.after = retried
    assert held._try() is None
    if failing == "renew":
        store.after = retried
        assert held._renew()
    held.check()
    if failing == "release":
        store.after = retried
    held.release()
    assert lease(store)._try() is None


@hypothesis.given(
    st.one_of(
        st.binary(max_size=40),
        st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5)
        .map(json.dumps)
        .map(str.encode),
        st.fixed_dictionaries(
            {"holder": st.none() | st.text() | st.integers(), "seconds": st.floats() | st.text()}
        )
        .map(json.dumps)
        .map(str.encode),
    )
)
def test_whatever_is_in_the_object_it_holds_for_a_bounded_time(data: bytes) -> None:
    content = LeaseContent.parse(data, 60.0)
    assert 0.5 <= content.seconds <= 3600


# The real thing, with threads


def test_it_is_renewed_while_its_holder_works() -> None:
    store = MemoryStore()
    held, other = lease(store), lease(store)
    assert held.acquire(never)
    try:
        end = time.monotonic() + 2.5 * SECONDS
        while time.monotonic() < end:
            assert other._try() is not None
            time.sleep(0.05)
        held.check()
    finally:
        held.release()
    assert other._try() is None


def test_a_silent_holder_is_followed() -> None:
    store = MemoryStore()
    held, other = lease(store), lease(store)
    assert held.acquire(never)
    held._stop.set()  # as if its process were gone
    assert other.acquire(never)
    with pytest.raises(LockLostError):
        held.check()
    held.release()
    other.check()
    other.release()


def test_nobody_waits_once_it_is_published() -> None:
    store = MemoryStore()
    held, other = lease(store), lease(store)
    assert held.acquire(never)
    published = iter([False, False, True])
    assert not other.acquire(lambda: next(published))
    other.release()
    held.check()
    held.release()


def test_history_of_many_holders() -> None:
    """From taking the lease to the last check, no two holders overlap; some die, some stall."""
    store = MemoryStore()
    chance = random.Random(7)
    mutex = threading.Lock()
    history: list[tuple[float, float, int]] = []
    lost: list[int] = []

    def fail_sometimes(_name: str, _key: str) -> None:
        with mutex:
            number = chance.random()
        if number < 0.05:
            raise NetworkError("cut")
        time.sleep(0.01 * number)

    store.before = store.after = fail_sometimes

    def hold(number: int) -> None:
        for turn in range(4):
            held = Lease(store, KEY, 0.5)
            assert held.acquire(never)
            began = last = time.monotonic()
            fate = (number + turn) % 4
            try:
                if fate == 1:
                    held._stop.set()  # killed: it is never renewed nor given back
                for _ in range(8):
                    time.sleep(0.02)
                    held.check()
                    last = time.monotonic()
                if fate == 2:
                    held._stop.set()  # suspended for longer than the lease, and wakes
                    time.sleep(0.6)
                    held.check()
                    last = time.monotonic()
            except LockLostError:
                lost.append(number)
            finally:
                if fate == 1:
                    held._tag = None
                held.release()
            with mutex:
                history.append((began, last, number))

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for future in [pool.submit(hold, number) for number in range(5)]:
            future.result(PATIENCE)
    history.sort()
    assert len(history) == 20
    for (_, end, one), (begin, _, other) in itertools.pairwise(history):
        assert begin >= end, f"holder {other} began before {one} had ended"


def test_a_store_that_fails_for_a_moment_is_outlived_and_others_are_reported() -> None:
    store = MemoryStore()
    failures = iter([NetworkError("cut")] * 3)

    def fail(_name: str, _key: str) -> None:
        error = next(failures, None)
        if error is not None:
            raise error

    store.before = fail
    held = lease(store)
    assert held.acquire(never)
    held.release()

    def deny(_name: str, _key: str) -> None:
        raise AccessDeniedError("403")

    store.before = deny
    with pytest.raises(AccessDeniedError):
        lease(store).acquire(never)

    def cut(_name: str, _key: str) -> None:
        raise NetworkError("cut for good")

    store.before = cut
    with pytest.raises(NetworkError):
        lease(store).acquire(never)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_ends_gives_nothing_back() -> None:
    store = MemoryStore()
    held = lease(store)
    assert held.acquire(never)
    written: list[Any] = []
    store.before = lambda name, key: written.append((name, key))
    child = os.fork()
    if child == 0:
        written.clear()
        held.release()
        os._exit(len(written))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    held.check()
    held.release()


# Stores that cannot be trusted


def test_a_good_store_passes_and_keeps_nothing() -> None:
    store = MemoryStore()
    check_conditional_writes(store, "folder/")
    assert list(store.list("")) == []


class Ignoring(MemoryStore):
    def write(self, key: str, data: bytes, if_tag: str | None = None) -> str:
        return super().write(key, data)


class Racy(MemoryStore):
    """Right one at a time; but of writers at once, all win."""

    def write(self, key: str, data: bytes, if_tag: str | None = None) -> str:
        found = self.read(key)
        if if_tag is not None and if_tag != ("" if found is None else found[1]):
            raise PreconditionFailedError
        time.sleep(0.05)
        return super().write(key, data)


class Refusing(MemoryStore):
    def write(self, key: str, data: bytes, if_tag: str | None = None) -> str:
        if if_tag is not None:
            raise UnsafeStoreError("501 NotImplemented")
        return super().write(key, data)


@pytest.mark.parametrize("kind", [Ignoring, Racy, Refusing])
def test_a_store_that_cannot_be_trusted_is_found_out(kind: type[MemoryStore]) -> None:
    store = kind()
    with pytest.raises(UnsafeStoreError, match=r"rw_coordinator.*url="):
        check_conditional_writes(store, "folder/")
    assert list(store.list("")) == []
