"""What is written in calls of some forms."""

from __future__ import annotations

import ast
from typing import Any

from yogadl.recipes._special import PRINTED


def text_of(node: Any) -> str | None:
    """A string that is written there; ``None`` for anything else."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None


def is_own_logger(node: ast.Call) -> bool:
    """Whether a call is ``logging.getLogger(__name__)``."""
    is_found = isinstance(node.func, ast.Attribute) and node.func.attr == "getLogger"
    return is_found and ast.unparse(node) == "logging.getLogger(__name__)"


def prints_to_file(node: ast.Call) -> bool:
    """Whether this writes a traceback anywhere but to where errors are shown."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    most = PRINTED.get(name)
    is_named = any(keyword.arg in ("file", None) for keyword in node.keywords)
    is_spread = any(isinstance(argument, ast.Starred) for argument in node.args)
    return most is not None and (is_named or is_spread or len(node.args) > most)


def attribute_name(node: ast.Call) -> str:
    """What ``getattr`` or ``hasattr`` is asked for, if that is written there; else empty."""
    if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "hasattr"):
        return ""
    name = node.args[1] if len(node.args) > 1 else None
    is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return name.value if is_text and not node.keywords else ""  # type: ignore[union-attr]
