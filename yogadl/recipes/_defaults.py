"""Defaults of methods that Python has made for a class, where somebody has given them others."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

from yogadl.recipes._protocol import Walk


def changed_defaults(walk: Walk, kind: type) -> list[str]:
    """Those of what makes objects of a named tuple or a dataclass, unless they follow from its
    fields, as ``P.__new__.__defaults__ = (0, 0)`` does not."""
    parts = []
    for name, wanted in (("__new__", _of_fields(kind)), ("__init__", _of_dataclass(kind))):
        function = vars(kind).get(name)
        function = getattr(function, "__func__", function)
        if wanted is None or not isinstance(function, types.FunctionType):
            continue
        if function.__code__.co_filename != "<string>":
            continue
        positional, named = function.__defaults__ or (), function.__kwdefaults__ or {}
        if not (_same(positional, wanted[0]) and _same_named(named, wanted[1])):
            found = [walk.inside(f".{name}", it) for it in (positional, named)]
            parts.append(f"defaults of {name} {','.join(found)}")
    return parts


_Defaults = tuple[tuple[Any, ...], dict[str, Any]]


def _of_fields(kind: type) -> _Defaults | None:
    """Those that the fields of a named tuple say."""
    found = vars(kind).get("_field_defaults")
    is_named = issubclass(kind, tuple) and isinstance(found, dict)
    return (tuple(found.values()), {}) if is_named and found is not None else None


def _of_dataclass(kind: type) -> _Defaults | None:
    """Those that the fields of a dataclass say."""
    found = vars(kind).get("__dataclass_fields__")
    if not isinstance(found, dict):
        return None
    positional, named = [], {}
    for field in found.values():
        if not field.init or field._field_type is dataclasses._FIELD_CLASSVAR:  # type: ignore[attr-defined]
            continue
        value = field.default
        if field.default_factory is not dataclasses.MISSING:
            value = dataclasses._HAS_DEFAULT_FACTORY  # type: ignore[attr-defined]
        if value is dataclasses.MISSING:
            continue
        if field.kw_only:
            named[field.name] = value
        else:
            positional.append(value)
    return tuple(positional), named


def _same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Whether both are the very same."""
    return len(some) == len(others) and all(
        one is other for one, other in zip(some, others, strict=True)
    )


def _same_named(some: dict[str, Any], others: dict[str, Any]) -> bool:
    return some.keys() == others.keys() and all(some[it] is others[it] for it in some)
