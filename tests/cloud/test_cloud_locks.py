"""Builders that are paused, cut off or many: what they publish, and what they cost the store."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import faults
import numpy as np
import pytest

from yogadl.errors import AccessDeniedError

PATIENCE = 120
KEY = "data/a/1/cache.mdb"
LEASE = "data/a/1/yogadl.lease"
MEGABYTE = 1 << 20

spawn = multiprocessing.get_context("spawn")


def records(number: int, megabytes: int) -> Any:
    if not megabytes:
        return [number] * 3
    return np.full((megabytes, MEGABYTE), number, "uint8")


def numbers(ref: Any) -> set[int]:
    """What the records are made of."""
    return {int(value) for record in ref.stream() for value in np.unique(record)}


# Paused builders


def build_and_stop(
    rig: Any, local: pathlib.Path, options: dict[str, Any], megabytes: int, told: Any, out: Any
) -> None:
    """Builds ones; stops itself when it has just been told that it has the lock, and publishes."""
    from yogadl.storage._leases.coordinated import CoordinatedLock
    from yogadl.storage._leases.lease import Lease

    def stopping(check: Callable[[Any], None]) -> Callable[[Any], None]:
        def check_and_stop(lock: Any) -> None:
            check(lock)
            if told is not None:
                told.send(None)
                told.close()
                os.kill(os.getpid(), signal.SIGSTOP)

        return check_and_stop

    stops = iter([True])

    def once(check: Callable[[Any], None]) -> Callable[[Any], None]:
        stop = stopping(check)
        return lambda lock: stop(lock) if next(stops, False) else check(lock)

    CoordinatedLock.check = once(CoordinatedLock.check)  # type: ignore[method-assign]
    Lease.check = once(Lease.check)  # type: ignore[method-assign]
    os.environ.update(rig.env)
    storage = rig.make_storage(local, **options)
    ref = storage.cacheable("a", "1")(lambda: records(1, megabytes))()
    out.put((numbers(ref), ref.info.digest))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lease", "lock server"])
@pytest.mark.parametrize("megabytes", [0, 9])
@pytest.mark.parametrize("replaces", [False, True], ids=["new", "broken"])
def test_who_was_stopped_before_it_published_does_not_publish_over_the_next_one(
    kind: str,
    megabytes: int,
    replaces: bool,
    rig: Any,
    tmp_path: pathlib.Path,
    request: pytest.FixtureRequest,
) -> None:
    options: dict[str, Any] = {"lease_seconds": 4.0}
    if kind == "lock server":
        options = {"url": request.getfixturevalue("impatient_lock_server")}
    here, there = spawn.Pipe()
    out = spawn.Queue()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    if replaces:
        rig.raw.put(KEY, b"what a killed builder left")
    args = (rig.remote(), tmp_path / "one", options, megabytes, there, out)
    stopped = spawn.Process(target=build_and_stop, args=args)
    stopped.start()
    try:
        assert here.poll(PATIENCE)
        here.recv()
        storage = rig.make_storage(tmp_path / "other", **options)
        ref = storage.cacheable("a", "1")(lambda: records(2, megabytes))()
        assert numbers(ref) == {2}
        tag = rig.raw.tag(KEY)
    finally:
        os.kill(stopped.pid or 0, signal.SIGCONT)
    assert out.get(timeout=PATIENCE) == ({2}, ref.info.digest)
    stopped.join(PATIENCE)
    assert stopped.exitcode == 0
    assert rig.raw.tag(KEY) == tag
    assert rig.raw.uploads() == []


@pytest.mark.parametrize("kind", ["lease", "lock server"])
def test_what_is_deleted_while_it_is_built_again_is_published_all_the_same(
    kind: str, rig: Any, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    options: dict[str, Any] = {}
    if kind == "lock server":
        options = {"url": request.getfixturevalue("lock_server")}
    rig.raw.put(KEY, b"what a killed builder left")
    builds: list[int] = []

    def build() -> list[int]:
        builds.append(1)
        rig.raw.delete(KEY)
        return [1, 2]

    assert len(rig.make_storage(tmp_path, **options).cacheable("a", "1")(build)()) == 2
    assert builds == [1]


# Renewals


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        faults.LOSE_ANSWER,
        faults.Fault(faults.Kind.STALL, seconds=30.0),
        faults.LATE_500,
        faults.CUT,
    ],
    ids=["lost", "black hole", "late 500", "cut"],
)
def test_one_renewal_that_fails_does_not_cost_the_lease(
    fault: faults.Fault, rig: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = 6.0
    builds: list[int] = []
    began, ends = threading.Event(), threading.Event()

    def build() -> list[int]:
        builds.append(1)
        began.set()
        assert ends.wait(PATIENCE)
        return [1, 2]

    def call(name: str) -> int:
        (tmp_path / name).mkdir()
        storage = rig.make_storage(tmp_path / name, lease_seconds=seconds)
        return len(storage.cacheable("a", "1")(build)())

    # The first write takes the lease, the second renews it.
    with (
        concurrent.futures.ThreadPoolExecutor(2) as pool,
        rig.failing(fault, "write", key=LEASE, skip=1, times=1),
    ):
        one = pool.submit(call, "one")
        assert began.wait(PATIENCE)
        other = pool.submit(call, "other")
        with contextlib.suppress(concurrent.futures.TimeoutError):
            one.result(2 * seconds)
        ends.set()
        assert (one.result(PATIENCE), other.result(PATIENCE)) == (2, 2)
    assert builds == [1]
    assert not [record for record in caplog.records if "Taking over" in record.message]


# Many waiters


def wait_in_threads(
    rig: Any, local: pathlib.Path, options: dict[str, Any], count: int, told: Any
) -> None:
    os.environ.update(rig.env)

    def call(_: int) -> int:
        storage = rig.make_storage(local, **options)
        return len(storage.cacheable("a", "1")(lambda: [])())

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        told.put(sum(pool.map(call, range(count))))


@contextlib.contextmanager
def building(rig: Any, local: pathlib.Path, options: dict[str, Any]) -> Iterator[threading.Event]:
    """Builds on a machine of its own until the event is set, or the body ends."""
    began, ends = threading.Event(), threading.Event()

    def build() -> list[int]:
        began.set()
        assert ends.wait(PATIENCE)
        return [1, 2]

    local.mkdir()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        built = pool.submit(rig.make_storage(local, **options).cacheable("a", "1")(build))
        assert began.wait(PATIENCE)
        try:
            yield ends
        finally:
            ends.set()
            built.result(PATIENCE)


def quiet_since(requests: list[Any], least: int) -> None:
    """Returns when all have looked for the cache, which each does before it waits."""
    end = time.monotonic() + PATIENCE
    seen, since = 0, time.monotonic()
    while seen < least or time.monotonic() - since < 3.0:
        assert time.monotonic() < end
        time.sleep(0.05)
        found = sum(request.key == KEY for request in requests)
        if found != seen:
            seen, since = found, time.monotonic()


@pytest.mark.long_for("s3")
def test_however_many_wait_on_a_machine_one_asks(rig: Any, tmp_path: pathlib.Path) -> None:
    options = {"lease_seconds": 30.0}
    there = tmp_path / "there"
    there.mkdir()
    out = spawn.Queue()
    threads, seconds = 12, 8.0
    with building(rig, tmp_path / "here", options) as ends:
        waiters = [
            spawn.Process(target=wait_in_threads, args=(rig.remote(), there, options, threads, out))
            for _ in range(2)
        ]
        with rig.counting() as requests:
            for process in waiters:
                process.start()
            quiet_since(requests, 2 * threads)
        with rig.counting() as waiting:
            time.sleep(seconds)  # the waiting itself is looked at
        asked = [request for request in waiting if request.operation != "write"]
        # 24 would have asked three times each 1.5 s at least.
        assert 2 <= len(asked) <= 40, asked
        assert {request.key for request in asked} == {LEASE}
        assert {request.operation for request in asked} == {"read"}
        ends.set()
        assert [out.get(timeout=PATIENCE) for _ in waiters] == [2 * threads] * 2
        for process in waiters:
            process.join(PATIENCE)
            assert process.exitcode == 0


def test_what_another_submits_ends_the_wait(rig: Any, tmp_path: pathlib.Path) -> None:
    options = {"lease_seconds": 4.0}
    (tmp_path / "waits").mkdir()
    (tmp_path / "submits").mkdir()
    with building(rig, tmp_path / "here", options), concurrent.futures.ThreadPoolExecutor() as pool:
        storage = rig.make_storage(tmp_path / "waits", **options)
        waits = pool.submit(storage.cacheable("a", "1")(lambda: pytest.fail("it was built twice")))
        rig.make_storage(tmp_path / "submits").submit([7, 8, 9], "a", "1")
        assert len(waits.result(PATIENCE)) == 3


# Submitting


def test_who_has_published_is_not_told_that_it_failed(
    rig: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = rig.make_storage(tmp_path)
    with rig.failing(faults.FORBIDDEN, "head", key=KEY):
        storage.submit([1, 2], "a", "1")
        with pytest.raises(AccessDeniedError):
            storage.fetch("a", "1")
    assert "is stored" in caplog.text
    assert len(storage.fetch("a", "1")) == 2
