"""Commits in buckets: whatever is changed, by however many, and whatever goes wrong."""

from __future__ import annotations

import os
import pathlib
import random
import tempfile
import time
from typing import Any

import numpy as np
import pytest
from changed import make_versions
from committing import COMMITS_IN_BUCKETS as COMMITS
from committing import IS_FULL_LENGTH, begin, check, watched, work_all
from committing import WRITERS_IN_BUCKETS as WRITERS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes_ready import READY
from rig import Remote

from yogadl import backoff
from yogadl.errors import UnsafeStoreError

QUICK = backoff.Limits(patience=30.0, first_pause=0.01, longest_pause=0.1)
# At full length, 1,600 commits of more than twenty requests each.
SECONDS = 5400 if IS_FULL_LENGTH else 300


@given(st.data())
@settings(
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_changes_are_those_of_a_list(rig: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        storage = rig.make_storage(pathlib.Path(folder), os.path.basename(folder))
        there = rig.make_storage(pathlib.Path(other), os.path.basename(folder))
        known = make_versions(storage, data, 3)
        for version, expected in known.items():
            storage.submit(expected.records, "plain", version, spec=expected.spec)
            for download in (False, True):
                with there.fetch("a", version, download=download) as ref:
                    expected.check(ref)
                    with storage.fetch("plain", version) as plain:
                        expected.check_equal(ref, plain)


def test_only_what_is_new_is_uploaded(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    chance = np.random.default_rng(1)
    storage.submit(chance.integers(0, 256, (2000, 500), "u1"), "a", "1", part_bytes=200_000)
    storage.tag("a", "main", "1")
    # Of a plain file, the bucket makes the first part itself.
    storage.submit(chance.integers(0, 256, (2000, 500), "u1"), "a", "plain")
    storage.tag("a", "other", "plain")
    for branch in ("main", "other"):
        with rig.counting() as requests, storage.change("a", branch) as change:
            change.replace(range(0, 2000, 100), chance.integers(0, 256, (20, 500), "u1"))
        sent = sum(request.sent for request in requests if request.method in ("PUT", "POST"))
        assert sent < 140_000
    for branch in ("main", "other"):
        with storage.fetch("a", branch) as here, storage.fetch("a", branch, download=False) as far:
            assert np.array_equal(here.read(range(2000)), far.read(range(2000)))


def test_a_commit_takes_few_requests(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local, conditional_writes=True)
    storage.submit(np.arange(1000), "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main") as change:
        change.append([0])
    for version, most in ((None, 14), ("named", 16)):
        with rig.counting() as requests, storage.change("a", "main", version=version) as change:
            change.append([most])
        writes = [request for request in requests if request.operation in ("write", "finish")]
        # A part, the version, the catalogue, and the control of parts three times.
        assert len(writes) == 6
        assert len(requests) <= most


def _find(change: Any) -> None:
    assert len(change.find(lambda record: record["n"] == 3)) == 1


@pytest.mark.parametrize(
    "work",
    [
        _find,
        lambda change: change.update(lambda record: {**record, "n": record["n"] + 1}),
        lambda change: change.add("new", np.arange(len(change.base))),
        lambda change: change.cast("x", "int16"),
        lambda change: change.delete([3]),
    ],
    ids=["find", "update", "add", "cast", "delete"],
)
def test_what_reads_all_records_takes_few_requests(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path, work: Any
) -> None:
    storage = s3.make_storage(local)
    storage.submit({"n": np.arange(500), "x": np.zeros((500, 100), "u1")}, "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main") as change:
        change.update(lambda record: record, range(0, 500, 7))
        change.update(lambda record: {**record, "n": -record["n"]}, range(1, 500, 7))
    with storage.change("a", "main") as change:
        change.rename("x", "y")
        change.rename("y", "x")
    there = s3.make_storage(elsewhere)
    with s3.counting() as requests, there.change("a", "main") as change:
        work(change)
    assert len(requests) <= 30


def test_a_diff_reads_no_more_than_what_was_cast(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage, rng = s3.make_storage(local), np.random.default_rng(1)
    storage.submit({"n": np.arange(300)}, "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main", version="2") as change:
        change.add("x", rng.integers(0, 256, (300, 20_000), "u1"))
    with storage.change("a", "main", version="3") as change:
        change.cast("n", "int8")
    there = s3.make_storage(elsewhere)
    for _ in range(2):
        with s3.counting() as requests:
            found = there.diff("a", "2", "3")
        assert sum(request.received for request in requests) < 1_000_000
        assert found.changed.tolist() == [[*range(128, 300)]] * 2
        assert found.components == {"n": 172}
        # It is the same where all is on this machine.
        for version in ("2", "3"):
            there.fetch("a", version).close()


def test_opening_takes_few_requests(s3: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    # What Google says of an object that is missing is not what its emulator does.
    storage = s3.make_storage(local)
    storage.submit(np.arange(1000), "a", "1")
    storage.tag("a", "main", "1")
    for number in range(3):
        with storage.change("a", "main", version=f"made {number}") as change:
            change.replace([number], [-1])
    there = s3.make_storage(elsewhere)
    for name, most in (("made 2", 1), ("main", 3), (None, 3)):
        with s3.counting() as requests, there.fetch("a", name, download=False) as ref:
            assert ref.stream().length == 1000
        assert len(requests) <= most


def test_a_bucket_without_conditions_has_no_commits(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local, conditional_writes=False)
    storage.submit([1, 2], "a", "1")
    with pytest.raises(UnsafeStoreError), storage.change("a", "1") as change:
        change.delete([0])
    # It would be the newest.
    with pytest.raises(UnsafeStoreError):
        storage.compact("a", "1")
    assert [entry.dataset_version for entry in storage.list("a")] == ["1"]


def _work(
    remote: Remote,
    local: pathlib.Path,
    journals: pathlib.Path,
    writers: list[int],
    count: int,
) -> None:
    os.environ.update(remote.env)
    backoff.LIMITS = QUICK
    work_all(remote.make_storage(local), journals, writers, count)


class Machines:
    """Two machines with some writers each, in a process each."""

    def __init__(self, rig: Any, folder: pathlib.Path, count: int) -> None:
        self._rig, self._folder, self._count = rig, folder, count
        self.locals = [folder / "one", folder / "two"]
        for local in self.locals:
            local.mkdir()
        self.processes = [self._started(at) for at in range(2)]

    def _started(self, at: int) -> Any:
        writers = list(range(WRITERS))[at::2]
        process = READY.Process(
            target=_work,
            args=(self._rig.remote(), self.locals[at], self._folder, writers, self._count),
        )
        process.start()
        return process

    def kill(self, at: int) -> bool:
        """Kills one that is at work, and starts it anew."""
        if not self.processes[at].is_alive():
            return False
        self.processes[at].kill()
        self.processes[at].join()
        self.processes[at] = self._started(at)
        return True

    def are_busy(self) -> bool:
        return any(process.is_alive() for process in self.processes)

    def join(self) -> None:
        for process in self.processes:
            process.join()
            assert process.exitcode == 0


@pytest.mark.long
@pytest.mark.timeout(SECONDS)
def test_many_commit_through_faults(
    rig: Any, tmp_path: pathlib.Path, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost answers, throttling, connections that are cut, bits that flip."""
    monkeypatch.setattr(backoff, "LIMITS", QUICK)
    begin(rig.make_storage(local), WRITERS)
    (tmp_path / "watching").mkdir()
    with rig.random_faults(1, 0.05):
        machines = Machines(rig, tmp_path, COMMITS)
        with watched(lambda: rig.make_storage(tmp_path / "watching")) as reads:
            machines.join()
    assert reads[0]
    check(rig.make_storage(local), tmp_path, WRITERS, COMMITS, 1 + WRITERS * COMMITS // 20)


@pytest.mark.long
@pytest.mark.timeout(SECONDS)
def test_many_commit_and_are_killed(
    rig: Any, tmp_path: pathlib.Path, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LIMITS", QUICK)
    begin(rig.make_storage(local), WRITERS)
    chance, kills, killed = random.Random(2), 30 if IS_FULL_LENGTH else 1, 0
    machines = Machines(rig, tmp_path, COMMITS)
    with rig.random_faults(2, 0.02):
        while machines.are_busy():
            # They take a while to start.
            time.sleep(chance.uniform(1.0, 4.0))
            if killed < kills:
                killed += machines.kill(chance.randrange(2))
        machines.join()
    most = WRITERS // 2 * killed + 1 + WRITERS * COMMITS // 20
    check(rig.make_storage(local), tmp_path, WRITERS, COMMITS, most)


def test_what_was_compacted_meanwhile_is_no_conflict(rig: Any, local: pathlib.Path) -> None:
    """The new records are laid out as those are that they come to stand beside."""
    storage = rig.make_storage(local)
    storage.submit({"n": np.arange(10)}, "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main", version="2") as change:
        change.add("text", [str(number) for number in range(10)])

    def record(number: int) -> dict[str, Any]:
        return {"n": np.int64(number), "text": str(number)}

    with storage.change("a", "main", version="4") as change:
        change.append([record(12), record(13)])
        change.replace([3], [record(33)])
        storage.compact("a", "main")
        with storage.change("a", "main", version="3") as other:
            other.append([record(10), record(11)])
            other.delete([5])
    with storage.fetch("a", "main") as ref:
        found = [(int(it["n"]), it["text"].decode()) for it in ref.stream()]
    expected = [0, 1, 2, 33, 4, 6, 7, 8, 9, 10, 11, 12, 13]
    assert found == [(number, str(number)) for number in expected]
    # Of what is taken back, the parts are those of before it was compacted.
    storage.compact("a", "3")
    storage.revert("a", "3", on="main", version="5")
    with storage.fetch("a", "5") as ref:
        assert [int(it["n"]) for it in ref.stream()] == [0, 1, 2, 33, 4, 5, 6, 7, 8, 9, 12, 13]
        ref.verify()
