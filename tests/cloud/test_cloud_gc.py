"""Versions in buckets that are not to be kept go, and what killed commits left."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from content_copies import files
from copies import records

from yogadl.errors import UnsafeStoreError
from yogadl.remote._local import collecting, kept
from yogadl.storage import _kept_versions
from yogadl.storage._buckets import part_collector
from yogadl.storage._disk import contents, scratch

AT_ONCE = datetime.timedelta()


class Killed(BaseException):
    """What a process dies of that is killed: what comes after a request is not done."""


@pytest.fixture(autouse=True)
def dead_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests on loopback are over when who sent them has died."""
    monkeypatch.setattr(part_collector, "DEAD_SECONDS", 0.0)


def open_storage(rig: Any, local: pathlib.Path) -> Any:
    # It is tried out elsewhere.
    return rig.make_storage(local, conditional_writes=True)


def commit(storage: Any, new: Any, version: str) -> None:
    with storage.change("a", "main", version=version) as change:
        change.append(np.asarray(new))


def parts(rig: Any) -> set[str]:
    return {
        pathlib.PurePosixPath(key).stem
        for key in rig.raw.list()
        if "/yogadl.parts/" in key and key.endswith(".mdb")
    }


def needed(storage: Any) -> set[str]:
    found = set()
    for stored in storage.list():
        with storage.fetch(stored.dataset_id, stored.dataset_version) as ref:
            found |= {digest.hex() for digest in ref.reader.parts_by_digest()}
    return found


def versions(storage: Any) -> list[str]:
    return [entry.dataset_version for entry in storage.list("a")]


def first(storage: Any) -> None:
    storage.submit(np.arange(100), "a", "1")
    storage.tag("a", "main", "1")


def test_the_last_versions_and_tagged_ones_are_kept(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage, there = open_storage(rig, local), open_storage(rig, elsewhere)
    first(storage)
    for number in range(2, 6):
        commit(storage, [number], str(number))
    with storage.change("a", "main", version="6") as change:
        change.delete(np.arange(100, 104))
    storage.tag("a", "paper", "2")
    would = there.gc(keep_last=1, older_than=AT_ONCE, dry_run=True)
    assert len(versions(storage)) == 6
    assert len(would.parts.removed) == 3
    done = there.gc(keep_last=1, older_than=AT_ONCE)
    assert [one.dataset_version for one in done.versions] == ["1", "3", "4", "5"]
    assert (would.versions, would.parts.removed) == (done.versions, done.parts.removed)
    assert versions(there) == versions(storage) == ["2", "6"]
    assert records(there.fetch("a", "paper")) == [*range(100), 2]
    assert records(there.fetch("a", "main")) == list(range(100))
    assert parts(rig) == needed(storage)
    assert storage.gc(keep_last=0).versions == ()


def test_what_a_killed_commit_published_goes(
    rig: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(rig, local)
    first(storage)

    def killed(*_given: Any) -> None:
        raise Killed

    dying = open_storage(rig, local)
    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(dying._catalogue, "commit", killed)
        commit(dying, [7], "2")
    assert (versions(storage), storage.latest("a")) == (["1"], "1")
    assert storage.gc(keep_last=1, older_than=AT_ONCE).unfinished == ()
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)
    time.sleep(1.1)  # the clock of the bucket may have seconds for its finest unit
    done = storage.gc(keep_last=1, older_than=AT_ONCE)
    assert [one.dataset_version for one in done.unfinished] == ["2"]
    assert (versions(storage), storage.tags("a")) == (["1"], {"main": "1"})
    storage.collect_parts(older_than=AT_ONCE)
    with storage.fetch("a", "main") as ref:
        assert parts(rig) == {digest.hex() for digest in ref.reader.parts_by_digest()}
        assert records(ref) == list(range(100))


def test_scratch_folders_of_killed_changes_go(
    s3: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(s3, local)
    first(storage)
    with storage.change("a", "main", version="2") as change:
        change.append(np.arange(3))
        (own,) = local.rglob("yogadl.scratch.*")
        # What is left of a killed one: the files, and no lock.
        left = own.with_name("yogadl.scratch.left")
        left.mkdir()
        (left / "yogadl.lock").write_bytes(b"")
        monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
        assert storage.gc().scratch == (left,)
        assert own.is_dir()
    assert not list(local.rglob("yogadl.scratch.*"))
    assert records(storage.fetch("a", "2")) == [*range(100), *range(3)]


def test_a_bucket_without_conditional_writes(s3: Any, local: pathlib.Path) -> None:
    storage = s3.make_storage(local, conditional_writes=False)
    storage.submit([1], "a", "1")
    with pytest.raises(UnsafeStoreError):
        storage.gc(keep_last=0, older_than=AT_ONCE)
    assert versions(storage) == ["1"]


def left_by_a_killed_deletion(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a version that is gone, which was of no object any more."""

    def killed(*_given: Any) -> None:
        raise Killed

    storage.submit([1], "b", "1")
    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(kept, "remove", killed)
        storage.delete("b", "1")
    assert not storage.exists("b", "1")


@pytest.mark.parametrize(
    "collects",
    [
        lambda storage: storage.gc(),
        lambda storage: storage.gc("a"),
        lambda storage: storage.collect_parts(),
        lambda storage: storage.collect_parts("none"),
    ],
    ids=["gc", "gc of an id", "collect_parts", "collect_parts of an id"],
)
def test_what_a_killed_deletion_left_on_this_machine_goes(
    s3: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch, collects: Callable[[Any], Any]
) -> None:
    """Of whichever id, and though none has parts."""
    storage = open_storage(s3, local)
    left_by_a_killed_deletion(storage, monkeypatch)
    storage.submit([1, 2], "a", "1")
    stray = files(local)[0].with_name("00.mdb.cells")
    stray.write_bytes(b"1")
    storage.gc(dry_run=True)
    storage.collect_parts(dry_run=True)
    assert (len(files(local)), stray.exists()) == (2, True)
    collects(storage)
    assert (len(files(local)), stray.exists()) == (1, False)
    assert records(storage.fetch("a", "1")) == [1, 2]


def test_copies_do_not_wait_for_conditional_writes(
    s3: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = s3.make_storage(local, conditional_writes=False)
    for collects in (storage.gc, lambda: storage.collect_parts("a")):
        left_by_a_killed_deletion(storage, monkeypatch)
        assert len(files(local)) == 1
        with pytest.raises(UnsafeStoreError):
            collects()
        assert not files(local)


def test_copies_are_collected_once_for_all_ids(
    s3: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by who deletes one of parts."""
    storage = open_storage(s3, local)
    for name in "abc":
        storage.submit(range(100), name, "1", part_bytes=100)
    collect, calls = contents.collect, []
    monkeypatch.setattr(contents, "collect", lambda folder: calls.append(collect(folder)))
    for number, collects in enumerate(
        (storage.gc, storage.collect_parts, lambda: storage.delete("a", "1")), 1
    ):
        collects()
        assert len(calls) == number


def test_who_was_stopped_while_he_removes_copies_is_no_error(
    s3: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(s3, local)
    left_by_a_killed_deletion(storage, monkeypatch)
    monkeypatch.setattr(collecting, "_PATIENCE", 0.1)
    with collecting.settled(files(local)[0].parent.parent, fcntl.LOCK_EX):
        storage.gc()
    assert len(files(local)) == 1
    storage.gc()
    assert not files(local)
