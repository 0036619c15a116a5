"""Whether what a text says of its own classes, and of things of libraries, is so: by what there is.

See ``_harmless``. Nothing of the user's is run for it.
"""

from __future__ import annotations

import abc
import enum
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

from yogadl.recipes._harmless import Condition
from yogadl.recipes._loaded import is_immutable
from yogadl.recipes._missing import is_librarys
from yogadl.recipes._owners import is_library, is_library_module
from yogadl.recipes._users import is_users_class, is_users_function

_MISSING = object()
# What nobody but the user's own code can have put there.
_PLAIN = (bool, bytes, float, int, str)
# Neither has anything that answers when objects get attributes.
_EMPTY = (abc.ABC, typing.Generic)


def holds(condition: Condition, name: str, space: Mapping[str, Any] | None) -> bool:
    """Whether a condition holds now, but for names that others give to anything.

    Args:
        condition: of a text.
        name: of the attribute that is given to something under the condition.
        space: what the module of the text has, if that is there.
    """
    if space is None:
        return False
    return (
        all(_is_plain_class(space, it, name) for it in condition.classes)
        and all(map(_is_of_library, condition.paths))
        # A module that is imported gets its name in its package, whatever had that there.
        and not any(_is_users_module(space.get(it)) for it in condition.names)
    )


def _is_plain_class(space: Mapping[str, Any], of: str, name: str) -> bool:
    """Whether a module has a class of the user's which makes objects of itself, and of which
    nothing answers when these get an attribute of some name."""
    kind: Any = space.get(of)
    if type(kind) not in (type, abc.ABCMeta):
        return False
    if kind.__module__ != space.get("__name__") or kind.__qualname__ != of:
        return False
    for each in kind.__mro__:
        if is_immutable(each) or each in _EMPTY:
            continue
        within = vars(each)
        if not is_users_class(each) or "__new__" in within or "__setattr__" in within:
            return False
        if not _is_users_answer(within.get(name)):
            return False
    return True


def _is_users_answer(value: Any) -> bool:
    """Whether something of a class is no library's that answers when objects get it."""
    kind = type(value)
    if kind is property:
        return type(value.fset) is types.FunctionType and is_users_function(value.fset)
    is_slot = kind is types.MemberDescriptorType
    return is_slot or not any("__set__" in vars(each) for each in kind.__mro__)


def _is_of_library(path: str) -> bool:
    """Whether a path is that of a class, function, constant or module of a library, of its own
    name: what a library has under other names it may have got from anybody."""
    top, *names = path.split(".")
    if not is_librarys(top):
        return False
    found: Any = sys.modules[top]
    for name in names:
        found = _attribute(found, name)
    if _is_module(found):
        return is_library_module(found)
    last = names[-1]
    if issubclass(type(found), type):
        return found.__name__ == last and is_library(found.__module__)
    if type(found) is types.FunctionType:
        return found.__name__ == last and not is_users_function(found)
    if issubclass(type(type(found)), enum.EnumMeta):
        return getattr(found, "_name_", None) == last and is_library(type(found).__module__)
    return type(found) in _PLAIN or (
        type(found) is types.BuiltinFunctionType and found.__name__ == last
    )


def _attribute(owner: Any, name: str) -> Any:
    """What a module or class has under a name; of anything else, it cannot be told."""
    if _is_module(owner):
        space = vars(owner)
        found = space.get(name, _MISSING)
        return sys.modules.get(f"{space.get('__name__')}.{name}") if found is _MISSING else found
    if issubclass(type(owner), enum.EnumMeta):
        return vars(owner).get("_member_map_", {}).get(name)
    if issubclass(type(owner), type):
        spaces = (vars(each) for each in owner.__mro__)
        return next((space[name] for space in spaces if name in space), None)
    return None


def _is_module(value: Any) -> bool:
    return issubclass(type(value), types.ModuleType)


def _is_users_module(value: Any) -> bool:
    return _is_module(value) and not is_library_module(value)
