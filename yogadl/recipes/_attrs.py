"""What the fields of classes of attrs are.

Of annotations that are text, attrs finds out the types when it is asked for them, and keeps those.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from yogadl.recipes._library_classes import is_library_class
from yogadl.recipes._protocol import Walk, is_plain
from yogadl.recipes._reads import Read, reads_of_expression
from yogadl.recipes._syntax import hints_in_texts

_ATTRS = ("attr", "attrs")
_FIELDS = "__attrs_attrs__"
# What is written without a name.
_SYNTAX = (None, type(None), ..., types.UnionType)
_SPECIAL = type(typing.Union)
_RESOLVED, _REPLACE = "__attrs_types_resolved__", "__replace__"


def is_left_out(kind: type, name: str) -> bool:
    """Whether something in a class only says that attrs has been asked for the types, or is what
    attrs puts there from Python 3.13 on."""
    if _FIELDS not in vars(kind):
        return False
    space = getattr(vars(kind)[name], "__globals__", {}) if name == _REPLACE else {}
    return name == _RESOLVED or space.get("__name__", "").partition(".")[0] in _ATTRS


def meet_fields(walk: Walk, kind: type) -> None:
    """Has the fields of a class be told without the types that its annotations tell, whatever attrs
    knows of them."""
    fields = vars(kind).get(_FIELDS)
    if isinstance(fields, tuple):
        own = [it for it in fields if type(it).__module__.partition(".")[0] in _ATTRS]
        walk.annotated.update({id(it): it for it in own if _is_annotated(kind, it)})


def _is_annotated(kind: type, field: Any) -> bool:
    """Whether the type of a field is what a class says as text, or what is named by that."""
    for one in kind.__mro__:
        annotation = inspect.get_annotations(one).get(field.name)
        if annotation is not None:
            if not isinstance(annotation, str) or is_library_class(one):
                return False
            is_text = isinstance(field.type, str)
            return field.type == annotation if is_text else _is_named(field.type, annotation, one)
    return False


def _is_named(found: Any, annotation: str, kind: type) -> bool:
    """Whether a type is made of what an annotation of a class names in its module: then it is told
    with that, and else it may be of a function."""
    try:
        expression = ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    space = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    texts = (expression, *hints_in_texts(expression))
    named = [_value_of(space, read) for it in texts for read in reads_of_expression(it).names]
    constants: list[Any] = [it.value for it in ast.walk(expression) if isinstance(it, ast.Constant)]
    constants += [-it for it in constants if type(it) in (int, float)]
    known = {id(part) for value in (*named, *_SYNTAX) for part in _parts(value)}
    return all(
        id(part) in known
        or type(part) is _SPECIAL
        or (is_plain(part) and any(type(it) is type(part) and it == part for it in constants))
        for part in _parts(found)
    )


def _value_of(space: dict[str, Any], read: Read) -> Any:
    value: Any = space.get(read.root, vars(builtins).get(read.root))
    for name in read.chain:
        owners: tuple[Any, ...] = (value,) if issubclass(type(value), types.ModuleType) else ()
        owners = value.__mro__ if issubclass(type(value), type) else owners
        value = next((vars(it)[name] for it in owners if name in vars(it)), None)
    return value


def _parts(hint: Any) -> Iterator[Any]:
    """What a type hint is made of in the end."""
    arguments = typing.get_args(hint)
    yield typing.get_origin(hint)
    if not arguments:
        yield hint
    for argument in arguments:
        if isinstance(argument, list):
            # The arguments of a Callable.
            for one in argument:
                yield from _parts(one)
        else:
            yield from _parts(argument)
