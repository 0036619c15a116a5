"""Objects and classes of the user's that have taken the places of modules."""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import pytest

from yogadl.errors import UndeterminedError
from yogadl.recipes import recipe_of

OBJECT = """
class Standing:
    def make(self):
        return self.size
STANDING = Standing()
STANDING.size = {0}
"""
SLOTS = """
class Standing:
    __slots__ = ("size",)
    def make(self):
        return self.size
STANDING = Standing()
STANDING.size = {0}
"""
# It says that it is a module, and has no more than one attribute.
DISGUISED = """
import types
class Standing:
    __class__ = types.ModuleType
    __slots__ = ("size",)
    def make(self):
        return self.size
STANDING = Standing()
STANDING.size = {0}
"""
CLASS = """
class STANDING:
    size = {0}
    @staticmethod
    def make():
        return {0}
"""
DERIVED = """
import types
class Standing(types.ModuleType):
    # That of the base, which would name it, is not called.
    def __init__(self, size):
        self.size = size
    def make(self):
        return self.size
STANDING = Standing({0})
"""
PACKAGE = """
import types
STANDING = types.ModuleType("{1}")
STANDING.__path__ = []
STANDING.size = {0}
STANDING.make = lambda: {0}
"""
USES = (
    "import colorsys\ndef make(): return colorsys.size",
    "import colorsys\ndef make(): return colorsys.make()",
    "from colorsys import make as inner\ndef make(): return inner()",
    "def make():\n    import colorsys\n    return colorsys.make()",
    "def make():\n    from colorsys import size\n    return size",
    "def make():\n    import colorsys as inner\n    return getattr(inner, 'size')",
)


@pytest.fixture(name="told")
def new_program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what a function is, and what it makes, by the texts of its module and of one that is
    imported first, whose ``STANDING`` takes the place of a module of Python's, or of another."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def told(text: str, use: str, name: str) -> tuple[str, Any]:
        (tmp_path / "standing.py").write_text(text)
        (tmp_path / "using.py").write_text(use.replace("colorsys", name))
        importlib.invalidate_caches()
        for module in ("standing", "using"):
            sys.modules.pop(module, None)
        monkeypatch.setitem(sys.modules, name, importlib.import_module("standing").STANDING)
        make = importlib.import_module("using").make
        try:
            return recipe_of(make).digest, make()
        except UndeterminedError as error:
            return f"refused: {error}", make()

    yield told
    for module in ("standing", "using"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize("name", ["colorsys", "yogadl_absent"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("text", [OBJECT, SLOTS, DISGUISED, CLASS, PACKAGE])
def test_what_stands_for_a_module_counts(told: Any, text: str, use: str, name: str) -> None:
    one, other = (told(text.format(size, name), use, name) for size in (1, 2))
    assert (one[1], other[1]) == (1, 2)
    assert one[0] != other[0]
    assert len(one[0]) == 32


@pytest.mark.parametrize("name", ["colorsys", "yogadl_absent"])
@pytest.mark.parametrize("use", USES)
def test_modules_of_classes_of_ones_own_are_refused(told: Any, use: str, name: str) -> None:
    digest, made = told(DERIVED.format(1, name), use, name)
    assert made == 1
    assert "itself, of which it cannot be told what is used" in digest


def test_a_module_that_is_said_not_to_be_there(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use = """
def make():
    try:
        import {} as inner
    except ImportError:
        return 0
    return 1
"""
    there = told("STANDING = None", use.format("string"), "yogadl_absent")
    monkeypatch.setitem(sys.modules, "string", None)
    assert told("STANDING = None", use.format("string"), "yogadl_absent") != there
    assert told("STANDING = None", use.format("colorsys"), "colorsys")[1] == 0


@pytest.mark.parametrize("use", [USES[0], "def make():\n    import colorsys\n    return colorsys"])
def test_a_number_in_the_place_of_a_module(told: Any, use: str) -> None:
    use = use.replace("colorsys.size", "colorsys")
    one, other = (told(f"STANDING = {size}", use, "colorsys") for size in (1, 2))
    assert (one[1], other[1]) == (1, 2)
    assert one[0] != other[0]
