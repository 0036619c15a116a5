"""The copy on this machine: when it is used, when it is fetched again, and what is never read."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from copies import KEY, LEGACY, flip, folder, records

from yogadl.errors import CacheNotFoundError, ChecksumError, StorageFullError

# It is about the copies here, and all buckets are alike to them.
pytestmark = pytest.mark.long_for("s3")


def test_paths(rig: Any, local: pathlib.Path) -> None:
    rig.make_storage(local).submit(range(5), "a", "1")
    assert set(rig.own_keys()) == {KEY}
    assert {path.name for path in folder(local).iterdir()} == {
        "cache.mdb",
        "local_metadata.json",
        "yogadl.lock",
    }
    assert rig.raw.get(KEY) == (folder(local) / "cache.mdb").read_bytes()
    metadata = json.loads((folder(local) / "local_metadata.json").read_text())
    assert metadata["time_created"] == rig.raw.created(KEY).timestamp()


def test_what_others_replace_is_no_reason_to_warn(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage, there = rig.make_storage(local), rig.make_storage(elsewhere)
    for numbers in (range(5), range(5, 10)):
        storage.submit(numbers, "a", "1")
        with there.fetch("a", "1") as ref:
            assert [int(number) for number in ref.stream()] == [*numbers]
    assert "WARNING" not in caplog.text


def test_a_current_copy_costs_one_request_and_no_data(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    rig.make_storage(local).submit(np.arange(5000), "a", "1")
    for directory in (local, elsewhere):
        storage = rig.make_storage(directory)
        storage.fetch("a", "1")
        with rig.counting() as requests:
            assert len(storage.fetch("a", "1")) == 5000
        assert len(requests) == 1
        assert requests[0].is_metadata


def test_a_new_version_is_noticed_and_the_old_one_can_still_be_read(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    here, there = rig.make_storage(local), rig.make_storage(elsewhere)
    here.submit(np.arange(3000), "a", "1")
    old = there.fetch("a", "1")
    reading = iter(old.stream())
    begun = [int(next(reading)) for _ in range(10)]
    here.submit(np.arange(7), "a", "1")
    assert records(there.fetch("a", "1")) == list(range(7))
    assert begun + [int(record) for record in reading] == list(range(3000))
    assert records(old) == list(range(3000))


def _flip(path: pathlib.Path) -> None:
    flip(path, path.stat().st_size // 2)


def _flip_and_hide(path: pathlib.Path) -> None:
    status = path.stat()
    _flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _truncate(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _replace(path: pathlib.Path) -> None:
    shutil.copy(LEGACY, path)


@pytest.mark.parametrize(
    "harm",
    [pathlib.Path.unlink, _truncate, _flip, _flip_and_hide, _replace],
    ids=lambda f: f.__name__,
)
def test_a_copy_that_was_touched_is_fetched_again(
    harm: Callable[[pathlib.Path], Any], rig: Any, local: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    storage.submit(np.arange(5000), "a", "1")
    harm(folder(local) / "cache.mdb")
    assert records(storage.fetch("a", "1")) == list(range(5000))
    with rig.counting() as requests:
        storage.fetch("a", "1")
    assert [request.is_metadata for request in requests] == [True]


def test_a_copy_that_is_the_same_all_the_same_is_not(rig: Any, local: pathlib.Path) -> None:
    """As after a crash between the rename and the note, or when it was copied back."""
    storage = rig.make_storage(local)
    storage.submit(np.arange(5000), "a", "1")
    path = folder(local) / "cache.mdb"
    path.write_bytes(path.read_bytes())
    (folder(local) / "local_metadata.json").unlink()
    with rig.counting() as requests:
        assert records(storage.fetch("a", "1")) == list(range(5000))
    assert [request.is_metadata for request in requests] == [True]


@pytest.mark.parametrize(
    "metadata", ["", "{", "[]", "3", '{"tag": 3}', '{"time_created": "x"}', "[" * 100_000]
)
def test_whatever_the_note_says(metadata: str, rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    storage.submit(range(5), "a", "1")
    (folder(local) / "local_metadata.json").write_text(metadata)
    assert records(storage.fetch("a", "1")) == list(range(5))


def test_two_buckets_may_share_a_local_directory(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    one = rig.make_storage(local)
    other = rig.make_storage(local, bucket_directory_path="more")
    one.submit([1], "a", "1")
    other.submit([2], "a", "1")
    for _ in range(2):
        assert records(one.fetch("a", "1")) == [1]
        assert records(other.fetch("a", "1")) == [2]


def test_an_object_of_0_1_4(rig: Any, local: pathlib.Path) -> None:
    """It has no digest, and its local copy no tag."""
    rig.raw.put(KEY, LEGACY.read_bytes())
    storage = rig.make_storage(local)
    assert records(storage.fetch("a", "1")) == list(range(1000))
    made = {"time_created": rig.raw.created(KEY).timestamp()}
    (folder(local) / "local_metadata.json").write_text(json.dumps(made))
    with rig.counting() as requests:
        assert records(storage.fetch("a", "1")) == list(range(1000))
    assert [request.is_metadata for request in requests] == [True]


def test_an_object_that_is_not_what_was_uploaded(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    rig.make_storage(local).submit(np.arange(5000), "a", "1")
    data = bytearray(rig.raw.get(KEY))
    data[len(data) // 2] ^= 1
    rig.raw.put(KEY, bytes(data), rig.raw.metadata(KEY))
    storage = rig.make_storage(elsewhere)
    with pytest.raises(ChecksumError, match="not what was uploaded"):
        storage.fetch("a", "1")
    assert not (folder(elsewhere) / "cache.mdb").exists()
    assert records(storage.cacheable("a", "1")(lambda: [4, 5])()) == [4, 5]
    assert records(rig.make_storage(local).fetch("a", "1")) == [4, 5]


def test_what_was_deleted_is_gone(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    here, there = rig.make_storage(local), rig.make_storage(elsewhere)
    here.submit(range(5), "a", "1")
    kept = there.fetch("a", "1")
    here.delete("a", "1")
    for storage in (here, there):
        with pytest.raises(CacheNotFoundError):
            storage.fetch("a", "1")
    assert records(kept) == list(range(5))
    assert not (folder(local) / "cache.mdb").exists()
    with pytest.raises(CacheNotFoundError, match="to delete"):
        here.delete("a", "1")


def test_a_full_disk(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, monkeypatch: Any
) -> None:
    rig.make_storage(local).submit(np.arange(5000), "a", "1")
    usage = shutil.disk_usage(elsewhere)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    with pytest.raises(StorageFullError):
        rig.make_storage(elsewhere).fetch("a", "1", download=True)
    # Left to itself, it is read all the same.
    assert records(rig.make_storage(elsewhere).fetch("a", "1")) == list(range(5000))
    monkeypatch.undo()
    assert list(folder(elsewhere).glob("cache.mdb*")) == []
