"""Versions that are built by tasks of Ray."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ray
import ray_rig
from building import AT_ONCE, PIECE, SPEC, left_over, piece, write_noting
from ray_rig import PIECES, everything, made_of, same

import yogadl.ray
from yogadl.errors import (
    CacheNotFoundError,
    InvalidArgumentError,
    SpecMismatchError,
    UnsupportedTypeError,
)
from yogadl.storage import LFSStorage

SECONDS = 120


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "stored")


def submitted(storage: Any) -> Any:
    storage.submit(everything(), "all", "1", spec=SPEC)
    return storage.fetch("all", "1")


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("cluster", [1, 4], indirect=True)
@pytest.mark.long_for(1)
def test_tasks_build_what_one_process_does(
    cluster: Any, storage: LFSStorage, made: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    ref = ray_rig.build(storage, made, metadata={"made": "by Ray"}, num_cpus=1)
    assert same(ref, submitted(storage))
    assert ref.metadata == {"made": "by Ray"}
    counts = made_of(made)
    assert sum(counts.values()) == PIECES + 2
    assert {number for number, count in counts.items() if count == 2} == {3, 13}
    assert left_over(storage, tmp_path / "stored") == []
    # What is stored is not made again.
    assert same(ray_rig.build(storage, made), ref)
    assert made_of(made) == counts


def test_a_node_goes_away(
    cluster: Any, storage: LFSStorage, made: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    lost = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ray_rig.build, storage, made, 0.2)
        wait_until(lambda: len(made_of(made)) > PIECES // 3)
        with pytest.raises(CacheNotFoundError):
            storage.fetch("a", "1")
        cluster.remove_node(lost)
        with pytest.raises(CacheNotFoundError):
            storage.fetch("a", "1")
        ref = future.result(SECONDS)
    assert same(ref, submitted(storage))
    assert left_over(storage, tmp_path / "stored") == []


def test_a_driver_is_killed(cluster: Any, made: pathlib.Path, local: pathlib.Path, s3: Any) -> None:
    remote = s3.remote()
    storage = remote.make_storage(local, conditional_writes=True, lease_seconds=5)

    def stored(ending: str) -> set[str]:
        names = [pathlib.PurePosixPath(key) for key in s3.raw.list("data/a/yogadl.parts/")]
        return {name.stem for name in names if name.suffix == ending}

    given = [cluster.address, str(made), str(local), remote.endpoint, remote.bucket]
    with subprocess.Popen([sys.executable, ray_rig.__file__, *given]) as driver:
        try:
            wait_until(lambda: len(stored(".piece")) >= PIECES // 3)
        finally:
            driver.kill()
    assert driver.returncode == -signal.SIGKILL
    with pytest.raises(CacheNotFoundError):
        storage.fetch("a", "1")
    done = {int(name.rpartition(".")[2]) for name in stored(".piece")}
    assert len(done) < PIECES
    before = made_of(made)
    ref = ray_rig.build(storage, made)
    after = made_of(made)
    assert all(after[number] == before[number] for number in done)
    assert same(ref, submitted(storage))
    assert stored(".piece") == set()
    storage.collect_parts(older_than=AT_ONCE)
    assert stored(".mdb") == {digest.hex() for digest in ref.reader.parts_by_digest()}


def test_tasks_of_ones_own_that_run_twice(
    cluster: Any, storage: LFSStorage, made: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    write = ray.remote(write_noting)
    with storage.build("a", "1", spec=SPEC) as build:
        numbers = [*range(PIECES), *range(0, PIECES, 10)]
        numbers.sort(reverse=True)
        receipts = ray.get([write.remote(build, made, number) for number in numbers])
        ref = build.commit(receipts)
    assert same(ref, submitted(storage))
    assert left_over(storage, tmp_path / "stored") == []


def test_two_drivers_build_at_once(cluster: Any, storage: LFSStorage, made: pathlib.Path) -> None:
    ready = threading.Barrier(2)

    def drive() -> Any:
        ready.wait(SECONDS)
        return ray_rig.build(storage, made)

    with ThreadPoolExecutor(2) as pool:
        one, two = (future.result() for future in [pool.submit(drive) for _ in range(2)])
    assert same(one, two)
    assert sum(made_of(made).values()) == PIECES + 2


def test_a_function_that_fails(cluster: Any, storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    flag = tmp_path / "mended"

    def make(number: int) -> Any:
        if number == 4 and not flag.exists():
            raise ZeroDivisionError("of piece 4")
        return piece(number)

    def build() -> Any:
        return yogadl.ray.build(storage, "a", "1", range(6), make, spec=SPEC, recipe="1")

    with pytest.raises(ZeroDivisionError, match="of piece 4"):
        build()
    assert storage.list() == []
    flag.touch()
    assert len(build()) == 5 * PIECE
    with pytest.raises(SpecMismatchError, match="piece 0"):
        yogadl.ray.build(storage, "b", "1", [3], lambda _: [{"x": b""}], spec=SPEC)
    with pytest.raises(UnsupportedTypeError, match="piece 0"):
        yogadl.ray.build(storage, "b", "1", [3], lambda _: None, spec=SPEC)


def test_other_inputs_are_another_build(
    cluster: Any, storage: LFSStorage, made: pathlib.Path
) -> None:
    def build(inputs: list[int], recipe: str, fails: bool) -> Any:
        def make(number: int) -> Any:
            ray_rig.note(made, number)
            if fails and number == inputs[-1]:
                # Not before the others are done.
                wait_until(lambda: len(list(made.parent.rglob("*.piece"))) >= len(inputs) - 1)
                raise ZeroDivisionError
            return piece(number)

        return yogadl.ray.build(storage, "a", "1", inputs, make, spec=SPEC, recipe=recipe)

    with pytest.raises(ZeroDivisionError):
        build([1, 2, 3], "one", fails=True)
    assert made_of(made) == {1: 1, 2: 1, 3: 1}
    ref = build([2, 1, 3], "one", fails=False)
    assert made_of(made) == {1: 2, 2: 2, 3: 2}
    assert int(ref[0]["number"]) == 2 * PIECE


def test_what_cannot_be_built(storage: LFSStorage) -> None:
    with pytest.raises(InvalidArgumentError, match="a storage of yogadl's"):
        yogadl.ray.build("folder", "a", "1", [], list, spec=SPEC)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="a function of an input"):
        yogadl.ray.build(storage, "a", "1", [], [1], spec=SPEC)  # type: ignore[arg-type]
