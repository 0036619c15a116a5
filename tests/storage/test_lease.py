"""The lease: never two holders, whatever becomes of them, and no wait longer than it says."""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from memory_store import MemoryStore

from yogadl.errors import AccessDeniedError, LockLostError, NetworkError, UnsafeStoreError
from yogadl.storage import _backoff
from yogadl.storage._clock import boot_seconds
from yogadl.storage._lease import Lease, Watch
from yogadl.storage._lease_board import LeaseBoard, News
from yogadl.storage._lease_object import LeaseContent
from yogadl.storage._object_store import PreconditionFailedError
from yogadl.storage._probe import check_conditional_writes

KEY = "folder/yogadl.lease"
SECONDS = 1.0
PATIENCE = 60.0

spawn = multiprocessing.get_context("spawn")


def never() -> bool:
    return False


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def lease(store: MemoryStore, clock: Callable[[], float] = boot_seconds) -> Lease:
    return Lease(store, KEY, SECONDS, clock)


def takes(one: Lease) -> bool:
    """Whether it gets the lease at once; it is not renewed then."""
    return one._try(never) is True


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
    store = MemoryStore()
    held = lease(store)
    assert held.acquire(never)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(name: str, _key: str) -> None:
        if name == "write" and threading.current_thread().name == "yogadl lease":
            hangs.set()
            assert goes_on.wait(PATIENCE)

    store.before = hang
    assert hangs.wait(PATIENCE)
    held.check()
    time.sleep(0.7 * SECONDS)
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


# The real thing, with threads


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
                    held._held._stop.set()  # type: ignore[union-attr]  # killed: it is never renewed nor given back
                for _ in range(8):
                    time.sleep(0.02)
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
    monkeypatch.setattr(_backoff, "LIMITS", _backoff.Limits(patience=0.5))
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


# Many waiters of one machine


def waiter(store: MemoryStore, path: pathlib.Path, seconds: float = SECONDS) -> Lease:
    return Lease(store, KEY, seconds, board=LeaseBoard(path))


