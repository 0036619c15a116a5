"""Nests: their containers, and the order in which the leaves of specs and records come."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.spec_leaves import LEAVES, Leaf, Structure


def is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


@functools.lru_cache(maxsize=256)
def namedtuple_class(name: str, fields: tuple[str, ...]) -> type[Any]:
    """The named tuple class that records with these fields are read as, one per name and fields.

    Raises:
        InvalidArgumentError: a name that is no identifier.
    """
    try:
        made: Any = collections.namedtuple(name, fields)  # type: ignore[misc] # made at run time
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"not a named tuple: {name!r} with fields {fields!r}: {error}"
        ) from error

    def reduce(self: Any) -> tuple[Any, ...]:
        return _namedtuple, (name, fields, tuple(self))

    # Pickle cannot find the class by its name.
    setattr(made, "__reduce__", reduce)  # noqa: B010 # mypy takes it for an assignment to a method
    return cast("type[Any]", made)


def _namedtuple(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return namedtuple_class(name, fields)(*values)


def tuple_like(container: Any, values: Iterable[Any]) -> Any:
    """The values as a tuple, of the container's class if that is of named tuples."""
    return type(container)(*values) if is_namedtuple(container) else tuple(values)


def map_nest(function: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """The nest with ``function`` of each value in it that is no dict, tuple or list.

    Lists become tuples. With other nests, which are containers where the first one is, ``function``
    gets their values, too.
    """
    if isinstance(nest, Mapping):
        return {
            key: map_nest(function, child, *[other[key] for other in others])
            for key, child in nest.items()
        }
    if isinstance(nest, tuple | list):
        rows = zip(nest, *others, strict=True)
        return tuple_like(nest, [map_nest(function, *row) for row in rows])
    return function(nest, *others)


def sorted_keys(nest: dict[Any, Any]) -> list[Any]:
    """The keys of a dict in the order in which its leaves come: integers before strings, each
    sorted. The order of the keys in the dict itself never matters.

    Raises:
        UnsupportedTypeError: a key is neither an integer nor a string.
    """
    try:
        return sorted(nest)
    except TypeError:
        for key in nest:
            check_key(key)
        return sorted(nest, key=lambda key: (isinstance(key, str), key))


def check_key(key: Any) -> None:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise UnsupportedTypeError(f"dict key {key!r} in a spec must be a str or an int")


def map_leaves(function: Callable[[Leaf], Any], spec: Structure) -> Any:
    """The nest of ``spec`` with ``function`` of each leaf, in the order of :func:`leaves`."""
    return unflatten(spec, [function(leaf) for leaf in leaves(spec)])


def leaves(spec: Structure) -> Iterator[Leaf]:
    """The leaves of a spec, depth first, those of a dict in the order of :func:`sorted_keys`.

    So specs that are equal have the same leaves in the same order. Whatever has a value, a column
    or a component for each leaf has them in this order.
    """
    if isinstance(spec, LEAVES):
        yield spec
    elif isinstance(spec, dict):
        for key in sorted_keys(spec):
            yield from leaves(spec[key])
    else:
        for child in spec:
            yield from leaves(child)


def paths(spec: Structure) -> Iterator[tuple[Any, ...]]:
    """The keys and positions that lead to each leaf, in the order of :func:`leaves`."""
    if isinstance(spec, LEAVES):
        yield ()
        return
    for key in sorted_keys(spec) if isinstance(spec, dict) else range(len(spec)):
        for path in paths(spec[key]):
            yield key, *path


def flatten(spec: Structure, value: Any, name: str = "record") -> list[Any]:
    """The leaf values of a record, in the order of :func:`leaves`.

    Args:
        spec: of the record.
        value: the record.
        name: what errors call it.

    Raises:
        SpecMismatchError: the record is nested otherwise than the spec.
    """
    if isinstance(spec, LEAVES):
        return [value]
    flat: list[Any] = []
    _flatten_into(flat, spec, value, name)
    return flat


def _flatten_into(flat: list[Any], spec: Structure, value: Any, where: str) -> None:
    """Adds the leaf values of a container."""
    if isinstance(spec, dict):
        if not isinstance(value, dict) or value.keys() != spec.keys():
            got = sorted(map(str, value)) if isinstance(value, dict) else type(value).__name__
            raise SpecMismatchError(
                f"{where} must be a dict of {sorted(map(str, spec))}, not {got}"
            )
        keys: Iterable[Any] = sorted_keys(spec)
    else:
        _check_tuple(spec, value, where)
        keys = range(len(spec))
    for key in keys:
        child = spec[key]
        # Without a call, and without words of where it is: this is done for every record.
        if isinstance(child, LEAVES):
            flat.append(value[key])
        else:
            _flatten_into(flat, child, value[key], f"{where}[{key!r}]")


def _check_tuple(spec: tuple[Any, ...], value: Any, where: str) -> None:
    if not isinstance(value, tuple | list) or len(value) != len(spec):
        got = f"{len(value)}" if isinstance(value, tuple | list) else type(value).__name__
        raise SpecMismatchError(f"{where} must be a tuple of {len(spec)}, not {got}")
    fields = getattr(spec, "_fields", None)
    given = getattr(value, "_fields", fields)
    if fields is not None and given != fields:
        raise SpecMismatchError(f"{where} must be a named tuple of {fields}, not of {given}")


def unflatten(spec: Structure, flat: Iterable[Any]) -> Any:
    """The inverse of :func:`flatten`: a nest with the containers of the spec, dicts in the order
    of its keys."""
    return _unflatten(spec, iter(flat))


def _unflatten(spec: Structure, values: Iterator[Any]) -> Any:
    if isinstance(spec, LEAVES):
        return next(values)
    if isinstance(spec, dict):
        keys = sorted_keys(spec)
        found = {key: _unflatten(spec[key], values) for key in keys}
        return found if keys == list(spec) else {key: found[key] for key in spec}
    return tuple_like(spec, [_unflatten(child, values) for child in spec])
