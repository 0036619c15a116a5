"""What the user's code has put into libraries: functions into their modules, methods into their
classes. Libraries may use it where no code of the user's says so.

Where the text of the user's code says that there may be any, see ``_stores``, all of a library is
looked through once, and afterwards only what is other than it was.
"""

from __future__ import annotations

import abc
import copyreg
import itertools
import operator
import sys
import threading
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from yogadl.recipes._assigned import ALL, Stored
from yogadl.recipes._loaded import Library, MayChange, Patch, library_at, names_of
from yogadl.recipes._missing import MissingFiles
from yogadl.recipes._owners import PYTHON, YOGADL, is_library_module
from yogadl.recipes._stores import names_stored
from yogadl.recipes._users import (
    HOLD_NOTHING,
    Finder,
    attributes_of_object,
    holds_users,
    is_users_class,
    is_users_module,
)

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
_lock = threading.Lock()


class _Libraries:
    """All libraries, by name."""

    def __init__(self) -> None:
        self._modules: tuple[Any, ...] = ()
        self._missing = MissingFiles()
        self._known: set[int] = set()
        self._loaded: set[str] = set()
        self._users: dict[int, types.ModuleType] = {}
        self._found: dict[str, Library] = {}
        self._may_change = MayChange()

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
        # Under which name they are kept, and where, is for what is given something to say.
        if any(_is_set_by_code(it) or finder.finds(it) for it in _in_classes(names)):
            return True
        return any(map(finder.finds, self._in_modules(names)))

    def names_put(self) -> Stored | None:
        """The names that the user's code may have put anything under."""
        self._add_modules()
        return names_stored(self._users.values(), self._missing)

    def _in_modules(self, names: frozenset[str]) -> Iterator[Any]:
        """What modules of libraries, and objects in them, have under some names."""
        for library in self._found.values():
            of_modules = map(names_of, library.modules)
            of_objects = map(attributes_of_object, library.objects(self._may_change))
            for space in _having(names, [*of_modules, *of_objects]):
                yield from _under(names, space)

    def used_by(self, names: Collection[str]) -> list[Library]:
        """Those of some names, Python, and what these use."""
        self._add_modules()
        left, found = {PYTHON, *names}, dict[str, Library]()
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
        # A copy: another thread may import some.
        for name, module in sys.modules.copy().items():
            if id(module) in self._known or not issubclass(type(module), types.ModuleType):
                continue
            top = name.partition(".")[0]
            if not is_library_module(module):
                # One of no file is a folder, or was made by what has a text itself.
                if name == "__main__" or vars(module).get("__file__") is not None:
                    users[id(module)] = module
            elif top not in _BESIDE and top != "__main__":
                home = library_at(top)
                library = self._found.get(home)
                if library is None:
                    library = self._found[home] = Library(home)
                library.modules.append(module)
                self._known.add(id(module))
                if isinstance(names_of(module).get("__file__"), str):
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


def _is_set_by_code(value: Any) -> bool:
    """Whether a value of a class is a property that can be set, or the like, whatever it does when
    it is asked."""
    kind = type(value)
    setter = next((each for each in kind.__mro__ if "__set__" in vars(each)), None)
    if setter is None or kind in HOLD_NOTHING:
        return False
    if setter is property:
        return vars(property)["fset"].__get__(value) is not None
    # Of an enumeration, say.
    is_told = issubclass(setter, types.DynamicClassAttribute)
    return not is_told or attributes_of_object(value).get("fset") is not None


_libraries = _Libraries()


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
