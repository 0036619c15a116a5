"""What libraries make themselves, of what users might have put there as well."""

from __future__ import annotations

import ast
import functools
import sys
import types
from typing import Any

OBJECT = "<object>"
"""Stands for what is given to objects, whichever."""


def is_made_by(library: str, value: Any) -> bool:
    """Whether a module of a library has a value under a name that its text gives one.

    Args:
        library: the name of its modules at the top.
        value: that one of them has, maybe from another.
    """
    # At once: another thread may import more.
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == library and type(module) is types.ModuleType:
            names = [it for it, found in list(vars(module).items()) if found is value]
            if names and not names_made_in(name).isdisjoint(names):
                return True
    return False


def names_made_in(module: str) -> frozenset[str]:
    """The names that the text of a module gives what need be no plain function or class: that are
    assigned to, in its classes, too, and those of what is decorated."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return _names_made_in(file) if isinstance(file, str) else frozenset()


def is_written(module: str, owner: str, name: str, value: Any) -> bool:
    """Whether the text of a module gives something a plain value as it is.

    Args:
        module: its name.
        owner: the name of a class in it, empty for the module itself, or ``OBJECT``.
        name: of the value.
        value: that is there.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    return isinstance(file, str) and repr(value) in _values_in(file).get((owner, name), ())


@functools.lru_cache(maxsize=256)
def _names_made_in(file: str) -> frozenset[str]:
    found = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
            found.add(node.name)
    return frozenset(found)


@functools.lru_cache(maxsize=256)
def _values_in(file: str) -> dict[tuple[str, str], set[str]]:
    """By owner and name, see ``is_written``, how Python writes the values."""
    found: dict[tuple[str, str], set[str]] = {}
    pending: list[tuple[str, ast.AST]] = [("", parsed(file))]
    while pending:
        owner, node = pending.pop()
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name | ast.Attribute):
                    is_name = isinstance(target, ast.Name)
                    name = target.id if isinstance(target, ast.Name) else target.attr
                    found.setdefault((owner if is_name else OBJECT, name), set()).add(
                        _shown(node.value)
                    )
        if isinstance(node, ast.ClassDef):
            owner = f"{owner}.{node.name}".lstrip(".")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            # What is given to names there is in no module or class; but to objects.
            owner = f"{owner}.<locals>"
        pending += ((owner, child) for child in ast.iter_child_nodes(node))
    return found


def _shown(node: ast.expr | None) -> str:
    """How Python writes a value that is written in a text; empty if that is computed."""
    try:
        return "" if node is None else repr(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""


def parsed(file: str) -> ast.AST:
    """The text of a file; nothing if it is none."""
    try:
        with open(file, "rb") as opened:
            return ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])
