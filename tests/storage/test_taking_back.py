"""Commits are taken back one after the other, and what others have inserted stays where it was."""

from __future__ import annotations

import itertools
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from changed import make_versions
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.errors import CacheNotFoundError, ConflictError
from yogadl.storage import LFSStorage


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    made = LFSStorage(str(storage_dir))
    made.submit({"n": np.arange(6)}, "a", "1")
    made.tag("a", "main", "1")
    return made


def rows(*numbers: int) -> list[Any]:
    return [{"n": np.int64(number)} for number in numbers]


def numbers(storage: LFSStorage, name: str = "main") -> list[int]:
    with storage.fetch("a", name) as ref:
        ref.verify()
        return [int(record["n"]) for record in ref.stream()]


def more(record: Any) -> Any:
    return {"n": np.int64(record["n"] + 100)}


@given(st.data())
@settings(max_examples=20)
def test_all_can_be_taken_back_from_the_last_on_and_made_again(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        known = make_versions(storage, data, 4)
        names = list(known)
        with storage.fetch("a", names[-1]) as ref:
            touched = ref.metadata
        undone = []
        for parent, name in reversed(list(itertools.pairwise(names))):
            if data.draw(st.booleans()):
                storage.compact("a", data.draw(st.sampled_from([name, "main"])))
            undone.append((storage.revert("a", name, on="main"), known[name]))
            with storage.fetch("a", "main") as ref, storage.fetch("a", parent) as before:
                known[parent].check(ref)
                assert ref.reader.content_id == before.reader.content_id
                assert ref.metadata == before.metadata
        for name, model in reversed(undone):
            storage.revert("a", name, on="main")
            with storage.fetch("a", "main") as ref:
                model.check(ref)
        with storage.fetch("a", "main") as ref:
            assert ref.metadata == touched
            ref.verify()


def test_a_change_of_components_is_taken_back_when_what_follows_was(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.add("k", np.arange(6))
    with storage.change("a", "main", version="3") as change:
        change.replace([1], [{"n": np.int64(9), "k": np.int64(9)}])
    with pytest.raises(ConflictError, match="components are changed"):
        storage.revert("a", "2", on="main")
    storage.set_metadata("a", "main", {"x": 1})
    storage.revert("a", "3", on="main")
    storage.revert("a", "2", on="main")
    with storage.fetch("a", "main") as ref:
        assert set(ref.spec) == {"n"}
        assert ref.metadata == {"x": 1}
    assert numbers(storage) == list(range(6))


@pytest.mark.parametrize("is_first", [False, True])
def test_what_is_inserted_among_updated_records_stays_there(
    storage: LFSStorage, is_first: bool
) -> None:
    """Each of them stands in for one."""
    with storage.change("a", "main") as change:
        if is_first:
            change.update(more)
        else:
            change.insert(1, rows(-1))
        with storage.change("a", "main") as other:
            if is_first:
                other.insert(1, rows(-1))
            else:
                other.update(more)
    assert numbers(storage) == [100, -1, 101, 102, 103, 104, 105]


def test_what_was_inserted_stays_when_an_update_is_taken_back(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.update(more)
    with storage.change("a", "main", version="3") as change:
        change.insert(1, rows(-1))
    storage.revert("a", "2", on="main")
    assert numbers(storage) == [0, -1, 1, 2, 3, 4, 5]


def test_an_insertion_behind_several_commits(storage: LFSStorage) -> None:
    """All of what they have changed is one range, in which more records stand than before."""
    with storage.change("a", "main") as change:
        change.insert(3, rows(-3))
        with storage.change("a", "main") as other:
            other.update(more)
        with storage.change("a", "main") as other:
            other.insert(1, rows(-1))
        with storage.change("a", "main") as other:
            other.delete([5])
    assert numbers(storage) == [100, -1, 101, 102, -3, 103, 105]


@pytest.mark.parametrize("order", list(itertools.permutations("234")))
def test_neighbours_that_were_deleted_come_back_in_order(
    storage: LFSStorage, order: tuple[str, ...]
) -> None:
    for version in "234":
        with storage.change("a", "main", version=version) as change:
            change.delete([0])
    for version in order:
        storage.revert("a", version, on="main")
    assert numbers(storage) == list(range(6))


def test_metadata_of_another_commit_of_the_name_are_not_taken_back(
    storage: LFSStorage, tmp_path: pathlib.Path
) -> None:
    other = LFSStorage(str(tmp_path / "other"))
    storage.copy("a", "1", other)
    other.tag("a", "main", "1")
    storage.set_metadata("a", "main", {"x": 1}, version="2")
    storage.set_metadata("a", "main", {"k": 1}, version="3")
    other.set_metadata("a", "main", {"x": 1, "y": 2}, version="2")
    other.copy("a", "2", storage)
    with pytest.raises(ConflictError, match="does not follow from '2'"):
        storage.revert("a", "2", on="main")
    assert storage.fetch("a", "main").metadata == {"x": 1, "k": 1}


def test_a_branch_at_a_version_that_was_deleted_is_told(storage: LFSStorage) -> None:
    for version in "23":
        with storage.change("a", "main", version=version) as change:
            change.append(rows(9))
    storage.delete("a", "3", force=True)
    with pytest.raises(CacheNotFoundError, match=r"the tag 'main' is at .*; move the tag"):
        storage.revert("a", "2", on="main")
