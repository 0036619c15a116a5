"""Whether a value is code of the user's, or holds some: also where a library has it."""

from __future__ import annotations

import builtins
import functools
import gc
import importlib.machinery
import itertools
import operator
import os
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from typing import Any

from yogadl.recipes._objects import attributes_of
from yogadl.recipes._owners import is_library, is_library_file, is_library_module, is_standard

_DEEPEST = 3
_MOST_ATTRIBUTES = 100
# Debuggers, which need not be installed, put functions of their own into Python's modules.
_WATCHING = frozenset(("_pydev_bundle", "_pydevd_bundle", "debugpy", "pydevd"))
# Those of Python's that make classes for others, which then have their names.
_MAKING = frozenset(("abc", "types"))
HOLD_NOTHING = frozenset(
    [
        # What every module has, and nobody changes.
        importlib.machinery.ExtensionFileLoader,
        importlib.machinery.ModuleSpec,
        importlib.machinery.SourceFileLoader,
        typing.TypeVar,
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        tuple,
        list,
        dict,
        set,
        frozenset,
        types.BuiltinFunctionType,
        types.CodeType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.MethodDescriptorType,
        types.MethodWrapperType,
        types.ModuleType,
        types.WrapperDescriptorType,
    ]
)
_file_of = operator.attrgetter("__code__.co_filename")
_functions_of = operator.attrgetter("fget", "fset", "fdel")
_function_of = operator.attrgetter("__func__")
_contents_of = operator.attrgetter("cell_contents")
_CODE = (
    functools.partial,
    type(functools.lru_cache(maxsize=1)(len)),
    property,
    classmethod,
    staticmethod,
    type,
    types.FunctionType,
    types.MethodType,
)

_WRAPPERS = (property, staticmethod, classmethod, types.MethodType, functools.partial)


def is_users_module(name: Any) -> bool:
    """Whether a module that is there is the user's."""
    module: Any = sys.modules.get(name) if isinstance(name, str) else None
    return issubclass(type(module), types.ModuleType) and not is_library_module(module)


def is_users_function(function: types.FunctionType) -> bool:
    """Whether the code of a function is the user's, and not what a library has written."""
    file = function.__code__.co_filename
    if not file.startswith("<"):
        return not is_library_file(file) and not _is_watching(file)
    if is_library_file(file):
        return False
    # Compiled of a text: in a notebook, or by a library such as dataclasses for its own.
    return is_users_module(function.__module__)


@functools.lru_cache(maxsize=4096)
def _is_watching(file: str) -> bool:
    return not _WATCHING.isdisjoint(file.replace(os.sep, "/").split("/"))


def is_users_class(kind: type) -> bool:
    """Whether a class is the user's."""
    name = kind.__module__
    space = getattr(sys.modules.get(name), "__dict__", {}) if isinstance(name, str) else {}
    if name == "__main__" and space.get(kind.__qualname__) is not kind:
        # It may be of a program that another runs, which is the main module.
        return True
    # A library may have been put in the place of the user's module.
    if "__file__" in space and space.get("__name__") == name:
        return is_users_module(name)
    if isinstance(name, str) and is_standard(name):
        return name in _MAKING and _derives_from_users(kind)
    # Its module was loaded without being kept, or never was a file.
    functions = (it for it in vars(kind).values() if type(it) is types.FunctionType)
    return any(map(is_users_function, functions))


def is_of_library(kind: type) -> bool:
    """Whether a class is of a library's module, and derives from none of the user's: one that is
    made by a call has the module of what makes it, such as ``abc``."""
    return is_library(kind.__module__) and not _derives_from_users(kind)


def _derives_from_users(kind: type) -> bool:
    return any(map(is_users_class, kind.__mro__[1:]))


def holds_users(value: Any) -> bool:
    """Whether a value is a function or class of the user's or an object of one, or what a library
    has made around those: a wrapper, a method, a property."""
    return Finder().finds(value)


