"""Storages that were copied to a bucket by a program of the store's, whose objects have no
metadata."""

from __future__ import annotations

import datetime
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import yogadl
from yogadl.errors import CacheNotFoundError, ChecksumError, StorageFullError
from yogadl.storage import LFSStorage

NOW = datetime.timedelta(0)
GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"
LEGACY = sorted(path.name for path in GOLDEN.glob("*.mdb"))


def _records(count: int = 400, begin: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(begin)
    return [
        {"x": rng.integers(0, 256, 500, dtype="u1"), "number": np.int64(begin + at)}
        for at in range(count)
    ]


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> LFSStorage:
    """A table of parts, a commit on it, a plain file and a commit on that."""
    (tmp_path / "origin").mkdir()
    made = LFSStorage(tmp_path / "origin")
    made.submit(_records(), "parts", "1", part_bytes=50_000)
    made.tag("parts", "main", "1")
    with made.change("parts", "main", version="2") as change:
        change.append(_records(10, 1000))
    made.submit(_records(), "plain", "1")
    made.tag("plain", "main", "1")
    return made


@pytest.fixture
def storage(rig: Any, origin: LFSStorage, local: pathlib.Path, tmp_path: pathlib.Path) -> Any:
    put_by_hand(rig, tmp_path / "origin")
    return rig.make_storage(local)


def _numbers(ref: Any) -> list[int]:
    return [int(record["number"]) for record in ref.stream()]


NAMES = [("parts", "1"), ("parts", "2"), ("plain", "1")]


def test_they_are_read_and_listed(storage: Any, origin: LFSStorage) -> None:
    def told(made: Any) -> set[tuple[Any, ...]]:
        return {(it.dataset_id, it.dataset_version, it.record_count, it.size) for it in made.list()}

    assert told(storage) == told(origin)
    for names in NAMES:
        wanted = _numbers(origin.fetch(*names))
        for download in (False, True, None):
            assert _numbers(storage.fetch(*names, download=download)) == wanted


def test_what_is_too_large_is_read_where_it_is(
    rig: Any, storage: Any, tmp_path: pathlib.Path
) -> None:
    """A table is as large as its parts."""
    (tmp_path / "limited").mkdir()
    limited = rig.make_storage(tmp_path / "limited", local_cache_bytes=1 << 20)
    for names in NAMES:
        assert isinstance(limited.fetch(*names), yogadl.dataref.RemoteDataRef)


def test_the_newest_stays_the_newest(rig: Any, local: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Whatever was uploaded last: files come in the order of their names, mostly."""
    made = LFSStorage(tmp_path / "many")
    made.submit(_records(10), "d", "1")
    made.tag("d", "main", "1")
    for number in range(2, 13):
        with made.change("d", "main", version=str(number)) as change:
            change.append(_records(1))
    made.untag("d", "main")
    put_by_hand(rig, tmp_path / "many")
    storage = rig.make_storage(local)

    def told(storage: Any) -> list[Any]:
        would_go = storage.gc("d", keep_last=3, older_than=NOW, dry_run=True).versions
        return [storage.latest("d"), [it.dataset_version for it in would_go]]

    assert told(storage) == told(made) == ["12", [str(number) for number in range(1, 10)]]
    # What is stored there now is newer, also what was there before.
    storage.submit(_records(3), "d", "0")
    assert storage.latest("d") == "0"
    storage.delete("d", "5")
    made.copy("d", "5", storage)
    assert storage.latest("d") == "5"
    storage.submit(_records(10), "d", "1")
    assert storage.latest("d") == "1"


def test_the_newest_stays_the_newest_in_another_bucket(
    rig: Any, local: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Though the objects have the same ETags there, in S3."""
    storage = rig.make_storage(local)
    storage.submit(_records(10), "d", "1")
    storage.submit({str(number): np.zeros(2) for number in range(700)}, "d", "2")
    storage.submit(_records(3), "d", "3")
    # Of these, the files are as old as what they are copies of.
    storage.copy("d", "1", storage, new_version="4")
    keys = rig.raw.list("data/")
    oldest_last = sorted(keys, key=lambda key: ("/d/2/" in key, "/d/1/" in key))
    for key in oldest_last:
        if key in oldest_last[-2:]:
            # Buckets tell times by the second.
            time.sleep(1.1)
        rig.raw.put("copy" + key.removeprefix("data"), rig.raw.get(key), rig.raw.metadata(key))
    copied = rig.make_storage(tmp_path, bucket_directory_path="copy")
    for there in (storage, copied):
        assert there.latest("d") == "4"
        would_go = there.gc("d", keep_last=1, older_than=NOW, dry_run=True).versions
        assert [it.dataset_version for it in would_go] == ["1", "2", "3"]
    copied.submit(_records(3), "d", "0")
    assert copied.latest("d") == "0"


def put_by_hand(rig: Any, folder: pathlib.Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            rig.raw.put(f"data/{path.relative_to(folder).as_posix()}", path.read_bytes())


@pytest.mark.parametrize("name", ["parts", "plain"])
def test_they_are_changed(storage: Any, origin: LFSStorage, name: str) -> None:
    with storage.change(name, "main") as change:
        change.append(_records(5, 2000))
        change.delete([0, 7])
    wanted = _numbers(origin.fetch(name, "main"))
    del wanted[7], wanted[0]
    assert _numbers(storage.fetch(name, "main")) == wanted + list(range(2000, 2005))
    storage.compact(name, "main")
    assert _numbers(storage.fetch(name, "main")) == wanted + list(range(2000, 2005))


def test_they_are_copied(storage: Any, origin: LFSStorage, tmp_path: pathlib.Path) -> None:
    (tmp_path / "copied").mkdir()
    copied = LFSStorage(tmp_path / "copied")
    storage.sync(copied)
    for names in NAMES:
        assert _numbers(copied.fetch(*names)) == _numbers(origin.fetch(*names))
        storage.copy(*names, copied, new_id="another", new_version="-".join(names))
        copied.fetch("another", "-".join(names), check_records=True)


def test_nothing_of_them_is_collected(storage: Any, origin: LFSStorage) -> None:
    storage.gc(older_than=NOW)
    storage.delete("parts", "1")
    storage.gc(older_than=NOW)
    assert _numbers(storage.fetch("parts", "2", download=False)) == _numbers(
        origin.fetch("parts", "2")
    )


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "in the first page": lambda data: data[:4096],
    "before the header": lambda data: data[:8192],
    "zeros": lambda data: bytes(len(data)),
    "no header": lambda data: data[:8192] + bytes(4096) + data[12288:],
    "one bit of the magic": lambda data: data[:8208] + bytes([data[8208] ^ 1]) + data[8209:],
    "text": lambda _: b"<Error>not here</Error>" * 1000,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_parts_of_a_damaged_table_stay(storage: Any, rig: Any, damage: str) -> None:
    """They are there when it is put there again."""
    key = "data/parts/1/cache.mdb"
    good = rig.raw.get(key)
    wanted = _numbers(storage.fetch("parts", "1", download=False))
    storage.delete("parts", "2", force=True)
    storage.gc(older_than=NOW)
    rig.raw.put(key, DAMAGE[damage](good))
    done = storage.gc(older_than=NOW)
    assert not done.parts.removed
    assert "parts" in done.parts.skipped
    rig.raw.put(key, good)
    assert _numbers(storage.fetch("parts", "1", download=False)) == wanted


@pytest.mark.parametrize("name", LEGACY)
def test_what_yogadl_0_1_4_wrote_keeps_no_parts(storage: Any, rig: Any, name: str) -> None:
    rig.raw.put("data/parts/old/cache.mdb", (GOLDEN / name).read_bytes())
    for version in ("1", "2"):
        storage.delete("parts", version, force=True)
    done = storage.gc(older_than=NOW)
    assert done.parts.removed
    assert not done.parts.skipped
    assert not [key for key in rig.raw.list("data/parts/yogadl.parts/") if key.endswith(".mdb")]


def test_parts_are_known_to_be_unused_from_when_a_version_is_deleted(
    storage: Any, rig: Any
) -> None:
    storage.delete("parts", "2", force=True)
    storage.delete("parts", "1")
    assert "data/parts/yogadl.parts/yogadl.control" in rig.raw.list()


@pytest.mark.parametrize("version", ["1", "2"])
def test_one_that_is_gone_when_there_is_no_room_for_it(
    rig: Any, storage: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Whether it can be read where it is, nobody can tell any more."""
    limited = rig.make_storage(local, local_cache_bytes=10_000_000)
    limited.fetch("parts", version, download=True).close()

    def full(*_: Any, **__: Any) -> None:
        rig.raw.delete(f"data/parts/{version}/cache.mdb")
        raise StorageFullError("no room")

    monkeypatch.setattr(limited, "_fetch", full)
    with pytest.raises(StorageFullError, match="no room"):
        limited.fetch("parts", version)
    monkeypatch.undo()
    with pytest.raises(CacheNotFoundError):
        limited.fetch("parts", version)


def test_a_part_that_was_left_behind(storage: Any, rig: Any, tmp_path: pathlib.Path) -> None:
    part = next(key for key in rig.raw.list("data/parts/yogadl.parts/") if key.endswith(".mdb"))
    rig.raw.delete(part)
    to = LFSStorage(tmp_path / "to")
    for act in (
        lambda: storage.copy("parts", "1", to),
        lambda: storage.sync(to, "parts", names="1"),
    ):
        with pytest.raises(ChecksumError, match=r"a part of .*data/parts/1.* is not there"):
            act()
    assert not to.exists("parts")
