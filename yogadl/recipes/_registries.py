"""Whether what the user's code registers something with is the user's own.

What a module imports may be anybody's. Its text says by which names it has that, and the module
itself what that is now.
"""

from __future__ import annotations

import abc
import inspect
import types
from typing import Any

from yogadl.recipes._objects import attributes_of
from yogadl.recipes._owners import is_library_module
from yogadl.recipes._users import is_users_class, is_users_function

_MISSING = object()


def is_registry_of_users(module: types.ModuleType, chain: tuple[str, ...]) -> bool:
    """Whether a function or method is surely the user's own: its text is looked at itself.

    Args:
        module: in which it has the name.
        chain: the name, and those of attributes, the last of which is its own.
    """
    first, *attributes = chain
    value = vars(module).get(first, _MISSING)
    if not attributes:
        return _is_own(value)
    for name in attributes[:-1]:
        if not _is_users_module(value):
            return False
        value = vars(value).get(name, _MISSING)
    return _has_of_its_own(value, attributes[-1])


def _is_own(value: Any) -> bool:
    return type(value) is types.FunctionType and is_users_function(value)


def _is_users_module(value: Any) -> bool:
    return type(value) is types.ModuleType and not is_library_module(value)


def _has_of_its_own(owner: Any, name: str) -> bool:
    """Whether an attribute is surely a function of the user's."""
    if _is_users_module(owner):
        return _is_own(vars(owner).get(name, _MISSING))
    meta = type(owner)
    if meta is type or meta is abc.ABCMeta:
        kind = owner
    elif issubclass(meta, type) or name in attributes_of(owner):
        return False
    else:
        kind = meta
        if inspect.getattr_static(kind, "__getattribute__") is not object.__getattribute__:
            return False
    for each in kind.__mro__:
        found = vars(each).get(name, _MISSING)
        if found is not _MISSING:
            plain = found.__func__ if type(found) in (classmethod, staticmethod) else found
            return is_users_class(each) and _is_own(plain)
    return name == "register" and owner is kind and _is_abstract_of_users(kind)


def _is_abstract_of_users(kind: type) -> bool:
    """Whether classes that are registered with one are so with no other, where it counts whenever
    it is met."""
    is_alone = kind.__bases__ in ((abc.ABC,), (object,))
    return type(kind) is abc.ABCMeta and is_alone and is_users_class(kind)
