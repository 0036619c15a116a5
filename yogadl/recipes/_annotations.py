"""What annotations are."""

from __future__ import annotations

import ast
from typing import Any

from yogadl.errors import UndeterminedError
from yogadl.recipes._protocol import Walk, text
from yogadl.recipes._syntax import expression_form


def text_of(walk: Walk, owner: Any, annotation: Any) -> str:
    """An annotation of a class or function, which decides of what many libraries do."""
    if isinstance(annotation, str):
        return walk.annotation(owner, annotation)
    if not isinstance(annotation, type):
        try:
            return walk.token(annotation)
        except UndeterminedError:
            return f"annotation {text(repr(annotation))}"
    return walk.token(annotation)


def form_of_text(annotation: str) -> tuple[str, ast.expr | None]:
    """An annotation that is text, in its normal form, and as syntax."""
    try:
        expression = ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError):
        return text(annotation), None
    return expression_form(expression), expression
