"""``storage.set_metadata``: other metadata for the same records."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from yogadl.errors import (
    CacheNotFoundError,
    ConflictError,
    ForeignFileError,
    InvalidArgumentError,
    VersionExistsError,
)
from yogadl.storage import LFSStorage

LEGACY = pathlib.Path(__file__).parents[1] / "golden" / "yogadl-0.1.4" / "images.mdb"
GIVEN = {"license": "?", "draft": True, "nested": {"a": [1, 2]}}


@pytest.fixture(params=[None, 4000], ids=["a plain file", "parts"])
def storage(request: pytest.FixtureRequest, storage_dir: pathlib.Path) -> LFSStorage:
    storage = LFSStorage(storage_dir)
    storage.submit(np.arange(3000), "a", "1", metadata=GIVEN, part_bytes=request.param)
    storage.tag("a", "main", "1")
    return storage


def metadata(storage: LFSStorage, name: str = "main") -> dict[str, Any]:
    with storage.fetch("a", name) as ref:
        assert ref.read([0, 2999]).tolist() == [0, 2999]
        return ref.metadata


def test_only_a_table_is_stored(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    def parts() -> set[pathlib.Path]:
        return {path for path in storage_dir.rglob("*.mdb") if path.name != "cache.mdb"}

    # Of a plain file, another link to it becomes a part.
    before = parts() or {storage_dir / "a" / "1" / "cache.mdb"}
    content_id = storage.fetch("a", "1").reader.content_id
    made = storage.set_metadata("a", "main", {"license": "CC0", "n": (1, None)}, remove=["draft"])
    assert storage.tags("a") == {"main": made}
    assert {path.stat().st_ino for path in parts()} == {path.stat().st_ino for path in before}
    assert metadata(storage) == {"license": "CC0", "n": [1, None], "nested": {"a": [1, 2]}}
    assert metadata(storage, "1") == GIVEN
    entry, _ = storage.log("a", "main")
    assert (entry.content_id, entry.record_count, entry.parents) == (
        content_id,
        3000,
        (("a", "1"),),
    )
    assert entry.own_size == (storage_dir / "a" / made / "cache.mdb").stat().st_size < 50_000
    diff = storage.diff("a", "1", made)
    assert diff.metadata == ("draft", "license", "n")
    assert str(diff).startswith(f"1 → {made}: 3,000 → 3,000 records, 0 added, 0 deleted, 0 changed")
    reverted = storage.revert("a", made, on="main")
    assert storage.log("a", reverted)[0].content_id == content_id
    assert metadata(storage) == GIVEN


def test_only_what_a_commit_has_changed_is_taken_back(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.append([0])
        change.metadata["license"] = "CC0"
    storage.set_metadata("a", "main", {"other": None}, version="3")
    assert storage.diff("a", "2", "3").metadata == ("other",)
    assert storage.revert("a", "main", on="main", version="4", message="no other") == "4"
    assert metadata(storage) == {**GIVEN, "license": "CC0"}
    storage.set_metadata("a", "main", {"draft": False}, version="5")
    storage.revert("a", "2", on="main", version="6")
    assert metadata(storage) == {**GIVEN, "draft": False}
    assert len(storage.fetch("a", "6")) == 3000
    storage.set_metadata("a", "main", {"draft": 1}, version="7")
    with pytest.raises(ConflictError, match="'draft'"):
        storage.revert("a", "5", on="main")
    storage.delete("a", "2")
    with pytest.raises(CacheNotFoundError, match="was made from '2'"):
        storage.revert("a", "3", on="main")


def test_values_that_are_equal_to_python_only_are_others(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.metadata["draft"] = 1
    assert metadata(storage)["draft"] is not True
    assert storage.diff("a", "1", "2").metadata == ("draft",)
    with storage.change("a", "main") as change:
        change.metadata["nested"] = {"a": (1, 2)}
    assert change.version == "2"


def test_what_is_so_already_makes_no_version(storage: LFSStorage) -> None:
    assert storage.set_metadata("a", "main", {"license": "?"}, remove=["none"]) == "1"
    assert storage.set_metadata("a", "main", {}) == "1"
    assert len(storage.list("a")) == 1
    # These are equal to Python, and other values in a file.
    made = storage.set_metadata("a", "main", {"draft": 1})
    assert made != "1"
    assert metadata(storage)["draft"] is not True


def test_on_a_version(storage: LFSStorage) -> None:
    said = {"version": "2", "message": "licensed"}
    assert storage.set_metadata("a", "1", {"license": "CC0"}, **said) == "2"
    assert storage.tags("a") == {"main": "1"}
    assert storage.log("a", "2")[0].message == "licensed"
    with pytest.raises(VersionExistsError):
        storage.set_metadata("a", "1", {"license": "CC0"}, version="2")


def test_what_cannot_be(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    for bad in ({"x": {1}}, {1: 2}, {"__yogadl__": {}}, {"x": float("nan")}, [("x", 1)]):
        with pytest.raises(InvalidArgumentError, match="metadata"):
            storage.set_metadata("a", "main", bad)  # type: ignore[arg-type]
    unfit: list[Any] = [[], "", (), np.array([1, 2])]
    for empty in unfit:
        with pytest.raises(InvalidArgumentError, match="must be a dict"):
            storage.submit([1], "b", "1", metadata=empty)
        with (
            pytest.raises(InvalidArgumentError, match="must be a dict"),
            storage.change("a", "main") as change,
        ):
            change.metadata = empty
    with pytest.raises(InvalidArgumentError, match="'x': both set and removed"):
        storage.set_metadata("a", "main", {"x": 1}, remove=["x"])
    with pytest.raises(InvalidArgumentError, match="message"):
        storage.set_metadata("a", "main", {"x": 1}, message=b"x")  # type: ignore[arg-type]
    with pytest.raises(CacheNotFoundError):
        storage.set_metadata("a", "none", {"x": 1})
    (storage_dir / "old" / "1").mkdir(parents=True)
    (storage_dir / "old" / "1" / "cache.mdb").write_bytes(LEGACY.read_bytes())
    with pytest.raises(ForeignFileError, match="submit what fetch"):
        storage.set_metadata("old", "1", {"x": 1})
    assert len(storage.list("a")) == 1
    assert storage.tags("a") == {"main": "1"}


def meanwhile(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, others: Callable[[LFSStorage], object]
) -> None:
    """Has others commit when the next commit's file is made, and the branch not moved yet."""
    publish, told = storage._publish_new, []

    def once(*arguments: Any) -> Any:
        if not told:
            told.append(True)
            others(LFSStorage(storage._configurations))
        return publish(*arguments)

    monkeypatch.setattr(storage, "_publish_new", once)


