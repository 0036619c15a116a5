"""Commits are taken back one after the other, and what others have inserted stays where it was."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from changed import make_versions
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.errors import CacheNotFoundError, ConflictError
from yogadl.storage import LFSStorage
from yogadl.storage._commits import change as change_module
from yogadl.storage._commits import commit, made
from yogadl.storage._commits.lineage import Origins
from yogadl.storage._commits.older import in_old_order
from yogadl.versions.hunks import PARENT, Hunks
from yogadl.versions.runs import Runs


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    begun = LFSStorage(str(storage_dir))
    begun.submit({"n": np.arange(6)}, "a", "1")
    begun.tag("a", "main", "1")
    return begun


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


def test_a_change_of_records_is_taken_back_when_one_of_components_was(storage: LFSStorage) -> None:
    """As docs/versions.md has it."""
    with storage.change("a", "main", version="2") as change:
        change.delete([1])
    with storage.change("a", "main", version="3") as change:
        change.add("k", np.arange(5))
    with pytest.raises(ConflictError, match="components are others"):
        storage.revert("a", "2", on="main")
    storage.revert("a", "3", on="main")
    storage.revert("a", "2", on="main")
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


@pytest.mark.parametrize(
    ("deleted", "taken_back", "order"),
    [
        # What was deleted, put back and deleted again.
        ("00", "2435", [0, 1]),
        # Beside what was put in for another, which was deleted again.
        ("000-40", "23", [0, 1, 3, 4, 5]),
    ],
)
def test_what_is_put_back_again_comes_in_order(
    storage: LFSStorage, deleted: str, taken_back: str, order: list[int]
) -> None:
    names = map(str, itertools.count(2))
    count = 6 if len(deleted) > 2 else 2
    with storage.change("a", "main", version="0") as change:
        change.delete(range(count, 6))
    steps = iter(deleted)
    for step in steps:
        if step == "-":
            storage.revert("a", next(steps), on="main", version=next(names))
        else:
            with storage.change("a", "main", version=next(names)) as change:
                change.delete([int(step)])
    for undone in taken_back:
        storage.revert("a", undone, on="main", version=next(names))
    assert numbers(storage) == order


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_deletions_are_taken_back_in_any_order(data: st.DataObject) -> None:
    """What is there is what no commit that counts has deleted, in the order of the beginning."""
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        count = data.draw(st.integers(2, 12))
        storage.submit(np.arange(count), "b", "1")
        storage.tag("b", "main", "1")
        there, deleted = list(range(count)), dict[str, set[int]]()
        # Of each that can be taken back, the deletion, and whether that counts.
        last: dict[str, tuple[str, bool]] = {}
        for name in map(str, range(2, 2 + data.draw(st.integers(2, 9)))):
            places = data.draw(st.sets(st.integers(0, max(0, len(there) - 1)), max_size=4))
            if there and places and (not last or data.draw(st.booleans())):
                with storage.change("b", "main", version=name) as change:
                    change.delete(sorted(places))
                deleted[name], last[name] = {there[place] for place in places}, (name, True)
            elif last:
                back = data.draw(st.sampled_from(sorted(last)))
                commit, counts = last[back]
                try:
                    storage.revert("b", back, on="main", version=name)
                except ConflictError:
                    others = [deleted[it] for it in deleted.keys() - {commit}]
                    assert deleted[commit] & set[int]().union(*others)
                    continue
                del last[back]
                last[name] = commit, not counts
            gone = set[int]().union(*(deleted[it] for it, counts in last.values() if counts))
            there = [record for record in range(count) if record not in gone]
            with storage.fetch("b", "main") as ref:
                assert [int(record) for record in ref.stream()] == there


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


def test_an_insertion_beside_what_others_deleted_stays_behind_theirs(storage: LFSStorage) -> None:
    """Ours touch each other then, and are still told apart."""
    with storage.change("a", "main") as change:
        change.replace([2, 3], rows(20, 30))
        change.insert(5, rows(99))
        with storage.change("a", "main") as other:
            other.delete([4])
        with storage.change("a", "main") as other:
            other.insert(3, rows(77))
    assert numbers(storage) == [0, 1, 20, 77, 30, 99, 5]


def test_insertions_are_not_taken_for_what_stands_in_for_others(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.delete([2, 3])
        change.insert(5, rows(98, 99))
        with storage.change("a", "main") as other:
            other.delete([4])
        with storage.change("a", "main") as other:
            other.insert(3, rows(77))
    assert numbers(storage) == [0, 1, 77, 98, 99, 5]


@pytest.mark.parametrize("most", [0, 1 << 16])
@pytest.mark.parametrize("place", range(6))
def test_what_was_moved_and_put_back_is_never_taken_for_another(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, most: int, place: int
) -> None:
    """Of commits of very many places, it is not stored which these were."""
    monkeypatch.setattr(made, "MOST_HUNKS", most)
    with contextlib.suppress(ConflictError), storage.change("a", "main") as change:
        change.replace([place], rows(200))
        with storage.change("a", "main", version="C") as other:
            other.submit({"n": np.array([3, 4, 5, 0, 1, 2])})
        storage.revert("a", "C", on="main")
    want = [200 if at == place else at for at in range(6)]
    assert numbers(storage) in (list(range(6)), want)


def _claiming(monkeypatch: pytest.MonkeyPatch, storage: LFSStorage, version: str) -> None:
    """Has all commits say that they take back another one."""
    told = storage._made(storage._version("a", version)).provenance.change
    purpose = functools.partial(commit.Purpose, reverts=told)
    monkeypatch.setattr(change_module, "Purpose", purpose)


def test_what_says_falsely_that_it_takes_back_another_is_not_believed(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:

    def use() -> None:
        with storage.change("a", "main") as change:
            change.replace([1], rows(10))
            with storage.change("a", "main", version="X") as other:
                other.delete([0, 1, 2, 3])
            with monkeypatch.context() as patch:
                _claiming(patch, storage, "X")
                with storage.change("a", "main") as other:
                    other.append(rows(100, 101, 102, 103))

    with pytest.raises(ConflictError, match="same records"):
        use()
    assert numbers(storage) == [4, 5, 100, 101, 102, 103]


def test_components_that_are_said_falsely_to_be_back_are_not_believed(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage.change("a", "main") as change:
        change.add("x", np.zeros(6, int))

    def use() -> None:
        with storage.change("a", "main") as change:
            change.delete([1])
            with storage.change("a", "main", version="X") as other:
                other.drop("x")
                other.add("x", np.ones(6, int))
            with monkeypatch.context() as patch:
                _claiming(patch, storage, "X")
                with storage.change("a", "main") as other:
                    other.drop("x")
                    other.add("x", np.full(6, 7))

    with pytest.raises(ConflictError, match="components are others"):
        use()


@pytest.mark.parametrize("second", [7, 8])
def test_equal_records_of_several_commits_are_told_apart(
    tmp_path: pathlib.Path, second: int
) -> None:
    """Their parts are one and the same."""

    def begin(name: str) -> LFSStorage:
        storage = LFSStorage(str(tmp_path / name))
        storage.submit(rows(0, 1, 2, 3), "a", "0")
        storage.tag("a", "main", "0")
        with storage.change("a", "main", version="A") as change:
            change.insert(1, rows(7))
        with storage.change("a", "main", version="B") as change:
            change.insert(4, rows(second))
        return storage

    def meanwhile(storage: LFSStorage) -> None:
        with storage.change("a", "main", version="X") as change:
            change.delete([4])
        with storage.change("a", "main", version="Y") as change:
            change.delete([1, 2, 3])
        storage.revert("a", "X", on="main")
        assert numbers(storage) == [0, second, 3]

    edits: list[tuple[Callable[[Any], None], list[int] | None]] = [
        (lambda change: change.delete([1]), None),
        (lambda change: change.replace([1], rows(50)), None),
        (lambda change: change.insert(2, rows(99)), [0, 99, second, 3]),
        (lambda change: change.replace([4], rows(50)), [0, 50, 3]),
        (lambda change: change.delete([4]), [0, 3]),
    ]
    for number, (edit, want) in enumerate(edits):
        storage = begin(str(number))
        with (
            contextlib.nullcontext()
            if want
            else pytest.raises(ConflictError, match="same records"),
            storage.change("a", "main") as change,
        ):
            edit(change)
            meanwhile(storage)
        assert numbers(storage) == (want or [0, second, 3])
    storage = begin("taken back")
    meanwhile(storage)
    with pytest.raises(ConflictError, match="same records"):
        storage.revert("a", "A", on="main")
    storage.revert("a", "B", on="main")
    assert numbers(storage) == [0, 3]


@pytest.mark.parametrize("compacted", ["", "R", "A", "AR"])
def test_what_came_back_is_known_when_parts_of_it_were_compacted(
    storage: LFSStorage, compacted: str
) -> None:
    storage.submit(rows(*range(4000)), "a", "0", part_bytes=8192)
    storage.tag("a", "main", "0")
    with storage.change("a", "main", version="A") as change:
        change.replace([3000], rows(-1))
    with storage.change("a", "main", version="X") as change:
        change.delete([3000])
    storage.revert("a", "X", on="main", version="R")
    for name in compacted:
        storage.compact("a", name, part_bytes=8192)
    with storage.change("a", "main") as change:
        change.append(rows(5))
    storage.revert("a", "A", on="main")
    assert numbers(storage) == [*range(4000), 5]


@pytest.mark.parametrize(
    ("place", "want"),
    [
        (0, [77, 10, 11, 12, 13, 99]),
        (2, [10, 11, 77, 12, 13, 99]),
        (4, [10, 11, 12, 13, 77, 99]),
    ],
)
@pytest.mark.parametrize("is_first", [False, True])
def test_an_insertion_beside_updates_and_other_insertions(
    storage: LFSStorage, place: int, want: list[int], is_first: bool
) -> None:
    def update(change: Any) -> None:
        change.update(lambda row: {"n": row["n"] + 10})
        change.append(rows(99))

    def insert(change: Any) -> None:
        change.insert(place, rows(77))

    storage.submit(rows(0, 1, 2, 3), "a", "0")
    storage.tag("a", "main", "0")
    one, two = (update, insert) if is_first else (insert, update)
    with storage.change("a", "main") as late:
        two(late)
        with storage.change("a", "main") as early:
            one(early)
    found = numbers(storage)
    if place == 4 and is_first:
        # Both have appended; who was first is first.
        want = [10, 11, 12, 13, 99, 77]
    assert found == want


@pytest.mark.parametrize("is_late", [False, True])
def test_it_does_not_matter_how_often_a_commit_is_put_behind_others(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    there = LFSStorage(storage._configurations)
    storage.submit(rows(*range(7)), "a", "0")
    storage.tag("a", "main", "0")

    def insert() -> None:
        with there.change("a", "main") as change:
            change.insert(3, rows(77))

    with storage.change("a", "main") as late:
        late.replace([2, 3], rows(20, 30))
        late.insert(5, rows(99))
        with there.change("a", "main") as change:
            change.delete([4])
        if not is_late:
            insert()
        publish = storage._publish_new

        def publish_late(*arguments: Any) -> Any:
            monkeypatch.setattr(storage, "_publish_new", publish)
            insert()
            return publish(*arguments)

        if is_late:
            monkeypatch.setattr(storage, "_publish_new", publish_late)
    assert numbers(storage) == [0, 1, 20, 77, 30, 99, 5, 6]


def test_what_came_back_is_known_when_its_parent_was_compacted_meanwhile(
    storage: LFSStorage,
) -> None:
    with storage.change("a", "main") as change:
        change.delete([2, 3])
        storage.compact("a", "1", part_bytes=1)
        with storage.change("a", "main", version="X") as other:
            other.replace([3], rows(9))
        storage.revert("a", "X", on="main")
    assert numbers(storage) == [0, 1, 4, 5]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_came_back_is_known_where_other_parts_are_equal(
    storage: LFSStorage, is_compacted: bool
) -> None:
    storage.submit(rows(6, 6, 5, 5, 5), "a", "0", part_bytes=100)
    storage.tag("a", "main", "0")
    with storage.change("a", "main") as late:
        late.insert(3, rows(9))
        with storage.change("a", "main", version="X") as other:
            other.delete([1, 4])
            other.replace([3], rows(7))
            other.insert(1, rows(8))
        storage.revert("a", "X", on="main", version="R")
        if is_compacted:
            # Its parts are others, of which one is equal to one of those that it had.
            storage.compact("a", "R", part_bytes=150)
        diff = storage.diff("a", "0", "R")
        assert (len(diff.deleted), len(diff.added), diff.changed.shape[1]) == (0, 0, 0)
    assert numbers(storage) == [6, 6, 5, 9, 5, 5]


def test_what_is_known_does_not_pass_what_is_not() -> None:
    """Of two records that come back, the first was behind all others, and the second anywhere."""
    ours = Hunks(np.array([0, 2]), np.array([0, 2]), np.array([1, 1]))
    theirs = Hunks(np.array([0]), np.array([2]), np.array([4]))
    head = Runs.whole(PARENT, 4)
    undone = Hunks(np.array([0]), np.array([2]), np.array([0]))

    def placed(*sources: int) -> list[tuple[int, int, int]]:
        before = Runs(np.array(sources), np.array([9, 10]), np.array([1, 1]))
        found = in_old_order(ours, theirs, 2, Origins(head, before, undone))
        return [tuple(one) for one in found.triples()]

    assert placed(PARENT, PARENT) == [(4, 4, 2)]
    assert placed(PARENT, 5) == [(0, 0, 1), (2, 2, 1)]
