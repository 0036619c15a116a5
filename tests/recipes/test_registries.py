"""Whose a thing is that others are registered with, where a module has imported it."""

from __future__ import annotations

import abc
import collections.abc
import functools
import json
import pathlib
import types
from typing import Any

import pytest

from yogadl.recipes._registries import is_registry_of_users
from yogadl.recipes._stores import told_by


def register(name: str) -> Any:
    return name


class Registry:
    def register(self, name: str) -> str:
        return name

    @classmethod
    def register_all(cls) -> None: ...

    @staticmethod
    def register_none() -> None: ...

    register_length = len

    @property
    def registered(self) -> list[str]:
        return []


class Derived(Registry):
    pass


class Mapping(collections.abc.Mapping[str, int]):
    pass


class Abstract(abc.ABC):
    @abc.abstractmethod
    def make(self) -> None: ...


class Anything(Registry):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Meta(type):
    pass


class OfMeta(Registry, metaclass=Meta):
    pass


@functools.singledispatch
def dispatched(value: Any) -> Any:
    return value


def with_one_of_its_own() -> Registry:
    made = Registry()
    vars(made)["register"] = json.loads
    return made


def module_with(**values: Any) -> types.ModuleType:
    """One of the user's."""
    made = types.ModuleType("made")
    made.__file__ = str(pathlib.Path(__file__).with_name("made.py"))
    vars(made).update(values)
    return made


OWN: dict[str, tuple[Any, tuple[str, ...]]] = {
    "function": (register, ()),
    "method": (Registry(), ("register",)),
    "method of a base": (Derived(), ("register",)),
    "class method": (Derived, ("register_all",)),
    "static method": (Registry(), ("register_none",)),
    "method of a class": (Registry, ("register",)),
    "abstract class": (Abstract, ("register",)),
    "in a module": (module_with(register=register), ("register",)),
    "in a module of a module": (module_with(x=module_with(x=Registry())), ("x", "x", "register")),
}
OTHERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "function": (json.loads, ()),
    "built-in function": (len, ()),
    "class": (Registry, ()),
    "partial function": (functools.partial(register), ()),
    "kept function": (functools.lru_cache(register), ()),
    "nothing": (None, ("register",)),
    "dispatcher": (dispatched, ("register",)),
    "abstract class": (collections.abc.Mapping, ("register",)),
    "abstract class below one of Python's": (Mapping, ("register",)),
    "other attribute": (Abstract, ("register_all",)),
    "property": (Registry(), ("registered",)),
    "function in a class": (Registry(), ("register_length",)),
    "attribute of an object": (with_one_of_its_own(), ("register",)),
    "whatever it answers": (Anything(), ("register",)),
    "class of a class of its own": (OfMeta, ("register",)),
    "module": (json, ("loads",)),
    "in a module": (module_with(register=json.loads), ("register",)),
    "not in a module": (module_with(), ("register",)),
    "in an object in a module": (module_with(x=Registry()), ("y", "register")),
    "attribute of an attribute": (Registry(), ("x", "register")),
}


@pytest.mark.parametrize("case", OWN)
def test_what_is_surely_the_users(case: str) -> None:
    value, attributes = OWN[case]
    assert is_registry_of_users(module_with(it=value), ("it", *attributes))


@pytest.mark.parametrize("case", OTHERS)
def test_what_may_be_of_a_library(case: str) -> None:
    value, attributes = OTHERS[case]
    assert not is_registry_of_users(module_with(it=value), ("it", *attributes))


def test_what_is_not_there() -> None:
    assert not is_registry_of_users(module_with(), ("register",))


@pytest.mark.parametrize(
    ("text", "chains"),
    [
        ("from .a import register\n@register('x')\ndef f(): pass", [("register",)]),
        ("from .a import register as put\n@put('x')\ndef f(): pass", [("put",)]),
        ("from .a import M\n@M.register('x')\ndef f(): pass", [("M", "register")]),
        ("import a.b\n@a.b.register('x')\ndef f(): pass", [("a", "b", "register")]),
        (
            "import a\na.register(f)\na.b.register_c()",
            [("a", "register"), ("a", "b", "register_c")],
        ),
    ],
)
def test_what_is_imported_is_to_be_looked_at(text: str, chains: list[tuple[str, ...]]) -> None:
    told = told_by(text)
    assert told is not None
    assert told.registries == set(chains)


@pytest.mark.parametrize(
    "text",
    [
        "from .a import register\nregister = f\nregister(g)",
        "def make():\n    from .a import register\n    register(g)",
        "from .a import register\ndef make(register): register(g)",
        "from .a import *\nregister(g)",
        "from .a import M\nM.register = f\nM.register(g)",
        "from .a import M\nM.b = f\nM.b.register(g)",
        "from .a import M\nM().register(g)",
        "from .a import M\nM.__self__.register(g)",
        "from .a import M\nM[0].register(g)",
        "from .a import M\nclass A:\n    M.__b.register(g)",
    ],
)
def test_what_is_not_only_imported_may_be_anything(text: str) -> None:
    assert told_by(text) is None