def drop_all(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.delete(range(3000))
        change.append(np.array([0, *range(2999), 2999]))


def test_others_come_first(storage: LFSStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(
        storage,
        monkeypatch,
        lambda other: other.set_metadata("a", "main", {"n": 1, "both": 5}, remove=["draft"]),
    )
    storage.set_metadata("a", "main", {"license": "CC0", "both": 5}, remove=["nested"])
    assert metadata(storage) == {"license": "CC0", "n": 1, "both": 5}
    assert len(storage.log("a", "main")) == 3


def test_records_may_change_meanwhile(storage: LFSStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(storage, monkeypatch, drop_all)
    storage.set_metadata("a", "main", {"license": "CC0"})
    with storage.fetch("a", "main") as ref:
        assert ref.read([0, 1, 3000]).tolist() == [0, 0, 2999]
        assert ref.metadata == {**GIVEN, "license": "CC0"}


@pytest.mark.parametrize("others", [{"license": "MIT"}, {"license": None}, {}])
def test_the_second_to_set_a_key_is_told(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, others: dict[str, Any]
) -> None:
    gone = [] if others else ["license"]
    meanwhile(
        storage, monkeypatch, lambda other: other.set_metadata("a", "main", others, remove=gone)
    )
    with pytest.raises(ConflictError, match="the metadata 'license', too"):
        storage.set_metadata("a", "main", {"license": "CC0"})
    assert metadata(storage).get("license", "gone") == others.get("license", "gone")
    assert len(storage.list("a")) == 2


def test_a_change_of_metadata_alone_is_the_same(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.metadata["license"] = "CC0"
    assert metadata(storage) == {**GIVEN, "license": "CC0"}
    assert not storage.diff("a", "1", "main").changed.size
