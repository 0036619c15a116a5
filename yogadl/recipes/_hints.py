"""What type hints are made of."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any

from yogadl.recipes._owners import is_library
from yogadl.recipes._protocol import Walk, each, pairs, text

_OF_TYPES = ("__bound__", "__constraints__", "__supertype__", "__value__")


def _shown_type(value: Any) -> str:
    """A type hint as Python writes it, without the user's modules, whose names depend on how they
    are run."""
    if isinstance(value, typing.ForwardRef):
        return f"ForwardRef({value.__forward_arg__!r})"
    shown = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    module = getattr(value, "__module__", None)
    if isinstance(module, str) and not is_library(module):
        shown = shown.removeprefix(f"{module}.")
    return shown


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a type hint that stand for types, as in ``Optional["Item"]``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, typing.ForwardRef):
        yield value.__forward_arg__
    elif isinstance(value, list | tuple):
        # The parameters of a Callable.
        for it in value:
            yield from texts_in(it)
    elif (origin := typing.get_origin(value)) is typing.Annotated:
        yield from texts_in(typing.get_args(value)[0])
    elif origin is not typing.Literal:
        yield from texts_in(typing.get_args(value))
        if isinstance(value, typing.TypeVar):
            yield from texts_in((value.__bound__, *value.__constraints__))


def hint_rule(walk: Walk, value: Any) -> str:
    """What a type hint is."""
    origin = typing.get_origin(value)
    if value is typing.Any:
        # Before Python 3.11, it is no class.
        return f"typing({text('typing.Any')})"
    if value is typing.Annotated:
        return walk.library("typing", "Annotated")
    if origin is typing.Annotated:
        # From Python 3.13 on, it is no class.
        made = walk.library("typing", "Annotated")
        return f"typing({made},{each(walk, typing.get_args(value))})"
    if origin is None:
        shown = text(_shown_type(value))
        found = [(name, getattr(value, name, None)) for name in _OF_TYPES]
        if isinstance(value, typing.ParamSpec):
            # From Python 3.12 on, that of one without a bound is the type of None.
            found = [it for it in found if it[1] is not type(None)]
        return f"typing({shown},{pairs(walk, (it for it in found if it[1]))})"
    return f"typing({walk.token(origin)},{each(walk, typing.get_args(value))})"
