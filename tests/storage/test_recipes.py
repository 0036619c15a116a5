"""``cacheable`` without a version, ``on_change=`` and ``why``: what recipes do for storages."""

from __future__ import annotations

import functools
import importlib
import logging
import pathlib
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import yogadl
from yogadl.errors import (
    ClosedError,
    InvalidArgumentError,
    SpecMismatchError,
    StaleCacheError,
    StaleCacheWarning,
    UndeterminedError,
)
from yogadl.recipes import parse
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

LOCK = threading.Lock()


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "store" if (tmp_path / "store").mkdir() is None else tmp_path)


@pytest.fixture
def write(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., types.ModuleType]]:
    """Imports a module of a text, each time anew, as another process would."""
    counts: dict[str, int] = {}
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(name: str = "made", text: str = TEXT, *edits: tuple[str, str]) -> types.ModuleType:
        for old, new in edits:
            assert text.count(old) == 1
            text = text.replace(old, new)
        folder = tmp_path / f"{name}{counts.setdefault(name, 0)}"
        counts[name] += 1
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module(name)
        assert str(module.__file__).startswith(str(folder))
        return module

    yield load
    for name in counts:
        sys.modules.pop(name, None)


TEXT = """
FACTOR = 2
API_KEY = "do not tell"

def helper(number):
    # Scales.
    return number * FACTOR

def make(count=3):
    assert API_KEY
    return [helper(number) for number in range(count)]
"""
SHIFTED = ("number * FACTOR", "number * FACTOR + 1")


def data(ref: Any) -> list[int]:
    with ref:
        return [int(value) for value in ref.stream()]


def versions(storage: LFSStorage) -> set[str]:
    return {stored.dataset_version for stored in storage.list("a")}


# Without a version


def test_the_version_follows_from_what_determines_the_data(
    storage: LFSStorage, write: Callable[..., types.ModuleType]
) -> None:
    made = storage.cacheable("a")
    assert data(made(write().make)()) == [0, 2, 4]
    (first,) = versions(storage)
    assert first.startswith("r-")
    assert len(first) == 34
    assert data(made(write("made", TEXT, ("# Scales.", "# Scales all.")).make)()) == [0, 2, 4]
    assert data(made(write().make)(count=3)) == [0, 2, 4]
    assert versions(storage) == {first}
    assert data(made(write("made", TEXT, SHIFTED).make)()) == [1, 3, 5]
    assert data(made(write("made", TEXT, ("FACTOR = 2", "FACTOR = 5")).make)()) == [0, 5, 10]
    assert data(made(write().make)(2)) == [0, 2]
    assert len(versions(storage)) == 4
    with storage.fetch("a", first) as ref:
        assert ref.info.provenance.recipe == first[2:]
        recipe = parse(ref.info.provenance.recipe_document)
    assert recipe is not None
    assert recipe.digest == first[2:]
    names = {item.name: item.text for item in recipe.items}
    assert names["made.FACTOR"] == "2"
    assert "return number * FACTOR" in names["made.helper"]
    assert names["made.API_KEY"] == ""


