"""Publishing: whole or not at all, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
import threading
import time
from typing import Any

import faults
import numpy as np
import pytest

from yogadl.errors import StoreError
from yogadl.storage import _backoff, _gcs_store, _s3_store, _s3_upload

PATIENCE = 120
KEY = "data/a/1/cache.mdb"
MEGABYTE = 1 << 20

spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 MiB is the least that S3 takes for a part."""
    monkeypatch.setattr(_s3_upload, "SINGLE_BYTES", 5 * MEGABYTE)
    monkeypatch.setattr(_s3_upload, "PART_BYTES", 5 * MEGABYTE)
    monkeypatch.setattr(_s3_store.S3Store, "range_bytes", MEGABYTE)
    monkeypatch.setattr(_gcs_store.GCSStore, "range_bytes", MEGABYTE)
    monkeypatch.setattr(_gcs_store, "_UPLOAD_BYTES", 5 * MEGABYTE)


def large(version: int, megabytes: int = 24) -> Any:
    return np.random.default_rng(version).integers(0, 255, (megabytes, MEGABYTE), "uint8")


@pytest.mark.usefixtures("small_parts")
def test_many_parts(rig: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    rig.make_storage(tmp_path / "here").submit(large(1), "a", "1")
    ref = rig.make_storage(tmp_path / "there").fetch("a", "1")
    assert np.array_equal(np.stack(list(ref.stream())), large(1))
    ref.verify()
    assert rig.raw.uploads() == []
    assert int(rig.raw.metadata(KEY)["yogadl-records"]) == 24


# moto compares no checksums: an altered part is found when it is fetched, and not sent again.
PASSING = [fault for fault in faults.PASSING if fault is not faults.FLIP_REQUEST]


@pytest.mark.parametrize("fault", PASSING, ids=str)
@pytest.mark.usefixtures("small_parts", "quick_retries")
def test_a_part_that_fails_once_is_sent_or_read_again(
    fault: Any, rig: Any, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    with rig.failing(fault, "part", skip=1, times=1):
        rig.make_storage(tmp_path / "here").submit(large(1), "a", "1")
    with rig.failing(fault, "read", skip=1, times=1):
        ref = rig.make_storage(tmp_path / "there").fetch("a", "1")
    assert np.array_equal(np.stack(list(ref.stream())), large(1))


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_arrives_altered_is_sent_again(s3: Any, tmp_path: pathlib.Path) -> None:
    altered = faults.Fault(faults.Kind.ERROR, status=400, code="BadDigest")
    with s3.failing(altered, "part", skip=1, times=2):
        s3.make_storage(tmp_path).submit(large(1), "a", "1")
    (tmp_path / "there").mkdir()
    ref = s3.make_storage(tmp_path / "there").fetch("a", "1")
    assert np.array_equal(np.stack(list(ref.stream())), large(1))


@pytest.mark.usefixtures("small_parts", "quick_retries")
def test_an_upload_that_is_interrupted_leaves_nothing(s3: Any, tmp_path: pathlib.Path) -> None:
    storage = s3.make_storage(tmp_path)
    storage.submit(large(1), "a", "1")
    with s3.cutting_parts_after(2), pytest.raises(StoreError):
        storage.submit(large(2), "a", "1")
    assert s3.raw.uploads() == []
    ref = storage.fetch("a", "1")
    assert np.array_equal(np.stack(list(ref.stream())), large(1))


def upload(rig: Any, local: pathlib.Path) -> None:
    os.environ.update(rig.env)
    _s3_upload.SINGLE_BYTES = _s3_upload.PART_BYTES = 5 * MEGABYTE
    rig.make_storage(local).submit(large(2), "a", "1")


@pytest.mark.usefixtures("small_parts")
def test_parts_of_a_killed_upload_are_removed_by_the_next(s3: Any, tmp_path: pathlib.Path) -> None:
    storage = s3.make_storage(tmp_path)
    storage.submit(large(1), "a", "1")
    with s3.slow_requests():
        victim = spawn.Process(target=upload, args=(s3.remote(), tmp_path))
        victim.start()
        end = time.monotonic() + PATIENCE
        while not s3.raw.uploads():
            assert time.monotonic() < end
            time.sleep(0.05)
        victim.kill()
        victim.join(PATIENCE)
    assert victim.exitcode == -signal.SIGKILL
    assert np.array_equal(np.stack(list(storage.fetch("a", "1").stream())), large(1))
    storage.submit(large(3), "a", "1")
    assert s3.raw.uploads() == []
    assert list(tmp_path.rglob("*.partial")) == []
    assert np.array_equal(np.stack(list(storage.fetch("a", "1").stream())), large(3))


@pytest.mark.usefixtures("small_parts")
def test_two_that_upload_at_once_both_finish(rig: Any, tmp_path: pathlib.Path) -> None:
    failures: list[BaseException] = []

    def submit(number: int) -> None:
        local = tmp_path / str(number)
        local.mkdir()
        try:
            rig.make_storage(local).submit(large(number), "a", "1")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    (tmp_path / "reader").mkdir()
    records = np.stack(list(rig.make_storage(tmp_path / "reader").fetch("a", "1").stream()))
    assert any(np.array_equal(records, large(number)) for number in (1, 2, 3))
    assert rig.raw.uploads() == []


# What was done, and its answer lost


@pytest.mark.usefixtures("small_parts", "quick_retries")
@pytest.mark.parametrize("fault", [faults.LOSE_ANSWER, faults.LATE_500], ids=str)
def test_an_upload_that_was_finished_is_not_sent_again(
    fault: Any, rig: Any, tmp_path: pathlib.Path
) -> None:
    with rig.counting() as requests, rig.failing(fault, "finish", times=1):
        rig.make_storage(tmp_path).submit(large(1, 11), "a", "1")
    assert [request.operation for request in requests].count("begin") == 1
    assert rig.raw.uploads() == []
    ref = rig.make_storage(tmp_path).fetch("a", "1")
    assert np.array_equal(np.stack(list(ref.stream())), large(1, 11))


@pytest.mark.usefixtures("small_parts", "quick_retries")
@pytest.mark.parametrize("fault", [faults.LOSE_ANSWER, faults.LATE_500], ids=str)
def test_an_upload_that_was_begun_by_nobody_is_removed(
    fault: Any, s3: Any, tmp_path: pathlib.Path
) -> None:
    with s3.failing(fault, "begin", times=2):
        s3.make_storage(tmp_path).submit(large(1, 11), "a", "1")
    assert s3.raw.uploads() == []
    assert s3.raw.list() == [KEY]


@pytest.mark.usefixtures("quick_retries")
def test_a_deletion_that_is_tried_again_spares_what_is_newer(
    rig: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = rig.make_storage(tmp_path)
    storage.submit([1], "a", "1")
    waits = _backoff.Backoff.waits

    def meanwhile(self: Any, error: StoreError) -> bool:
        rig.raw.put(KEY, b"newer")
        return waits(self, error)

    monkeypatch.setattr(_backoff.Backoff, "waits", meanwhile)
    with rig.failing(faults.LOSE_ANSWER, "delete", times=1):
        storage.delete("a", "1")
    assert rig.raw.get(KEY) == b"newer"


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("fault", [faults.LOSE_ANSWER, faults.LATE_500], ids=str)
def test_a_deletion_whose_answer_is_lost_was_one(
    fault: Any, rig: Any, tmp_path: pathlib.Path
) -> None:
    storage = rig.make_storage(tmp_path)
    storage.submit([1], "a", "1")
    with rig.failing(fault, "delete", times=1):
        storage.delete("a", "1")
    assert rig.raw.list() == []
