"""Element specs: the structure, dtypes and shapes of the records of a data set.

A spec is a nest of ``dict``, ``tuple`` and named tuples whose leaves are the classes below; the
records of the data set are the same nest with values for leaves:

==================  ==============================================================
leaf                value
==================  ==============================================================
``TensorSpec``      a NumPy array or scalar; ``bytes`` for a scalar string, an
                    object array of ``bytes`` for an array of strings
``RaggedSpec``      :class:`Ragged`
``SparseSpec``      :class:`Sparse`
``NoneSpec``        ``None``
``OptionalSpec``    a value of the inner spec, or ``None``
==================  ==============================================================

Specs are immutable and hashable but for dicts, compare by value, and can be pickled. The order of
the keys of a dict is that in which records show them, and makes no other difference.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl.completion import public_names
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.lists import list_array
from yogadl.spec_leaves import (
    LEAVES,
    MAX_RANK,
    Leaf,
    NoneSpec,
    OptionalSpec,
    Ragged,
    RaggedSpec,
    Shape,
    Sparse,
    SparseSpec,
    Structure,
    TensorSpec,
    checked_shape,
)
from yogadl.spec_nests import (
    check_key,
    flatten,
    is_namedtuple,
    leaves,
    map_leaves,
    map_nest,
    namedtuple_class,
    paths,
    sorted_keys,
    tuple_like,
    unflatten,
)

__all__ = [
    "LEAVES",
    "MAX_RANK",
    "Leaf",
    "NoneSpec",
    "OptionalSpec",
    "Ragged",
    "RaggedSpec",
    "Shape",
    "Sparse",
    "SparseSpec",
    "Structure",
    "TensorSpec",
    "checked_shape",
    "common",
    "flatten",
    "infer",
    "is_namedtuple",
    "leaves",
    "map_leaves",
    "map_nest",
    "namedtuple_class",
    "normalize",
    "paths",
    "sorted_keys",
    "tuple_like",
    "unflatten",
]

_MAX_DEPTH = 64


def normalize(spec: Any, depth: int = 0) -> Structure:
    """A spec as users may write it, checked and in standard form: lists become tuples.

    Args:
        spec: to check.
        depth: in how many containers it lies.

    Raises:
        UnsupportedTypeError: something in it is neither a container nor a leaf of this module, it
            has no leaf at all, or is nested too deep.
    """
    normal = _normalize(spec, depth)
    if next(leaves(normal), None) is None:
        raise UnsupportedTypeError(f"records without components cannot be stored: {spec!r}")
    return normal


def _normalize(spec: Any, depth: int = 0) -> Structure:
    if depth > _MAX_DEPTH:
        raise UnsupportedTypeError(f"a spec may be nested {_MAX_DEPTH} deep, not more")
    if isinstance(spec, OptionalSpec):
        return OptionalSpec(normalize(spec.value, depth + 1))
    if isinstance(spec, LEAVES):
        return spec
    if isinstance(spec, dict):
        for key in spec:
            check_key(key)
        return {key: _normalize(child, depth + 1) for key, child in spec.items()}
    if is_namedtuple(spec):
        cls = namedtuple_class(type(spec).__name__, tuple(spec._fields))
        return cls(*[_normalize(child, depth + 1) for child in spec])
    if isinstance(spec, tuple | list):
        return tuple(_normalize(child, depth + 1) for child in spec)
    raise UnsupportedTypeError(
        f"a spec is a nest of dict, tuple and yogadl.spec leaves; it cannot hold a "
        f"{type(spec).__module__}.{type(spec).__qualname__}{_leaf_for(spec)}"
    )


def _leaf_for(dtype: Any) -> str:
    """What to write in place of a dtype."""
    try:
        return f"; for values of that dtype, give {TensorSpec(dtype)!r}"
    except (InvalidArgumentError, UnsupportedTypeError):
        return ""


def common(first: Structure, second: Structure) -> Structure:
    """The spec that the records of both specs fit: dimensions in which they differ are unknown.

    Raises:
        SpecMismatchError: they differ in more than that.
    """
    triples = zip(paths(first), leaves(first), flatten(first, second), strict=True)
    return unflatten(first, [_common(*triple) for triple in triples])


def _common(path: tuple[Any, ...], first: Leaf, second: Any) -> Leaf:
    if first == second:
        return first
    if (
        isinstance(first, TensorSpec)
        and isinstance(second, TensorSpec)
        and first.dtype == second.dtype
    ):
        if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
            return TensorSpec(first.dtype, None)
        dims = zip(first.shape, second.shape, strict=True)
        return TensorSpec(first.dtype, tuple(a if a == b else None for a, b in dims))
    where = f"record{''.join(f'[{key!r}]' for key in path)}: " if path else ""
    raise SpecMismatchError(f"{where}{first} and {second} have nothing in common")


def infer(value: Any, name: str = "record") -> Structure:
    """The spec of a record, every shape static.

    Args:
        value: the record.
        name: what errors call it.

    Raises:
        UnsupportedTypeError: a value that is no array, scalar, string or container of these.
    """
    return normalize(_infer(value, name))


def _infer(value: Any, where: str) -> Any:
    if value is None:
        return NoneSpec()
    if isinstance(value, Ragged):
        flat = np.asarray(value.flat_values)
        levels = [np.asarray(part) for part in value.nested_row_splits]
        if flat.ndim < 1 or not levels or any(splits.ndim != 1 for splits in levels):
            raise UnsupportedTypeError(f"{where} is not a ragged array: {value!r:.200}")
        shape = (len(levels[0]) - 1, *[None] * len(levels), *flat.shape[1:])
        return RaggedSpec(_dtype_of(flat, where), shape, len(levels), _dtype_of(levels[0], where))
    if isinstance(value, Sparse):
        dense = np.asarray(value.dense_shape)
        if dense.ndim != 1 or dense.dtype.kind != "i":
            raise UnsupportedTypeError(f"{where} is not a sparse array: {value!r:.200}")
        return SparseSpec(_dtype_of(np.asarray(value.values), where), tuple(dense.tolist()))
    if isinstance(value, dict):
        return {key: _infer(child, f"{where}[{key!r}]") for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple_like(
            value, [_infer(child, f"{where}[{at}]") for at, child in enumerate(value)]
        )
    if isinstance(value, str | bytes):
        return TensorSpec(dtypes.STRING, ())
    if isinstance(value, list):
        array = list_array(value, where)
        return TensorSpec(_dtype_of(array, where), array.shape)
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        array = np.asarray(value)
        if isinstance(value, int) and array.dtype.kind == "O":
            raise UnsupportedTypeError(
                f"{where} is {value!r:.100}, which fits no dtype; integers have 64 bits"
            )
        return TensorSpec(_dtype_of(array, where), array.shape)
    raise UnsupportedTypeError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}, and a record can hold "
        "NumPy arrays and scalars, numbers, bools, str, bytes, None, and dicts and tuples of these"
    )


def _dtype_of(array: np.ndarray[Any, Any], where: str) -> str:
    try:
        return dtypes.from_numpy(array.dtype)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{where}: {error}") from error


__dir__ = functools.partial(public_names, globals())
