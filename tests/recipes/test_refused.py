"""What cannot be told is refused, with the place and what to do about it; never guessed."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import pathlib
import random
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from yogadl.errors import InvalidArgumentError, UndeterminedError
from yogadl.recipes import recipe_of

LOCK = threading.Lock()
COUNTER = itertools.count()
FILE = {"log": [sys.__stdout__]}


class Owner:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.size = 1

    def make(self) -> int:
        return self.size


OWNER = Owner()


def uses_lock() -> Any:
    return LOCK


def uses_owner() -> Any:
    return OWNER.size


def through() -> Any:
    return uses_lock()


def uses_file() -> Any:
    return FILE


def uses_counter() -> Any:
    return next(COUNTER)


def uses_eval() -> Any:
    return eval("1")


def uses_exec() -> Any:
    exec("x = 1")


def uses_import() -> Any:
    return importlib.import_module("js" + "on")


def uses_globals() -> Any:
    return globals()["LOCK"]


def uses_modules() -> Any:
    return sys.modules["json"]


def uses_subclasses() -> Any:
    return Owner.__subclasses__()


def uses_frames() -> Any:
    return sys._getframe()


def uses_itself() -> Any:
    import test_refused

    return getattr(test_refused, "LO" + "CK")


def uses_the_environment() -> Any:
    return dict(os.environ)


def uses_made_of_text() -> Any:
    return MADE_OF_TEXT()


def uses_frompyfunc() -> Any:
    return VECTORIZED(1)


MADE_OF_TEXT = eval("lambda: 1")
VECTORIZED = np.frompyfunc(lambda x: x, 1, 1)
HERE = __name__


@pytest.mark.parametrize(
    ("function", "where", "name"),
    [
        (uses_lock, r"uses_lock → .*\.LOCK is a lock", f"{HERE}.LOCK"),
        (through, r"through → .*LOCK is a lock", f"{HERE}.LOCK"),
        (uses_owner, r"OWNER\.lock is a lock", f"{HERE}.OWNER"),
        (uses_file, r"FILE\['log'\]\[0\] is an open file", f"{HERE}.FILE"),
        (uses_counter, r"COUNTER is a itertools\.count", f"{HERE}.COUNTER"),
        (uses_eval, "code that uses eval, which runs", "eval"),
        (uses_exec, "code that uses exec", "exec"),
        (uses_import, "importlib.import_module, which finds", "importlib.import_module"),
        (uses_globals, "code that uses globals", "globals"),
        (uses_modules, r"code that uses sys\.modules", "sys.modules"),
        (uses_subclasses, "code that uses __subclasses__", "__subclasses__"),
        (uses_frames, r"code that uses sys\._getframe", "sys._getframe"),
        (uses_itself, "the module test_refused itself", "test_refused"),
        (uses_the_environment, "the whole environment", "os.environ"),
        (uses_made_of_text, "a function whose code cannot be told", f"{HERE}.<lambda>"),
        (uses_frompyfunc, "np.frompyfunc", f"{HERE}.VECTORIZED"),
    ],
)
def test_what_is_met_in_code(function: Callable[[], Any], where: str, name: str) -> None:
    with pytest.raises(UndeterminedError, match=where) as caught:
        recipe_of(function)
    assert f"ignore=({name!r},)" in str(caught.value)
    assert "key=" in str(caught.value)
    assert "give a version" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (uses_lock, "LOCK"),
        (uses_lock, f"{HERE}.LOCK"),
        (through, f"{HERE}.uses_lock"),
        (through, "uses_lock"),
        (uses_owner, "Owner.lock"),
        (uses_owner, f"{HERE}.Owner.lock"),
        (uses_eval, "eval"),
        (uses_import, "importlib.import_module"),
        (uses_subclasses, "__subclasses__"),
        (uses_the_environment, "os.environ"),
        (uses_made_of_text, "MADE_OF_TEXT"),
    ],
)
def test_what_is_ignored_is_not_looked_at(function: Callable[[], Any], name: str) -> None:
    assert recipe_of(function, ignore=(name,)).digest != recipe_of(uses_ignored).digest


def uses_ignored() -> Any:
    return 1


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (threading.Lock(), "a lock"),
        (threading.RLock(), "a lock"),
        (threading.Event(), r"_cond\._lock is a lock"),
        (generator(), "a generator"),
        (iter([1]), "a list_iterator"),
        (map(str, [1]), "a map"),
        (weakref.WeakValueDictionary(), "weakref"),
        (threading.local(), "_thread._local"),
        (random.SystemRandom(), "SystemRandom"),
        (types.ModuleType("mine"), "the module mine itself"),
        (functools.cmp_to_key(lambda a, b: 0)(1), "a functools.KeyWrapper"),
        (memoryview, ""),
    ],
)
def test_arguments(value: Any, what: str) -> None:
    def make(given: Any) -> Any:
        return given

    if not what:
        recipe_of(make, (value,))
        return
    with pytest.raises(UndeterminedError, match=what) as caught:
        recipe_of(make, (value,))
    assert "given" in str(caught.value)
    recipe_of(make, (value,), ignore=("given",))


def test_values_that_are_nested_without_end() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UndeterminedError, match="nested too deeply"):
        recipe_of(uses_ignored, (deep,))


def load(path: pathlib.Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that is imported of a text."""
    path.write_text(text)
    monkeypatch.syspath_prepend(path.parent)
    module = importlib.import_module(path.stem)
    monkeypatch.delitem(sys.modules, path.stem)
    return module


def test_a_file_that_was_edited_after_it_was_imported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is what was imported, and its text is gone."""
    path = tmp_path / "edited_later.py"
    module = load(path, "def make():\n    return [1]\n", monkeypatch)
    before = recipe_of(module.make).digest
    path.write_text("def make():\n    return [2, 3]\n")
    with pytest.raises(UndeterminedError, match="not what is running: it was changed after"):
        recipe_of(module.make)
    path.write_text("# A comment.\ndef make():\n    return [1]\n")
    with pytest.raises(UndeterminedError, match="not what is running"):
        recipe_of(module.make)
    path.write_text("def make():\n    # Another.\n    return [1]\n")
    assert recipe_of(module.make).digest == before
    path.unlink()
    with pytest.raises(UndeterminedError, match="cannot be read"):
        recipe_of(module.make)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"key": object()}, "JSON can hold"),
        ({"key": float("nan")}, "JSON can hold"),
        ({"inputs": ("/there/is/no/such",)}, "cannot be read"),
        ({"inputs": (3,)}, re.escape("inputs= takes paths, yogadl.FileInput and DataRefs")),
    ],
)
def test_what_is_declared_wrongly(options: Any, what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=what):
        recipe_of(uses_ignored, **options)
