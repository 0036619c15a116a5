"""Data sets of many parts in buckets: what is uploaded and downloaded, and what is missing."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import time
from typing import Any

import numpy as np
import pytest
from copies import records
from faults import Fault, Kind
from processes_ready import READY

from yogadl.cache.parts import PARTS_FOLDER
from yogadl.errors import CacheFormatError
from yogadl.storage import LFSStorage

KEY = "a/1/cache.mdb"
COUNT = 1000
PATIENCE = 60.0


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
    assert storage.list() == []
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
    with pytest.raises(CacheFormatError, match="not what was uploaded"):
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


def fetch(remote: Any, local: pathlib.Path) -> None:
    os.environ.update(remote.env)
    remote.make_storage(local).fetch("a", "1").close()


def test_what_a_killed_download_left_goes_with_the_next_part(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    with rig.slow_requests():
        victim = READY.Process(target=fetch, args=(rig.remote(), elsewhere))
        victim.start()
        end = time.monotonic() + PATIENCE
        while not list(elsewhere.rglob(f"{PARTS_FOLDER}/*.partial")):
            assert time.monotonic() < end
            time.sleep(0.002)
        victim.kill()
        victim.join(PATIENCE)
    assert list(elsewhere.rglob(f"{PARTS_FOLDER}/*.partial"))
    # By now, the part that was being downloaded is none of the version's any more.
    storage.submit(np.arange(COUNT) + 7, "a", "1", part_bytes=5000)
    assert records(rig.make_storage(elsewhere).fetch("a", "1")) == list(range(7, COUNT + 7))
    assert list(elsewhere.rglob("*.partial")) == []


def test_cacheable_uploads_a_damaged_part_anew(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    """Also one that its metadata takes for whole."""
    submit(rig.make_storage(local))
    key = parts(rig)[2]
    data, metadata = rig.raw.get(key), rig.raw.metadata(key)
    rig.raw.put(key, data[:-5000] + bytes(5000), metadata)
    there = rig.make_storage(elsewhere)
    with pytest.raises(CacheFormatError, match="Delete that object and submit"):
        there.fetch("a", "1")
    made = there.cacheable("a", "1", part_bytes=5000)(lambda: np.arange(COUNT))
    assert records(made()) == list(range(COUNT))
    assert rig.raw.get(key) == data


def test_cacheable_does_not_build_for_ever_what_cannot_be_read(
    rig: Any, local: pathlib.Path
) -> None:
    calls = []

    def make() -> Any:
        calls.append(1)
        return np.arange(COUNT)

    made = rig.make_storage(local).cacheable("a", "1", part_bytes=5000)(make)
    with (
        rig.failing(Fault(Kind.ERROR, status=404), "head", key=PARTS_FOLDER + r"/.*\.mdb"),
        pytest.raises(CacheFormatError, match="is not there"),
    ):
        made()
    assert 1 <= len(calls) <= 10
    assert records(made()) == list(range(COUNT))


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


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_whatever_the_umask(
    umask: int, rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    """Copies of parts can be trusted, and are not downloaded twice."""
    submit(rig.make_storage(local))
    before = os.umask(umask)
    try:
        there = rig.make_storage(elsewhere)
        assert records(there.fetch("a", "1")) == list(range(COUNT))
        with rig.counting() as requests:
            there.fetch("a", "1").close()
    finally:
        os.umask(before)
    assert len(requests) == 1
    assert not any(path.stat().st_mode & stat.S_IWOTH for path in here(elsewhere))