def test_what_is_declared_counts(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "input.txt"
    path.write_text("a")

    def make(verbose: bool = False) -> list[int]:
        return [len(path.read_text())]

    def call(**options: Any) -> list[int]:
        return data(storage.cacheable("a", inputs=(path,), **options)(make)())

    assert call() == [1]
    path.write_text("ab")
    assert call() == [2]
    path.write_text("b")
    assert call() == [1]
    assert len(versions(storage)) == 3
    call(key="other")
    call(key={"x": 1})
    call(spec=TensorSpec("int64"))
    assert len(versions(storage)) == 6
    quiet = storage.cacheable("a", inputs=(path,), ignore=("verbose",))(make)
    assert data(quiet(True)) == data(quiet(False))
    assert len(versions(storage)) == 7


def test_what_cannot_be_told_is_refused_before_anything_runs(storage: LFSStorage) -> None:
    calls = []

    def make() -> Any:
        with LOCK:
            calls.append(1)
            return [1]

    with pytest.raises(UndeterminedError, match=r"'a' has no version, and .*LOCK is a lock"):
        storage.cacheable("a", ignore=("calls",))(make)()
    assert calls == []
    assert data(storage.cacheable("a", ignore=("calls", "LOCK"))(make)()) == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert data(storage.cacheable("a", "1")(make)()) == [1]
    assert calls == [1, 1]


def test_with_a_version_nothing_fails_that_did_not(storage: LFSStorage) -> None:
    def make(ref: Any) -> Any:
        return [1]

    storage.submit([1], "b", "1")
    closed = storage.fetch("b", "1")
    closed.close()
    with pytest.raises(ClosedError):
        storage.cacheable("a")(make)(closed)
    assert data(storage.cacheable("a", "1")(make)(closed)) == [1]


def test_data_sets_that_are_made_of_others(
    storage: LFSStorage, write: Callable[..., types.ModuleType]
) -> None:
    def outer(module: types.ModuleType, version: str | None) -> str:
        inner = storage.cacheable("inner", version, on_change="ignore")(module.make)

        @storage.cacheable("a")
        def make() -> Any:
            return [int(value) for value in inner().stream()]

        make().close()
        return storage.why(make).dataset_version or ""

    told = [outer(write(), None), outer(write(), None), outer(write("made", TEXT, SHIFTED), None)]
    assert told[0] == told[1] != told[2]
    assert outer(write(), "1") != outer(write(), "2")


def test_pieces_of_workers(storage: LFSStorage, write: Callable[..., types.ModuleType]) -> None:
    helper = write().helper

    @storage.cacheable("a", workers=2, spec=TensorSpec("int64"))
    def make() -> Any:
        return yogadl.Pieces([functools.partial(piece, 1), functools.partial(piece, 2)])

    assert data(make()) == [1, 2]
    assert helper(2) == 4
    assert storage.why(make).is_stored


def piece(number: int) -> list[int]:
    return [number]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ignore": "name"}, "ignore= takes a tuple of names"),
        ({"ignore": (1,)}, "ignore= takes names"),
        ({"inputs": "path"}, "inputs= takes a tuple"),
        ({"on_change": "shout"}, "on_change must be one of 'warn', 'raise', 'rebuild', 'ignore'"),
    ],
)
def test_wrong_options_are_told_when_decorating(
    storage: LFSStorage, options: Any, what: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=what):
        storage.cacheable("a", **options)


# With a version


def test_a_change_of_what_the_function_calls_is_told_once(
    storage: LFSStorage, write: Callable[..., types.ModuleType]
) -> None:
    assert data(storage.cacheable("a", "1")(write().make)()) == [0, 2, 4]
    changed = write("made", TEXT, SHIFTED).make
    with pytest.warns(StaleCacheWarning, match=r"now the code of made\.helper changed") as said:
        assert data(storage.cacheable("a", "1")(changed)()) == [0, 2, 4]
    assert "+    return number * FACTOR + 1" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data(storage.cacheable("a", "1")(changed)()) == [0, 2, 4]
    with pytest.warns(StaleCacheWarning, match=r"the global made\.FACTOR is 3, and was 2"):
        storage.cacheable("a", "1")(write("made", TEXT, ("R = 2", "R = 3")).make)().close()
    with pytest.warns(StaleCacheWarning, match=r"made\.make\(\), and made\.make\(4\) is called"):
        storage.cacheable("a", "1")(write().make)(4).close()


