"""Many who wait for a lease on one machine: one of them asks, and tells the others on a board."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import stat
import tempfile
import threading
import time
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from lease_rig import KEY, PATIENCE, SECONDS, Clock, lease, never, takes
from memory_store import MemoryStore
from processes_ready import READY

from yogadl import backoff
from yogadl.errors import NetworkError
from yogadl.storage._buckets.clock import boot_seconds
from yogadl.storage._leases.lease import Lease
from yogadl.storage._leases.lease_board import LeaseBoard, News


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
            time.sleep(0.05)  # whatever happens: the waiting itself is looked at
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
    here, there = READY.Pipe()
    asking = READY.Process(target=hold_board, args=(path, there))
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


@pytest.mark.once
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
    clock.now += 0.9 * backoff.LIMITS.patience
    assert isinstance(other._ask(never, clock.now), News)
    clock.now += 0.2 * backoff.LIMITS.patience
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
    clock.now += 1.1 * backoff.LIMITS.patience
    with pytest.raises(NetworkError):
        waiting._ask(never, 10.0)
    store.before = lambda _name, _key: None
    assert takes(lease(store, clock))
    board.post(late)
    began = clock.now
    assert isinstance(waiting._ask(never, began), News)
    clock.now += 0.6 * SECONDS
    assert waiting._ask(lambda: True, began) is False


def test_other_users_may_not_write_to_a_board(tmp_path: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        LeaseBoard(tmp_path / "board").post(None)
    finally:
        os.umask(before)
    assert not (tmp_path / "board").stat().st_mode & stat.S_IWOTH
