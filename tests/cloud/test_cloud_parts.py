"""Data sets of many parts in buckets: what is uploaded and downloaded, and what is missing."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import numpy as np
import pytest
from copies import records

from yogadl.cache.parts import PARTS_FOLDER
from yogadl.errors import CacheFormatError
from yogadl.storage import LFSStorage

KEY = "a/1/cache.mdb"
COUNT = 1000


def parts(rig: Any) -> list[str]:
    return [key for key in rig.raw.list() if f"/{PARTS_FOLDER}/" in key and key.endswith(".mdb")]


def here(local: pathlib.Path) -> set[pathlib.Path]:
    return set(local.rglob(f"{PARTS_FOLDER}/*.mdb"))


def submit(storage: Any, count: int = COUNT, version: str = "1") -> None:
    storage.submit(np.arange(count), "a", version, part_bytes=5000)


def test_parts_are_uploaded_and_read_elsewhere(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    assert len(parts(rig)) > 5
    # What was built needs no room here any more.
    assert not here(local)
    there = rig.make_storage(elsewhere)
    assert records(there.fetch("a", "1")) == list(range(COUNT))
    assert len(here(elsewhere)) == len(parts(rig))
    there.fetch("a", "1", check_records=True).verify()
    with rig.counting() as requests:
        there.fetch("a", "1").close()
    assert len(requests) == 1


def test_versions_share_parts(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    before = parts(rig)
    submit(storage, COUNT + 100, "2")
    added = set(parts(rig)) - set(before)
    assert 1 <= len(added) <= 2
    there = rig.make_storage(elsewhere)
    there.fetch("a", "1").close()
    kept = {path: path.stat().st_mtime_ns for path in here(elsewhere)}
    assert records(there.fetch("a", "2")) == list(range(COUNT + 100))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_build_that_broke_off_goes_on_with_what_is_missing(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)

    def breaking() -> Any:
        yield from range(2500)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        storage.submit(breaking(), "a", "1", part_bytes=5000)
    assert storage.list_versions() == []
    made = {key: rig.raw.tag(key) for key in parts(rig)}
    created = {key: rig.raw.created(key) for key in made}
    assert made
    storage.submit((n for n in range(3000)), "a", "1", part_bytes=5000)
    assert {key: rig.raw.tag(key) for key in made} == made
    assert {key: rig.raw.created(key) for key in made} == created
    assert records(storage.fetch("a", "1")) == list(range(3000))


def test_a_part_that_is_missing_or_damaged(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    key = parts(rig)[2]
    data = rig.raw.get(key)
    rig.raw.delete(key)
    there = rig.make_storage(elsewhere)
    with pytest.raises(CacheFormatError, match="is not there; submit the data set again"):
        there.fetch("a", "1")
    rig.raw.put(key, data[:-5000] + bytes(5000))
    with pytest.raises(Exception, match="not what was uploaded"):
        there.fetch("a", "1")
    rig.raw.put(key, data)
    assert records(there.fetch("a", "1")) == list(range(COUNT))
    # What is damaged or gone here is fetched again.
    one, two, *_ = sorted(here(elsewhere))
    one.unlink()
    two.write_bytes(two.read_bytes()[:-4096])
    assert records(there.fetch("a", "1")) == list(range(COUNT))
    flipped = bytearray(two.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    two.write_bytes(flipped)
    assert records(there.fetch("a", "1", check_records=True)) == list(range(COUNT))


def test_cacheable_in_parts(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    calls = []

    def make(storage: Any) -> Any:
        @storage.cacheable("a", "1", part_bytes=5000)
        def made() -> Any:
            calls.append(1)
            return np.arange(COUNT)

        return made

    assert records(make(rig.make_storage(local))()) == list(range(COUNT))
    assert records(make(rig.make_storage(elsewhere))()) == list(range(COUNT))
    assert calls == [1]
    shutil.rmtree(elsewhere / "yogadl_local_cache")
    assert records(make(rig.make_storage(elsewhere))()) == list(range(COUNT))
    assert calls == [1]


def test_copies_of_parts(rig: Any, local: pathlib.Path, tmp_path: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    folder = tmp_path / "lfs"
    disk = LFSStorage(folder)
    storage.copy("a", "1", disk)
    disk.fetch("a", "1").verify()
    disk.copy("a", "1", storage, new_version="2")
    assert records(storage.fetch("a", "2")) == list(range(COUNT))
