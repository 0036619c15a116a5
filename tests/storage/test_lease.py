"""The lease among threads: never two holders, whatever becomes of them, and no wait too long."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import random
import threading
import time
from typing import Any

import pytest
from lease_rig import KEY, PATIENCE, SECONDS, lease, never, takes
from memory_store import MemoryStore

from yogadl import backoff
from yogadl.errors import AccessDeniedError, LockLostError, NetworkError
from yogadl.storage._buckets.clock import boot_seconds
from yogadl.storage._leases.lease import Lease


def test_it_is_renewed_while_its_holder_works() -> None:
    store = MemoryStore()
    held, other = lease(store), lease(store)
    assert held.acquire(never)
    try:
        end = time.monotonic() + 2.5 * SECONDS
        while time.monotonic() < end:
            assert not takes(other)
            time.sleep(0.05)
        held.check()
    finally:
        held.release()
    assert takes(other)


def test_a_silent_holder_is_followed() -> None:
    store = MemoryStore()
    held, other = lease(store), lease(store)
    assert held.acquire(never)
    held._held._stop.set()  # type: ignore[union-attr]  # as if its process were gone
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
        time.sleep(0.01 * number)  # on the way

    store.before = store.after = fail_sometimes

    def hold(number: int) -> None:
        for turn in range(4):
            held = Lease(store, KEY, 0.5)
            assert held.acquire(never)
            began = last = time.monotonic()
            fate = (number + turn) % 4
            try:
                if fate == 1:
                    held._held._stop.set()  # type: ignore[union-attr]  # killed: it is never renewed nor given back
                for _ in range(8):
                    time.sleep(0.02)  # its work
                    held.check()
                    last = time.monotonic()
                if fate == 2:
                    held._held._stop.set()  # type: ignore[union-attr]  # suspended for longer than the lease, and wakes
                    time.sleep(0.6)
                    held.check()
                    last = time.monotonic()
            except LockLostError:
                lost.append(number)
            finally:
                if fate == 1:
                    held._held = None
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


def test_a_store_that_fails_for_a_moment_is_outlived_and_others_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(patience=0.5))
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


def test_who_waits_outlives_a_store_that_fails_for_longer_than_a_lease() -> None:
    store = MemoryStore()
    waiting = lease(store)
    recovers = boot_seconds() + 2 * SECONDS

    def cut(_name: str, _key: str) -> None:
        if boot_seconds() < recovers:
            raise NetworkError("cut")

    store.before = cut
    assert waiting.acquire(never)
    waiting.release()


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
