"""``diff``, ``revert`` and changes at once, whatever was changed, compacted or replaced before."""

from __future__ import annotations

import collections
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from changed import Apply, Model, changes, dict_specs, make_versions, record_changes
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import alike, records, same

from yogadl import spec as specs
from yogadl.errors import CacheNotFoundError, ConflictError
from yogadl.spec import OptionalSpec, TensorSpec
from yogadl.storage import LFSStorage
from yogadl.storage._commits import made, merging
from yogadl.storage._commits.change import Change
from yogadl.storage._commits.diff import VersionDiff
from yogadl.versions.hunks import Hunks

Step = Callable[[LFSStorage], object]


def _are_same(before: Model, after: Model, old: Any, new: Any) -> dict[Any, bool]:
    """Of the components that two versions have, which are the same in a record of each."""
    if not (isinstance(before.spec, dict) and isinstance(after.spec, dict)):
        return {"record": _is_same(before.spec, after.spec, old, new)}
    return {
        name: _is_same(before.spec[name], after.spec[name], old[name], new[name])
        for name in before.spec
        if name in after.spec
    }


def _is_same(spec: Any, other: Any, one: Any, two: Any) -> bool:
    nests = [specs.map_leaves(lambda _: specs.NoneSpec(), it) for it in (spec, other)]
    return same(*nests) and alike(one, two)


def _check_diff(found: VersionDiff, before: Model, after: Model) -> None:
    """Sees that a diff makes the one of the other, and calls nothing changed that is not."""
    counts = len(before.records), len(after.records)
    assert (found.count_before, found.count_after) == counts
    gone = np.concatenate([found.deleted, found.changed[0]]).astype(int)
    come = np.concatenate([found.added, found.changed[1]]).astype(int)
    assert len(set(gone.tolist())) == len(gone)
    assert len(set(come.tolist())) == len(come)
    old, new = np.delete(np.arange(counts[0]), gone), np.delete(np.arange(counts[1]), come)
    assert len(old) == len(new)

    for one, two in zip(old.tolist(), new.tolist(), strict=True):
        assert all(_are_same(before, after, before.records[one], after.records[two]).values())
    differing: collections.Counter[Any] = collections.Counter()
    for one, two in found.changed.T.tolist():
        own = _are_same(before, after, before.records[one], after.records[two])
        # If nothing is in common, it is what stands in for others.
        assert not own or not all(own.values())
        differing.update(name for name, is_same in own.items() if not is_same)
    assert found.components == differing


@given(st.data())
def test_a_diff_makes_the_one_of_the_other(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "MOST_SMALL", data.draw(st.sampled_from([2, 32])))
        patch.setattr(made, "MOST_HUNKS", data.draw(st.sampled_from([0, 1, 1 << 16])))
        storage = LFSStorage(folder)
        known = make_versions(storage, data, 4)
        for name in data.draw(st.lists(st.sampled_from(sorted(known)), max_size=2)):
            storage.compact("a", name)
        names = list(known)
        for name, parent in zip(names[1:], names, strict=False):
            storage.tag("a", "trial", name)
            back = storage.revert("a", name, on="trial", version=f"back from {name}")
            known[back] = known[parent]
            with storage.fetch("a", back) as ref:
                known[back].check(ref)
        for one in known:
            for two in known:
                _check_diff(storage.diff("a", one, two), known[one], known[two])


def _changing(drawn: tuple[Apply, Model], version: str, during: Step = id) -> Step:
    def step(storage: LFSStorage) -> None:
        with storage.change("a", "main", version=version) as change:
            drawn[0](change)
            during(storage)

    return step


def _reverting(undone: str, version: str) -> Step:
    return lambda storage: storage.revert("a", undone, on="main", version=version)


def _outcome(storage: LFSStorage, step: Step) -> type[Exception] | None:
    try:
        step(storage)
    except (ConflictError, CacheNotFoundError) as error:
        return type(error)
    return None


def _model(storage: LFSStorage) -> Model:
    with storage.fetch("a", "main") as ref:
        return Model(ref.spec, list(ref.stream()))


