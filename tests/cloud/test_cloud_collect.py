"""Parts in buckets that no version refers to are removed, there and from this machine."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import random
import signal
import time
import uuid
from typing import Any

import numpy as np
import pytest
from copies import records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes_ready import READY
from rig import Remote

from yogadl.errors import StoreError, UnsafeStoreError
from yogadl.storage import LFSStorage
from yogadl.storage._buckets import part_collector
from yogadl.storage._buckets.parts import BucketParts

AT_ONCE = datetime.timedelta()
COUNT = 1000
PART_BYTES = 5000


@pytest.fixture(autouse=True)
def dead_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests on loopback are over when who sent them has died."""
    monkeypatch.setattr(part_collector, "DEAD_SECONDS", 0.0)


def submit(storage: Any, version: str, first: int = 0, count: int = COUNT) -> None:
    storage.submit(np.arange(first, first + count), "a", version, part_bytes=PART_BYTES)


def parts(rig: Any) -> set[str]:
    return {
        pathlib.PurePosixPath(key).stem
        for key in rig.raw.list()
        if "/yogadl.parts/" in key and key.endswith(".mdb")
    }


def parts_here(local: pathlib.Path) -> set[str]:
    return {path.stem for path in local.rglob("yogadl.parts/*.mdb")}


def needed(storage: Any) -> set[str]:
    found = set()
    for stored in storage.list():
        with storage.fetch(stored.dataset_id, stored.dataset_version) as ref:
            found |= {digest.hex() for digest in ref.reader.parts_by_digest()}
    return found


def open_storage(rig: Any, local: pathlib.Path, **options: Any) -> Any:
    # It is tried out elsewhere.
    return rig.make_storage(local, **{"conditional_writes": True, **options})


