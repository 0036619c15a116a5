"""``diff`` says which records stand in for which, beside those that come and go."""

from __future__ import annotations

import functools
import itertools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage
from yogadl.storage._commits.change import Change

Record = dict[str, Any]
Records = list[Record]


class Author:
    """Makes commits of which it is known what became of each record: its ``id`` stays.

    Args:
        data: draws what they do.
    """

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._numbers = itertools.count()

    def new(self, count: int) -> Records:
        """Records that there were not before."""
        return [self.valued(next(self._numbers)) for _ in range(count)]

    def valued(self, number: int) -> Record:
        """A record with a value that none had before."""
        return {"id": np.int64(number), "value": np.int64(next(self._numbers))}

    def commit(self, storage: LFSStorage, records: Records, branch: str, name: str) -> Records:
        """A new version; its records. Changes are told by positions in the one before."""
        draw = self._data.draw
        what = st.sampled_from(["stays", "stays", "goes", "is another"])
        fates = draw(st.lists(what, min_size=len(records), max_size=len(records)))
        inserted: list[Records] = [[] for _ in range(len(records) + 1)]
        for at in draw(st.sets(st.integers(0, len(records)), max_size=3)):
            inserted[at] = self.new(draw(st.integers(1, 3)))
        gone = [at for at, fate in enumerate(fates) if fate == "goes"]
        others = {
            at: self.valued(int(records[at]["id"]))
            for at, fate in enumerate(fates)
            if fate == "is another"
        }
        steps: list[Callable[[Change], None]] = [
            lambda change: change.delete(gone),
            lambda change: change.replace(list(others), list(others.values())),
        ]
        for at, added in enumerate(inserted):
            if added:
                steps.append(functools.partial(Change.insert, position=at, data=added))
        with storage.change("d", branch, version=name) as change:
            for step in draw(st.permutations(steps)):
                step(change)
        after: Records = []
        for at, added in enumerate(inserted):
            after += added
            if at < len(records) and fates[at] != "goes":
                after.append(others.get(at, records[at]))
        return after


def check(storage: LFSStorage, versions: dict[str, Records], one: str, two: str) -> None:
    """Sees that a diff of two versions tells them by the ids of their records."""
    found = storage.diff("d", one, two)
    before, after = (
        {int(record["id"]): (at, int(record["value"])) for at, record in enumerate(versions[it])}
        for it in (one, two)
    )
    both = before.keys() & after.keys()
    assert found.deleted.tolist() == sorted(before[it][0] for it in before.keys() - both)
    assert found.added.tolist() == sorted(after[it][0] for it in after.keys() - both)
    changed = sorted((before[it][0], after[it][0]) for it in both if before[it][1] != after[it][1])
    assert list(map(tuple, found.changed.T.tolist())) == changed
    assert found.components == ({"value": len(changed)} if changed else {})


@given(st.data())
def test_records_stand_in_for_those_whose_place_they_took(data: st.DataObject) -> None:
    author = Author(data)
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        records = author.new(data.draw(st.integers(1, 6)))
        storage.submit(records, "d", "0")
        storage.tag("d", "main", "0")
        versions = {"0": records}
        for number in range(1, data.draw(st.integers(2, 4))):
            records = author.commit(storage, records, "main", str(number))
            versions[str(number)] = records
            if data.draw(st.booleans()):
                # What was taken back makes no difference.
                with storage.change("d", "main", version=f"{number} more") as change:
                    change.append(author.new(1))
                back = storage.revert("d", f"{number} more", on="main", version=f"{number} again")
                versions[back] = records
        for one, two in itertools.product(versions, repeat=2):
            check(storage, versions, one, two)


@given(st.data())
def test_so_they_do_across_branches_of_which_one_has_other_components(data: st.DataObject) -> None:
    author = Author(data)
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        versions = {"0": author.new(data.draw(st.integers(1, 5)))}
        storage.submit(versions["0"], "d", "0")
        for branch in ("one", "two"):
            storage.tag("d", branch, "0")
            records = versions["0"]
            for number in range(data.draw(st.integers(0, 2))):
                records = author.commit(storage, records, branch, f"{branch} {number}")
                versions[f"{branch} {number}"] = records
        with storage.change("d", "two", version="wide") as change:
            # Of no records, no function could say what it makes.
            change.add("more", lambda record: record["id"] * 2, spec=TensorSpec("int64", ()))
        versions["wide"] = versions[storage.log("d", "wide")[1].dataset_version]
        for name in versions:
            check(storage, versions, name, "wide")
            check(storage, versions, "wide", name)


@given(st.data())
def test_what_is_put_back_stands_where_it_stood(data: st.DataObject) -> None:
    """Commits, and those that take back the one before, which may have taken back another."""
    author = Author(data)
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        records = author.new(data.draw(st.integers(1, 5)))
        storage.submit(records, "d", "0")
        storage.tag("d", "main", "0")
        versions, before = {"0": records}, records
        for number in range(1, data.draw(st.integers(3, 6))):
            name = str(number)
            has_made_one = len(versions) > 1
            if has_made_one and data.draw(st.booleans()):
                head = storage.tags("d")["main"]
                name = storage.revert("d", head, on="main", version=name)
                before, records = records, before
            else:
                before, records = records, author.commit(storage, records, "main", name)
            versions[name] = records
        with storage.change("d", "main", version="wide") as change:
            change.add("more", lambda record: record["id"] * 2, spec=TensorSpec("int64", ()))
        versions["wide"] = records
        for one, two in itertools.product(versions, repeat=2):
            check(storage, versions, one, two)


@pytest.mark.parametrize("is_changed_first", [True, False])
def test_what_is_put_back_is_changed_as_before(
    storage_dir: pathlib.Path, is_changed_first: bool
) -> None:
    storage = LFSStorage(storage_dir)
    storage.submit({"id": np.arange(4), "a": np.arange(4)}, "d", "1")
    storage.tag("d", "main", "1")

    def update() -> None:
        with storage.change("d", "main", version="updated") as change:
            change.update(lambda record: {**record, "a": record["a"] + 10}, [1])

    if is_changed_first:
        update()
    with storage.change("d", "main", version="less") as change:
        change.delete([1])
    storage.revert("d", "less", on="main")
    if not is_changed_first:
        update()
    for before, after in (("1", "main"), ("main", "1")):
        found = storage.diff("d", before, after)
        assert (len(found.added), len(found.deleted)) == (0, 0)
        assert found.changed.tolist() == [[1], [1]]
    with storage.change("d", "main", version="dropped") as change:
        change.drop("a")
    # Of what both have, nothing is another.
    found = storage.diff("d", "1", "dropped")
    assert (len(found.added), len(found.deleted), found.changed.shape) == (0, 0, (2, 0))
