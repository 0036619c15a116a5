"""What cannot be told is refused, with the place and what to do about it; never guessed."""

from __future__ import annotations

import builtins
import cProfile
import functools
import importlib
import importlib.util
import inspect
import itertools
import operator
import os
import pathlib
import pkgutil
import random
import re
import sys
import threading
import timeit
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Annotated, Any

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


class Comparing(type):
    # As Python has it for any class that has an __eq__ of its own.
    __hash__ = None

    def __eq__(cls, other: object) -> bool:
        return cls is other


class Compared(metaclass=Comparing):
    size = 1


COMPARED = Compared()


def uses_lock() -> Any:
    return LOCK


def uses_owner() -> Any:
    return OWNER.size


def uses_compared() -> Any:
    return Compared.size


def uses_object_of_compared() -> Any:
    return COMPARED.size


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


def uses_eval_in_dict() -> Any:
    return TOOLS["eval"]("LOCK")


def uses_eval_of_module() -> Any:
    return vars(builtins)["eval"]("LOCK")


def uses_eval_by_name() -> Any:
    return getattr(builtins, "eval")("LOCK")  # noqa: B009 # as users do


def uses_builtins() -> Any:
    return __builtins__["eval"]("LOCK")  # type: ignore[index]


def uses_subclasses_by_name() -> Any:
    return getattr(Owner, "__subclasses__")()  # noqa: B009


def uses_an_attribute_getter() -> Any:
    return SPACE(uses_lock)["LOCK"]


def uses_module_of() -> Any:
    return inspect.getmodule(uses_lock).LOCK  # type: ignore[union-attr]


def uses_a_loader() -> Any:
    return importlib.util.spec_from_file_location("any", "any.py")


def uses_pydoc() -> Any:
    import pydoc

    return pydoc.locate("test_refused.LOCK")


def uses_resolved_name() -> Any:
    return pkgutil.resolve_name("test_refused:LOCK")


def uses_another_environment() -> Any:
    return os.environb[b"HOME"]


def uses_partial_environment() -> Any:
    return HOME()


def uses_expanded_text() -> Any:
    return os.path.expandvars("$HOME")


def uses_a_module_that_it_makes_global() -> Any:
    global itself  # noqa: PLW0603
    import test_refused as itself

    return itself.LOCK


def uses_a_proxy() -> Any:
    return PROXY()


def uses_timeit() -> Any:
    return timeit.timeit("out.append(helper())", number=1)


def uses_a_profile() -> Any:
    return cProfile.run("uses_ignored()")


def uses_a_method_of_a_profile() -> Any:
    return cProfile.Profile().run("uses_ignored()")


def uses_doctest() -> Any:
    import doctest

    return doctest.testmod()


def uses_a_format_of_globals() -> Any:
    return f"{uses_lock.__globals__['LOCK']}"


class Proxy(functools.partial[Any]):
    """Its class is written in C, and it says that it is a function."""

    __class__ = types.FunctionType  # type: ignore[assignment]


TOOLS = {"eval": eval}
SPACE = operator.attrgetter("__globals__")
HOME = functools.partial(os.getenv, "HOME")
PROXY = Proxy(uses_lock)
MADE_OF_TEXT = eval("lambda: 1")
VECTORIZED = np.frompyfunc(lambda x: x, 1, 1)
HERE = __name__


