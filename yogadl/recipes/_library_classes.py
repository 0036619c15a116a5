"""Classes of libraries, and what the user has put into them."""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from yogadl.recipes._libraries import BUILTIN
from yogadl.recipes._made import is_made_by, names_made_in
from yogadl.recipes._owners import is_library
from yogadl.recipes._protocol import Walk, text
from yogadl.recipes._users import holds_users, is_of_library

BOOKKEEPING = frozenset(
    [
        "__module__",
        "__qualname__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__firstlineno__",
        "__static_attributes__",
        "__parameters__",
        "__orig_bases__",
        "__abstractmethods__",
        "_abc_impl",
        "_is_protocol",
        "_is_runtime_protocol",
        "__protocol_attrs__",
        "__non_callable_proto_members__",
        "__callable_proto_members_only__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__type_params__",
        "__classcell__",
        "__classdictcell__",
        "__slots__",
        "__conditional_annotations__",
    ]
)
"""What Python and libraries keep in classes for themselves."""

OF_TYPED_DICTS = frozenset(
    (
        "__closed__",
        "__extra_items__",
        "__mutable_keys__",
        "__optional_keys__",
        "__readonly_keys__",
        "__required_keys__",
    )
)
"""Likewise in those that derive from a ``TypedDict``."""

_IMMUTABLE = 1 << 8
# What these hold need not be the user's, and they may be.
_PARTIAL = (functools.partial, functools.partialmethod)


def is_typed_dict(kind: type) -> bool:
    """Whether a class is a ``TypedDict``, of Python or of typing_extensions."""
    return type(kind).__name__ == "_TypedDictMeta" and is_library(type(kind).__module__)


def is_users_value(value: Any) -> bool:
    """Whether the user has put a value into a library, as far as what it is made of tells."""
    kind = type(value)
    if kind in _PARTIAL or holds_users(value):
        return True
    return kind is types.MethodType and not is_library(type(value.__self__).__module__)


def is_users_at(value: Any, module: types.ModuleType) -> bool:
    """Whether what a library's module has is the user's, or a class with something of theirs."""
    if issubclass(type(value), type) and is_library_class(value):
        return any(True for _ in _patches(value))
    return is_users_value(value) and not (
        type(value) in _PARTIAL and is_made_by(module.__name__.partition(".")[0], value)
    )


def _patches(kind: type) -> Iterator[tuple[str, Any]]:
    """What the user has put into a class of a library, and the classes that it derives from."""
    for one in kind.__mro__:
        if one.__flags__ & _IMMUTABLE or not is_library(one.__module__):
            continue
        for name, value in sorted(vars(one).items()):
            if name not in BOOKKEEPING and is_users_value(value):
                if type(value) not in _PARTIAL or name not in names_made_in(one.__module__):
                    yield name, value


def is_library_class(kind: type) -> bool:
    """Whether a class is a library's, and not one that a library has made for the user."""
    if kind.__flags__ & _IMMUTABLE:
        return True
    if not is_of_library(kind):
        return False
    found: Any = None
    space: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = vars(space).get(name) if hasattr(space, "__dict__") else None
        space = found
    if found is kind:
        return True
    # Python gives one that is made by a library for the user the module of that.
    return all(
        name in BOOKKEEPING or name in OF_TYPED_DICTS or isinstance(value, BUILTIN)
        for name, value in vars(kind).items()
    )


def describe_library_class(walk: Walk, kind: type) -> str:
    """A class of a library, and what the user has put into it."""
    found = walk.library(kind.__module__, kind.__qualname__)
    walk.meet(kind)
    if kind is typing.Any:
        # From Python 3.11 on, it is a class; see the rule of what type hints are made of.
        return f"typing({text('typing.Any')})"
    patched = [f"{name}={walk.token(value)}" for name, value in _patches(kind)]
    return f"{found}[{','.join(patched)}]" if patched else found
