"""``cacheable`` over buckets: one of many processes builds, under each kind of lock."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from processes_ready import READY

COUNT = 200
SIZE = 2000
LEASE = 5.0
PATIENCE = 120
KEY = "data/a/1/cache.mdb"


@pytest.fixture(params=["lease", "lock server"])
def lock_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a storage is configured with for each kind of lock."""
    if request.param == "lease":
        return {"lease_seconds": LEASE}
    return {"url": request.getfixturevalue("lock_server")}


def note(log: pathlib.Path) -> None:
    """Writes a line that other processes' lines cannot mix with."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def noted(log: pathlib.Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def build(log: pathlib.Path, stuck: Any) -> Iterator[Any]:
    """Some records; the first builder says where it is, and hangs, if it is to be killed."""
    first = not noted(log)
    note(log)
    for number in range(COUNT):
        yield np.full(SIZE, number), number
        if first and stuck is not None and number == COUNT // 2:
            stuck.send(os.getpid())
            signal.pause()


def call(
    rig: Any, local: pathlib.Path, options: dict[str, Any], log: pathlib.Path, stuck: Any, out: Any
) -> None:
    os.environ.update(rig.env)
    make = rig.make_storage(local, **options).cacheable("a", "1")(build)
    ref = make(log, stuck)
    out.put((os.getpid(), [(int(a[-1]), int(n)) for a, n in ref.stream()], ref.info.digest))


def locals_of(tmp_path: pathlib.Path, count: int, machines: int) -> list[pathlib.Path]:
    """Local cache directories of so many processes on so many machines."""
    found = [tmp_path / f"machine-{number % machines}" for number in range(count)]
    for path in found:
        path.mkdir(exist_ok=True)
    return found


@pytest.mark.parametrize("machines", [1, 4, 8])
@pytest.mark.long_for(1, 8)
def test_eight_processes_build_once(
    machines: int, rig: Any, lock_options: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    out, log = READY.Queue(), tmp_path / "builds"
    processes = [
        READY.Process(target=call, args=(rig.remote(), local, lock_options, log, None, out))
        for local in locals_of(tmp_path, 8, machines)
    ]
    with rig.counting() as requests:
        for process in processes:
            process.start()
        results = [out.get(timeout=PATIENCE) for _ in processes]
        for process in processes:
            process.join(PATIENCE)
            assert process.exitcode == 0
    assert [stream for _, stream, _ in results] == [[(n, n) for n in range(COUNT)]] * 8
    assert len({identity for _, _, identity in results}) == 1
    assert len(noted(log)) == 1
    assert len([request for request in requests if request.publishes(KEY)]) == 1


@pytest.mark.long_for("gcs")
def test_when_the_builder_is_killed_one_other_builds(
    rig: Any, lock_options: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    out, log = READY.Queue(), tmp_path / "builds"
    here, there = READY.Pipe()
    directories = locals_of(tmp_path, 4, 2)
    victim, *others = [
        READY.Process(target=call, args=(rig.remote(), local, lock_options, log, there, out))
        for local in directories
    ]
    victim.start()
    assert here.poll(PATIENCE)
    assert here.recv() == victim.pid
    for other in others:
        other.start()
    time.sleep(1.5 * LEASE)  # the victim is alive, so nobody takes over
    assert noted(log) == [victim.pid]
    victim.kill()
    results = [out.get(timeout=PATIENCE) for _ in others]
    for process in (victim, *others):
        process.join(PATIENCE)
    assert victim.exitcode == -signal.SIGKILL
    assert [stream for _, stream, _ in results] == [[(n, n) for n in range(COUNT)]] * 3
    assert len(noted(log)) == 2
    assert rig.raw.uploads() == []
    # What the victim left was removed, at the latest by who built on its machine next.
    rig.make_storage(directories[0]).submit([1], "a", "1")
    assert list(directories[0].rglob("*.partial")) == []


def test_a_suspended_holder_finds_out_and_does_not_publish(
    rig: Any, tmp_path: pathlib.Path
) -> None:
    out, log = READY.Queue(), tmp_path / "builds"
    here, there = READY.Pipe()
    options = {"lease_seconds": 1.0}
    one, other = locals_of(tmp_path, 2, 2)
    sleeper = READY.Process(target=call_slowly, args=(rig.remote(), one, options, log, there, out))
    sleeper.start()
    assert here.poll(PATIENCE)
    here.recv()
    try:
        taking_over = READY.Process(
            target=call, args=(rig.remote(), other, options, log, None, out)
        )
        taking_over.start()
        pid, _, identity = out.get(timeout=PATIENCE)
        assert pid == taking_over.pid
    finally:
        os.kill(sleeper.pid or 0, signal.SIGCONT)
    woken, stream, its_identity = out.get(timeout=PATIENCE)
    assert woken == sleeper.pid
    assert (len(noted(log)), its_identity, len(stream)) == (2, identity, COUNT)
    for process in (sleeper, taking_over):
        process.join(PATIENCE)
        assert process.exitcode == 0


def call_slowly(
    rig: Any, local: pathlib.Path, options: dict[str, Any], log: pathlib.Path, told: Any, out: Any
) -> None:
    def building() -> Iterator[Any]:
        for number, record in enumerate(build(log, None)):
            yield record
            if number == COUNT // 2:
                told.send(os.getpid())
                os.kill(os.getpid(), signal.SIGSTOP)

    os.environ.update(rig.env)
    ref = rig.make_storage(local, **options).cacheable("a", "1")(building)()
    out.put((os.getpid(), [(int(a[-1]), int(n)) for a, n in ref.stream()], ref.info.digest))


def test_an_error_of_the_builder_gives_the_lock_back(
    rig: Any, lock_options: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    storage = rig.make_storage(tmp_path, **lock_options)

    @storage.cacheable("a", "1")
    def failing() -> Any:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        failing()
    ref = storage.cacheable("a", "1")(lambda: [1, 2])()
    assert [int(record) for record in ref.stream()] == [1, 2]
