"""What annotations are."""

from __future__ import annotations

import ast
import sys
import types
from typing import Any

from yogadl.errors import UndeterminedError
from yogadl.recipes._names import follow
from yogadl.recipes._protocol import Walk, text
from yogadl.recipes._reads import reads_of_expression
from yogadl.recipes._syntax import expression_form


def text_of(walk: Walk, owner: Any, annotation: Any) -> str:
    """An annotation of a class or function, which decides of what many libraries do."""
    if isinstance(annotation, str):
        return _named(walk, owner, annotation)
    if not isinstance(annotation, type):
        try:
            return walk.token(annotation)
        except UndeterminedError:
            return f"annotation {text(repr(annotation))}"
    return walk.token(annotation)


def _named(walk: Walk, owner: Any, annotation: str) -> str:
    """One that is text, with the classes that it names, as far as they are there."""
    form, expression = _form_of(annotation)
    module = sys.modules.get(owner.__module__)
    if expression is None or module is None:
        return form
    stand_in = types.FunctionType((lambda: None).__code__, vars(module))
    found = []
    for read in reads_of_expression(expression).names:
        try:
            found.append(f"{read}={follow(walk, stand_in, {}, read)}")
        except UndeterminedError:
            continue
    return f"{form}{{{','.join(found)}}}"


def _form_of(annotation: str) -> tuple[str, ast.expr | None]:
    """An annotation that is text, in its normal form, and as syntax."""
    try:
        expression = ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError):
        return text(annotation), None
    return expression_form(expression), expression
