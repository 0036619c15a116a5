"""Storages of all kinds are brought up to date with one another, by few bytes."""

from __future__ import annotations

import datetime
import itertools
import pathlib
from typing import Any

import numpy as np
import pytest

from yogadl.storage import LFSStorage

AT_ONCE = datetime.timedelta()
COUNT = 20_000


def open_storage(rig: Any, local: pathlib.Path, **options: Any) -> Any:
    # It is tried out elsewhere.
    return rig.make_storage(local, **{"conditional_writes": True, **options})


def commit(storage: Any, records: Any, version: str) -> None:
    with storage.change("a", "main", version=version) as change:
        change.append(np.asarray(records))


def history(storage: Any) -> None:
    storage.submit(np.arange(COUNT), "a", "1", part_bytes=1 << 30)
    storage.tag("a", "main", "1")
    for number in range(2, 5):
        commit(storage, np.arange(number), str(number))
    storage.tag("a", "paper", "2")
    storage.submit(np.arange(1000), "b/c", "1", part_bytes=4000)


def check_alike(storage: Any, other: Any) -> None:
    def names(listed: Any) -> list[tuple[str, str]]:
        return [(entry.dataset_id, entry.dataset_version) for entry in listed.list()]

    assert names(storage) == names(other)
    for key in names(storage):
        with storage.fetch(*key) as one, other.fetch(*key) as two:
            two.verify()
            assert one.reader.content_id == two.reader.content_id
            np.testing.assert_equal(list(one.stream()), list(two.stream()))
    assert storage.tags("a") == other.tags("a")


def moved(requests: Any) -> tuple[int, int]:
    """Bytes of records that were downloaded and uploaded, roughly."""
    down = sum(it.received for it in requests if it.operation == "read")
    return down, sum(it.sent for it in requests)


@pytest.mark.long
def test_between_all_kinds(s3: Any, gcs: Any, tmp_path: pathlib.Path) -> None:
    for name in ("s3", "gcs"):
        (tmp_path / name).mkdir()
    storages = {
        "disk": LFSStorage(tmp_path / "disk"),
        "s3": open_storage(s3, tmp_path / "s3"),
        "gcs": open_storage(gcs, tmp_path / "gcs"),
    }
    history(storages["disk"])
    for one, two in itertools.pairwise(["disk", "s3", "gcs", "disk", "gcs", "s3", "disk"]):
        done = storages[one].sync(storages[two])
        check_alike(storages[one], storages[two])
        assert storages[one].sync(storages[two]) == type(done)()
        commit(storages[two], [1, 2], f"{one}-{two}")
    for entry in storages["s3"].list("a"):
        found = {it.dataset_version: it for it in storages["disk"].list("a")}
        assert found[entry.dataset_version].parents == entry.parents


def test_only_what_is_missing_is_transferred(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    storage, disk = open_storage(rig, local), LFSStorage(tmp_path / "disk")
    history(storage)
    there = open_storage(rig, elsewhere, bucket_directory_path="second")
    size = storage.list("a")[0].size
    (tmp_path / "fresh").mkdir()
    with rig.counting() as requests:
        open_storage(rig, tmp_path / "fresh").sync(disk, "a")
    # The first version is downloaded and uploaded once, and is a part of the others.
    assert size < moved(requests)[0] < 1.5 * size
    with rig.counting() as requests:
        disk.sync(there)
    assert size < moved(requests)[1] < 1.5 * size
    with rig.counting() as requests:
        # There is a copy of the first on this machine.
        storage.sync(LFSStorage(tmp_path / "near"), "a")
    assert moved(requests)[0] < size / 2
    commit(storage, [1, 2, 3], "5")
    with rig.counting() as requests:
        assert len(storage.sync(disk, "a").versions) == 1
    assert moved(requests)[0] < size / 5
    with rig.counting() as requests:
        assert len(disk.sync(there).versions) == 1
    assert moved(requests)[1] < size / 5
    with rig.counting() as requests:
        disk.copy("a", "5", to=there, new_version="6")
        storage.copy("a", "5", to=disk, new_version="6")
    assert sum(moved(requests)) < size / 5
    with rig.counting() as requests:
        assert storage.sync(there, "a").versions == ()
    assert len(requests) < 20
    disk.sync(there)
    check_alike(disk, there)


def test_a_sync_of_two_buckets_goes_on_where_it_was(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(rig, local)
    there = open_storage(rig, elsewhere, bucket_directory_path="second")
    history(storage)
    publish = type(there)._publish

    def killed(to: Any, *given: Any) -> None:
        if given[1].dataset_version == "3":
            raise KeyboardInterrupt
        publish(to, *given)

    with monkeypatch.context() as patch:
        patch.setattr(type(there), "_publish", killed)
        with pytest.raises(KeyboardInterrupt):
            storage.sync(there)
    assert [entry.dataset_version for entry in there.list()] == ["1", "2"]
    assert there.tags("a") == {}
    with rig.counting() as requests:
        done = storage.sync(there)
    assert [one.dataset_version for one in done.versions] == ["3", "4", "1"]
    # The part of the third version was stored before.
    uploaded = [it.key for it in requests if it.key.startswith("second/a/yogadl.parts/")]
    assert len([key for key in set(uploaded) if key.endswith(".mdb") and key]) <= 4
    check_alike(storage, there)
    assert there.gc(older_than=AT_ONCE, dry_run=True).parts.removed == ()