@given(st.data())
@settings(max_examples=12)
def test_compacting_makes_no_difference(data: st.DataObject) -> None:
    """What commits, reverts and changes at once come to is the same where versions were compacted
    at any time."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        plain, compacted = LFSStorage(one), LFSStorage(two)
        spec = data.draw(dict_specs)
        rows = data.draw(st.lists(records(spec), min_size=1, max_size=6))
        for storage in (plain, compacted):
            _begin(storage, rows, spec)

        def compact(storage: LFSStorage) -> None:
            if storage is compacted:
                storage.compact("a", "main")

        for number in range(2, data.draw(st.integers(3, 6)) + 1):
            model = _model(plain)
            step = data.draw(_steps(plain, str(number), _changes(model), compact))
            assert _outcome(plain, step) == _outcome(compacted, step)
            if data.draw(st.booleans()):
                compacted.compact("a", data.draw(st.sampled_from(["0", "1", "main"])))
            assert same(_model(plain).records, _model(compacted).records)
            assert plain.tags("a") == compacted.tags("a")
        compacted.fetch("a", "main").verify()


@given(st.data())
@settings(max_examples=10)
def test_changes_of_many_places_are_known_by_their_parts(data: st.DataObject) -> None:
    """Where it is not stored which places a commit has changed, since they are many."""
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as two,
        pytest.MonkeyPatch.context() as patch,
    ):
        told, untold = LFSStorage(one), LFSStorage(two)
        # By parts, it cannot be told which of neighbours stand in for others.
        to_list = Hunks.to_list
        patch.setattr(Hunks, "to_list", lambda hunks: to_list(hunks.joined()))
        fresh = itertools.count()
        rows = [{"n": np.int64(next(fresh))} for _ in range(data.draw(st.integers(1, 8)))]
        for storage in (told, untold):
            _begin(storage, rows, {"n": TensorSpec("int64", ())})
        for number in range(2, data.draw(st.integers(3, 6)) + 1):
            strategy = _changes_of_numbers(_model(told), fresh)
            step = data.draw(_steps(told, str(number), strategy))
            outcomes = []
            for storage in (told, untold):
                patch.setattr(made, "MOST_HUNKS", 1 if storage is untold else 1 << 16)
                outcomes.append(_outcome(storage, step))
            assert outcomes[0] == outcomes[1]
            assert same(_model(told).records, _model(untold).records)
            names = data.draw(st.permutations(told.list("a")))[:2]
            diffs = [
                str(storage.diff("a", *[name.dataset_version for name in names]))
                for storage in (told, untold)
            ]
            assert diffs[0] == diffs[1]


def _begin(storage: LFSStorage, rows: list[Any], spec: Any) -> None:
    """Stores a data set of two column groups."""
    storage.submit(rows, "a", "0", spec=spec)
    storage.tag("a", "main", "0")
    with storage.change("a", "main", version="1") as change:
        change.add("group", list(range(len(rows))), TensorSpec("int32", ()))


def _changes(model: Model) -> st.SearchStrategy[tuple[Apply, Model]]:
    return record_changes(model) | changes(model) | _insertions(model)


@st.composite
def _insertions(draw: st.DrawFn, model: Model) -> tuple[Apply, Model]:
    """A change that conflicts with none of records."""
    place = draw(st.integers(0, len(model.records)))
    new = draw(st.lists(records(model.spec), min_size=1, max_size=3))
    found = [*model.records[:place], *new, *model.records[place:]]
    return lambda change: change.insert(place, new), Model(model.spec, found)


@st.composite
def _changes_of_numbers(draw: st.DrawFn, model: Model, fresh: Iterator[int]) -> tuple[Apply, Model]:
    """A change of records, by which each has a number that no other one has or had."""
    fates = [draw(st.sampled_from("kkkkdr")) for _ in model.records]
    gone, replaced = ([n for n, fate in enumerate(fates) if fate == it] for it in "dr")
    place, count = draw(st.integers(0, len(fates))), draw(st.integers(0, 3))

    def new(count: int) -> list[Any]:
        numbers = [next(fresh) for _ in range(count)]
        kinds = {"n": np.int64, "group": np.int32}
        return [{name: kinds[name](it) for name in model.spec} for it in numbers]

    others, inserted = new(len(replaced)), new(count)

    def apply(change: Change) -> None:
        change.delete(gone)
        change.replace(replaced, others)
        change.insert(place, inserted)

    return apply, model


@st.composite
def _steps(
    draw: st.DrawFn,
    storage: LFSStorage,
    version: str,
    strategy: st.SearchStrategy[tuple[Apply, Model]],
    compact: Step = id,
) -> Step:
    """Something that moves the branch, or is refused."""
    before = [entry.dataset_version for entry in storage.log("a", "main")][:-1]
    kind = draw(st.sampled_from(["change", "at once", "at once", "at once", "revert", "revert"]))
    if kind == "revert":
        return _reverting(draw(st.sampled_from(before)), version)
    if kind == "change":
        return _changing(draw(strategy), version)
    other = _changing(draw(strategy), f"{version}.other")
    is_before, is_behind, is_back = (draw(st.booleans()) for _ in range(3))

    def during(storage: LFSStorage) -> None:
        if is_before:
            compact(storage)
        other(storage)
        if is_behind:
            compact(storage)
        if is_back and f"{version}.other" in {it.dataset_version for it in storage.list("a")}:
            _reverting(f"{version}.other", f"{version}.back")(storage)

    return _changing(draw(strategy), version, during)


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    """A storage whose data set "a" has ten records of two column groups, on its branch "main"."""
    found = LFSStorage(storage_dir)
    _begin(found, [{"n": np.int64(it)} for it in range(10)], {"n": TensorSpec("int64", ())})
    return found


def _numbers(storage: LFSStorage, name: str) -> list[int]:
    with storage.fetch("a", name) as ref:
        return [int(record["n"]) for record in ref.stream()]


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_parent_that_was_replaced_is_none(storage: LFSStorage, is_longer: bool) -> None:
    """Its name stands for other records since."""
    with storage.change("a", "main", version="2") as change:
        change.delete([3])
    with storage.change("a", "main", version="3") as change:
        change.append([{"n": np.int64(10), "group": np.int32(10)}])
    count = 12 if is_longer else 10
    with storage.fetch("a", "1") as ref:
        spec = ref.spec
    others = [{"n": np.int64(it), "group": np.int32(0)} for it in range(100, 100 + count)]
    storage.submit(others, "a", "1", spec=spec)
    before = _numbers(storage, "main")
    with pytest.raises(CacheNotFoundError, match="'1', which was replaced since"):
        storage.revert("a", "2", on="main")
    assert _numbers(storage, "main") == before
    found = storage.diff("a", "1", "3")
    assert found.changed.shape[1] + len(found.deleted) == count
    assert found.changed.shape[1] + len(found.added) == 10
    # The same records again are as good as the ones before.
    rows = [{"n": np.int64(it), "group": np.int32(it)} for it in range(10)]
    storage.submit(rows, "a", "1", spec=spec)
    assert storage.diff("a", "1", "3").deleted.tolist() == [3]
    storage.revert("a", "2", on="main")
    assert _numbers(storage, "main") == list(range(11))


def test_a_version_that_is_replaced_while_it_is_changed_is_no_parent(storage: LFSStorage) -> None:
    spec = storage.fetch("a", "1").spec
    new = [{"n": np.int64(-1), "group": np.int32(-1)}]

    def use() -> None:
        with storage.change("a", "main", version="3") as change:
            change.delete([3])
            storage.submit(new * 10, "a", "1", spec=spec)
            with storage.change("a", "main", version="2") as other:
                other.append(new)

    with pytest.raises(ConflictError, match="does not follow"):
        use()


def test_a_component_that_was_replaced_is_seen(storage: LFSStorage) -> None:
    """Also where the spec is the same as before."""

    def use() -> None:
        with storage.change("a", "main", version="3") as change:
            change.update(lambda record: {**record, "n": np.int64(-1)}, [3])
            with storage.change("a", "main", version="2") as other:
                other.drop("group")
                other.add("group", np.arange(10, dtype="int32") * 2)

    with pytest.raises(ConflictError, match="components are others"):
        use()
    with storage.change("a", "main", version="3") as change:
        change.delete([0])
    for before, after in (("1", "2"), ("2", "1")):
        found = storage.diff("a", before, after)
        # The first one is 0 in both.
        assert found.changed.tolist() == [[*range(1, 10)], [*range(1, 10)]]
        assert found.components == {"group": 9}
    found = storage.diff("a", "1", "3")
    assert (found.deleted.tolist(), found.changed.tolist()) == (
        [0],
        [[*range(1, 10)], [*range(9)]],
    )
    storage.tag("a", "main", "2")
    storage.revert("a", "2", on="main")
    assert not storage.diff("a", "1", "main")


def test_a_component_that_was_cast_there_and_back_is_seen(storage_dir: pathlib.Path) -> None:
    storage = LFSStorage(storage_dir)
    storage.submit({"n": np.array([0.0, 0.1, 0.5, 0.7])}, "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main", version="2") as change:
        change.cast("n", "float16")
        change.cast("n", "float64")
    assert storage.diff("a", "1", "2").changed.tolist() == [[1, 3], [1, 3]]


def test_components_that_are_named_alike_are_told_apart(storage_dir: pathlib.Path) -> None:
    storage = LFSStorage(storage_dir)
    storage.submit([{1: 0, "1": 0}], "a", "1")
    with storage.change("a", "1", version="2") as change:
        change.replace([0], [{1: 100, "1": 0}])
    assert storage.diff("a", "1", "2").components == {1: 1}


def test_what_was_taken_back_is_no_difference(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.delete([4, 5])
        change.replace([0], [{"n": np.int64(-1), "group": np.int32(-1)}])
    storage.revert("a", "2", on="main")
    found = storage.diff("a", "1", "main")
    assert not found
    assert str(found).endswith("0 added, 0 deleted, 0 changed")


def test_a_commit_of_very_many_places(storage_dir: pathlib.Path) -> None:
    """Of which it is not stored which they are."""
    count = 2 * made.MOST_HUNKS + 2
    storage = LFSStorage(storage_dir)
    storage.submit({"n": np.arange(count)}, "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main", version="3") as change:
        change.delete([1])
        change.append([{"n": np.int64(-1)}])
        with storage.change("a", "main", version="2") as other:
            other.delete(range(0, count, 2))
    assert _numbers(storage, "main") == [*range(3, count, 2), -1]
    assert len(storage.diff("a", "1", "2").deleted) == count // 2
    storage.revert("a", "2", on="main", version="4")
    assert _numbers(storage, "main") == [0, *range(2, count), -1]
    storage.tag("a", "branch", "1")

    def use() -> None:
        with storage.change("a", "branch") as change:
            change.delete([0])
            storage.tag("a", "branch", "2")

    with pytest.raises(ConflictError, match="changes some of the same records, 0 to 0"):
        use()


def test_a_named_tuple_is_another_component(storage_dir: pathlib.Path) -> None:
    point = collections.namedtuple("point", ("x", "y"))  # as users make them
    storage = LFSStorage(storage_dir)
    storage.submit([{"n": it, "p": (it, -it)} for it in range(4)], "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main", version="2") as change:
        change.drop("p")
        change.add("p", [point(it, -it) for it in range(4)])
    assert storage.diff("a", "1", "2")
    storage.revert("a", "2", on="main", version="3")
    with storage.fetch("a", "3") as ref, storage.fetch("a", "1") as first:
        assert ref.reader.content_id == first.reader.content_id


def test_a_copy_of_another_id_has_no_parent_there(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.delete([3])
    storage.copy("a", "2", storage, new_id="b")
    storage.tag("b", "main", "2")
    with pytest.raises(CacheNotFoundError, match="'1' of 'a', which is not stored here"):
        storage.revert("b", "2", on="main")
    storage.submit([{"n": np.int64(5)}], "b", "1")
    with pytest.raises(CacheNotFoundError, match="replaced"):
        storage.revert("b", "2", on="main")
    assert storage.tags("b") == {"main": "2"}
    # If it is copied, too, it is there.
    storage.copy("a", "1", storage, new_id="b")
    storage.revert("b", "2", on="main")
    with storage.fetch("b", "main") as ref:
        assert [int(record["n"]) for record in ref.stream()] == list(range(10))
        ref.verify()


def test_metadata_that_a_commit_has_not_changed_stay(storage: LFSStorage) -> None:
    storage.set_metadata("a", "main", {"license": "CC0"}, version="2")
    with storage.change("a", "main", version="3") as change:
        change.delete([3])
    storage.set_metadata("a", "main", {"license": "MIT"}, version="4")
    with storage.fetch("a", "2") as ref:
        rows, spec = list(ref.stream()), ref.spec
    # The same records, of other metadata.
    storage.submit(rows, "a", "2", spec=spec, metadata={"other": 1})
    storage.submit(rows[:3] + rows[4:], "a", "3", spec=spec, metadata={"other": 1})
    with pytest.raises(CacheNotFoundError, match="replaced"):
        storage.revert("a", "4", on="main")
    storage.tag("a", "trial", "4")
    with storage.change("a", "trial", version="6") as change:
        change.delete([0])
    storage.submit(rows[:3] + rows[4:], "a", "4", spec=spec)
    storage.revert("a", "6", on="trial")
    assert storage.fetch("a", "trial").metadata == {"license": "MIT"}


def test_a_commit_is_taken_back_once(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.delete([3])
    first = storage.revert("a", "2", on="main")
    with pytest.raises(ConflictError, match=f"'2' was taken back already, by '{first}'"):
        storage.revert("a", "2", on="main")
    assert _numbers(storage, "main") == list(range(10))
    # What took it back is taken back itself, and so on.
    second = storage.revert("a", first, on="main")
    assert _numbers(storage, "main") == [0, 1, 2, *range(4, 10)]
    for undone in ("2", first):
        with pytest.raises(ConflictError, match="taken back already"):
            storage.revert("a", undone, on="main")
    storage.revert("a", second, on="main")
    assert _numbers(storage, "main") == list(range(10))


def test_a_change_of_metadata_is_taken_back_once_and_where_it_is(storage: LFSStorage) -> None:
    storage.set_metadata("a", "main", {"x": 1}, version="2")
    storage.set_metadata("a", "main", {"x": 2}, version="3")
    for at in ("2", "1"):
        storage.tag("a", "elsewhere", at)
        with pytest.raises(ConflictError, match="does not follow"):
            storage.revert("a", "3", on="elsewhere")
    storage.revert("a", "3", on="main")
    storage.set_metadata("a", "main", {"x": 2})
    with pytest.raises(ConflictError, match="taken back already"):
        storage.revert("a", "3", on="main")
    assert storage.fetch("a", "main").metadata == {"x": 2}


def test_what_was_compacted_is_not_taken_for_changed(storage: LFSStorage) -> None:
    """Where it is not stored which places were changed, and the parts are all others."""

    def use() -> None:
        with storage.change("a", "main", version="3") as change:
            change.insert(3, [{"n": np.int64(-1), "group": np.int32(-1)}])
            with storage.change("a", "main", version="2") as other:
                other.delete(range(0, 10, 2))
            storage.compact("a", "2")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "MOST_HUNKS", 1)
        with pytest.raises(ConflictError, match="not known"):
            use()
    assert _numbers(storage, "main") == [1, 3, 5, 7, 9]


def test_zeros_at_the_end_of_strings_count(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    maybe = OptionalSpec(TensorSpec("string", ()))
    spec = {"t": TensorSpec("string", ()), "m": maybe}
    texts = [b"", b"\0", b"a", b"a\0", b"a"]
    storage.submit([{"t": text, "m": text} for text in texts], "a", "1", spec=spec)
    with storage.change("a", "1", version="2") as change:
        rest = [*texts[1:4], b"a\0\0"]
        change.replace([0, 1, 2, 4], [{"t": text, "m": text} for text in rest])
    found = storage.diff("a", "1", "2")
    assert found
    assert found.changed.tolist() == [[0, 1, 2, 4]] * 2
    assert found.components == {"t": 4, "m": 4}
    (sample, *_) = storage.card("a", "2", sample=5).sample
    assert sample.greatest == 3


def test_branches_of_which_one_has_other_components(tmp_path: pathlib.Path) -> None:
    """Records that neither has touched are the same, wherever they are in each."""
    storage = LFSStorage(tmp_path)
    storage.submit({"id": np.arange(100), "y": np.arange(100) % 3}, "d", "1")
    for branch in ("main", "trial"):
        storage.tag("d", branch, "1")
    with storage.change("d", "trial", version="t") as change:
        change.delete([0, 50])
        change.replace([7], {"id": np.array([7]), "y": np.array([9])})
    with storage.change("d", "main", version="2") as change:
        change.append({"id": np.array([500]), "y": np.array([1])})
    with storage.change("d", "main", version="3") as change:
        change.add("n", lambda record: record["id"] * 2)
    found = storage.diff("d", "t", "3")
    assert found.added.tolist() == [0, 50, 100]
    assert found.deleted.tolist() == []
    assert found.changed.tolist() == [[6], [7]]
    assert found.components == {"y": 1}
    back = storage.diff("d", "3", "t")
    assert back.deleted.tolist() == [0, 50, 100]
    assert back.changed.tolist() == [[7], [6]]


def test_of_other_components_and_nothing_known_those_of_both_are_compared(
    tmp_path: pathlib.Path,
) -> None:
    storage = LFSStorage(tmp_path)
    first = {"x": np.arange(10), "z": {"b": np.arange(10) % 2, "a": np.arange(10) * 2}}
    storage.submit(first, "d", "1")
    storage.tag("d", "main", "1")
    with storage.change("d", "main", version="2") as change:
        change.add("y", np.arange(10))
    with storage.change("d", "main", version="3") as change:
        change.insert(0, [{"x": 99, "z": {"b": 0, "a": 0}, "y": 0}])
        change.update(lambda record: {**record, "x": 50}, [4])
    told = storage.diff("d", "1", "3")
    storage.delete("d", "2")
    for found in (told, storage.diff("d", "1", "3")):
        assert found.added.tolist() == [0]
        assert found.deleted.tolist() == []
        assert found.changed.tolist() == [[4], [5]]
        assert found.components == {"x": 1}
    # Nested otherwise, and with nothing in common.
    storage.submit({"z": {"a": np.arange(11) * 2, "b": np.arange(11) % 2}}, "d", "4")
    assert storage.diff("d", "1", "4").added.tolist() == [10]
    storage.submit({"other": np.arange(3)}, "d", "5")
    assert storage.diff("d", "5", "4").changed.tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("damaged", [b"", b"x" * 9000])
def test_what_is_between_two_versions_may_be_damaged(
    tmp_path: pathlib.Path, damaged: bytes
) -> None:
    storage = LFSStorage(tmp_path)
    storage.submit(np.arange(10), "d", "1")
    storage.tag("d", "main", "1")
    for version in ("2", "3", "4"):
        with storage.change("d", "main", version=version) as change:
            change.append([int(version)])
    (tmp_path / "d" / "2" / "cache.mdb").write_bytes(damaged)
    assert storage.diff("d", "1", "4").added.tolist() == [10, 11, 12]
    assert storage.diff("d", "4", "1").deleted.tolist() == [10, 11, 12]


def test_names_are_told_in_one_line(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    names = ("\ud800", "a\n\x1b[31mb", "plain name")
    first = {name: np.arange(3) for name in names}
    storage.submit(first, "d", "1", metadata={"k\n9 → 9: 0 records": 1})
    storage.tag("d", "main", "1")
    with storage.change("d", "main", version="2") as change:
        change.update(lambda record: {name: value + 1 for name, value in record.items()})
        change.metadata = {}
    text = str(storage.diff("d", "1", "2"))
    assert text.encode()
    assert len(text.splitlines()) == 5
    assert "  plain name changed in 3" in text
