"""What libraries make themselves, of what users might have put there as well."""

from __future__ import annotations

import ast
import functools
import sys
import types
from typing import Any


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


@functools.lru_cache(maxsize=256)
def _names_made_in(file: str) -> frozenset[str]:
    try:
        with open(file, "rb") as opened:
            tree = ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
            found.add(node.name)
    return frozenset(found)
