"""What cannot be changed is told at the call that asks for it, and nothing is left behind."""

from __future__ import annotations

import functools
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    ClosedError,
    ConflictError,
    FileSystemError,
    InvalidArgumentError,
    RecordIndexError,
    SpecMismatchError,
    UnsupportedTypeError,
    VersionExistsError,
)
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage
from yogadl.storage._commits.change import Change

LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "images.mdb"


def rows(numbers: Any) -> list[dict[str, Any]]:
    return [{"x": np.int64(number), "y": np.float32(number)} for number in numbers]


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    found = LFSStorage(storage_dir)
    found.submit(rows(range(10)), "a", "1")
    found.tag("a", "main", "1")
    return found


def files(folder: pathlib.Path) -> set[str]:
    """All that is there, but for locks and parts, which are collected in time."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if "yogadl." not in str(path.relative_to(folder)) and not path.name.endswith(".lock")
    }


def numbers(storage: LFSStorage, name: str = "main") -> list[int]:
    with storage.fetch("a", name) as ref:
        return [int(record["x"]) for record in ref.stream()]


WRONG: list[tuple[Callable[[Change], Any], type[Exception], str]] = [
    (lambda change: change.delete([10]), RecordIndexError, "no record 10"),
    (lambda change: change.delete([-11]), RecordIndexError, "no record -11"),
    (lambda change: change.delete([2.0]), InvalidArgumentError, "integers"),
    (lambda change: change.delete([[1], [1, 2]]), InvalidArgumentError, "integers"),
    (lambda change: change.find(5), InvalidArgumentError, "a function of a record"),
    (lambda change: change.delete([3, 3]), InvalidArgumentError, "record 3 is deleted or repl"),
    (lambda change: change.delete([3, -7]), InvalidArgumentError, "record 3 is deleted or repl"),
    (lambda change: change.replace([4, 4], rows([1, 2])), InvalidArgumentError, "record 4 is"),
    (lambda change: change.replace([4], rows([1, 2])), InvalidArgumentError, "1 positions"),
    (lambda change: change.replace([4, 5], []), InvalidArgumentError, "2 positions"),
    (lambda change: change.insert(11, rows([1])), RecordIndexError, "no position 11"),
    (lambda change: change.insert(-1, rows([1])), RecordIndexError, "no position -1"),
    (lambda change: change.insert(1.5, rows([1])), InvalidArgumentError, "integer"),
    (lambda change: change.append([{"x": 1}]), SpecMismatchError, "y"),
    (lambda change: change.append([*rows([1]), {"x": 1, "y": "no"}]), SpecMismatchError, "1"),
    (lambda change: change.append([1]), SpecMismatchError, "spec|record"),
    (lambda change: change.update(lambda _: 1), SpecMismatchError, "spec|record"),
    (lambda change: change.drop("z"), InvalidArgumentError, "'z'; there are 'x', 'y'"),
    (lambda change: change.drop(["x"]), InvalidArgumentError, "no component"),
    (lambda change: change.drop("x", "z"), InvalidArgumentError, "'z'"),
    (lambda change: change.drop("x", "y"), InvalidArgumentError, "no other component"),
    (lambda change: change.rename("z", "w"), InvalidArgumentError, "'z'"),
    (lambda change: change.rename("x", "y"), InvalidArgumentError, "'y' already"),
    (lambda change: change.rename("x", 3), InvalidArgumentError, "string"),
    (lambda change: change.add("x", range(10)), InvalidArgumentError, "'x' already"),
    (lambda change: change.add("z", range(9)), InvalidArgumentError, "9 values"),
    (lambda change: change.cast("x", "string"), InvalidArgumentError, "numbers"),
    (lambda change: change.cast("z", "int8"), InvalidArgumentError, "'z'"),
    (lambda change: change.cast("x", None), UnsupportedTypeError, "None is no dtype"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_calls_change_nothing(number: int, storage: LFSStorage) -> None:
    """The one that made them may go on; what it does otherwise is committed."""
    wrong, kind, said = WRONG[number]
    with storage.change("a", "main") as change:
        with pytest.raises(kind, match=said):
            wrong(change)
        assert change.version == "1"
    assert storage.tags("a") == {"main": "1"}
    with storage.change("a", "main") as change:
        with pytest.raises(kind):
            wrong(change)
        change.metadata["done"] = True
    with storage.fetch("a", "main") as ref:
        assert ref.metadata == {"done": True}
        assert list(ref.spec) == ["x", "y"]
    assert numbers(storage) == list(range(10))


def test_a_record_is_edited_once(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.delete([1, 2])
        change.replace([3], rows([30]))
        for edit in (
            lambda: change.delete([5, 2]),
            lambda: change.replace([3], rows([31])),
            lambda: change.update(lambda record: record),
        ):
            with pytest.raises(InvalidArgumentError, match="twice in one change"):
                edit()
        # Of what was refused, nothing is done.
        change.delete([5])
    assert numbers(storage) == [0, 30, 4, 6, 7, 8, 9]


def test_records_and_components_are_changed_one_after_the_other(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.rename("x", "z")
        with pytest.raises(InvalidArgumentError, match="either of records or of components"):
            change.append(rows([1]))
    with storage.change("a", "main") as change:
        change.rename("z", "x")
    with storage.change("a", "main") as change:
        change.delete([0])
        with pytest.raises(InvalidArgumentError, match="either of records or of components"):
            change.drop("x")
    assert numbers(storage) == list(range(1, 10))


def test_what_raises_leaves_nothing(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    before = files(storage_dir)

    def fail(change: Change) -> None:
        change.append(rows(range(100)))
        change.delete([1])
        raise ZeroDivisionError

    def fail_in_component(change: Change) -> None:
        change.add("z", range(10))
        change.add("w", (1 // (5 - at) for at in range(10)))

    def fail_in_function(change: Change) -> None:
        change.delete([1])
        change.update(lambda _: 1 // 0, [2])

    for failing in (fail, fail_in_component, fail_in_function):
        with pytest.raises(ZeroDivisionError), storage.change("a", "main") as change:
            failing(change)
    with storage.change("a", "main"):
        pass
    with storage.change("a", "main") as change:
        change.append([])
        change.delete([])
        change.replace([], [])
        change.drop()
    with pytest.raises(InvalidArgumentError), storage.change("a", "main") as change:
        change.metadata["bad"] = object()
    assert files(storage_dir) == before
    assert [entry.dataset_version for entry in storage.list()] == ["1"]
    assert storage.tags("a") == {"main": "1"}
    storage.collect_parts("a")
    assert not list(storage_dir.rglob("*.mdb.*.partial"))


def test_a_version_that_was_named_is_there_though_nothing_was_changed(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="same") as change:
        pass
    with storage.change("a", "same", version="again") as other:
        other.delete([])
    assert (change.version, other.version) == ("same", "again")
    assert storage.tags("a") == {"main": "same"}
    with storage.fetch("a", "1") as old, storage.fetch("a", "again") as new:
        assert new.reader.content_id == old.reader.content_id
    storage.revert("a", "same", on="main", version="back")
    assert numbers(storage) == list(range(10))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"x": 0}, r"not \['x'\]"),
        (None, "not NoneType"),
        ({"x": "a", "y": 0.0}, "'a' does not fit"),
    ],
)
def test_what_a_function_makes_of_a_record_that_does_not_fit(
    storage: LFSStorage, made: Any, told: str
) -> None:
    with (
        storage.change("a", "main") as change,
        pytest.raises(SpecMismatchError, match=f"for record 7, .*{told}.* all of a record"),
    ):
        change.update(lambda record: made if record["x"] == 7 else record, [5, 7])
    with (
        storage.change("a", "main") as change,
        pytest.raises(InvalidArgumentError, match="takes a function, and then the positions"),
    ):
        change.update([7], lambda record: record)  # type: ignore[arg-type]


def test_a_component_that_a_function_makes_of_the_records(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.add("z", lambda record: record["x"] * 2)
        change.add("w", functools.partial(lambda by, record: record["y"] * by, 3))
    with storage.fetch("a", "main") as ref:
        found = ref.read(range(10))
    assert found["z"].tolist() == [2 * number for number in range(10)]
    assert found["w"].tolist() == [3 * number for number in range(10)]


class _Doubled:
    def __call__(self, record: Any) -> Any:
        return record["x"] * 2


class _Data(_Doubled):
    """Data that can be called, too."""

    def __iter__(self) -> Any:
        return iter(range(10, 20))


class _Sum(int):
    def __new__(cls, record: Any) -> Any:
        return int(record["x"] * 2)


@pytest.mark.parametrize(
    ("given", "first"),
    [
        (_Doubled(), 0),
        (np.vectorize(lambda record: record["x"] * 2), 0),
        (np.frompyfunc(lambda record: record["x"] * 2, 1, 1), 0),
        (_Sum, 0),
        (_Data(), 10),
    ],
    ids=["object", "vectorize", "ufunc", "class", "data"],
)
def test_whatever_can_be_called_makes_a_component(
    storage: LFSStorage, given: Any, first: int
) -> None:
    with storage.change("a", "main") as change:
        change.add("z", given)
    step = 1 if first else 2
    with storage.fetch("a", "main") as ref:
        assert ref.read(range(10))["z"].tolist() == [first + step * at for at in range(10)]


def test_a_function_that_stops_early_is_no_end(storage: LFSStorage) -> None:
    def stop(record: Any) -> Any:
        if record["x"] == 10 - 1:
            raise StopIteration
        return record

    for act in (lambda change: change.add("z", stop), lambda change: change.update(stop)):
        with storage.change("a", "main") as change, pytest.raises(RuntimeError) as error:
            act(change)
        assert isinstance(error.value.__cause__, StopIteration)
    assert storage.tags("a") == {"main": "1"}


def test_of_no_records_no_function_tells_a_spec(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.delete(range(10))
    with storage.change("a", "main") as change:
        with pytest.raises(InvalidArgumentError, match=r"no records of which .* 'z'; give spec="):
            change.add("z", lambda record: record["x"])
        change.add("z", lambda record: record["x"], spec=TensorSpec("int64"))
    assert storage.fetch("a", "main").spec["z"] == TensorSpec("int64")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda change: change.replace([0, 1], rows([5])), "2 positions are to have 1 records"),
        (lambda change: change.replace([0, 0], rows([5, 6])), "record 0 is .* twice"),
        (lambda change: change.update(lambda record: record, [0, 0]), "record 0 is .* twice"),
    ],
)
def test_what_was_refused_changes_nothing(
    storage: LFSStorage, wrong: Callable[[Change], Any], told: str
) -> None:
    with storage.change("a", "main", version="2") as change:
        with pytest.raises(InvalidArgumentError, match=told):
            wrong(change)
        change.replace([0], rows([20]))
    assert numbers(storage) == [20, *range(1, 10)]
    with storage.change("a", "main", version="3") as change:
        with pytest.raises(InvalidArgumentError, match=told):
            wrong(change)
        change.submit(rows(range(5, 15)))
    assert numbers(storage) == [*range(5, 15)]


def test_what_a_function_raises_is_told_as_it_is(storage: LFSStorage) -> None:
    def fail(record: Any) -> Any:
        if record["x"] == 5:
            raise SpecMismatchError("my own")
        return record

    for positions in (None, [4, 5]):
        with storage.change("a", "main") as change, pytest.raises(SpecMismatchError) as error:
            change.update(fail, positions)
        assert str(error.value) == "my own"


@pytest.mark.parametrize("made", [1.5, np.int32(1), None, np.zeros(2, np.int64)])
def test_what_to_do_about_an_update_of_another_spec(storage: LFSStorage, made: Any) -> None:
    with storage.change("a", "main") as change, pytest.raises(SpecMismatchError) as error:
        change.update(lambda record: {**record, "x": made})
    assert "spec=" not in str(error.value)
    assert "does not fit" in str(error.value)
    assert "change.cast" in str(error.value)


@pytest.mark.parametrize("how", ["append", "insert", "replace", "submit"])
def test_what_to_do_about_records_that_do_not_fit(storage: LFSStorage, how: str) -> None:
    with storage.change("a", "main") as change:
        before = {"append": (), "insert": (0,), "replace": ([0],), "submit": ()}[how]
        with pytest.raises(SpecMismatchError, match=r"first commit a change of the comp") as error:
            getattr(change, how)(*before, [{**change.base[0], "x": 2.5}])
        assert "spec=" not in str(error.value)


def test_a_component_keeps_its_name(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.rename("x", "x")
        with pytest.raises(InvalidArgumentError, match="'y' already; drop it first"):
            change.rename("x", "y")
    assert storage.tags("a") == {"main": "1"}


def test_what_to_do_first(storage: LFSStorage) -> None:
    with pytest.raises(CacheNotFoundError, match=r"storage\.tag\('a', 'dev', VERSION\)"):
        storage.change("a", "dev").__enter__()
    with storage.change("a", "main", version="fix") as change:
        change.update(lambda record: {**record, "y": np.float32(0)}, [3])
    with storage.change("a", "main", version="more") as change:
        change.add("z", range(10))
    with pytest.raises(ConflictError, match="revert the commits in between first"):
        storage.revert("a", "fix", on="main")
    storage.revert("a", "more", on="main")
    storage.revert("a", "fix", on="main")
    with storage.fetch("a", "main") as ref:
        assert ref[3]["y"] == 3


def test_it_is_used_inside_its_context(storage: LFSStorage) -> None:
    change = storage.change("a", "main")
    for early in (
        lambda: change.find(lambda _: True),
        lambda: change.append(rows([1])),
        lambda: change.base,
        lambda: change.version,
        lambda: change.metadata,
        lambda: setattr(change, "metadata", {}),
    ):
        with pytest.raises(ClosedError, match="inside its context"):
            early()
    with change:
        change.append(rows([10]))
    assert change.version not in ("1", "main")
    for late in (
        lambda: setattr(change, "metadata", {}),
        lambda: change.append(rows([1])),
        lambda: change.delete([1]),
        lambda: change.drop("x"),
        lambda: change.find(lambda _: True),
    ):
        with pytest.raises(ClosedError):
            late()
    with pytest.raises(InvalidArgumentError, match="entered once"), change:
        pass
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(change)
    assert numbers(storage) == list(range(11))


def test_names(storage: LFSStorage) -> None:
    def begin(*arguments: Any, **options: Any) -> None:
        with storage.change(*arguments, **options) as change:
            change.delete([0])

    with pytest.raises(CacheNotFoundError, match="no version or tag 'x' of data set 'a'"):
        begin("a", "x")
    with pytest.raises(CacheNotFoundError):
        begin("b", "1")
    with pytest.raises(InvalidArgumentError):
        begin("a", "../1")
    with pytest.raises(InvalidArgumentError):
        begin("a", "main", version="../1")
    with pytest.raises(VersionExistsError, match="'1' already"):
        begin("a", "main", version="1")
    with pytest.raises(InvalidArgumentError, match="'main' is a tag"):
        begin("a", "main", version="main")
    with pytest.raises(InvalidArgumentError):
        begin("a", "main", message=b"bytes")
    with pytest.raises(InvalidArgumentError, match="part_bytes"):
        begin("a", "main", part_bytes=0)
    storage.delete("a", "1", force=True)
    with pytest.raises(CacheNotFoundError):
        begin("a", "main")


def test_a_version_that_comes_meanwhile_is_not_replaced(storage: LFSStorage) -> None:
    change = storage.change("a", "main", version="2")
    change.__enter__()
    change.delete([0])
    storage.submit(rows([5]), "a", "2")
    with pytest.raises(VersionExistsError):
        change.__exit__(None, None, None)
    assert numbers(storage, "2") == [5]
    assert storage.tags("a") == {"main": "1"}


def _append(storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.append(rows([8]))


@pytest.mark.parametrize(
    "use",
    [
        lambda storage: storage.fetch("a", "main"),
        lambda storage: storage.log("a", "main"),
        lambda storage: storage.set_metadata("a", "main", {"k": 1}),
        _append,
    ],
    ids=["fetch", "log", "set_metadata", "change"],
)
def test_what_a_branch_was_at_may_be_collected_before_it_is_opened(
    storage: LFSStorage, storage_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch, use: Any
) -> None:
    other, read = LFSStorage(storage_dir), storage._catalogue.tags
    moved: list[str] = []

    def tags(*arguments: Any) -> dict[str, str]:
        found = read(*arguments)
        if not moved:
            moved.append("2")
            with other.change("a", "main", version="2") as change:
                change.append(rows([7]))
            other.delete("a", "1")
        return found

    monkeypatch.setattr(storage._catalogue, "tags", tags)
    use(storage)
    assert moved
    assert numbers(storage, "main")[:11] == [*range(10), 7]


def test_a_revert_that_fails_leaves_nothing(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    for version in ("2", "3"):
        with storage.change("a", "main", version=version) as change:
            change.delete([0])
            change.append(rows([7]))
    with storage.change("a", "main", version="4") as change:
        change.delete([8])
    before = files(storage_dir)
    with pytest.raises(ConflictError):
        storage.revert("a", "2", on="main")
    assert files(storage_dir) == before


@pytest.mark.parametrize("name", ["compact", "log", "fetch"])
def test_a_tag_at_nothing_is_told(storage: LFSStorage, name: str) -> None:
    storage.delete("a", "1", force=True)
    with pytest.raises(CacheNotFoundError, match="the tag 'main' is at data set"):
        getattr(storage, name)("a", "main")


@pytest.mark.parametrize(
    "more",
    [
        lambda change: change.append(rows([1])),
        lambda change: change.insert(0, rows([1])),
        lambda change: change.delete([0]),
        lambda change: change.update(lambda record: record, [0]),
        lambda change: change.submit(rows([1])),
        lambda change: change.add("z", np.arange(10)),
        lambda change: change.rename("x", "z"),
    ],
)
def test_nothing_is_changed_beside_a_whole_submission(storage: LFSStorage, more: Any) -> None:
    with storage.change("a", "main", version="2") as change:
        change.submit(rows([7]))
        with pytest.raises(InvalidArgumentError, match="called alone"):
            more(change)
    assert numbers(storage, "2") == [7]


def test_a_change_of_a_version_moves_no_tag(storage: LFSStorage) -> None:
    with storage.change("a", "1", version="2") as change:
        change.delete([0])
    with storage.change("a", "1", version="3") as change:
        change.delete([0])
    assert storage.tags("a") == {"main": "1"}
    assert numbers(storage, "2") == numbers(storage, "3") == list(range(1, 10))
    assert [entry.dataset_version for entry in storage.log("a", "3")] == ["3", "1"]


def test_a_cache_of_0_1_4_is_not_changed(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    (storage_dir / "old" / "1").mkdir(parents=True)
    (storage_dir / "old" / "1" / "cache.mdb").write_bytes(LEGACY.read_bytes())
    with pytest.raises(CacheFormatError, match=r"0\.1\.4"), storage.change("old", "1") as change:
        change.delete([0])
    assert {path.name for path in (storage_dir / "old").iterdir()} <= {"1", "yogadl.parts"}


def test_a_storage_that_cannot_be_written_to(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    folders = [storage_dir / "a", storage_dir / "a" / "1", storage_dir]
    for folder in folders:
        folder.chmod(0o555)
    try:
        if (storage_dir / "probe").parent.stat().st_uid == 0:
            pytest.skip("root may write anywhere")
        with pytest.raises(FileSystemError), storage.change("a", "main") as change:
            change.delete([0])
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert numbers(storage) == list(range(10))


def test_who_changes_the_same_is_told(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    def both(ours: Callable[[Change], Any], theirs: Callable[[Change], Any]) -> None:
        with storage.change("a", "main") as one:
            ours(one)
            with storage.change("a", "main") as two:
                theirs(two)

    before = numbers(storage)
    both(lambda change: change.delete([0]), lambda change: change.delete([9]))
    assert numbers(storage) == before[1:9]
    both(lambda change: change.append(rows([20])), lambda change: change.append(rows([30])))
    assert numbers(storage) == [*before[1:9], 30, 20]
    both(lambda change: change.insert(1, rows([40])), lambda change: change.replace([0], rows([7])))
    assert numbers(storage) == [7, 40, *before[2:9], 30, 20]
    tags = storage.tags("a")
    for ours, theirs in (
        (lambda change: change.delete([3]), lambda change: change.replace([3], rows([1]))),
        (lambda change: change.drop("y"), lambda change: change.delete([0])),
        (lambda change: change.delete([0]), lambda change: change.rename("y", "w")),
        (
            lambda change: change.metadata.update(k=1),
            lambda change: change.metadata.update(k=2),
        ),
    ):
        with pytest.raises(ConflictError, match=r"'main' (was moved to|is at)"):
            both(ours, theirs)
        known = {entry.dataset_version for entry in storage.list("a")}
        assert {it.name for it in (storage_dir / "a").iterdir()} == known | {"yogadl.parts"}
        # Only theirs counts.
        assert len(storage.log("a", "main")) == len(known)
    assert storage.tags("a") != tags


def test_metadata_of_both_stay(storage: LFSStorage) -> None:
    with storage.change("a", "main") as one:
        one.metadata["one"] = 1
        with storage.change("a", "main") as two:
            two.metadata["two"] = 2
            two.delete([0])
        with storage.change("a", "main") as three:
            three.metadata["one"] = 1
    with storage.fetch("a", "main") as ref:
        assert ref.metadata == {"one": 1, "two": 2}
        assert len(ref) == 9


@pytest.mark.parametrize("on", [[], {}, None, 5])
def test_a_branch_is_a_string(on: Any, storage: LFSStorage) -> None:
    with storage.change("a", "main") as change:
        change.delete([0])
    with pytest.raises(InvalidArgumentError, match="must be a non-empty string"):
        storage.revert("a", "main", on=on)


def test_an_array_is_no_name(storage: LFSStorage) -> None:
    array: Any = np.array([1, 2])
    with pytest.raises(InvalidArgumentError, match="must be a non-empty string"):
        storage.untag("a", "main", expect=array)
    named = pytest.raises(InvalidArgumentError, match="a component's name is a string")
    with named, storage.change("a", "main") as change:
        change.rename(next(iter(change.base.spec)), array)
    with pytest.raises(InvalidArgumentError, match="on_change must be one of"):
        storage.cacheable("b", "1", on_change=array)


def test_a_message_is_text(storage: LFSStorage) -> None:
    with pytest.raises(InvalidArgumentError, match="UTF-8"):
        storage.change("a", "main", message="a\ud800b")


def test_only_true_is_true(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    other = LFSStorage(tmp_path / "other")
    for call in (
        lambda: storage.delete("a", "1", force="no"),  # type: ignore[arg-type]
        lambda: storage.fetch("a", "1", check_records="no"),  # type: ignore[arg-type]
        lambda: storage.gc(dry_run="no"),  # type: ignore[arg-type]
        lambda: storage.collect_parts(dry_run="no"),  # type: ignore[arg-type]
        lambda: storage.sync(other, force="no"),  # type: ignore[arg-type]
        lambda: storage.sync(other, dry_run="no"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgumentError, match="must be True or False, not 'no'"):
            call()
    assert storage.exists("a", "1")
    assert not other.list()
