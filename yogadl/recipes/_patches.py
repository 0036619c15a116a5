"""What the user's code has put into libraries: functions into their modules, methods into their
classes. Libraries may use it where no code of the user's says so.

All of a library is looked through once, and afterwards only what is other than it was.
"""

from __future__ import annotations

import abc
import copyreg
import enum
import importlib
import itertools
import operator
import sys
import threading
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from yogadl.recipes._owners import PYTHON, YOGADL, is_library_module, is_standard
from yogadl.recipes._users import (
    HOLD_NOTHING,
    Finder,
    attributes_of_object,
    holds_users,
    is_dispatcher,
    is_users_class,
)

_IMMUTABLE = 1 << 8
_MODULE = types.ModuleType
# What these have of the user's decides what is shown, logged or tested, which is in no record.
_BESIDE = frozenset(
    (
        "IPython",
        "_pytest",
        "ipykernel",
        "logging",
        "pluggy",
        "pytest",
        "sys",
        "unittest",
        "warnings",
        YOGADL,
    )
)
_HOOKS = frozenset(("_profile_hook", "_trace_hook", "excepthook", "print"))
_values = operator.methodcaller("values")
_lock = threading.Lock()


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


@dataclass(slots=True)
class _Space:
    """What a module or class had when it was looked through.

    Attributes:
        owner: the module or class.
        names: that it has now, with their values.
        values: that it had.
        inner: the attributes of objects in a module.
        is_looked_at: whether it has something of the user's, or may get that without being another.
    """

    owner: Any
    names: Mapping[str, Any]
    values: tuple[Any, ...] = ()
    inner: tuple[Mapping[str, Any], ...] = ()
    is_looked_at: bool = False

    def now(self) -> tuple[Any, ...]:
        """What it has now."""
        found = tuple(self.names.values())
        return (*found, *itertools.chain(*map(_values, self.inner))) if self.inner else found


@dataclass
class _Library:
    """What is loaded of a library.

    Attributes:
        name: of its modules at the top, or Python.
        spaces: its modules and classes, by where these are in memory.
        names: of all of them.
        values: that all of them had.
        uses: other libraries of which its modules have something.
        looked_at: modules and classes that have something of the user's, or may get that.
        bases: its abstract classes.
    """

    name: str
    spaces: dict[int, _Space] = field(default_factory=dict)
    names: list[Mapping[str, Any]] = field(default_factory=list)
    values: tuple[Any, ...] = ()
    uses: set[str] = field(default_factory=set)
    looked_at: list[_Space] = field(default_factory=list)
    bases: list[abc.ABCMeta] = field(default_factory=list)

    def add(self, owner: Any, names: Mapping[str, Any]) -> None:
        """Adds a module or class, unless it is known."""
        if id(owner) not in self.spaces:
            self.spaces[id(owner)] = _Space(owner, names)
            self.names.append(names)

    def update(self) -> None:
        """Looks through what is other than it was."""
        if not self._is_as_it_was():
            self._look_through()

    def patches(self) -> Iterator[Patch]:
        """What is in it of the user's."""
        for space in self.looked_at:
            # The same values may have other names now, and what is registered is in them.
            finder = Finder()
            for name, value in _code_in(space).items():
                if finder.finds(value):
                    yield Patch(space.owner, name, value)

    def _is_as_it_was(self) -> bool:
        names = self.names
        try:
            if sum(map(len, names)) != len(self.values):
                return False
            now = itertools.chain.from_iterable(map(_values, names))
            return all(map(operator.is_, now, self.values))
        except RuntimeError:
            # Another thread has changed one.
            return False

    def _look_through(self) -> None:
        left, finder = list(self.spaces.values()), Finder()
        while left:
            space = left.pop()
            now = space.now()
            if len(now) != len(space.values) or not all(map(operator.is_, now, space.values)):
                found = list(_code_in(space).values())
                if type(space.owner) is _MODULE:
                    space.inner = tuple(attributes_of_object(it) for it in found if _may_change(it))
                space.values = space.now() if space.inner else now
                space.is_looked_at = any(finder.finds(it) or is_dispatcher(it) for it in found)
                left += self._met_in(found)
                self.uses.update(library_of(it.__name__) for it in now if type(it) is _MODULE)
        spaces = self.spaces.values()
        self.names = [names for space in spaces for names in (space.names, *space.inner)]
        self.values = tuple(it for space in spaces for it in space.values)
        self.looked_at = [space for space in spaces if space.is_looked_at]
        owners = (space.owner for space in spaces)
        self.bases = [it for it in owners if issubclass(type(it), abc.ABCMeta)]

    def _met_in(self, values: list[Any]) -> list[_Space]:
        """The classes of this library that are new, of some values."""
        found = []
        for value in values:
            if issubclass(type(value), type) and not is_immutable(value):
                home = library_of(value.__module__)
                self.uses.add(home)
                if home == self.name and id(value) not in self.spaces:
                    self.add(value, vars(value))
                    found.append(self.spaces[id(value)])
        return found


