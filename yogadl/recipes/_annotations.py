"""What annotations are."""

from __future__ import annotations

import ast
import gc
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from yogadl.errors import UndeterminedError
from yogadl.recipes._hints import texts_in
from yogadl.recipes._names import follow
from yogadl.recipes._owners import is_library
from yogadl.recipes._protocol import Walk, text
from yogadl.recipes._reads import Read, reads_of_expression
from yogadl.recipes._syntax import expression_form, hints_in_texts

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
_CODE = (type, types.FunctionType, types.ModuleType)
_MOST_PARTS = 1000


def text_of(walk: Walk, owner: Any, annotation: Any) -> str:
    """An annotation of a class or function, which decides of what many libraries do."""
    if isinstance(annotation, str):
        return _named(walk, owner, annotation)
    return f"{_token_of(walk, annotation)}{_named_within(walk, owner, annotation)}"


def _token_of(walk: Walk, annotation: Any) -> str:
    if not isinstance(annotation, type):
        try:
            return walk.token(annotation)
        except UndeterminedError:
            if shown := _shown(annotation):
                return f"annotation {text(shown)}"
            raise
    return walk.token(annotation)


def _shown(annotation: Any) -> str:
    """What a library says of an annotation; empty if that is where it lies in memory, or if the
    user's code may say it."""
    met, left = dict[int, Any](), [annotation]
    while left and len(met) < _MOST_PARTS:
        part = left.pop()
        if not is_library(type(part).__module__):
            return ""
        if id(part) not in met and not issubclass(type(part), _CODE):
            met[id(part)] = part
            left += gc.get_referents(part)
    shown = "" if left else repr(annotation)
    return "" if _ADDRESS.search(shown) else shown


def _named_within(walk: Walk, owner: Any, annotation: Any) -> str:
    """What is named by the texts in one, as far as that is not Python's own; mostly nothing."""
    expressions = [_form_of(it)[1] for it in texts_in(annotation)]
    space = _globals_of(walk, owner) if expressions else None
    if space is None:
        return ""
    reads = [it for one in expressions if one is not None for it in _reads_of(one)]
    found = _followed(walk, space, (it for it in reads if it.root in space))
    return f"{{{found}}}" if found else ""


def _named(walk: Walk, owner: Any, annotation: str) -> str:
    """One that is text, with the classes that it names, as far as they are there."""
    form, expression = _form_of(annotation)
    space = _globals_of(walk, owner)
    if expression is None or space is None:
        return form
    return f"{form}{{{_followed(walk, space, _reads_of(expression))}}}"


def _reads_of(expression: ast.expr) -> Iterator[Read]:
    """What a text of an annotation names, and the texts in that."""
    yield from reads_of_expression(expression).names
    for inner in hints_in_texts(expression):
        yield from reads_of_expression(inner).names


def _followed(walk: Walk, space: dict[str, Any], reads: Iterable[Read]) -> str:
    stand_in = types.FunctionType((lambda: None).__code__, space)
    found = []
    for read in reads:
        try:
            found.append(f"{read}={follow(walk, stand_in, {}, read)}")
        except UndeterminedError:
            continue
    return ",".join(found)


def _globals_of(walk: Walk, owner: Any) -> dict[str, Any] | None:
    """The global variables of what a function or class is written in."""
    home = walk.home(owner.__module__) if isinstance(owner, type) else None
    if home is not None and owner.__qualname__.partition(".")[0] in home:
        return home
    # In a process that multiprocessing has spawned, those of the main module are a copy.
    for found in (owner, *(vars(owner).values() if isinstance(owner, type) else ())):
        space = found.__globals__ if isinstance(found, types.FunctionType) else {}
        if space and found.__code__.co_filename.startswith("<attrs generated "):
            # It has a copy of what was there when the class was made.
            continue
        if space.get("__name__", "") == owner.__module__:
            return space
    module = sys.modules.get(owner.__module__)
    return None if module is None else vars(module)


def _form_of(annotation: str) -> tuple[str, ast.expr | None]:
    """An annotation that is text, in its normal form, and as syntax."""
    try:
        expression = ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError):
        return text(annotation), None
    return expression_form(expression), expression
