"""Publishing: whole or not at all, and nothing left behind."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from typing import Any

import faults
import numpy as np
import pytest
from processes_ready import READY

from yogadl import backoff
from yogadl.errors import StoreError
from yogadl.storage._objects import gcs_files, gcs_store, s3_store, s3_upload

PATIENCE = 120
KEY = "data/a/1/cache.mdb"
MEGABYTE = 1 << 20


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 MiB is the least that S3 takes for a part."""
    monkeypatch.setattr(s3_upload, "SINGLE_BYTES", 5 * MEGABYTE)
    monkeypatch.setattr(s3_upload, "PART_BYTES", 5 * MEGABYTE)
    monkeypatch.setattr(s3_store.S3Store, "range_bytes", MEGABYTE)
    monkeypatch.setattr(gcs_store.GCSStore, "range_bytes", MEGABYTE)
    for module in (gcs_files, gcs_store):
        monkeypatch.setattr(module, "UPLOAD_BYTES", 5 * MEGABYTE)


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
    s3_upload.SINGLE_BYTES = s3_upload.PART_BYTES = 5 * MEGABYTE
    rig.make_storage(local).submit(large(2), "a", "1")


@pytest.mark.usefixtures("small_parts")
def test_parts_of_a_killed_upload_are_removed_by_a_later_one(
    s3: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = s3.make_storage(tmp_path)
    storage.submit(large(1), "a", "1")
    with s3.slow_requests():
        victim = READY.Process(target=upload, args=(s3.remote(), tmp_path))
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
    # It might still be under way.
    assert s3.raw.uploads() == [KEY]
    assert list(tmp_path.rglob("*.partial")) == []
    monkeypatch.setattr(s3_upload, "ABANDONED_SECONDS", 0.0)
    storage.submit(large(4), "a", "1")
    assert s3.raw.uploads() == []
    assert np.array_equal(np.stack(list(storage.fetch("a", "1").stream())), large(4))


@pytest.mark.usefixtures("small_parts")
def test_an_upload_is_not_abandoned_while_parts_of_it_arrive(
    s3: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_upload, "ABANDONED_SECONDS", 3.0)
    target = {"Bucket": s3.bucket, "Key": KEY}
    upload = s3.raw.client.create_multipart_upload(**target)
    target["UploadId"] = upload["UploadId"]
    storage = s3.make_storage(tmp_path)
    began = time.monotonic()
    while time.monotonic() - began < 6.0:
        s3.raw.client.upload_part(**target, PartNumber=1, Body=b"slow")
        storage.submit(large(1, 6), "a", "1")
        assert s3.raw.uploads() == [KEY]
    while s3.raw.uploads():
        assert time.monotonic() - began < PATIENCE
        storage.submit(large(1, 6), "a", "1")


def submit_when_told(rig: Any, local: pathlib.Path, number: int, all_here: Any) -> None:
    os.environ.update(rig.env)
    s3_upload.SINGLE_BYTES = s3_upload.PART_BYTES = 5 * MEGABYTE
    storage = rig.make_storage(local)
    all_here.wait(PATIENCE)
    storage.submit(large(number), "a", "1")


@pytest.mark.usefixtures("small_parts")
@pytest.mark.long_for("s3")
def test_of_nine_processes_that_submit_at_once_all_finish_and_the_last_wins(
    rig: Any, tmp_path: pathlib.Path
) -> None:
    all_here = READY.Barrier(9)
    processes = []
    for number in range(9):
        (tmp_path / str(number)).mkdir()
        args = (rig.remote(), tmp_path / str(number), number, all_here)
        processes.append(READY.Process(target=submit_when_told, args=args))
    with rig.counting() as requests:
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0] * 9
    assert len([request for request in requests if request.publishes(KEY)]) == 9
    assert not [request for request in requests if request.operation == "abort"]
    (tmp_path / "reader").mkdir()
    records = np.stack(list(rig.make_storage(tmp_path / "reader").fetch("a", "1").stream()))
    assert any(np.array_equal(records, large(number)) for number in range(9))
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
    assert s3.own_keys() == [KEY]


