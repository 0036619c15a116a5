"""Lists, copies between storages, and deleting."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import numpy as np
import pytest

from yogadl.errors import InvalidArgumentError
from yogadl.storage import CacheStorage, LFSConfigurations, LFSStorage


def listed(storage: CacheStorage, dataset_id: str | None = None) -> list[tuple[str, str]]:
    return [(v.dataset_id, v.dataset_version) for v in storage.list(dataset_id)]


@pytest.mark.parametrize("folder", ["", "data", "deep/er"])
def test_versions_are_listed(folder: str, rig: Any, storage_dir: pathlib.Path) -> None:
    storage = rig.make_storage(storage_dir, bucket_directory_path=folder)
    assert listed(storage) == []
    for name, version in (("b", "1"), ("a", "2"), ("a", "1"), ("a/c", "1"), ("ab", "ü ?")):
        storage.submit([1], name, version)
    prefix = f"{folder}/" if folder else ""
    rig.raw.put(f"{prefix}a/1/other.txt", b"not ours")
    rig.raw.put(f"{prefix}cache.mdb", b"without id and version")
    assert listed(storage) == [("a", "1"), ("a", "2"), ("a/c", "1"), ("ab", "ü ?"), ("b", "1")]
    assert listed(storage, "a") == [("a", "1"), ("a", "2")]
    found = storage.list("b")[0]
    assert found.size == len(rig.raw.get(f"{prefix}b/1/cache.mdb"))
    assert found.created == rig.raw.created(f"{prefix}b/1/cache.mdb")
    with pytest.raises(InvalidArgumentError):
        storage.list("../a")


def test_more_versions_than_one_answer_holds(rig: Any, storage_dir: pathlib.Path) -> None:
    storage = rig.make_storage(storage_dir)
    storage.submit([1], "a", "1")
    data = rig.raw.get("data/a/1/cache.mdb")
    for number in range(2, 1051):
        rig.raw.put(f"data/a/{number}/cache.mdb", data[:1])
    assert len(storage.list("a")) == 1050


def test_copies_between_all_kinds_are_the_same_to_the_byte(
    s3: Any, gcs: Any, tmp_path: pathlib.Path
) -> None:
    for name in ("disk", "s3", "gcs"):
        (tmp_path / name).mkdir()
    storages = {
        "disk": LFSStorage(LFSConfigurations(tmp_path / "disk")),
        "s3": s3.make_storage(tmp_path / "s3"),
        "gcs": gcs.make_storage(tmp_path / "gcs"),
    }
    for name, storage in storages.items():
        storage.submit(np.arange(3000), name, "1", metadata={"from": name})
    for (name, storage), other in itertools.product(storages.items(), storages.values()):
        storage.copy(name, "1", to=other, new_version="2")
        copied, original = other.fetch(name, "2"), storage.fetch(name, "1")
        assert copied.metadata == {"from": name}
        assert copied.info.digest == original.info.digest
        copied.verify()
    assert s3.raw.get("data/gcs/2/cache.mdb") == gcs.raw.get("data/gcs/1/cache.mdb")
    assert gcs.raw.metadata("data/s3/2/cache.mdb") == s3.raw.metadata("data/s3/1/cache.mdb")
