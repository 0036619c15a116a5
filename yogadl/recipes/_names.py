"""What the names stand for that code reads."""

from __future__ import annotations

import builtins
import os
import sys
import types
import typing
from typing import Any

from yogadl.recipes._imports import failure, imported
from yogadl.recipes._lazy import BEHIND, comes_later, is_as_written, is_stand_in
from yogadl.recipes._libraries import refuse_forbidden, refuse_forbidden_name
from yogadl.recipes._library_classes import is_users_at, is_users_value
from yogadl.recipes._made import OBJECT
from yogadl.recipes._objects import attributes_of
from yogadl.recipes._owners import (
    is_installed,
    is_library,
    is_library_module,
    name_of_module,
    version_of,
)
from yogadl.recipes._protocol import Walk, is_plain, text
from yogadl.recipes._reads import Read
from yogadl.recipes._scopes import Import, absolute, package_of
from yogadl.recipes._special import WHOLE_ENVIRONMENT, holds_forbidden

_UNSET = "unset"
_MISSING = object()
_OF_ONE = ((), ("get",), ("pop",), ("setdefault",), ("__contains__",))


def follow(walk: Walk, function: types.FunctionType, cells: dict[str, Any], read: Read) -> str:
    """What a function gets of a name that it reads."""
    space = function.__globals__
    if walk.is_home(space) and walk.is_ignored(read.root, str(read)):
        return "ignored"
    if read.imported is not None:
        return _follow_import(walk, space, read, read.imported)
    if read.root in cells:
        value = cells[read.root]
        # Others are described where closures are.
        if not issubclass(type(value), types.ModuleType):
            return "closure"
        return _follow_value(walk, function, read.root, value, read.chain, read)
    more = _mangled(walk, space, read.root)
    if read.root in space:
        name = space.get("__name__", "")
        value = space[read.root]
        return more + _follow_value(
            walk, space, read.root, value, read.chain, read, f"{name}.{read.root}"
        )
    walk.met(space, read.root)
    value = vars(builtins).get(read.root, _MISSING)
    if value is _MISSING:
        return f"{_UNSET}{more}"
    return more + _follow_value(walk, builtins, read.root, value, read.chain, read)


def _mangled(walk: Walk, space: dict[str, Any], name: str) -> str:
    """What a name with two underscores may stand for inside of a class, of whatever name."""
    if not name.startswith("__") or name.endswith("__"):
        return ""
    found = sorted(it for it in space if it.endswith(name) and it[:1] == "_" and it != name)
    module = space.get("__name__", "")
    return "".join(
        f"{it}={walk.item('global', space, it, f'{module}.{it}', space[it])}," for it in found
    )


def _follow_import(walk: Walk, space: dict[str, Any], read: Read, found: Import) -> str:
    name, chain = absolute(found, package_of(space)), read.chain
    if not name:
        return _UNSET
    if found.name:
        chain = (found.name, *chain)
    installed = is_installed(name)
    if installed is None:
        return f"{_UNSET}{failure(walk, name)}"
    if installed:
        # It need not be imported yet, and is the same when it is.
        module = sys.modules.get(name)
        if module is not None and not hasattr(module, "__name__"):
            # A number or a dict, say, has taken its place.
            return _follow_value(walk, None, name, module, chain, read)
        if module is not None:
            return _follow_library(walk, module, chain, read, is_imported_here=True)
        refuse_forbidden_name(walk, name, ".".join(chain))
        return _library(walk, name, ".".join(chain))
    value = imported(walk, name)
    if value is None:
        return f"{_UNSET}{failure(walk, name)}"
    return _follow_value(walk, None, name, value, chain, read)


def _follow_value(
    walk: Walk,
    owner: object,
    name: str,
    value: Any,
    chain: tuple[str, ...],
    read: Read,
    label: str = "",
) -> str:
    """What a name of some owner, and the attributes that follow it, are."""
    more = ""
    while issubclass(type(value), types.ModuleType):
        if is_library_module(value):
            return more + _follow_library(walk, value, chain, read)
        if read.is_tested and not chain and type(value) is types.ModuleType:
            # All are true, whatever they have; a class of the user's may say otherwise.
            return f"{more}module {text(name_of_module(value))}"
        if not chain or chain[0] == "__dict__" or not is_library(type(value).__module__):
            walk.refuse_module(value, str(read))
        owner, name, chain = vars(value), chain[0], chain[1:]
        label = f"{name_of_module(value)}.{name}"
        if walk.is_ignored(label):
            return "ignored"
        more += _mangled(walk, vars(value), name)
        found = vars(value).get(name, _MISSING)
        if found is _MISSING:
            found = _submodule(walk, value, name)
        if found is _MISSING:
            walk.met(vars(value), name)
            made = vars(value).get("__getattr__")
            more += failure(walk, label)
            # What is not there fails otherwise than the import of a module.
            return more + (f"{name} {_UNSET}" if made is None else f"{name} of {walk.token(made)}")
        value = found
    if label and walk.is_ignored(label):
        return "ignored"
    refuse_forbidden(walk, value)
    special = _environment(walk, value, chain, read)
    if special:
        return special
    return more + walk.item("global", owner, name, label or name, value)