def _may_change(value: Any) -> bool:
    """Whether users may give an object something, as far as anybody does."""
    kind = type(value)
    if kind is types.FunctionType or issubclass(kind, type | enum.Enum) or is_immutable(kind):
        return False
    return bool(kind.__dictoffset__) and kind.__module__ != "typing"


def _code_in(space: _Space) -> dict[str, Any]:
    """What may be code of the user's."""
    is_module = type(space.owner) is _MODULE
    return {
        name: value
        # Another thread may change what is copied.
        for name, value in dict(space.names).items()
        if type(value) not in HOLD_NOTHING
        and name not in _HOOKS
        and not (is_module and name[:2] == "__")
    }


class _Libraries:
    """All libraries, by name."""

    def __init__(self) -> None:
        self._modules: tuple[Any, ...] = ()
        self._known: set[int] = set()
        self._found: dict[str, _Library] = {}

    def used_by(self, names: Collection[str]) -> list[_Library]:
        """Those of some names, Python, and what these use."""
        self._add_modules()
        left, found = {PYTHON, *names}, dict[str, _Library]()
        while left:
            name = left.pop()
            library = self._found.get(name)
            if library is not None and name not in found:
                found[name] = library
                library.update()
                left |= library.uses
        return list(found.values())

    def _add_modules(self) -> None:
        now = tuple(sys.modules.values())
        if len(now) == len(self._modules) and all(map(operator.is_, now, self._modules)):
            return
        self._modules = now
        for name, module in list(sys.modules.items()):
            if id(module) in self._known or not issubclass(type(module), types.ModuleType):
                continue
            top = name.partition(".")[0]
            if top not in _BESIDE and top != "__main__" and is_library_module(module):
                home = library_of(name)
                library = self._found.setdefault(home, _Library(home))
                library.add(module, object.__getattribute__(module, "__dict__"))
                self._known.add(id(module))


_libraries = _Libraries()


def is_immutable(kind: type) -> bool:
    """Whether nobody can put anything into a class."""
    return bool(kind.__flags__ & _IMMUTABLE)


def library_of(module: Any) -> str:
    """The library that a module is of, by the name of the module."""
    if not isinstance(module, str):
        return ""
    return PYTHON if is_standard(module) else module.partition(".")[0]


def found_in(libraries: Collection[str]) -> tuple[list[Patch], list[abc.ABCMeta]]:
    """What is of the user's in Python, in some libraries, and in what these use; and the abstract
    classes of all of these."""
    with _lock:
        used = _libraries.used_by(libraries)
        found = [patch for library in used for patch in library.patches()]
        bases = [kind for library in used for kind in library.bases]
    for kind, reduce in list(copyreg.dispatch_table.items()):
        if not is_users_class(kind) and holds_users(reduce):
            found.append(Patch(copyreg, kind.__qualname__, reduce))
    return sorted(found, key=lambda it: it.label), bases


def registered(bases: Collection[abc.ABCMeta], kinds: Collection[type]) -> dict[type, list[str]]:
    """The names of the abstract classes that some classes are registered with."""
    found: dict[type, list[str]] = {}
    dump = importlib.import_module("_abc")._get_dump
    for base in bases:
        for reference in dump(base)[0]:
            kind = reference()
            if kind in kinds:
                found.setdefault(kind, []).append(base.__qualname__)
    return found