def test_parts_of_a_deleted_version(
    rig: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(rig, local)
    submit(storage, "1")
    submit(storage, "2", count=COUNT + 200)
    storage.submit([1, 2], "b", "1")
    assert records(storage.fetch("a", "1")) == list(range(COUNT))
    old = parts(rig)
    reader = storage.fetch("a", "1")
    storage.delete("a", "1")
    storage.delete("a", "2")
    # Somebody may be reading it, here or anywhere else.
    assert parts(rig) == old
    assert records(reader) == list(range(COUNT))
    del reader
    done = storage.collect_parts()
    assert (done.removed, {part.digest for part in done.waiting}, done.skipped) == ((), old, {})
    assert parts_here(local) == set()
    time.sleep(1.1)  # longer than the parts are to be kept, by the clock of the bucket
    monkeypatch.setattr(part_collector, "GRACE", datetime.timedelta(seconds=1))
    would = storage.collect_parts(dry_run=True)
    assert parts(rig) == old
    done = storage.collect_parts()
    assert done.removed == would.removed
    assert {part.digest for part in done.removed} == old
    assert done.size > COUNT * 8
    assert parts(rig) == set()
    # Its names are not used again soon, and it can be stored all the same.
    submit(storage, "1")
    assert not parts(rig) & old
    assert records(storage.fetch("a", "1")) == list(range(COUNT))
    assert records(storage.fetch("b", "1")) == [1, 2]


def test_a_copy_of_removed_parts_is_refused(
    rig: Any, local: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    storage = open_storage(rig, local)
    submit(storage, "1")
    disk = LFSStorage(tmp_path / "disk")
    storage.copy("a", "1", disk)
    storage.delete("a", "1")
    assert storage.collect_parts("a", older_than=AT_ONCE).removed
    with pytest.raises(StoreError, match="less than two days ago"):
        disk.copy("a", "1", storage)
    assert storage.list() == []
    disk.copy("a", "1", storage, new_id="b")
    assert records(storage.fetch("b", "1")) == list(range(COUNT))


def test_a_version_that_is_replaced_and_collected_while_it_is_downloaded(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, there = open_storage(rig, local), open_storage(rig, elsewhere)
    submit(storage, "1")
    fetch, late = BucketParts.fetch, iter([True])

    def too_late(parts: BucketParts, *given: Any) -> None:
        if next(late, False):
            submit(storage, "1", first=9)
            assert storage.collect_parts(older_than=AT_ONCE).removed
        fetch(parts, *given)

    monkeypatch.setattr(BucketParts, "fetch", too_late)
    assert records(there.fetch("a", "1")) == list(range(9, 9 + COUNT))


def test_a_store_whose_conditional_writes_are_ruled_out(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage = open_storage(rig, local, conditional_writes=False)
    submit(storage, "1")
    submit(storage, "1", first=5)
    with pytest.raises(UnsafeStoreError, match="conditional_writes=False"):
        storage.collect_parts()
    # Also not by those who know it better.
    (why,) = open_storage(rig, elsewhere).collect_parts(older_than=AT_ONCE).skipped.values()
    assert "yogadl.uncollectable" in why
    storage.delete("a", "1")
    assert len(parts(rig)) > 10


def test_copies_of_parts_go_with_their_version(rig: Any, local: pathlib.Path) -> None:
    storage = open_storage(rig, local)
    submit(storage, "1")
    storage.fetch("a", "1").close()
    assert parts_here(local) == parts(rig)
    old = storage.fetch("a", "1")
    submit(storage, "1", first=100)
    new = storage.fetch("a", "1")
    assert parts_here(local) == parts(rig)
    assert int(old[COUNT - 1]) == COUNT - 1
    old.close()
    del old
    storage.collect_parts()
    assert parts_here(local) == {digest.hex() for digest in new.reader.parts_by_digest()}
    new.close()
    del new
    storage.delete("a", "1")
    assert parts_here(local) == set()


def _build(remote: Remote, local: pathlib.Path, version: str, first: int) -> None:
    os.environ.update(remote.env)
    storage = remote.make_storage(local, conditional_writes=True)
    storage.submit(np.arange(first, first + COUNT), "a", version, part_bytes=PART_BYTES)


def _collect(remote: Remote, local: pathlib.Path) -> None:
    os.environ.update(remote.env)
    part_collector.DEAD_SECONDS = 0.0
    remote.make_storage(local, conditional_writes=True).collect_parts(older_than=AT_ONCE)


@pytest.mark.long
def test_builders_and_collectors_that_are_killed(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage = open_storage(s3, local)
    submit(storage, "kept")
    chance = random.Random(4)
    begun = 0
    for number in range(6):
        kept = parts(s3)
        builder = READY.Process(target=_build, args=(s3.remote(), local, "1", 10_000 * number))
        collector = READY.Process(target=_collect, args=(s3.remote(), elsewhere))
        for process in (builder, collector):
            process.start()
        until = time.monotonic() + 60
        # Until it is at work.
        while parts(s3) == kept and builder.is_alive() and time.monotonic() < until:
            time.sleep(0.005)
        begun += builder.is_alive()
        time.sleep(chance.uniform(0, 0.2))  # wherever they are then
        for process in (builder, collector):
            assert process.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.join()
        assert needed(storage) <= parts(s3)
        assert records(storage.fetch("a", "kept")) == list(range(COUNT))
    assert begun
    done = storage.collect_parts(older_than=AT_ONCE)
    assert not done.skipped
    assert parts(s3) == needed(storage)


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
@pytest.mark.long_for("s3")
def test_versions_come_and_go(data: st.DataObject, rig: Any, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / uuid.uuid4().hex
    machines = [folder / "one", folder / "two"]
    for machine in machines:
        machine.mkdir(parents=True)
    storages = [
        open_storage(rig, machine, bucket_directory_path=folder.name) for machine in machines
    ]
    stored: dict[str, int] = {}
    for _ in range(8):
        storage = data.draw(st.sampled_from(storages))
        version = data.draw(st.sampled_from("xy"))
        move = data.draw(st.sampled_from(["store", "store", "collect", "delete", "read"]))
        if move == "store":
            stored[version] = data.draw(st.sampled_from([0, 50]))
            submit(storage, version, stored[version], 400)
        elif move == "collect":
            assert storage.collect_parts(older_than=AT_ONCE).skipped == {}
        elif version in stored and move == "delete":
            del stored[version]
            storage.delete("a", version)
        elif version in stored:
            first = stored[version]
            assert records(storage.fetch("a", version)) == list(range(first, first + 400))
    storages[0].collect_parts(older_than=AT_ONCE)
    there = {pathlib.PurePosixPath(key).stem for key in rig.raw.list(f"{folder.name}/")
             if key.endswith(".mdb") and "/yogadl.parts/" in key}  # fmt: skip
    assert there == needed(storages[1])