def test_what_to_do_about_a_change(
    storage: LFSStorage, write: Callable[..., types.ModuleType], caplog: pytest.LogCaptureFixture
) -> None:
    def call(on_change: str, *edits: tuple[str, str], **options: Any) -> list[int]:
        make = write("made", TEXT, *edits).make
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return data(storage.cacheable("a", "1", on_change=on_change, **options)(make)())

    assert call("raise") == [0, 2, 4]
    assert call("ignore", SHIFTED) == [0, 2, 4]
    with pytest.raises(StaleCacheError, match=r"made\.helper changed(.|\n)*on_change=\"rebuild\""):
        call("raise", SHIFTED)
    reader = storage.fetch("a", "1")
    with caplog.at_level(logging.INFO, "yogadl"):
        assert call("rebuild", SHIFTED) == [1, 3, 5]
    assert "Building a:1 again" in caplog.text
    assert data(reader) == [0, 2, 4]
    assert call("raise", SHIFTED) == [1, 3, 5]
    created = storage.fetch("a", "1").info.created
    assert call("rebuild", SHIFTED) == [1, 3, 5]
    assert storage.fetch("a", "1").info.created == created
    other = {"spec": TensorSpec("float32")}
    for on_change in ("warn", "raise", "ignore"):
        with pytest.raises(SpecMismatchError):
            call(on_change, SHIFTED, **other)
    assert call("rebuild", SHIFTED, **other) == [1, 3, 5]
    assert storage.fetch("a", "1").spec == TensorSpec("float32")


# Why


def test_why(storage: LFSStorage, write: Callable[..., types.ModuleType]) -> None:
    def made(*edits: tuple[str, str], **options: Any) -> Any:
        return storage.cacheable("a", **options)(write("made", TEXT, *edits).make)

    nothing = storage.why(made())
    assert (nothing.is_stored, nothing.would_build, nothing.compared_with) == (False, True, None)
    assert "would be built: it is not stored" in str(nothing)
    made()().close()
    (version,) = versions(storage)
    same = storage.why(made())
    assert (same.is_stored, same.would_build, same.changes) == (True, False, ())
    assert same.dataset_version == same.compared_with == version
    assert "would be read: it is stored, and nothing has changed" in str(same)

    edited = storage.why(made(SHIFTED, ("FACTOR = 2", "FACTOR = 7")), 5)
    assert (edited.is_stored, edited.would_build) == (False, True)
    assert edited.compared_with == version != edited.dataset_version
    assert {(it.kind, it.name) for it in edited.changes} == {
        ("function", "made.helper"),
        ("global", "made.FACTOR"),
        ("argument", "count"),
    }
    assert edited.changes[0].lines == [
        "-    return number * FACTOR",
        "+    return number * FACTOR + 1",
    ]
    assert "the global made.FACTOR is 7, and was 2" in str(edited)
    assert "the argument count is 5, and was 3" in str(edited)
    secret = storage.why(made(("do not tell", "never tell")))
    assert "the global made.API_KEY changed" in str(secret)
    assert "tell" not in str(secret)

    made(dataset_version="1")().close()
    pinned = storage.why(made(SHIFTED, dataset_version="1"))
    assert (pinned.is_stored, pinned.would_build, pinned.compared_with) == (True, False, "1")
    assert "would be read as it is stored, though it was made otherwise" in str(pinned)
    for on_change, said in {"raise": "an error be raised", "rebuild": "built again"}.items():
        assert said in str(storage.why(made(SHIFTED, dataset_version="1", on_change=on_change)))


def test_why_it_cannot_be_told(storage: LFSStorage) -> None:
    @storage.cacheable("a")
    def make() -> Any:
        return LOCK

    told = storage.why(make)
    assert (told.dataset_version, told.is_stored, told.would_build) == (None, False, False)
    assert "LOCK is a lock" in str(told)


def test_why_of_what_has_no_recipe(storage: LFSStorage) -> None:
    storage.submit([1], "a", "1")

    @storage.cacheable("a", "1")
    def make() -> Any:
        return [1]

    told = storage.why(make)
    assert told.is_stored
    assert str(told)


