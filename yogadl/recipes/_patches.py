"""What the user's code has put into libraries: functions into their modules, methods into their
classes. Libraries may use it where no code of the user's says so.

Where the text of the user's code says that there may be any, see ``_stores``, all of a library is
looked through once, and afterwards only what is other than it was.
"""

from __future__ import annotations

import abc
import builtins
import copyreg
import enum
import functools
import importlib
import itertools
import operator
import sys
import threading
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from yogadl.recipes._assigned import ALL, Stored
from yogadl.recipes._missing import MissingFiles
from yogadl.recipes._owners import PYTHON, YOGADL, is_library, is_library_module, is_standard
from yogadl.recipes._stores import names_stored
from yogadl.recipes._users import (
    HOLD_NOTHING,
    Finder,
    attributes_of_object,
    distinct,
    holds_users,
    is_users_class,
    is_users_module,
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
# Likewise what tells a process what it is doing, and who runs its coroutines.
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


class _Library:
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

    def objects(self, may_change: _MayChange) -> list[Any]:
        """The objects in its modules that users may give something."""
        found: list[Any] = []
        # Module by module, of which a processor has the values at hand for a second look.
        for space in map(_names_of, self.modules):
            found += _changeable(list(space.values()), may_change)
        return distinct(found)

    def update(self, may_change: _MayChange, loaded: Set[str]) -> None:
        """Looks through it, if it is other than it was.

        Args:
                loaded: the names of modules of all libraries that are loaded from files.
        """
        sizes: list[int] = []
        of_modules = _values_in(map(_names_of, self.modules), sizes)
        of_classes = _values_in(map(vars, self._classes.values()), sizes)
        now = [*of_modules, *of_classes, *_values_in(self._inner, sizes)]
        if sizes == self._sizes and all(map(operator.is_, now, self._values)):
            return
        objects = distinct(_changeable(of_modules, may_change))
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
            modules = distinct([it for it in left if type(it) is _MODULE])
            names = (_names_of(module).get("__name__") for module in modules)
            self.uses.update(map(library_of, {it for it in names if type(it) is str}))
            left = distinct([it for it in left if type(it) not in HOLD_NOTHING])
            suspects |= finder.suspects(left)
            left = _values_in(map(vars, self._met_in(left)), sizes)
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

    def _met_in(self, values: list[Any]) -> list[type]:
        """The classes of this library that are new, of some values; adds them, and what else the
        library uses."""
        kinds = {kind for kind in set(map(type, values)) if issubclass(kind, type)}
        found = []
        for value in values:
            if type(value) in kinds and not is_immutable(value):
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


def _changeable(values: list[Any], may_change: _MayChange) -> list[Any]:
    """Those of some values that users may give something."""
    return [it for it in values if may_change[type(it)]]


def _names_of(module: types.ModuleType) -> dict[str, Any]:
    """What a module has, whatever its class does when it is asked."""
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found


class _MayChange(dict[type, bool]):
    """Whether users may give objects of a class something, as far as anybody does; by classes, for
    a hundred thousand objects."""

    def __missing__(self, kind: type) -> bool:
        found = bool(kind.__dictoffset__) and kind.__module__ != "typing"
        if kind in HOLD_NOTHING or kind is types.FunctionType or is_immutable(kind):
            found = False
        if issubclass(kind, type | enum.Enum):
            found = False
        self[kind] = found
        return found


def _space_of(owner: Any) -> Mapping[str, Any]:
    """What a module or class has."""
    return _names_of(owner) if type(owner) is _MODULE else vars(owner)


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


class _Libraries:
    """All libraries, by name."""

    def __init__(self) -> None:
        self._modules: tuple[Any, ...] = ()
        self._missing = MissingFiles()
        self._known: set[int] = set()
        self._loaded: set[str] = set()
        self._users: dict[int, types.ModuleType] = {}
        self._found: dict[str, _Library] = {}
        self._may_change = _MayChange()

    def may_have_any(self) -> bool:
        """Whether there may be code of the user's in any of them, as far as the text of that
        tells; looks at a few names only."""
        stored = self.names_put()
        if stored is ALL:
            return True
        names = frozenset(name for name, is_code in stored.items() if is_code)
        if not names:
            return False
        finder = Finder()
        values = itertools.chain(self._in_modules(names), _in_classes(names))
        return any(map(finder.finds, values))

    def names_put(self) -> Stored | None:
        """The names that the user's code may have put anything under."""
        self._add_modules()
        return names_stored(self._users.values(), self._missing)

    def _in_modules(self, names: frozenset[str]) -> Iterator[Any]:
        """What modules of libraries, and objects in them, have under some names."""
        for library in self._found.values():
            of_modules = map(_names_of, library.modules)
            of_objects = map(attributes_of_object, library.objects(self._may_change))
            for space in _having(names, [*of_modules, *of_objects]):
                yield from _under(names, space)

    def used_by(self, names: Collection[str]) -> list[_Library]:
        """Those of some names, Python, and what these use."""
        self._add_modules()
        left, found = {PYTHON, *names}, dict[str, _Library]()
        while left:
            name = left.pop()
            library = self._found.get(name)
            if library is not None and name not in found:
                found[name] = library
                library.update(self._may_change, self._loaded)
                left |= library.uses
        return list(found.values())

    def _add_modules(self) -> None:
        now = tuple(sys.modules.values())
        if len(now) == len(self._modules) and all(map(operator.is_, now, self._modules)):
            return
        self._modules = now
        # What was not there may be now, and the other way round.
        self._missing = MissingFiles()
        users: dict[int, types.ModuleType] = {}
        # No pairs: so many new objects would have Python look for garbage.
        for name in list(sys.modules):
            module: Any = sys.modules.get(name)
            if id(module) in self._known or not issubclass(type(module), types.ModuleType):
                continue
            top = name.partition(".")[0]
            if not is_library_module(module):
                # One of no file is a folder, or was made by what has a text itself.
                if name == "__main__" or vars(module).get("__file__") is not None:
                    users[id(module)] = module
            elif top not in _BESIDE and top != "__main__":
                home = library_of(name)
                library = self._found.get(home)
                if library is None:
                    library = self._found[home] = _Library(home)
                library.modules.append(module)
                self._known.add(id(module))
                if isinstance(_names_of(module).get("__file__"), str):
                    self._loaded.add(name)
        self._users = users


def _having(names: frozenset[str], spaces: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of some modules, classes or objects that have any of some names: mostly none."""
    if len(names) == 1:
        (name,) = names
        return [it for it in spaces if name in it]
    return [it for it in spaces if not it.keys().isdisjoint(names)]


def _under(names: frozenset[str], space: Mapping[str, Any]) -> Iterator[Any]:
    """What there is under some names."""
    return map(space.get, names & space.keys())


def _in_classes(names: frozenset[str]) -> Iterator[Any]:
    """What classes of libraries have under some names."""
    left: list[type] = [object]
    known = {id(object)}
    while left:
        for space in _having(names, map(vars, left)):
            # Of which module a class is, it may say wrongly, or that may not be loaded.
            if not is_users_module(space.get("__module__")):
                yield from _under(names, space)
        below: Iterable[type] = itertools.chain.from_iterable(map(type.__subclasses__, left))
        left = [kind for kind in below if id(kind) not in known]
        known.update(map(id, left))


_libraries = _Libraries()


def is_immutable(kind: type) -> bool:
    """Whether nobody can put anything into a class."""
    return bool(kind.__flags__ & _IMMUTABLE)


def library_of(module: Any) -> str:
    """The library that a module is of, by the name of the module."""
    return _library_at(module.partition(".")[0]) if isinstance(module, str) else ""


@functools.lru_cache(maxsize=4096)
def _library_at(top: str) -> str:
    return PYTHON if is_standard(top) else top


def found_in(libraries: Collection[str], is_unseen: bool) -> tuple[list[Patch], list[abc.ABCMeta]]:
    """What is of the user's in Python, in some libraries, and in what these use; and the abstract
    classes of all of these.

    Args:
        libraries: names of them.
        is_unseen: whether there is code of the user's in no module that is kept.
    """
    with _lock:
        if not (_libraries.may_have_any() or is_unseen):
            return _reducers(), []
        used = _libraries.used_by(libraries)
        found = [patch for library in used for patch in library.patches()]
        bases = [kind for library in used for kind in library.bases]
    return sorted([*found, *_reducers()], key=lambda it: it.label), bases


def names_put() -> Stored | None:
    """The names under which the text of the user's code may have put anything into a library, or
    ``ALL``."""
    with _lock:
        return _libraries.names_put()


def _reducers() -> list[Patch]:
    """The user's functions by which classes of libraries are pickled."""
    return [
        Patch(copyreg, kind.__qualname__, reduce)
        for kind, reduce in list(copyreg.dispatch_table.items())
        if not is_users_class(kind) and holds_users(reduce)
    ]


def registered(bases: Collection[abc.ABCMeta], kinds: Collection[type]) -> dict[type, set[str]]:
    """The names of the abstract classes of libraries that some classes are registered with, there
    or by others of the user's, which Python asks in turn."""
    found: dict[type, set[str]] = {}
    for base in bases:
        left: list[type] = [base]
        known = {id(base)}
        while left:
            within = left.pop()
            members = registered_with(within)
            for kind in members:
                if kind in kinds:
                    found.setdefault(kind, set()).add(name_among(base))
            # Whatever the user's abstract classes are, nobody asks for that.
            below: list[type] = [] if within is abc.ABC else type.__subclasses__(within)
            for kind in (*members, *below):
                if isinstance(kind, abc.ABCMeta) and id(kind) not in known and is_users_class(kind):
                    known.add(id(kind))
                    left.append(kind)
    return found


def registered_with(base: type) -> list[type]:
    """What is registered with a class, if that is an abstract one."""
    if not isinstance(base, abc.ABCMeta) or "_abc_impl" not in vars(base):
        return []
    found = [reference() for reference in importlib.import_module("_abc")._get_dump(base)[0]]
    return [it for it in found if it is not None]


def name_among(kind: type) -> str:
    """The name of a class; of a library that is not Python, with its module."""
    is_told = is_library(kind.__module__) and not is_standard(kind.__module__)
    return f"{kind.__module__}.{kind.__qualname__}" if is_told else kind.__qualname__