@pytest.mark.parametrize(
    ("function", "where", "name"),
    [
        (uses_lock, r"uses_lock → .*\.LOCK is a lock", f"{HERE}.LOCK"),
        (through, r"through → .*LOCK is a lock", f"{HERE}.LOCK"),
        (uses_owner, r"OWNER\.lock is a lock", f"{HERE}.OWNER"),
        (uses_compared, r"Compared is a class of .*Comparing, which has", f"{HERE}.Compared"),
        (uses_object_of_compared, "COMPARED is an object of a class of", f"{HERE}.COMPARED"),
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
        (uses_eval_in_dict, r"TOOLS\['eval'\] is code that uses eval", "eval"),
        (uses_eval_of_module, "the module builtins itself", "builtins"),
        (uses_eval_by_name, "code that uses eval", "eval"),
        (uses_builtins, "code that uses __builtins__", "__builtins__"),
        (uses_subclasses_by_name, "code that uses __subclasses__", "__subclasses__"),
        (uses_an_attribute_getter, "code that uses __globals__", "__globals__"),
        (uses_module_of, r"code that uses inspect\.getmodule", "inspect.getmodule"),
        (uses_a_loader, "spec_from_file_location", "importlib.machinery.spec_from_file_location"),
        (uses_pydoc, r"code that uses pydoc\.locate", "pydoc.locate"),
        (uses_resolved_name, r"pkgutil\.resolve_name", "pkgutil.resolve_name"),
        (uses_another_environment, r"os\.environb", "os.environb"),
        (uses_partial_environment, r"HOME\.func is the whole environment", "os.environ"),
        (uses_expanded_text, r"os\.path\.expandvars", "os.path.expandvars"),
        (uses_a_module_that_it_makes_global, "the module test_refused itself", "itself"),
        (uses_timeit, r"code that uses timeit\.timeit, which runs", "timeit.timeit"),
        (uses_a_profile, r"code that uses cProfile\.run", "cProfile.run"),
        (uses_a_method_of_a_profile, r"_profile is code that uses Profile\.run", "Profile.run"),
        (uses_doctest, r"code that uses doctest\.testmod", "doctest.testmod"),
        (uses_a_format_of_globals, "code that uses __globals__", "__globals__"),
        (uses_a_proxy, "partial|Proxy", f"{HERE}.PROXY"),
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


@pytest.mark.parametrize("how", ["{0}(NAME)", "own.{0}(NAME)", "inner.{0}(NAME)", "later(NAME)"])
@pytest.mark.parametrize(
    "full",
    [
        "importlib.metadata.Distribution.from_name",
        "importlib.metadata.distribution",
        "importlib.metadata.distributions",
        "importlib.metadata.entry_points",
        "importlib.metadata.files",
        "importlib.metadata.metadata",
        "importlib.metadata.packages_distributions",
        "importlib.metadata.requires",
        "importlib.metadata.version",
        "importlib.util.find_spec",
        "pkgutil.get_loader",
    ],
)
def test_what_is_installed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, full: str, how: str
) -> None:
    """Whatever name it has in the code."""
    match = re.fullmatch(r"([a-z.]+)\.((?:[A-Z]\w+\.)?\w+)", full)
    assert match is not None
    home, name = match.groups()
    first, *more = name.split(".")
    text = f"""
from {home} import {first}
import {home} as own
NAME = "numpy"
def make():
    import {home} as inner
    from {home} import {first} as later
    return [{how.format(name).replace("later", ".".join(["later", *more]))}]
"""
    (tmp_path / "installing.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "installing", raising=False)
    make = importlib.import_module("installing").make
    known = f"{home}.{first}"
    with pytest.raises(UndeterminedError, match=f"code that uses {re.escape(known)}"):
        recipe_of(make)
    assert recipe_of(make, ignore=(known,)).digest
    monkeypatch.delitem(sys.modules, "installing")


def test_profiles_that_run_no_text() -> None:
    def make() -> Any:
        with cProfile.Profile() as profile:
            return profile

    recipe_of(make)


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
    with pytest.raises(UndeterminedError, match=r"nested too deeply.*ignore=\('value',\)"):
        recipe_of(same, (deep,))
    recipe_of(same, (deep,), ignore=("value",))


def test_objects_in_each_other() -> None:
    """As many as Python has been told."""
    head: Any = None
    for _ in range(1000):
        head = types.SimpleNamespace(following=head)
    with pytest.raises(UndeterminedError, match="setrecursionlimit"):
        recipe_of(same, (head,))
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(8000)
    try:
        assert recipe_of(same, (head,)).digest == recipe_of(same, (head,)).digest
    finally:
        sys.setrecursionlimit(before)


def same(value: Any) -> Any:
    return value


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


def test_a_file_with_assertions_that_was_edited(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only of what pytest has compiled, the code is not that of the text."""
    path = tmp_path / "asserting.py"
    module = load(path, "def make():\n    assert True\n    return [1]\n", monkeypatch)
    recipe_of(module.make)
    path.write_text("def make():\n    assert True\n    return [2, 3]\n")
    with pytest.raises(UndeterminedError, match="not what is running"):
        recipe_of(module.make)


def test_a_library_without_a_version(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a file that somebody has copied there."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    text = "def used():\n    return 1\n"
    copied: Any = load(folder / "yogadl_copied.py", text, monkeypatch)
    monkeypatch.setitem(sys.modules, "yogadl_copied", copied)

    def make() -> Any:
        return copied.used()

    with pytest.raises(UndeterminedError, match="the library yogadl_copied, whose version"):
        recipe_of(make)
    recipe_of(make, ignore=("yogadl_copied",))


def test_namespaces_that_a_library_and_the_user_share(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name in (("site-packages", "theirs"), ("mine", "ours")):
        folder = tmp_path / place / "yogadl_shared"
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text("NUMBER = 1\n")
        monkeypatch.syspath_prepend(tmp_path / place)
    monkeypatch.delitem(sys.modules, "yogadl_shared", raising=False)

    def make() -> Any:
        from yogadl_shared.ours import NUMBER  # type: ignore[import-not-found]

        return NUMBER

    before = recipe_of(make).digest
    monkeypatch.setattr(sys.modules["yogadl_shared.ours"], "NUMBER", 2)
    assert recipe_of(make).digest != before


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


class Shown:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        raise AssertionError("the user's code runs")


def test_annotations_that_cannot_be_told() -> None:
    """They are not told by where they lie in memory, and the user's code is not asked."""

    def annotated(value: Any) -> type:
        return type("Annotated", (), {"__annotations__": {"x": Annotated[int, value]}})

    def told(value: Any) -> str:
        return recipe_of(annotated, (annotated(value),)).digest

    for value in (Shown(iter([1])), itertools.repeat(Shown(1)), iter([1])):
        with pytest.raises(UndeterminedError, match="a state that cannot be seen"):
            told(value)
    assert told(itertools.count(3)) == told(itertools.count(3)) != told(itertools.count(4))
    assert told(Shown(1)) == told(Shown(1)) != told(Shown(2))
