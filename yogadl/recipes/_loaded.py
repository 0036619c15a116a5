"""What is loaded of a library, and what of that is the user's: functions in its modules, methods in
its classes."""

from __future__ import annotations

import abc
import builtins
import enum
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from yogadl.recipes._owners import PYTHON, is_standard
from yogadl.recipes._users import (
    HOLD_NOTHING,
    Finder,
    attributes_of_object,
    by_class,
    distinct,
    is_of_classes,
)

_IMMUTABLE = 1 << 8
_MODULE = types.ModuleType
# What these are is in no record: what tells a process what it is doing, and runs its coroutines.
_HOOKS = frozenset(
    (
        "_current_process",
        "_event_loop_policy",
        "_parent_process",
        "_profile_hook",
        "_trace_hook",
        "excepthook",
        "print",
    )
)

names_of: Callable[[types.ModuleType], dict[str, Any]] = vars(_MODULE)["__dict__"].__get__
"""What a module has, whatever its class does when it is asked."""


@dataclass(frozen=True)
class Patch:
    """Something of the user's in a module or class of a library.

    Attributes:
        owner: the module or class.
        name: that it has there.
        value: what it is.
    """

    owner: Any
    name: str
    value: Any

    @property
    def label(self) -> str:
        """For people."""
        if issubclass(type(self.owner), type):
            return f"{self.owner.__module__}.{self.owner.__qualname__}.{self.name}"
        return f"{self.owner.__name__}.{self.name}"


class MayChange(dict[type, bool]):
    """Whether users may give objects of a class something, as far as anybody does; of each class
    that was asked for."""

    def __missing__(self, kind: type) -> bool:
        never = kind in HOLD_NOTHING or kind is types.FunctionType
        if never or issubclass(kind, type | enum.Enum) or kind.__module__ == "typing":
            found = False
        else:
            found = bool(kind.__dictoffset__)
        self[kind] = found
        return found

    def among(self, values: list[Any]) -> list[Any]:
        """Those of many values that users may give something."""
        return [it for it in values if self[type(it)]]


class Library:
    """What is loaded of a library: its modules, the classes in them and in each other, and the
    attributes of objects in its modules.

    Attributes:
        name: of its modules at the top, or Python.
        modules: of it.
        uses: other libraries of which its modules have something.
        bases: its abstract classes.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.modules: list[types.ModuleType] = []
        self.uses: set[str] = set()
        self.bases: list[abc.ABCMeta] = []
        self._classes: dict[int, type] = {}
        self._inner: list[Mapping[str, Any]] = []
        # What all of these had when they were looked through; thousands of small containers
        # would have Python look for garbage.
        self._values: list[Any] = []
        self._sizes: list[int] = []
        # Modules and classes that have something of the user's, or may get that without having
        # another value.
        self._looked_at: list[Any] = []

    def objects(self, may_change: MayChange) -> list[Any]:
        """The objects in its modules that users may give something."""
        found: list[Any] = []
        # Module by module, of which a processor has the values at hand for a second look.
        for space in map(names_of, self.modules):
            found += may_change.among(list(space.values()))
        return distinct(found)

    def update(self, may_change: MayChange, loaded: Set[str]) -> None:
        """Looks through it, if it is other than it was.

        Args:
            may_change: of any library.
            loaded: the names of modules of all libraries that are loaded from files.
        """
        sizes: list[int] = []
        of_modules = _values_in(map(names_of, self.modules), sizes)
        of_classes = _values_in(map(vars, self._classes.values()), sizes)
        now = [*of_modules, *of_classes, *_values_in(self._inner, sizes)]
        if sizes == self._sizes and all(map(operator.is_, now, self._values)):
            return
        objects = distinct(may_change.among(of_modules))
        self._inner = list(map(attributes_of_object, objects))
        del sizes[len(self.modules) + len(self._classes) :]
        self._look_through(of_modules, of_classes, sizes, Finder(loaded))

    def _look_through(
        self, of_modules: list[Any], of_classes: list[Any], sizes: list[int], finder: Finder
    ) -> None:
        """Finds the classes that are new, and what has something of the user's.

        Args:
            of_modules, of_classes: all values of these, to which those of the new ones are added.
            sizes: how many each of these has; likewise.
            finder: that has not looked at anything.
        """
        sizes_within: list[int] = []
        of_inner = _values_in(self._inner, sizes_within)
        suspects = set[int]()
        left = [*of_modules, *of_classes, *of_inner]
        while left:
            groups = by_class(left)
            names = (names_of(module).get("__name__") for module in groups.get(_MODULE, ()))
            self.uses.update(map(library_of, {it for it in names if type(it) is str}))
            groups = {it: distinct(groups[it]) for it in groups.keys() - HOLD_NOTHING}
            suspects |= finder.suspects(groups)
            left = _values_in(map(vars, self._met_in(groups)), sizes)
            of_classes += left
        self._values, self._sizes = [*of_modules, *of_classes, *of_inner], sizes + sizes_within
        owners = (*self.modules, *self._classes.values()) if suspects else ()
        self._looked_at = [
            it for it in owners if not suspects.isdisjoint(map(id, list(_space_of(it).values())))
        ]
        self.bases = [it for it in self._classes.values() if isinstance(it, abc.ABCMeta)]

    def patches(self) -> Iterator[Patch]:
        """What is in it of the user's."""
        for owner in self._looked_at:
            # The same values may have other names now, and what is registered is in them.
            finder = Finder()
            for name, value in _code_in(owner).items():
                if finder.finds(value):
                    yield Patch(owner, name, value)

    def _met_in(self, groups: dict[type, list[Any]]) -> list[type]:
        """The classes of this library that are new, of some values by their classes; adds them, and
        what else the library uses."""
        found = []
        for kind in filter(is_of_classes, groups):
            for value in groups[kind]:
                if not is_immutable(value):
                    home = library_of(value.__module__)
                    self.uses.add(home)
                    if home == self.name and id(value) not in self._classes:
                        self._classes[id(value)] = value
                        found.append(value)
        return found


def _values_in(spaces: Iterable[Mapping[str, Any]], sizes: list[int]) -> list[Any]:
    """All values of some modules, classes or objects.

    Args:
        spaces: what these have.
        sizes: gets how many each has.
    """
    found: list[Any] = []
    for space in spaces:
        before = len(found)
        # At once: another thread may change it.
        found.extend(space.values())
        sizes.append(len(found) - before)
    return found


def _space_of(owner: Any) -> Mapping[str, Any]:
    """What a module or class has."""
    return names_of(owner) if type(owner) is _MODULE else vars(owner)


def _code_in(owner: Any) -> dict[str, Any]:
    """What may be code of the user's in a module or class."""
    is_module = type(owner) is _MODULE
    return {
        name: value
        # Another thread may change what is copied.
        for name, value in dict(_space_of(owner)).items()
        if type(value) not in HOLD_NOTHING
        and name not in _HOOKS
        and not (is_module and name[:2] == "__")
        # What Python's prompt has shown last.
        and not (name == "_" and owner is builtins and hasattr(sys, "ps1"))
    }


def is_immutable(kind: type) -> bool:
    """Whether nobody can put anything into a class."""
    return bool(kind.__flags__ & _IMMUTABLE)


def library_of(module: Any) -> str:
    """The library that a module is of, by the name of the module."""
    return library_at(module.partition(".")[0]) if isinstance(module, str) else ""


@functools.lru_cache(maxsize=4096)
def library_at(top: str) -> str:
    return PYTHON if is_standard(top) else top