@pytest.mark.usefixtures("quick_retries")
def test_a_deletion_that_is_tried_again_spares_what_is_newer(
    rig: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = rig.make_storage(tmp_path)
    storage.submit([1], "a", "1")
    waits = backoff.Backoff.waits

    def meanwhile(self: Any, error: StoreError) -> bool:
        rig.raw.put(KEY, b"newer")
        return waits(self, error)

    monkeypatch.setattr(backoff.Backoff, "waits", meanwhile)
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
    assert rig.own_keys() == []


def test_a_deletion_spares_another_state(rig: Any, tmp_path: pathlib.Path) -> None:
    store = rig.make_storage(tmp_path)._store
    rig.raw.put(KEY, b"older")
    tag = rig.raw.tag(KEY)
    rig.raw.put(KEY, b"newer")
    assert not store.delete(KEY, tag)
    assert rig.raw.get(KEY) == b"newer"
    with rig.counting() as requests:
        assert store.delete(KEY, rig.raw.tag(KEY))
    assert [it.is_conditional_write for it in requests if it.operation == "delete"] == [True]
    assert rig.own_keys() == []
    assert store.delete(KEY, tag)


def test_a_store_that_knows_no_conditional_deletion(s3: Any, tmp_path: pathlib.Path) -> None:
    store = s3.make_storage(tmp_path)._store
    s3.raw.put(KEY, b"1")
    refused = faults.Fault(faults.Kind.ERROR, status=501)
    with s3.failing(refused, "delete", where=lambda it: it.is_conditional_write):
        assert store.delete(KEY, s3.raw.tag(KEY))
    assert s3.own_keys() == []


@pytest.mark.usefixtures("small_parts", "quick_retries")
@pytest.mark.parametrize("status", [404, 410])
@pytest.mark.parametrize("is_done", [False, True])
def test_an_upload_that_google_forgets_begins_anew_unless_it_is_done(
    is_done: bool, status: int, gcs: Any, tmp_path: pathlib.Path
) -> None:
    kind = faults.Kind.LATE_ERROR if is_done else faults.Kind.ERROR
    fault = faults.Fault(kind, status=status)
    with gcs.counting() as requests, gcs.failing(fault, "finish", times=1):
        gcs.make_storage(tmp_path).submit(large(1, 11), "a", "1")
    assert [request.operation for request in requests].count("begin") == (1 if is_done else 2)
    ref = gcs.make_storage(tmp_path).fetch("a", "1")
    assert np.array_equal(np.stack(list(ref.stream())), large(1, 11))


@pytest.mark.usefixtures("small_parts", "quick_retries")
@pytest.mark.parametrize("operation", ["write", "part", "finish"])
def test_an_upload_that_arrives_altered_is_sent_again(
    operation: str, rig: Any, tmp_path: pathlib.Path
) -> None:
    if (rig.dialect, operation) == ("s3", "finish"):
        operation = "part"  # the last request has no content
    content = large(1, 1 if operation == "write" else 11)
    with rig.failing(faults.FLIP_REQUEST, operation, key="cache.mdb$", times=1):
        rig.make_storage(tmp_path).submit(content, "a", "1")
    ref = rig.make_storage(tmp_path).fetch("a", "1", check_records=True)
    assert np.array_equal(np.stack(list(ref.stream())), content)


@pytest.mark.usefixtures("quick_retries")
def test_a_small_object_that_arrives_altered_is_sent_again(
    rig: Any, tmp_path: pathlib.Path
) -> None:
    make = rig.make_storage(tmp_path).cacheable("a", "1")
    with rig.failing(faults.FLIP_REQUEST, "write", key="yogadl.lease$", times=1):
        ref = make(lambda: [1, 2])()
    assert list(ref.stream()) == [1, 2]


@pytest.mark.usefixtures("quick_retries")
def test_what_arrived_altered_is_replaced_where_nobody_else_compares(
    s3: Any, tmp_path: pathlib.Path
) -> None:
    """The condition is then that it is still the altered one."""
    s3.proxy.flavour = "ignore_checksums"
    make = s3.make_storage(tmp_path).cacheable("a", "1")
    with s3.failing(faults.FLIP_REQUEST, "write", key="cache.mdb$", times=1):
        make(lambda: [1, 2])()
    (tmp_path / "there").mkdir()
    ref = s3.make_storage(tmp_path / "there").fetch("a", "1", check_records=True)
    assert list(ref.stream()) == [1, 2]


@pytest.mark.usefixtures("small_parts")
def test_all_pieces_are_sent_again_at_once_where_one_arrived_altered(
    gcs: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not first the last one for as long as the patience lasts."""
    failures: list[StoreError] = []
    waits = backoff.Backoff.waits

    def noting(self: Any, error: StoreError) -> bool:
        if error.is_transient:
            failures.append(error)
        return len(failures) < 5 and waits(self, error)

    monkeypatch.setattr(backoff.Backoff, "waits", noting)
    with gcs.failing(faults.FLIP_REQUEST, "part", key="cache.mdb$", times=1):
        gcs.make_storage(tmp_path).submit(large(1, 11), "a", "1")
    assert failures == []
