"""Versions that are built out of pieces, in buckets, by several machines."""

from __future__ import annotations

import datetime
import os
import pathlib
import pickle
import random
import signal
import time
from typing import Any

import pytest
from building import PIECES, RECIPE, SPEC, drive, everything, same_data, write_noting, write_piece
from processes_ready import READY
from rig import Remote

from yogadl.errors import StoreError
from yogadl.storage._buckets import part_collector

AT_ONCE = datetime.timedelta()


@pytest.fixture(autouse=True)
def dead_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests on loopback are over when who sent them has died."""
    monkeypatch.setattr(part_collector, "DEAD_SECONDS", 0.0)


def open_storage(rig: Any, local: pathlib.Path) -> Any:
    # It is tried out elsewhere.
    return rig.make_storage(local, conditional_writes=True, lease_seconds=5)


def begin(storage: Any, version: str = "1", **options: Any) -> Any:
    return storage.build("a", version, **{"spec": SPEC, "recipe": RECIPE, **options})


def submitted(storage: Any) -> Any:
    storage.submit(everything(), "all", "1", spec=SPEC)
    return storage.fetch("all", "1")


def kept(rig: Any, ending: str) -> set[str]:
    return {
        pathlib.PurePosixPath(key).name
        for key in rig.raw.list()
        if "/a/yogadl.parts/" in key and key.endswith(ending)
    }


def needed(storage: Any) -> set[str]:
    found = set()
    for stored in storage.list("a"):
        with storage.fetch("a", stored.dataset_version) as ref:
            found |= {f"{digest.hex()}.mdb" for digest in ref.reader.parts_by_digest()}
    return found


def test_machines_write_pieces(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    storage = open_storage(rig, local)
    with begin(storage, part_bytes=500) as build:
        other = pickle.loads(pickle.dumps(build))
        receipts = [write_piece(build, number) for number in range(0, PIECES, 2)]
        receipts += [write_piece(other, number) for number in range(PIECES - 1, 0, -2)]
        assert not any(key.endswith("/cache.mdb") for key in rig.raw.list())
        ref = build.commit(receipts)
    assert same_data(ref, submitted(storage))
    assert same_data(open_storage(rig, elsewhere).fetch("a", "1"), ref)
    assert kept(rig, ".piece") == set()
    assert kept(rig, ".mdb") == needed(storage)


def _work(remote: Remote, data: bytes, folder: pathlib.Path, seed: int) -> None:
    """A worker that takes pieces at random, and may be killed."""
    build = pickle.loads(data)
    roll = random.Random(seed)
    for number in roll.sample(range(PIECES), PIECES):
        write_noting(build, folder, number)
        time.sleep(roll.uniform(0, 0.05))


def test_workers_that_are_killed(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    storage = open_storage(s3, local)
    made = tmp_path / "made"
    made.mkdir()
    roll = random.Random(3)
    with begin(storage) as build:
        data = pickle.dumps(build)
        workers = [
            READY.Process(target=_work, args=(s3.remote(), data, made, seed)) for seed in range(3)
        ]
        for worker in workers:
            worker.start()
        while not kept(s3, ".piece"):
            time.sleep(0.01)
        for worker in workers[1:]:
            time.sleep(roll.uniform(0, 0.2))
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
        for worker in workers:
            worker.join(60)
        before = len(list(made.iterdir()))
        ref = build.commit(write_noting(build, made, number) for number in range(PIECES))
    assert len(list(made.iterdir())) == before
    assert same_data(ref, submitted(storage))
    assert not storage.collect_parts(older_than=AT_ONCE).skipped
    assert kept(s3, ".mdb") == needed(storage)
    assert kept(s3, ".piece") == set()


def _drive(remote: Remote, local: pathlib.Path, made: pathlib.Path, seed: int) -> None:
    drive(remote.make_storage(local, conditional_writes=True, lease_seconds=5), made, seed)


@pytest.mark.long
def test_drivers_that_are_killed(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    seed = 20
    while "data/a/1/cache.mdb" not in s3.raw.list():
        drivers = [
            READY.Process(target=_drive, args=(s3.remote(), machine, made, seed + more))
            for more, machine in enumerate((local, elsewhere))
        ]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join(120)
        seed += 2
        assert seed < 60
    storage = open_storage(s3, local)
    assert same_data(storage.fetch("a", "1"), submitted(storage))
    assert len(list(made.iterdir())) <= PIECES + seed - 20
    for machine in (local, elsewhere):
        # Only there can it be seen that a builder has died.
        done = open_storage(s3, machine).collect_parts(older_than=AT_ONCE)
    assert done.skipped == {} or "builder" in str(done.skipped)
    assert kept(s3, ".mdb") >= needed(storage)


def test_what_was_never_committed_is_collected(
    rig: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(rig, local)
    with begin(storage) as build:
        write_piece(build, 3)
        write_piece(build, 5)
        # As long as somebody builds, nothing goes.
        assert storage.collect_parts(older_than=AT_ONCE).skipped
    assert len(kept(rig, ".piece")) == 2
    storage.collect_parts()
    assert len(kept(rig, ".piece")) == 2
    time.sleep(1.1)  # longer than they are to be kept, by the clock of the bucket
    monkeypatch.setattr(part_collector, "GRACE", datetime.timedelta(seconds=1))
    storage.collect_parts()
    assert kept(rig, ".piece") == set()
    assert kept(rig, ".mdb") == set()
    # What was removed is stored by other names for a while.
    with begin(storage) as build:
        ref = build.commit([write_piece(build, number) for number in range(PIECES)])
    assert same_data(ref, submitted(storage))


def test_an_outage_while_pieces_are_written(rig: Any, local: pathlib.Path) -> None:
    storage = open_storage(rig, local)
    with begin(storage) as build:
        with rig.random_faults(1.0, 0.2):
            receipts = []
            for number in range(PIECES):
                try:
                    receipts.append(write_piece(build, number))
                except StoreError:
                    receipts.append(write_piece(build, number))
        ref = build.commit(receipts)
    assert same_data(ref, submitted(storage))
