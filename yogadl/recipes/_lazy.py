"""What libraries load only when it is used first, and what is there when they are imported."""

from __future__ import annotations

import ast
import collections.abc
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.recipes._made import is_written, parsed
from yogadl.recipes._owners import is_library

BEHIND = {"tensorflow.keras": "keras"}
"""Other libraries that one loads when it is used."""

_MODULE = types.ModuleType
# Which are always there since they are imported by this.
_HERE = frozenset(it.__name__ for it in (collections.abc, np.random))
_CHECKING = "TYPE_CHECKING"
_DEEPEST = 4


def comes_later(module: types.ModuleType, name: str, value: Any) -> bool:
    """Whether what a library's module has under a name, or not yet, may have come there after the
    module was imported. It says the same before and after it came.

    Args:
        module: the module.
        name: that is asked for.
        value: that it has.
    """
    space = vars(module)
    if name not in space or f"{space.get('__name__')}.{name}" in _HERE:
        return name not in space
    is_module = issubclass(type(value), _MODULE)
    if type(module) is _MODULE and "__getattr__" not in space:
        # Others load nothing, but for packages, which get the modules that anybody imports.
        if not is_module or "__path__" not in space:
            return False
    if is_module:
        if type(value) is not _MODULE:
            return True
        if value.__name__ != f"{module.__name__}.{name}":
            # One that stands for another until that is loaded has its place.
            return name not in _names_of_text(_file_of(module))[1]
    # At once: another thread may change it. What comes before something that the module's own text
    # gives a name came when that was imported.
    names = list(space)
    after = names[names.index(name) :]
    return "__getattr__" not in after and _names_of_text(_file_of(module))[0].isdisjoint(after)


def is_stand_in(module: types.ModuleType) -> bool:
    """Whether a module is what a library has put there until another is loaded."""
    if type(module) is _MODULE or not is_library(type(module).__module__):
        return False
    space = vars(module)
    return space.get("__spec__") is None and space.get("__file__") is None


def is_as_written(module: types.ModuleType, name: str, value: Any, left: int = _DEEPEST) -> bool:
    """Whether a library's text gives a module a class, another module or a plain value under a
    name, as far as it tells: there, or where it is imported from.

    Args:
        module: that has it.
        name: that it has there.
        value: what it is.
        left: how many modules more are asked.
    """
    home = vars(module).get("__name__", "")
    if issubclass(type(value), type):
        if value.__module__ == home and value.__qualname__ == name:
            return True
    elif issubclass(type(value), _MODULE):
        known_as, full = str(vars(value).get("__name__")), f"{home}.{name}"
        if known_as == full or known_as.partition(".")[0] == BEHIND.get(full):
            return True
    elif is_written(home, "", name, value):
        return True
    return left > 0 and any(
        _is_same(vars(source).get(known), value) and is_as_written(source, known, value, left - 1)
        for source, known in _sources(module, name)
    )


def _is_same(one: Any, other: Any) -> bool:
    # A metaclass may say that its classes equal any other.
    if one is other or issubclass(type(other), type | _MODULE):
        return one is other
    return type(one) is type(other) and repr(one) == repr(other)


def _sources(module: types.ModuleType, name: str) -> Iterator[tuple[types.ModuleType, str]]:
    """Where a module may have something from, as its text says."""
    space = vars(module)
    package = space.get("__package__") or space.get("__name__", "")
    for level, target, known, bound in _imported_by(_file_of(module)):
        if name not in (known, bound) and known != "*":
            continue
        try:
            full = importlib.util.resolve_name("." * level + target, package) if level else target
        except ImportError:
            continue
        source = sys.modules.get(full)
        if type(source) is _MODULE and source is not module:
            yield source, name if known == "*" else known


def _file_of(module: types.ModuleType) -> str:
    file = vars(module).get("__file__")
    return file if isinstance(file, str) and file.endswith(".py") else ""


@functools.lru_cache(maxsize=256)
def _imported_by(file: str) -> tuple[tuple[int, str, str, str], ...]:
    """All that the text of a module imports from others, in its functions, too: by how many dots,
    from which module, what, and under which name."""
    return tuple(
        (node.level, node.module or "", alias.name, alias.asname or alias.name)
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


@functools.lru_cache(maxsize=256)
def _names_of_text(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names that the text of a module surely gives something when it is imported, and those
    that it imports then."""
    surely, imported = set[str](), set[str]()
    deleted = set[str]()
    tree = parsed(file)
    pending = [(node, True) for node in getattr(tree, "body", ())]
    while pending:
        node, is_sure = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            surely.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = {(it.asname or it.name).partition(".")[0] for it in node.names}
            imported |= names
            surely |= names if is_sure else set()
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if is_sure and node.value is not None:
                surely.update(it.id for it in targets if isinstance(it, ast.Name))
        elif isinstance(node, ast.Delete):
            deleted.update(it.id for it in node.targets if isinstance(it, ast.Name))
        elif isinstance(node, ast.If):
            # Which is false whenever it runs.
            body = [] if _CHECKING in ast.dump(node.test) else node.body
            pending += [(it, False) for it in (*body, *node.orelse)]
        elif isinstance(node, ast.Try):
            parts = [*node.body, *node.orelse, *node.finalbody]
            pending += [(it, False) for it in parts]
    return frozenset(surely - deleted), frozenset(imported - deleted)