def test_of_many_waiters_one_asks(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    held = Lease(store, KEY, 20.0)
    assert held.acquire(never)
    reads: list[float] = []
    is_over = threading.Event()
    store.before = lambda name, _key: reads.append(boot_seconds()) if name == "read" else None

    def wait() -> bool:
        return waiter(store, tmp_path / "board", 20.0).acquire(is_over.is_set)

    began = boot_seconds()
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        futures = [pool.submit(wait) for _ in range(40)]
        while boot_seconds() - began < 5.0:
            time.sleep(0.05)
        is_over.set()
        held.release()
        assert not any(future.result(PATIENCE) for future in futures)
    waited = [read for read in reads if read - began < 5.0]
    assert 5 < len(waited) < 60
    # Each looks for the cache at the end, and hardly anybody at the lease.
    assert len(reads) - len(waited) < 10


def hold_board(path: pathlib.Path, told: Any) -> None:
    with LeaseBoard(path).asking(even_if_busy=False) as is_mine:
        told.send(is_mine)
        signal.pause()


@pytest.mark.parametrize("fate", ["killed", "stopped"])
def test_who_asks_may_die(fate: str, tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    path = tmp_path / "board"
    here, there = spawn.Pipe()
    asking = spawn.Process(target=hold_board, args=(path, there))
    asking.start()
    try:
        assert here.poll(PATIENCE)
        assert here.recv()
        os.kill(asking.pid or 0, signal.SIGKILL if fate == "killed" else signal.SIGSTOP)
        held = waiter(store, path)
        assert held.acquire(never)
        held.release()
    finally:
        asking.kill()
        asking.join(PATIENCE)


def test_waiters_follow_each_other_and_none_is_lost(tmp_path: pathlib.Path) -> None:
    """As many holders as waiters, one at a time, some of which die."""
    store = MemoryStore()
    mutex = threading.Lock()
    done: list[int] = []

    def work(number: int) -> None:
        one = waiter(store, tmp_path / "board", 0.5)
        assert one.acquire(never)
        with mutex:
            done.append(number)
        one.check()
        if number % 3 == 0:
            one._held._stop.set()  # type: ignore[union-attr]
        else:
            one.release()

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for future in [pool.submit(work, number) for number in range(12)]:
            future.result(PATIENCE)
    assert sorted(done) == list(range(12))


def test_how_long_it_was_silent_is_handed_on(tmp_path: pathlib.Path) -> None:
    """Who asks first after the one who asked has died need not begin to count again."""
    store, clock = MemoryStore(), Clock(1000.0)
    assert takes(lease(store, clock))
    board = LeaseBoard(tmp_path / "board")
    first = Lease(store, KEY, SECONDS, clock, board)
    assert isinstance(first._ask(never, clock.now), News)
    clock.now += 0.81 * SECONDS
    second = Lease(store, KEY, SECONDS, clock, LeaseBoard(tmp_path / "board"))
    assert second._ask(never, clock.now) is True
    second.release()


def cut(_name: str, _key: str) -> None:
    raise NetworkError("cut")


def test_who_begins_to_wait_does_not_prolong_the_patience_of_others(
    tmp_path: pathlib.Path,
) -> None:
    store, clock = MemoryStore(), Clock(1000.0)
    store.before = cut
    one, other = (
        Lease(store, KEY, SECONDS, clock, LeaseBoard(tmp_path / "board")) for _ in range(2)
    )
    assert isinstance(one._ask(never, 1000.0), News)
    clock.now += 0.9 * _backoff.LIMITS.patience
    assert isinstance(other._ask(never, clock.now), News)
    clock.now += 0.2 * _backoff.LIMITS.patience
    with pytest.raises(NetworkError):
        one._ask(never, 1000.0)


def test_what_was_seen_before_the_machine_was_started_anew_prolongs_nothing(
    tmp_path: pathlib.Path,
) -> None:
    """The clock begins at 0 then, and the board is still there."""
    store, clock = MemoryStore(), Clock(10.0)
    board = LeaseBoard(tmp_path / "board")
    late = News(9e5, since=9e5, looked=9e5, failing_since=9e5)
    waiting = Lease(store, KEY, SECONDS, clock, board)
    board.post(late)
    store.before = cut
    assert isinstance(waiting._ask(never, 10.0), News)
    clock.now += 1.1 * _backoff.LIMITS.patience
    with pytest.raises(NetworkError):
        waiting._ask(never, 10.0)
    store.before = lambda _name, _key: None
    assert takes(lease(store, clock))
    board.post(late)
    began = clock.now
    assert isinstance(waiting._ask(never, began), News)
    clock.now += 0.6 * SECONDS
    assert waiting._ask(lambda: True, began) is False


@hypothesis.given(
    st.binary(max_size=300)
    | st.builds(
        News,
        st.floats(),
        st.text(max_size=5),
        st.floats(),
        is_over=st.booleans(),
        failing_since=st.none() | st.floats(),
    ),
    st.booleans(),
)
@hypothesis.settings(max_examples=25)
def test_whatever_is_on_the_board_the_wait_ends(found: bytes | News, is_held: bool) -> None:
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "board")
        if isinstance(found, bytes):
            path.write_bytes(found)
        else:
            LeaseBoard(path).post(found)
        if is_held:
            assert takes(lease(store))
        one = waiter(store, path, 0.5)
        assert one.acquire(never)
        one.release()


@pytest.mark.parametrize("kind", ["directory", "link", "pipe", "no folder"])
def test_a_board_that_is_no_file_is_not_needed(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "board"
    (tmp_path / "file").write_bytes(b"somebody's")
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "file")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = tmp_path / "file" / "board"
    one = waiter(MemoryStore(), path)
    assert one.acquire(never)
    one.release()
    assert (tmp_path / "file").read_bytes() == b"somebody's"


def test_other_users_may_not_write_to_a_board(tmp_path: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        LeaseBoard(tmp_path / "board").post(None)
    finally:
        os.umask(before)
    assert not (tmp_path / "board").stat().st_mode & stat.S_IWOTH


# Stores that cannot be trusted


class Unreasonable(MemoryStore):
    """Creates on a condition, and never replaces."""

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        if if_tag:
            raise PreconditionFailedError
        return super().write(key, data, if_tag, patience)


def test_a_store_that_refuses_without_a_reason_is_told(caplog: pytest.LogCaptureFixture) -> None:
    store = Unreasonable()
    assert takes(lease(store))
    with pytest.raises(UnsafeStoreError, match=r"refused to write .*3 times.*url="):
        lease(store).acquire(never)
    assert len([record for record in caplog.records if "Taking over" in record.message]) == 1


def test_a_good_store_passes_and_keeps_nothing() -> None:
    store = MemoryStore()
    check_conditional_writes(store, "folder/")
    assert list(store.list("")) == []


class Ignoring(MemoryStore):
    def _put(self, key: str, data: bytes, metadata: Any, _if_tag: str | None) -> str:
        return super()._put(key, data, metadata, None)


class IgnoringInParts(MemoryStore):
    """As Ceph 16."""

    def upload(self, path: pathlib.Path, key: str, *args: Any, **options: Any) -> str:
        metadata, _, *rest = args
        return super().upload(path, key, metadata, None, *rest, **options)


class Racy(MemoryStore):
    """Right one at a time; but of writers at once, all win."""

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        found = self.read(key)
        if if_tag is not None and if_tag != ("" if found is None else found[1]):
            raise PreconditionFailedError
        time.sleep(0.05)
        return super().write(key, data)


class Refusing(MemoryStore):
    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        if if_tag is not None:
            raise UnsafeStoreError("501 NotImplemented")
        return super().write(key, data)


@pytest.mark.parametrize("kind", [Ignoring, IgnoringInParts, Racy, Refusing, Unreasonable])
def test_a_store_that_cannot_be_trusted_is_found_out(kind: type[MemoryStore]) -> None:
    store = kind()
    with pytest.raises(UnsafeStoreError, match=r"rw_coordinator.*url="):
        check_conditional_writes(store, "folder/")
    assert list(store.list("")) == []
