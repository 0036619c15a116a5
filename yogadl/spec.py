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

import collections
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from yogadl import dtypes
from yogadl.completion import public_names
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.lists import list_array

Shape: TypeAlias = "tuple[int | None, ...] | None"
"""Dimensions, ``None`` where one is unknown; ``None`` instead of a tuple for unknown rank."""

Structure: TypeAlias = Any
"""A nest of dict, tuple and named tuple; recursive types do not survive all type checkers."""


class Ragged(NamedTuple):
    """A ragged array: rows of differing lengths over one flat array.

    ``flat_values`` has shape ``[n, ...]``; ``nested_row_splits`` are 1-D int64 or int32 arrays,
    outermost first, each starting at 0 and ending at the length of the next (of ``flat_values``
    for the last).
    """

    flat_values: np.ndarray[Any, Any]
    nested_row_splits: tuple[np.ndarray[Any, Any], ...]


class Sparse(NamedTuple):
    """A sparse array in coordinate form.

    ``indices`` is int64 of shape ``[n, rank]``, ``values`` has shape ``[n]``, ``dense_shape`` is
    int64 of shape ``[rank]``.
    """

    indices: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    dense_shape: np.ndarray[Any, Any]


MAX_RANK = 63 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 31
"""Dimensions of an array, one less than NumPy's own limit: a batch has one more."""

_MAX_DIMENSION = 2**63 - 1
# A record has no more bytes. What counts is that NumPy has arrays of many such, too.
_MAX_ITEMS = 2**32
_MAX_DEPTH = 64


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def checked_shape(shape: Any) -> Shape:
    if shape is None:
        return None
    if not isinstance(shape, tuple | list) or not all(dim is None or _is_int(dim) for dim in shape):
        raise InvalidArgumentError(
            f"a shape is a tuple of integers, or None for what is not known; not {shape!r}"
        )
    if any(dim is not None and dim < 0 for dim in shape):
        raise InvalidArgumentError(f"shape {shape!r} has a negative dimension; unknown is None")
    if len(shape) > MAX_RANK or any(dim is not None and dim > _MAX_DIMENSION for dim in shape):
        raise InvalidArgumentError(
            f"shape {shape!r:.200} is none that NumPy can handle: up to {MAX_RANK} dimensions of "
            "63 bits"
        )
    return tuple(None if dim is None else int(dim) for dim in shape)


def _checked_dtype(dtype: Any) -> str:
    """A dtype name from a name or anything NumPy takes for a dtype."""
    if isinstance(dtype, str) and dtype in dtypes.NAMES:
        return dtype
    try:
        return dtypes.from_numpy(np.dtype(dtype))
    except UnsupportedTypeError:
        raise
    except TypeError as error:
        raise UnsupportedTypeError(
            f"{dtype!r} is no dtype; a cache can hold {sorted(dtypes.NAMES)}"
        ) from error


@dataclass(frozen=True)
class TensorSpec:
    """A dense array of ``dtype`` (a name or a NumPy dtype) and ``shape``.

    ``shape`` may have unknown dimensions (``None``) or unknown rank (``shape=None``).
    """

    dtype: str
    shape: Shape = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))
        object.__setattr__(self, "shape", checked_shape(self.shape))
        # As NumPy counts: an array without items may not be too large without its zeros, either.
        if math.prod(dim or 1 for dim in self.shape or ()) > _MAX_ITEMS:
            raise InvalidArgumentError(f"no array can have shape {self.shape!r:.200}")

    @property
    def is_string(self) -> bool:
        return self.dtype == dtypes.STRING

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape where every dimension is known, else ``None``."""
        if self.shape is None or any(dim is None for dim in self.shape):
            return None
        return tuple(dim for dim in self.shape if dim is not None)


@dataclass(frozen=True)
class RaggedSpec:
    """A ragged array; ``shape`` is that of the whole, ``ragged_rank`` its number of row splits."""

    dtype: str
    shape: Shape
    ragged_rank: int
    row_splits_dtype: str = "int64"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))
        object.__setattr__(self, "shape", checked_shape(self.shape))
        if not _is_int(self.ragged_rank):
            raise InvalidArgumentError(f"ragged_rank must be an integer, not {self.ragged_rank!r}")
        rank = MAX_RANK if self.shape is None else len(self.shape)
        if not 1 <= self.ragged_rank < rank:
            raise InvalidArgumentError(
                f"ragged_rank {self.ragged_rank} does not fit shape {self.shape}; it counts the "
                "row splits, at least 1 and below the rank"
            )
        if self.row_splits_dtype not in ("int32", "int64"):
            raise InvalidArgumentError(
                f"row_splits_dtype must be int32 or int64, not {self.row_splits_dtype!r}"
            )
        _ = self.components  # which check their shapes

    @property
    def components(self) -> tuple[TensorSpec, ...]:
        """The dense arrays a value is stored as: the flat values, then the row splits."""
        inner = None if self.shape is None else (None, *self.shape[self.ragged_rank + 1 :])
        splits = TensorSpec(self.row_splits_dtype, (None,))
        return (TensorSpec(self.dtype, inner), *[splits] * self.ragged_rank)


@dataclass(frozen=True)
class SparseSpec:
    """A sparse array in coordinate form."""

    dtype: str
    shape: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))
        object.__setattr__(self, "shape", checked_shape(self.shape))

    @property
    def components(self) -> tuple[TensorSpec, ...]:
        """The dense arrays a value is stored as: indices, values, dense shape."""
        rank = None if self.shape is None else len(self.shape)
        return (
            TensorSpec("int64", (None, rank)),
            TensorSpec(self.dtype, (None,)),
            TensorSpec("int64", (rank,)),
        )


@dataclass(frozen=True)
class NoneSpec:
    """A component that is always ``None``."""


@dataclass(frozen=True)
class OptionalSpec:
    """A value of the spec ``value``, or ``None`` where a record has none."""

    value: Structure


Leaf: TypeAlias = TensorSpec | RaggedSpec | SparseSpec | NoneSpec | OptionalSpec
LEAVES = (TensorSpec, RaggedSpec, SparseSpec, NoneSpec, OptionalSpec)


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
            _check_key(key)
        return sorted(nest, key=lambda key: (isinstance(key, str), key))


def _check_key(key: Any) -> None:
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
            _check_key(key)
        return {key: _normalize(child, depth + 1) for key, child in spec.items()}
    if is_namedtuple(spec):
        cls = namedtuple_class(type(spec).__name__, tuple(spec._fields))
        return cls(*[_normalize(child, depth + 1) for child in spec])
    if isinstance(spec, tuple | list):
        return tuple(_normalize(child, depth + 1) for child in spec)
    raise UnsupportedTypeError(
        f"a spec is a nest of dict, tuple and yogadl.spec leaves; it cannot hold a "
        f"{type(spec).__module__}.{type(spec).__qualname__}"
    )


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
