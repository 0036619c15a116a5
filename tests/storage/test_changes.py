"""Commits: whatever is changed, the version is that of the same records in one file."""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np
import pytest
from changed import make_versions
from hypothesis import given
from hypothesis import strategies as st

from yogadl.storage import LFSStorage
from yogadl.storage._commits import merging


@given(st.data())
def test_changes_are_those_of_a_list(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "MOST_SMALL", data.draw(st.sampled_from([1, 2, 3, 32])))
        storage = LFSStorage(folder)

        def check(version: str) -> None:
            assert storage.tags("a") == {"main": version}

        known = make_versions(storage, data, 6, check)
        for version, expected in known.items():
            with storage.fetch("a", version) as ref:
                expected.check(ref)
                ref.verify()
                storage.submit(expected.records, "plain", version, spec=expected.spec)
                with storage.fetch("plain", version) as plain:
                    expected.check_equal(ref, plain)


def test_records_move_that_lie_scattered(storage_dir: pathlib.Path) -> None:
    storage = LFSStorage(storage_dir)
    rows = np.arange(30_000)
    storage.submit(rows, "a", "0")
    storage.tag("a", "main", "0")
    odd = np.arange(1, len(rows), 2)
    with storage.change("a", "main") as change:
        change.replace(odd, -odd)
    rows[odd] = -odd
    with storage.change("a", "main") as change:
        change.insert(20_000, np.array([7]))
        change.delete([10])
    rows = np.delete(np.insert(rows, 20_000, 7), 10)
    storage.submit(rows, "a", "plain")
    with storage.fetch("a", "main") as ref, storage.fetch("a", "plain") as plain:
        assert np.array_equal(ref.read(range(len(ref))), rows)
        assert ref.reader.content_id == plain.reader.content_id
        ref.verify()


def test_a_long_chain_has_few_parts(storage_dir: pathlib.Path) -> None:
    """Small parts are put together, so that reading stays fast; each version stays what it is."""
    storage = LFSStorage(storage_dir)
    rows = np.arange(50)
    storage.submit(rows, "a", "0", part_bytes=1)
    parts = len(storage.fetch("a", "0").reader.parts_by_digest())
    storage.tag("a", "main", "0")
    chance = np.random.default_rng(1)
    expected = {}
    for number in range(3 * merging.MOST_SMALL):
        place = int(chance.integers(len(rows)))
        with storage.change("a", "main") as change:
            change.replace([place], [np.int64(1000 + number)])
            change.append([np.int64(2000 + number)])
            change.delete([(place + 1) % len(rows)])
        rows = rows.copy()
        rows[place] = 1000 + number
        rows = np.append(np.delete(rows, (place + 1) % len(rows)), 2000 + number)
        expected[change.version] = rows
    for version, wanted in expected.items():
        with storage.fetch("a", version) as ref:
            assert ref.read(np.arange(len(ref))).tolist() == wanted.tolist()
    with storage.fetch("a", "main") as ref:
        assert len(ref.reader.parts_by_digest()) < parts + 2 * merging.MOST_SMALL
    # What was submitted in small parts stays as it is.
    kept = storage.fetch("a", "0").reader.parts_by_digest().keys()
    assert len(kept) == parts
    storage.collect_parts("a")
    storage.fetch("a", "main").verify()


def with_a_component_added(folder: pathlib.Path) -> LFSStorage:
    """A storage whose data set ``b`` has ten records of two column groups, in version 2."""
    storage = LFSStorage(folder)
    storage.submit({"n": np.arange(10)}, "b", "1")
    storage.tag("b", "main", "1")
    with storage.change("b", "main", version="2") as change:
        change.add("m", np.arange(10) * 2)
    return storage


@pytest.mark.parametrize("change", ["some", "all", "less"])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_revert_says_which_records_it_changes(
    storage_dir: pathlib.Path, change: str, is_compacted: bool
) -> None:
    """Also where it cannot tell them by runs of the parts of which the commit was made."""
    storage = with_a_component_added(storage_dir)
    with storage.change("b", "main", version="3") as undone:
        if change == "some":
            undone.replace([4], {"n": np.array([44]), "m": np.array([88])})
        else:
            undone.delete(range(10) if change == "all" else [0, 7])
    if is_compacted:
        storage.compact("b", "3")
    storage.revert("b", "3", on="main", version="4")
    with storage.fetch("b", "4") as ref:
        assert [int(record["n"]) for record in ref.stream()] == list(range(10))
    there, back = storage.diff("b", "2", "3"), storage.diff("b", "3", "4")
    assert there
    assert back
    assert len(there.added) == len(back.deleted)
    assert len(there.deleted) == len(back.added)
    assert len(there.changed) == len(back.changed)


def test_a_change_is_put_behind_a_revert_of_what_was_compacted(
    storage_dir: pathlib.Path,
) -> None:
    storage = with_a_component_added(storage_dir)
    with storage.change("b", "main", version="3") as change:
        change.delete([0])
        change.append({"n": np.array([10]), "m": np.array([20])})
    with storage.change("b", "main", version="5") as change:
        change.delete(lambda record: record["n"] == 5)
        storage.compact("b", "3")
        storage.revert("b", "3", on="main", version="4")
    with storage.fetch("b", "main") as ref:
        numbers = [int(record["n"]) for record in ref.stream()]
    assert numbers == [number for number in range(10) if number != 5]
