"""A data set that is one plain file is stored once in a bucket, too, when it is changed."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from yogadl.errors import AccessDeniedError, CacheReplacedError, ConflictError, StoreError
from yogadl.storage import LFSStorage

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


def append(storage: Any, version: str = "2") -> None:
    with storage.change("digits", "main", version=version) as change:
        change.append(NEW)


def stored(rig: Any) -> int:
    return sum(len(rig.raw.get(key)) for key in rig.raw.list())


def parts(rig: Any) -> list[str]:
    return [key for key in rig.raw.list() if "/yogadl.parts/" in key and key.endswith(".mdb")]


def received(requests: Any) -> int:
    return sum(it.received for it in requests)


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


def test_what_is_here_does_not_come_again(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage, there = rig.make_storage(local), rig.make_storage(elsewhere)
    begin(storage)
    check(there.fetch("digits", "1"))
    append(storage)
    with rig.counting() as requests:
        for version in ("1", "2"):
            there.fetch("digits", version).verify()
            check(there.fetch("digits", version))
    assert received(requests) < CHANGE
    # Once both are tables, nobody needs the plain file.
    there.local.prune(0)
    check(there.fetch("digits", "2"))


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