def _submodule(walk: Walk, package: types.ModuleType, name: str) -> Any:
    """A module of the user's that is imported when it is used."""
    if "__path__" not in vars(package):
        return _MISSING
    found = imported(walk, f"{name_of_module(package)}.{name}")
    return _MISSING if found is None else found


def _follow_library(
    walk: Walk,
    module: types.ModuleType,
    chain: tuple[str, ...],
    read: Read,
    is_imported_here: bool = False,
) -> str:
    """What is read of a library: as it is written, since not all of it may be imported."""
    if (not chain or chain[0] == "__dict__") and holds_forbidden(module.__name__):
        walk.refuse_module(module, module.__name__)
    if chain in ((), ("__dict__",)) and not is_imported_here:
        walk.meet_module(module)
    full = ".".join(chain)
    found = _library(walk, module.__name__, full)
    value: Any = module
    left: tuple[str, ...] = ()
    steps: list[tuple[types.ModuleType, str, Any]] = []
    is_late = False
    for number, name in enumerate(chain):
        if not issubclass(type(value), types.ModuleType):
            left = chain[number:]
            break
        if not is_library_module(value) and not is_stand_in(value):
            return _follow_value(walk, None, name, value, chain[number:], read)
        holder = value
        value = vars(holder).get(name, _MISSING)
        steps.append((holder, name, value))
        is_late = is_late or comes_later(holder, name, value)
        if value is _MISSING:
            *inner, last = chain[number:]
            home = vars(holder).get("__name__", "")
            refuse_forbidden_name(walk, ".".join((home, *inner)), last)
            break
        refuse_forbidden(walk, value)
        special = _environment(walk, value, chain[number + 1 :], read)
        if special:
            return special
    label = f"{module.__name__}.{full}"
    if left and not issubclass(type(value), type):
        # An object, which the user may have given something.
        given = attributes_of(value).get(left[0], _MISSING)
        if is_plain(given) and walk.is_put(module.__name__, OBJECT, left[0], given):
            return walk.item("constant", module, str(read), label, given)
    if is_imported_here and not is_users_at(value, module):
        # It is told as it is before it is imported, but for what the user may have put there.
        if issubclass(type(value), type):
            walk.meet_imported(value)
        elif is_plain(value) and walk.is_put(module.__name__, "", chain[-1], value):
            return walk.item("constant", module, str(read), label, value)
        return found
    if is_late and not is_users_at(value, module) and not _is_put(walk, steps):
        # Likewise.
        if issubclass(type(value), type):
            walk.meet_imported(value)
        return found
    if is_users_value(value):
        return f"{found} is {walk.token(value)}"
    if issubclass(type(value), type):
        return f"{found} is {walk.reference(value)}"
    if value is typing.Any or value is typing.Annotated:
        # Which of them is a class depends on the version of Python.
        return f"{found} is {walk.token(value)}"
    if is_plain(value):
        return walk.item("constant", module, str(read), label, value)
    return found


def _library(walk: Walk, module: str, name: str) -> str:
    """Something of a library, and of the one that is behind it."""
    full = f"{module}.{name}."
    behind = next((it for at, it in BEHIND.items() if full.startswith(f"{at}.")), "")
    if behind and version_of(behind)[1]:
        walk.library(behind, "")
    return walk.library(module, name)


def _is_put(walk: Walk, steps: list[tuple[types.ModuleType, str, Any]]) -> bool:
    """Whether the user may have put something where a library has what it loads when it is used.

    Args:
        walk: that asks.
        steps: that lead there: modules, and what each has under which name.
    """
    return any(
        (issubclass(type(value), type | types.ModuleType) or is_plain(value))
        and walk.is_put(module.__name__, "", name, value)
        and not is_as_written(module, name, value)
        for module, name, value in steps
    )


def _environment(walk: Walk, value: Any, chain: tuple[str, ...], read: Read) -> str:
    """A variable of the environment, if that is what is read."""
    constant = read.constant
    if value is os.getenv and not chain:
        is_one = True
    elif value is os.environ:
        is_one = chain in _OF_ONE
    else:
        return ""
    if not is_one or constant is None:
        if walk.is_ignored("os.environ"):
            return "ignored"
        walk.refuse(WHOLE_ENVIRONMENT, "os.environ")
    if walk.is_ignored(constant):
        return "ignored"
    if read.is_stored:
        # What it was before does not matter to that.
        return "environment"
    return walk.item("environment", os.environ, constant, constant, os.environ.get(constant))