class Finder:
    """Looks for what is the user's in many values, which stay as they are meanwhile.

    Args:
        libraries: names of modules of libraries that are loaded from files, as far as they are
            known.
    """

    def __init__(self, libraries: Set[str] = frozenset()) -> None:
        # By where they are: a class may be equal to others, or have no hash.
        self._kinds: dict[int, bool] = {}
        # How deep those were looked into that have nothing.
        self._depths: dict[int, int] = {}
        # That are of libraries.
        self._files: set[str] = set()
        self._libraries = set(libraries) - _MAKING

    def finds(self, value: Any, depth: int = _DEEPEST) -> bool:
        """See ``holds_users``."""
        kind = type(value)
        if kind is types.FunctionType:
            if self._is_users_function(value):
                return True
            # Most have nothing more. To ask for its __dict__ makes one.
            if not value.__closure__ and getattr(value, "__wrapped__", None) is None:
                return False
        elif kind in HOLD_NOTHING:
            return False
        elif issubclass(kind, type):
            return self._is_users(value)
        elif self._is_users(kind):
            return True
        if self._depths.get(id(value), -1) >= depth:
            return False
        self._depths[id(value)] = depth
        if depth and any(self.finds(it, depth - 1) for it in _parts(value)):
            del self._depths[id(value)]
            return True
        return False

    def suspects(self, groups: Mapping[type, list[Any]], depth: int = _DEEPEST) -> set[int]:
        """Where in memory those of many values are for which :meth:`finds` holds, or which may have
        more registered with them. They are looked at together, which takes a fraction of the time.

        Args:
            groups: the values, by their classes.
            depth: how deep they are looked into.
        """
        functions: list[types.FunctionType] = groups.get(types.FunctionType, [])
        kinds = groups.keys() - HOLD_NOTHING - {types.FunctionType}
        of_classes = set(filter(is_of_classes, kinds))
        others = kinds - of_classes
        files = list(map(_file_of, functions))
        unknown = {it for it in set(files) - self._files if not self._is_library(it)}
        closed = [it for it in functions if it.__closure__]
        classes = itertools.chain.from_iterable(map(groups.__getitem__, of_classes))
        unsure = (it for it in classes if it.__module__ not in self._libraries)
        found = set(map(id, filter(self._is_users, unsure)))
        for kind in filter(self._is_users, others):
            found.update(map(id, groups[kind]))
        if unknown:
            strange = (it for it, file in zip(functions, files, strict=True) if file in unknown)
            found.update(id(it) for it in strange if is_users_function(it))
        if depth == _DEEPEST:
            found.update(id(it) for it in closed if is_dispatcher(it))
            found.update(map(id, groups.get(functools.singledispatchmethod, ())))
        if depth:
            rest = {kind: groups[kind] for kind in others if _may_have_parts(kind)}
            parts = distinct([*_parts_of_functions(closed), *_parts_of_others(rest)])
            if parts and self.suspects(by_class(parts), depth - 1):
                deep = itertools.chain(closed, *rest.values())
                found.update(id(it) for it in deep if self.finds(it, depth))
        return found

    def _is_library(self, file: str) -> bool:
        """Whether a library's file says that a function is none of the user's."""
        found = is_library_file(file) or (file[:1] != "<" and _is_watching(file))
        if found:
            self._files.add(file)
        return found

    def _is_users_function(self, function: types.FunctionType) -> bool:
        file = function.__code__.co_filename
        if file in self._files:
            return False
        if is_users_function(function):
            return True
        if not file.startswith("<"):
            self._files.add(file)
        return False

    def _is_users(self, kind: type) -> bool:
        found = self._kinds.get(id(kind))
        if found is None:
            module = kind.__module__
            found = module not in self._libraries and is_users_class(kind)
            self._kinds[id(kind)] = found
            if not found and module not in _MAKING and is_library(module):
                self._libraries.add(module)
        return found


def _may_have_parts(kind: type) -> bool:
    """Whether ``_parts`` may find something in objects of a class that is no function's."""
    return bool(kind.__dictoffset__) or kind in _WRAPPERS


def _parts_of_functions(functions: list[types.FunctionType]) -> list[Any]:
    """See ``_parts``; of many with closures, in a fraction of the time. May have more, such as
    annotations."""
    # To ask a function for its __dict__ makes one, and those of all that TensorFlow has would have
    # Python look for garbage, which takes longer than all else here.
    spaces = {id(it): it for it in gc.get_referents(*functions) if type(it) is dict}
    for function in functions:
        spaces.pop(id(function.__globals__), None)
    spaces.pop(id(vars(builtins)), None)
    found: list[Any] = [value for space in spaces.values() for value in tuple(space.values())]
    for registry in (it for it in found if type(it) is types.MappingProxyType):
        found.extend((*registry.keys(), *registry.values()))
    cells = [cell for it in functions for cell in it.__closure__ or ()]
    try:
        found.extend(map(_contents_of, cells))
    except ValueError:
        # One of them has nothing yet.
        found.extend(content for it in functions for content in _cells(it))
    kinds = {kind for kind in set(map(type, found)) if issubclass(kind, _CODE)}
    return [it for it in found if type(it) in kinds]


def _parts_of_others(groups: dict[type, list[Any]]) -> Iterator[Any]:
    """See ``_parts``; of many by their classes, most of which are properties and methods."""
    for kind, values in groups.items():
        if kind is property:
            yield from itertools.chain.from_iterable(map(_functions_of, values))
        elif kind in (staticmethod, classmethod):
            yield from map(_function_of, values)
        else:
            yield from itertools.chain.from_iterable(map(_parts, values))


def by_class(values: list[Any]) -> dict[type, list[Any]]:
    """Values by their classes."""
    groups = defaultdict[type, list[Any]](list)
    for kind, value in zip(map(type, values), values, strict=True):
        groups[kind].append(value)
    return groups


def is_of_classes(kind: type) -> bool:
    """Whether the objects of a class are classes."""
    return issubclass(kind, type)


def distinct(values: list[Any]) -> list[Any]:
    """Every object once: many modules have the same."""
    return list(dict(zip(map(id, values), values, strict=True)).values())


def _parts(value: Any) -> list[Any]:
    """What a function, a method or an object is made of."""
    kind = type(value)
    if kind is types.FunctionType:
        parts = [*_cells(value), *value.__dict__.values()]
        if is_dispatcher(value):
            registry = value.__dict__["registry"]
            parts += [*registry.keys(), *registry.values()]
        return list(filter(_is_code, parts))
    if kind is property:
        return [value.fget, value.fset, value.fdel]
    if kind in (staticmethod, classmethod):
        return [value.__func__]
    if kind is types.MethodType:
        return [value.__func__, value.__self__]
    if kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    return list(filter(_is_code, attributes_of_object(value).values()))


def attributes_of_object(value: Any) -> dict[str, Any]:
    """The attributes of what is no function or class, if they are not many."""
    kind = type(value)
    if not kind.__dictoffset__ or kind is types.FunctionType or issubclass(kind, type):
        return {}
    found = attributes_of(value)
    return found if len(found) <= _MOST_ATTRIBUTES else {}


def _is_code(value: Any) -> bool:
    """Whether it is a function or class, and no object that only has some: what libraries keep
    while they run may have anything."""
    return issubclass(type(value), _CODE)


def is_dispatcher(value: Any) -> bool:
    """Whether a value is what ``functools.singledispatch`` makes."""
    if type(value) is not types.FunctionType or not hasattr(value, "dispatch"):
        return False
    return isinstance(value.__dict__.get("registry"), types.MappingProxyType)


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue
