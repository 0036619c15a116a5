"""A data set that is one plain file is stored once in a bucket, too, when it is changed."""

from __future__ import annotations

import datetime
import fcntl
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

from yogadl.errors import AccessDeniedError, CacheReplacedError, ConflictError, StoreError
from yogadl.storage import LFSStorage
from yogadl.storage._buckets.conditions import ConditionalWrites
from yogadl.storage._buckets.parts import BucketParts

COUNT, MORE, SIDE = 300, 10, 64
# Of what is appended, with all tables.
CHANGE = 250_000
KEY = "data/digits/1/cache.mdb"


def pictures(seed: int = 1, count: int = COUNT) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (count, SIDE, SIDE), "uint8")
    return {"image": image, "label": rng.integers(0, 10, count)}


FIRST, NEW = pictures(), pictures(2, MORE)


def begin(storage: Any, **told: Any) -> None:
    storage.submit(FIRST, "digits", "1", **told)
    storage.tag("digits", "main", "1")


def append(storage: Any, version: str = "2", on: str = "main") -> None:
    with storage.change("digits", on, version=version) as change:
        change.append(NEW)


def stored(rig: Any) -> int:
    return sum(len(rig.raw.get(key)) for key in rig.raw.list())


def parts(rig: Any) -> list[str]:
    return [key for key in rig.raw.list() if "/yogadl.parts/" in key and key.endswith(".mdb")]


def received(requests: Any) -> int:
    return sum(it.received for it in requests)


def is_closed(directory: pathlib.Path) -> bool:
    """Whether nobody has open what is kept; what is fetched last is for a moment."""
    for path in directory.rglob("yogadl.objects/*.mdb"):
        with path.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


def check(ref: Any, first: dict[str, Any] = FIRST) -> None:
    """Compares the records that the first version had."""
    records = list(ref.stream())[:COUNT]
    for name, values in first.items():
        np.testing.assert_array_equal(np.stack([record[name] for record in records]), values)


def test_the_first_commit_stores_only_what_is_new(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage, metadata={"license": "CC0"})
    (entry,) = storage.list("digits")
    content_id, before = storage.fetch("digits", "1").reader.content_id, stored(rig)
    append(storage)
    assert stored(rig) < before + CHANGE
    found = storage.fetch("digits", "1")
    assert (found.metadata, found.reader.content_id) == ({"license": "CC0"}, content_id)
    check(found)
    first, second = storage.list("digits")
    assert (first.created, first.record_count) == (entry.created, COUNT)
    assert (second.dataset_version, storage.latest("digits")) == ("2", "2")
    assert [it.dataset_version for it in storage.log("digits", "main")] == ["2", "1"]
    assert len(storage.diff("digits", "1", "2").added) == MORE


@pytest.mark.parametrize("gone", ["1", "2"])
def test_either_version_goes_first(rig: Any, local: pathlib.Path, gone: str) -> None:
    storage = rig.make_storage(local)
    begin(storage)
    append(storage)
    storage.tag("digits", "main", "1" if gone == "2" else "2")
    storage.delete("digits", gone)
    storage.collect_parts("digits")
    (left,) = {"1", "2"} - {gone}
    check(storage.fetch("digits", left))
    storage.fetch("digits", left).verify()


def test_a_commit_that_is_given_up_leaves_the_version(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage)
    before = stored(rig)
    with pytest.raises(ZeroDivisionError), storage.change("digits", "main"):
        raise ZeroDivisionError
    assert stored(rig) < before + CHANGE / 2
    assert [it.dataset_version for it in storage.list("digits")] == ["1"]
    check(storage.fetch("digits", "1"))


