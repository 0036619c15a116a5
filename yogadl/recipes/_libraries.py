"""What things of libraries are: by their names, and by what of the user's they hold."""

from __future__ import annotations

import os
import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

from yogadl.recipes._objects import attributes_of
from yogadl.recipes._owners import is_library, is_library_module, space_of
from yogadl.recipes._protocol import Walk, digest, pairs
from yogadl.recipes._sources import SourceError, source_of
from yogadl.recipes._special import WHOLE_ENVIRONMENT, forbidden, forbidden_name
from yogadl.recipes._users import holds_users

BUILTIN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
"""What was not written in Python, and belongs to a module or a class."""

# Of which a module may have any number.
_NAMELESS = ("<lambda>", "_")
_MAKERS = frozenset(("jax", "jaxlib", "numba", "numpy", "tensorflow"))
# TensorFlow wraps what is in the last of these anew when a function is called.
_WRAPPED = ("python_function", "py_func", "__wrapped__")
_OF_JIT = ("static_argnums", "static_argnames", "backend", "compiler_options_kvs")
# Of functions with derivatives of their own.
_RULES = ("fwd", "bwd", "jvp", "nondiff_argnums", "symbolic_zeros")


def library_function(walk: Walk, value: Any) -> str:
    """A function of a library; empty for one that a library made for the user."""
    function = value.__func__ if isinstance(value, types.MethodType) else value
    module, name = str(value.__module__), str(value.__qualname__)
    refuse_forbidden(walk, function)
    if function is os.getenv and not walk.is_ignored("os.environ"):
        walk.refuse(WHOLE_ENVIRONMENT, "os.environ")
    if is_library(module):
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            space = vars(found) if hasattr(found, "__dict__") else {}
            found = space.get(part)
        found = getattr(found, "__func__", found)
        if holds_users(function):
            return ""
        if found is function and not isinstance(value, types.MethodType):
            return walk.library(module, name)
        bound = space_of(module).get(function.__name__)
        if isinstance(value, types.MethodType) and bound == value:
            return walk.library(module, function.__name__)
    is_plain = not value.__closure__ and "__wrapped__" not in vars(function)
    if is_plain and not isinstance(value, types.MethodType):
        if not function.__defaults__ and not function.__kwdefaults__:
            space, own = function.__globals__, function.__name__
            if space.get(own) is function:
                # From Python 3.13 on, attrs gives its evolve() the name of the last class it made.
                return walk.library(space.get("__name__", module), own)
            home = walk.library(function.__globals__.get("__name__", module), name)
            return f"{home}{among_others(function)}"
    return ""


def among_others(function: Any) -> str:
    """What tells a function of a library from others that have its name: lambdas, and what another
    function makes; empty if it is the only one, as far as that is known."""
    if not _has_others(function):
        return ""
    try:
        return f" {digest(source_of(function).form.encode())}"
    except (SourceError, RecursionError):
        return f" of line {function.__code__.co_firstlineno}"


def _has_others(function: Any) -> bool:
    """Whether there may be others of its name in its module."""
    outer, *path = function.__qualname__.split(".<locals>.")
    if function.__code__.co_name in _NAMELESS:
        return True
    if not path:
        return False
    found: Any = sys.modules.get(function.__globals__.get("__name__", ""))
    for part in outer.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    found = getattr(found, "__func__", found)
    codes = [getattr(getattr(found, "__wrapped__", found), "__code__", None)]
    for name in path:
        codes = [
            it
            for it in getattr(codes[0], "co_consts", ())
            if isinstance(it, types.CodeType) and it.co_name == name
        ]
        if len(codes) != 1:
            return True
    return False


def builtin(walk: Walk, value: Any) -> str:
    """A function or method that was not written in Python."""
    owner = getattr(value, "__self__", None)
    kind = getattr(value, "__objclass__", None)
    if kind is not None and (owner is None or owner is kind):
        return f"method({walk.token(kind)}.{value.__name__})"
    if owner is None or issubclass(type(owner), types.ModuleType):
        module = str(value.__module__ or "builtins")
        found: Any = sys.modules.get(module)
        if issubclass(type(found), types.ModuleType) and not is_library_module(found):
            return walk.compiled(found, value.__qualname__)
        refuse_forbidden(walk, value)
        return walk.library(module, value.__qualname__)
    if not issubclass(type(owner), type) and (known := singleton(walk, owner)):
        return f"method({known}.{value.__name__})"
    return f"method({walk.token(owner)}.{value.__name__})"


def wrapping(walk: Walk, value: Any) -> str:
    """An object that one of the libraries that are known has made around a function."""
    kind = type(value)
    if kind.__module__.partition(".")[0] not in _MAKERS:
        return ""
    for name in _WRAPPED:
        found = getattr(value, name, None)
        if type(found) is types.FunctionType:
            walk.mention(["__annotations__"])
            options = pairs(walk, getattr(value, "targetoptions", {}).items())
            signature = walk.token(getattr(value, "input_signature", None))
            made_by = walk.library(kind.__module__, kind.__qualname__)
            had = attributes_of(value)
            rules = pairs(walk, ((rule, had[rule]) for rule in _RULES if rule in had))
            rules += pairs(walk, _given_to_jit(had))
            return f"{made_by}({walk.inside(f'.{name}', found)},{options},{signature},{rules})"
    return ""


def _given_to_jit(had: dict[str, Any]) -> list[tuple[str, Any]]:
    """What ``jax.jit`` was told of a function that decides what this gets, as far as that is more
    than nothing."""
    told = had.get("_jit_info")
    found = [(name, getattr(told, name, None)) for name in _OF_JIT]
    return [it for it in found if it[1]]


def by_name(walk: Walk, value: Any) -> str:
    """A function that was not written in Python."""
    if not _is_told(vars(type(value)).get("__name__")):
        return ""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return ""
    space = space_of(module)
    if space.get(name) is not value:
        return ""
    if is_library(module):
        refuse_forbidden(walk, value)
        return walk.library(module, name)
    is_compiled = str(space.get("__file__")).endswith(tuple(EXTENSION_SUFFIXES))
    return walk.compiled(sys.modules[module], name) if is_compiled else ""


def _is_told(name: Any) -> bool:
    """Whether what a class has as the name of its objects is no code of the user's."""
    return name is not None and not holds_users(name)


def singleton(walk: Walk, value: Any) -> str:
    """An object that is a name in the module of its class, as libraries have constants."""
    kind = type(value)
    module = sys.modules.get(kind.__module__)
    if not isinstance(module, types.ModuleType):
        return ""
    for name, found in vars(module).items():
        if found is value:
            return walk.library(kind.__module__, name)
    return ""


def refuse_forbidden(walk: Walk, value: Any) -> None:
    """Refuses what finds or runs what cannot be seen."""
    found = forbidden(value)
    if found is not None and not walk.is_ignored(found[0]):
        walk.refuse(f"code that uses {found[0]}, which {found[1]}", found[0])


def refuse_forbidden_name(walk: Walk, module: str, name: str) -> None:
    """The same of what is not imported yet."""
    found = forbidden_name(module, name)
    if found is not None and not walk.is_ignored(found[0]):
        walk.refuse(f"code that uses {found[0]}, which {found[1]}", found[0])
