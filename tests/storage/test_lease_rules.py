"""The rules of the lease: never two holders, whatever becomes of answers, by clocks of our own."""

from __future__ import annotations

import contextlib
import inspect
import json
import threading
import time

import hypothesis
import hypothesis.strategies as st
import pytest
from lease_rig import KEY, PATIENCE, SECONDS, Clock, lease, never, takes
from memory_store import MemoryStore

from yogadl.errors import LockLostError, NetworkError
from yogadl.storage._buckets.clock import boot_seconds
from yogadl.storage._leases.lease import Lease, Watch
from yogadl.storage._leases.lease_object import LeaseContent
from yogadl.storage._objects.store import PreconditionFailedError


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
    assert takes(one)
    assert not takes(other)
    late.now += 0.79 * SECONDS
    early.now += 0.79 * SECONDS
    assert not takes(other)
    one.check()  # late, but nobody took over, so it was renewed
    late.now += 0.5 * SECONDS
    assert not takes(other)
    late.now += 0.81 * SECONDS
    assert takes(other)
    early.now += 10 * SECONDS
    with pytest.raises(LockLostError):
        one.check()
    other.check()
    one.release()
    assert json.loads(store.read(KEY)[0])["holder"] == other._content.holder  # type: ignore[index]


def test_a_holder_gives_up_before_anybody_takes_over() -> None:
    store = MemoryStore()
    clock = Clock(0.0)
    held = lease(store, clock)
    assert takes(held)

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
    assert takes(held)
    if failing == "renew":
        store.after = retried
        assert held._held._renew()  # type: ignore[union-attr]
    held.check()
    if failing == "release":
        store.after = retried
    held.release()
    assert takes(lease(store))


@hypothesis.given(st.lists(st.sampled_from(["good", "cut", "lost", "refused"]), max_size=30))
def test_no_lost_answer_costs_a_lease_that_nobody_else_took(fates: list[str]) -> None:
    store, clock = MemoryStore(), Clock(7.0)
    held = lease(store, clock)
    assert takes(held)
    fate = ["good"]

    def before(name: str, _key: str) -> None:
        if name == "write" and fate[0] == "cut":
            raise NetworkError("cut")

    def after(name: str, _key: str) -> None:
        if name == "write" and fate[0] == "lost":
            raise NetworkError("lost")
        if name == "write" and fate[0] == "refused":
            raise PreconditionFailedError

    store.before, store.after = before, after
    for fate[0] in fates:
        clock.now += 0.7 * SECONDS  # so late that it has to be renewed
        with contextlib.suppress(LockLostError):
            held.check()
    fate[0] = "good"
    held.check()
    held.release()
    assert takes(lease(store, clock))


@hypothesis.given(st.integers(1, 3), st.integers(1, 4))
def test_writes_of_many_threads_are_known_as_ones_own(late: int, threads: int) -> None:
    """Renewals that were begun with an old tag find that another thread's was faster."""
    store, clock = MemoryStore(), Clock(7.0)
    one = lease(store, clock)
    assert takes(one)
    held = one._held
    assert held is not None
    old = held._written
    for _ in range(late):
        assert held._renew()
    now = held._written
    for _ in range(threads):
        held._written = old
        assert held._renew()
        assert held._written.tag == now.tag
    one.release()
    assert not held._renew()
    assert takes(lease(store, clock))


def test_nobody_waits_for_a_renewal_that_hangs() -> None:
    store, clock = MemoryStore(), Clock(5.0)
    held = lease(store, clock)
    assert held.acquire(never)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(name: str, _key: str) -> None:
        if name == "write" and threading.current_thread().name == "yogadl lease":
            hangs.set()
            assert goes_on.wait(PATIENCE)

    store.before = hang
    assert hangs.wait(PATIENCE)
    held.check()
    clock.now += 0.7 * SECONDS
    held.check()  # which renews it, since that thread does not
    held.release()
    assert takes(lease(store))
    goes_on.set()


def test_the_clock_does_not_stand_still_while_the_machine_is_suspended() -> None:
    clock = inspect.signature(Lease).parameters["clock"].default
    assert clock is boot_seconds
    if hasattr(time, "CLOCK_BOOTTIME"):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert before <= clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)


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