def test_who_reads_it_from_afar_goes_on(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    begin(storage)
    ref = rig.make_storage(elsewhere).fetch("digits", "1", download=False)
    stream = ref.stream(shuffle=True, shuffle_seed=1)
    records = iter(stream)
    found = [next(records) for _ in range(5)]
    append(storage)
    storage.delete("digits", "1")
    found += records
    order = [np.flatnonzero((FIRST["image"] == it["image"]).all(axis=(1, 2)))[0] for it in found]
    assert sorted(order) == list(range(COUNT))
    ref.close()


def test_who_may_read_nothing_else_is_told(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, quick_retries: None
) -> None:
    storage = rig.make_storage(local)
    begin(storage)
    ref = rig.make_storage(elsewhere).fetch("digits", "1", download=False)
    append(storage)
    for key in parts(rig):
        rig.raw.delete(key)
    with pytest.raises(CacheReplacedError, match=r"1/cache\.mdb"):
        check(ref)
    ref.close()


@pytest.mark.parametrize("after", [("1", "2"), ("2", "1")])
@pytest.mark.parametrize("download", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_what_is_here_does_not_come_again(
    rig: Any,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    before: bool,
    download: bool,
    after: tuple[str, str],
) -> None:
    storage, there = rig.make_storage(local), rig.make_storage(elsewhere)
    begin(storage)
    with there.fetch("digits", "1", download=before) as ref:
        check(ref)
    append(storage)
    wait_until(lambda: is_closed(elsewhere))
    with rig.counting() as requests:
        for version in after:
            with there.fetch("digits", version, download=download) as ref:
                check(ref)
    # The beginnings of two tables are read from afar.
    assert received(requests) < CHANGE + (0 if download else 600_000)
    for version in after:
        with there.fetch("digits", version) as ref:
            ref.verify()
    assert not list(elsewhere.rglob("*.partial"))
    size = sum(path.stat().st_size for path in elsewhere.rglob("*.mdb") if not path.is_symlink())
    assert size < 1.3 * FIRST["image"].nbytes * 2


def test_what_is_pinned_stays_so(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage)
    size = storage.list("digits")[0].size
    there = rig.make_storage(elsewhere, local_cache_bytes=size * 5 // 4)
    with there.fetch("digits", "1", download=True) as ref:
        check(ref)
    there.local.pin("digits", "1")
    append(storage)
    for download in (True, None):
        with rig.counting() as requests, there.fetch("digits", "1", download=download) as ref:
            check(ref)
        assert received(requests) < CHANGE
    (kept,) = there.local.list()
    assert kept.is_pinned


def test_what_is_open_stays_where_it_is(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage, there = rig.make_storage(local), rig.make_storage(elsewhere)
    begin(storage)
    with there.fetch("digits", "1") as ref:
        append(storage)
        with rig.counting() as requests:
            for version in ("1", "2"):
                check(there.fetch("digits", version))
        assert received(requests) < CHANGE
        check(ref)


def test_what_is_here_and_damaged_comes_again(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage, there = rig.make_storage(local), rig.make_storage(elsewhere)
    begin(storage)
    check(there.fetch("digits", "1"))
    append(storage)
    (path,) = elsewhere.rglob("yogadl.objects/*.mdb")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    check(there.fetch("digits", "2"))
    there.fetch("digits", "2").verify()


def test_it_is_stored_once_where_it_is_brought_to(
    rig: Any, local: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    disk, storage = LFSStorage(tmp_path / "disk"), rig.make_storage(local)
    begin(disk)
    disk.sync(storage)
    before = stored(rig)
    append(disk)
    with rig.counting() as requests:
        assert [it.dataset_version for it in disk.sync(storage).versions] == ["2"]
    assert sum(it.sent for it in requests) < CHANGE
    assert stored(rig) < before + CHANGE
    for version in ("1", "2"):
        check(storage.fetch("digits", version))
    assert disk.sync(storage).versions == storage.sync(disk).versions == ()


def test_large_files_are_taken_too(s3: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """What was uploaded in parts has a checksum of theirs, which is not that of a copy."""
    storage = s3.make_storage(local)
    values = np.random.default_rng(1).integers(0, 256, (3000, 8000), "u1")
    storage.submit({"x": values}, "digits", "1")
    storage.tag("digits", "main", "1")
    with storage.change("digits", "main", version="2") as change:
        change.append({"x": values[:2]})
    there = s3.make_storage(elsewhere)
    for version in ("1", "2"):
        found = there.fetch("digits", version, download=True)
        np.testing.assert_array_equal(found.read(range(3000))["x"], values)


def test_a_bucket_that_copies_anything(
    rig: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might copy the table in place of the file, had this machine been slow."""
    monkeypatch.setattr(ConditionalWrites, "bind_copies", lambda *_: False)
    monkeypatch.setattr(BucketParts, "take", None)
    storage = rig.make_storage(local)
    begin(storage)
    before = stored(rig)
    append(storage)
    assert stored(rig) < before + CHANGE
    for version in ("1", "2"):
        check(storage.fetch("digits", version))


@pytest.mark.parametrize("binds", [True, False])
def test_copies_are_tried_out(
    rig: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch, binds: bool
) -> None:
    storage = rig.make_storage(local)
    store, conditions = storage._store, storage._conditions
    if not binds:
        copy = type(store).copy

        def copied(store: Any, info: Any, key: str, metadata: Any) -> None:
            copy(store, store.head(info.key), key, metadata)

        monkeypatch.setattr(type(store), "copy", copied)
    assert conditions.bind_copies("data/digits/1/cache.mdb") == binds
    assert not rig.raw.list()


def amid(storage: Any, do: Callable[[], Any]) -> None:
    """Does something between the copy of a plain file and its table, once."""
    make = storage._make_table

    def made(*given: Any) -> None:
        storage._make_table = make
        do()
        make(*given)

    storage._make_table = made


def test_another_takes_its_place_meanwhile(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage, other = rig.make_storage(local), rig.make_storage(elsewhere)
    begin(storage)
    theirs = pictures(3)
    amid(storage, lambda: other.submit(theirs, "digits", "1"))
    with pytest.raises(ConflictError):
        append(storage)
    check(storage.fetch("digits", "1"), theirs)


def test_two_commit_at_once(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    storage, other = rig.make_storage(local), rig.make_storage(elsewhere)
    begin(storage)
    amid(storage, lambda: append(other, "theirs"))
    append(storage, "ours")
    assert [it.dataset_version for it in storage.log("digits", "main")] == ["ours", "theirs", "1"]
    for version, count in (("1", 0), ("theirs", MORE), ("ours", 2 * MORE)):
        found = storage.fetch("digits", version)
        assert len(found) == COUNT + count
        check(found)


def test_who_may_not_replace_it_stores_it_twice(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage)
    before = stored(rig)

    def refuse() -> None:
        raise AccessDeniedError("this object is locked")

    amid(storage, refuse)
    append(storage)
    assert before < stored(rig) / 2
    for version in ("1", "2"):
        check(storage.fetch("digits", version))


def test_what_a_trial_leaves_is_collected(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage)
    append(storage)
    left = [f"data/digits/{folder}/yogadl.probe-{'0' * 32}" for folder in ("1", "yogadl.parts")]
    for key in left:
        rig.raw.put(key, b"after")
    storage.collect_parts("digits")
    assert set(left) < set(rig.raw.list())
    storage.collect_parts("digits", older_than=datetime.timedelta(0))
    assert not [key for key in rig.raw.list() if "probe" in key]
    for version in ("1", "2"):
        check(storage.fetch("digits", version))


def test_a_part_that_was_collected_is_made_anew(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage)

    def refuse() -> None:
        raise AccessDeniedError("this object is locked")

    amid(storage, refuse)
    append(storage)
    storage.tag("digits", "main", "1")
    storage.delete("digits", "2")
    assert storage.collect_parts("digits", older_than=datetime.timedelta(0)).removed
    append(storage)
    for version in ("1", "2"):
        check(storage.fetch("digits", version))


@pytest.mark.parametrize("on", [("main", "main"), ("main", "other"), ("1", "1")])
def test_who_is_slower_finds_a_table(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, on: tuple[str, str]
) -> None:
    storage, other = rig.make_storage(local), rig.make_storage(elsewhere)
    begin(storage)
    storage.tag("digits", "other", "1")
    made = storage._made

    def before(version: Any) -> Any:
        found = made(version)
        storage._made = made
        append(other, "theirs", on[0])
        return found

    storage._made = before
    append(storage, "ours", on[1])
    for version in ("1", "theirs", "ours"):
        check(storage.fetch("digits", version))


def test_who_publishes_nothing_is_no_builder(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage, metadata={"a": 1})

    def refuse() -> None:
        raise AccessDeniedError("this object is locked")

    amid(storage, refuse)
    assert storage.set_metadata("digits", "main", {"a": 1}) == "1"
    assert storage.collect_parts("digits", older_than=datetime.timedelta(0)).skipped == {}


def test_it_fails_amid_that(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    begin(storage)

    def fail() -> None:
        raise StoreError("broken off")

    amid(storage, fail)
    with pytest.raises(StoreError, match="broken off"):
        append(storage)
    check(storage.fetch("digits", "1"))
    append(storage)
    for version in ("1", "2"):
        check(storage.fetch("digits", version))
