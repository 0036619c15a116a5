"""``list``, ``delete`` and ``copy`` of the local storage."""

from __future__ import annotations

import datetime
import pathlib

import numpy as np
import pytest

from yogadl.errors import CacheNotFoundError, ChecksumError, InvalidArgumentError
from yogadl.storage import LFSConfigurations, LFSStorage

LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "images.mdb"


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    return LFSStorage(LFSConfigurations(storage_dir))


@pytest.fixture
def other(tmp_path: pathlib.Path) -> LFSStorage:
    (tmp_path / "other").mkdir()
    return LFSStorage(LFSConfigurations(tmp_path / "other"))


def listed(storage: LFSStorage, dataset_id: str | None = None) -> list[tuple[str, str]]:
    return [(v.dataset_id, v.dataset_version) for v in storage.list(dataset_id)]


def test_versions_are_listed(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    assert listed(storage) == []
    for name, version in (("b", "1"), ("a", "2"), ("a", "1"), ("a/c", "1"), ("a/c/d", "9")):
        storage.submit([1], name, version)
    (storage_dir / "stray.txt").write_text("")
    (storage_dir / "empty" / "1").mkdir(parents=True)
    assert listed(storage) == [("a", "1"), ("a", "2"), ("a/c", "1"), ("a/c/d", "9"), ("b", "1")]
    assert listed(storage, "a") == [("a", "1"), ("a", "2")]
    assert listed(storage, "a/c") == [("a/c", "1")]
    assert listed(storage, "z") == []
    found = storage.list("b")[0]
    assert found.size == (storage_dir / "b" / "1" / "cache.mdb").stat().st_size
    assert found.created.tzinfo is datetime.timezone.utc
    with pytest.raises(InvalidArgumentError):
        storage.list("../a")


def test_a_deleted_version_is_gone_and_readers_keep_it(storage: LFSStorage) -> None:
    make = storage.cacheable("a", "1")(lambda: np.arange(100))
    ref = make()
    storage.delete("a", "1")
    assert [int(record) for record in ref.stream()] == list(range(100))
    with pytest.raises(CacheNotFoundError):
        storage.fetch("a", "1")
    with pytest.raises(FileNotFoundError, match="no data set 'a'"):
        storage.delete("a", "1")
    assert listed(storage) == []
    assert len(make()) == 100


def test_a_copy_is_the_same_to_the_byte(
    storage: LFSStorage, other: LFSStorage, tmp_path: pathlib.Path
) -> None:
    storage.submit(np.arange(5000), "a", "1", metadata={"k": [1]})
    storage.copy("a", "1", other)
    storage.copy("a", "1", other, new_id="x/y", new_version="2")
    storage.copy("a", "1", storage, new_version="3")
    whole = (tmp_path / "storage" / "a" / "1" / "cache.mdb").read_bytes()
    for path in ("other/a/1", "other/x/y/2", "storage/a/3"):
        assert (tmp_path / path / "cache.mdb").read_bytes() == whole
    assert other.fetch("x/y", "2").metadata == {"k": [1]}


def test_a_cache_of_0_1_4_is_copied_as_it_is(
    storage: LFSStorage, other: LFSStorage, storage_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = storage_dir / "old" / "1"
    folder.mkdir(parents=True)
    (folder / "cache.mdb").write_bytes(LEGACY.read_bytes())
    storage.copy("old", "1", other)
    assert (tmp_path / "other" / "old" / "1" / "cache.mdb").read_bytes() == LEGACY.read_bytes()


def test_nothing_damaged_or_missing_is_copied(
    storage: LFSStorage, other: LFSStorage, storage_dir: pathlib.Path
) -> None:
    other.submit([1, 2], "a", "1")
    with pytest.raises(CacheNotFoundError):
        storage.copy("a", "1", other)
    storage.submit(np.arange(5000), "a", "1")
    path = storage_dir / "a" / "1" / "cache.mdb"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ChecksumError):
        storage.copy("a", "1", other)
    with pytest.raises(InvalidArgumentError):
        storage.copy("a", "1", other, new_id="..")
    with pytest.raises(InvalidArgumentError, match="copy needs"):
        storage.copy("a", "1", object())  # type: ignore[arg-type]
    assert [int(record) for record in other.fetch("a", "1").stream()] == [1, 2]