def test_why_of_a_method(storage: LFSStorage) -> None:
    class Maker:
        def __init__(self, size: int) -> None:
            self.size = size

        @storage.cacheable("a")
        def make(self) -> Any:
            return [1] * self.size

    Maker(2).make().close()
    assert storage.why(Maker(2).make).is_stored
    assert not storage.why(Maker(3).make).is_stored


def test_why_of_something_else(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    other = LFSStorage(tmp_path).cacheable("a")(piece)
    for wrong in (piece, other, 3):
        with pytest.raises(InvalidArgumentError, match="cacheable of this storage decorates"):
            storage.why(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [None, "1"])
def test_why_of_a_call_that_cannot_be_made(storage: LFSStorage, version: str | None) -> None:
    @storage.cacheable("a", version)
    def make(count: int, *, split: str = "train") -> Any:
        return [split] * count

    wrong: list[tuple[tuple[int, ...], dict[str, str]]]
    wrong = [((), {}), ((1, 2), {}), ((1,), {"splt": "test"})]
    asking: list[Callable[..., object]] = [make, functools.partial(storage.why, make)]
    for arguments, named in wrong:
        for ask in asking:
            with pytest.raises(TypeError, match="argument"):
                ask(*arguments, **named)
    make(1)
    assert storage.why(make, 1).is_stored
    if version:
        # What is stored is read, whatever the arguments.
        assert all(storage.why(make, *some, **named).is_stored for some, named in wrong)


# Hostile files


ITEM = ["function", "a.b", "0" * 32, "x = 1"]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "text",
        {},
        {"format": 2, "digest": "0" * 32, "items": []},
        {"format": 1, "digest": "0" * 31, "items": []},
        {"format": 1, "digest": 0, "items": []},
        {"format": 1, "digest": "0" * 32, "items": {}},
        {"format": 1, "digest": "0" * 32, "items": [1]},
        {"format": 1, "digest": "0" * 32, "items": [ITEM[:3]]},
        {"format": 1, "digest": "0" * 32, "items": [["unknown", *ITEM[1:]]]},
        {"format": 1, "digest": "0" * 32, "items": [[*ITEM[:3], "x" * 10**6]]},
        {"format": 1, "digest": "0" * 32, "items": [[ITEM[0], "n" * 10**6, *ITEM[2:]]]},
        {"format": 1, "digest": "0" * 32, "items": [[*ITEM[:2], "x", ITEM[3]]]},
        {"format": 1, "digest": "0" * 32, "items": [ITEM] * 10_000},
    ],
)
def test_documents_that_make_no_sense_are_none(document: Any) -> None:
    assert parse(document) is None
    assert parse({"format": 1, "digest": "0" * 32, "items": [ITEM]}) is not None


def test_documents_are_small(storage: LFSStorage) -> None:
    def make(**values: Any) -> Any:
        return [1]

    big = {f"value{number}": "x" * 900 for number in range(500)}
    with storage.cacheable("a")(make)(**big) as ref:
        assert parse(ref.info.provenance.recipe_document) is not None
        assert ref.info.file_size < 200_000


def test_what_a_terminal_would_obey_is_not_written(
    storage: LFSStorage, write: Callable[..., types.ModuleType]
) -> None:
    storage.cacheable("a")(
        write("made", TEXT, ("FACTOR = 2", "FACTOR = '\\x1b[2J'")).make
    )().close()
    told = storage.why(storage.cacheable("a")(write().make))
    assert "\x1b" not in str(told)


def test_functions_that_call_themselves(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    step = [1]

    @storage.cacheable("counted")
    def count(number: int = 3) -> Any:
        return [0] if number == 0 else [int(it) + step[0] for it in count(number - 1)]

    @storage.cacheable("other")
    def other() -> Any:
        return [int(it) for it in count(2)]

    assert list(map(int, other())) == [2]
    before = storage.why(other).dataset_version
    step[0] = 2
    assert storage.why(other).dataset_version != before
    assert list(map(int, other())) == [4]
