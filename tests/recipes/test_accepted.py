"""Ordinary programs that are not refused, and that are the same after they have run."""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from yogadl.recipes import recipe_of

HELPER = "X = 1\n"

PROGRAMS = {
    "a word that is the name of a function": """
import {helper}
def make():
    opts = {{"globals": 1, "locals": 2}}
    return [{helper}.X, opts]
""",
    "an attribute of that name": """
import {helper}
class Kept:
    locals = 3
def make(): return [{helper}.X, Kept().locals]
""",
    "a module beside what tells of all variables": """
def make():
    import {helper}
    x = {helper}.X
    return ["%(x)s" % locals(), "{{x}}".format(**vars())]
""",
    "a module of a function around": """
def make():
    helper = None
    def load():
        nonlocal helper
        import {helper} as helper
    load()
    return [helper.X]
""",
    "a module that a class imports": """
def make():
    class Kept:
        import {helper} as inner
        value = inner.X
    return [Kept.value]
""",
    "a module that is an attribute of a class": """
def make():
    class Kept:
        import {helper} as inner
    return [Kept.inner.X]
""",
    "a module in a text": """
def make():
    import {helper} as inner
    return ["{{inner.X}}".format(**locals())]
""",
    "what a library changes of itself": """
import tempfile
TOOLS = {{"tmp": tempfile}}
import {helper}
def make():
    tempdir = TOOLS["tmp"].gettempdir()
    return [{helper}.X, bool(tempdir)]
""",
    "a lock that an annotation names": """
import threading
import {helper}
class Service:
    lock = threading.Lock()
def key(x: int, service: "Service | None" = None): return x * {helper}.X
def make(): return [sorted([2, 1], key=key), key(1)]
""",
    "several lambdas that begin in one line, of which one ends further left": """
import {helper}
short, long = lambda: 1, lambda numbers: [
    it + {helper}.X for it in numbers
]
def make(): return [short(), long([1])]
""",
    "several lambdas of constants in one line": """
import {helper}
lambdas = [lambda: 1, lambda: 2, lambda: {helper}.X]
def make(): return [it() for it in lambdas]
""",
    "a lock that an annotation of a function inside names": """
import threading
import {helper}
class Service:
    lock = threading.Lock()
def make():
    def inner(x, service: Service = None): return x * {helper}.X
    return list(map(inner, [2, 1]))
""",
}


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_ordinary_programs(folder: pathlib.Path, name: str) -> None:
    """What they read of their modules counts."""

    def told(number: int, helper: str) -> tuple[Any, str]:
        (folder / "helper_of_it.py").write_text(helper)
        (folder / f"accepted_{number}.py").write_text(PROGRAMS[name].format(helper="helper_of_it"))
        sys.modules.pop("helper_of_it", None)
        importlib.invalidate_caches()
        make = importlib.import_module(f"accepted_{number}").make
        before = recipe_of(make).digest
        made = make()
        assert recipe_of(make).digest == before
        return made, before

    made, digest = told(1, HELPER)
    assert told(2, HELPER) == (made, digest)
    other, changed = told(3, "X =  22\n")
    assert other != made
    assert changed != digest
