"""Records as flat lists of component values, and back.

Values come from callers, and are checked against the spec here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import SpecMismatchError, UnsupportedTypeError
from yogadl.format.layout import components_of, leaf_components
from yogadl.format.nested_arrays import check_ragged, check_raggeds, check_sparse, check_sparses

Array = np.ndarray[Any, Any]


def split_record(spec: specs.Structure, record: Any) -> list[Any]:
    """The component values of a record; their dtypes and shapes are for :func:`as_component`.

    Raises:
        SpecMismatchError: the record is nested otherwise, or a leaf does not hold together.
    """
    values: list[Any] = []
    for leaf, value in zip(specs.leaves(spec), specs.flatten(spec, record), strict=True):
        values.extend(split_leaf(leaf, value))
    return values


def split_leaf(leaf: specs.Leaf, value: Any) -> list[Any]:
    """The component values of one leaf.

    Raises:
        SpecMismatchError: the value is of another class, or its parts do not fit together.
    """
    if isinstance(leaf, specs.TensorSpec):
        if value is None:
            raise SpecMismatchError(f"None does not fit {leaf}")
        return [value]
    if isinstance(leaf, specs.RaggedSpec):
        levels = value.nested_row_splits if isinstance(value, specs.Ragged) else None
        if not isinstance(levels, tuple | list) or len(levels) != leaf.ragged_rank:
            raise SpecMismatchError(
                f"a component of {leaf} must be a yogadl.spec.Ragged(flat_values, "
                f"nested_row_splits) with {leaf.ragged_rank} row splits, not {_of_type(value)}"
            )
        return _split_ragged(leaf, value)
    if isinstance(leaf, specs.SparseSpec):
        if not isinstance(value, specs.Sparse):
            raise SpecMismatchError(
                f"a component of {leaf} must be a yogadl.spec.Sparse(indices, values, "
                f"dense_shape), not {_of_type(value)}"
            )
        return _split_sparse(leaf, value)
    if isinstance(leaf, specs.OptionalSpec):
        if value is None:
            return [False, *[_nothing(part) for part in components_of(leaf.value)]]
        return [True, *split_record(leaf.value, value)]
    if value is not None:
        raise SpecMismatchError(
            f"{value!r:.100} does not fit {leaf}, which is None in every record"
        )
    return []


def _of_type(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _split_ragged(leaf: specs.RaggedSpec, value: specs.Ragged) -> list[Any]:
    """Flat values and row splits, which must rise from 0 to the length of the next level."""
    flat = np.asarray(value.flat_values)
    levels = [np.asarray(splits) for splits in value.nested_row_splits]
    if any(splits.ndim != 1 or splits.dtype.kind != "i" for splits in levels):
        raise SpecMismatchError(
            f"a Ragged needs 1-D integer row splits over an array: {value!r:.200}"
        )
    check_ragged(leaf, flat, levels)
    return [flat, *levels]


def _split_sparse(leaf: specs.SparseSpec, value: specs.Sparse) -> list[Any]:
    """Indices, values and dense shape, which must fit together."""
    indices, values, shape = map(np.asarray, value)
    if indices.dtype.kind != "i" or shape.ndim != 1 or shape.dtype.kind != "i":
        raise SpecMismatchError(
            f"a Sparse needs integer indices [n, rank] and an integer dense shape [rank]: "
            f"{value!r:.200}"
        )
    check_sparse(leaf, indices, values, shape)
    return [indices, values, shape]


def _nothing(spec: specs.TensorSpec) -> Any:
    """What stands for a component of an absent optional value: zeros, as few as can be."""
    if spec.shape == () and spec.is_string:
        return b""
    shape = (0,) if spec.shape is None else tuple(dim or 0 for dim in spec.shape)
    if spec.is_string:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, dtypes.to_numpy(spec.dtype))


def join_record(spec: specs.Structure, components: Sequence[Any]) -> Any:
    """The inverse of :func:`split_record`.

    Raises:
        SpecMismatchError: see :func:`join_column`.
    """
    values: list[Any] = []
    position = 0
    for leaf in specs.leaves(spec):
        if isinstance(leaf, specs.TensorSpec):
            values.append(components[position])
            position += 1
            continue
        count = len(leaf_components(leaf))
        parts = [[part] for part in components[position : position + count]]
        values.extend(join_column(leaf, parts, 1))
        position += count
    return specs.unflatten(spec, values)


def join_column(leaf: specs.Leaf, parts: Sequence[Any], count: int) -> Any:
    """The values of one leaf in some records, from those of its components.

    Args:
        leaf: the leaf.
        parts: for each of its components ``count`` values, of the component's dtype and shape.
        count: number of records.

    Raises:
        SpecMismatchError: row splits or indices are such as no value has.
    """
    if isinstance(leaf, specs.TensorSpec):
        return parts[0]
    if isinstance(leaf, specs.RaggedSpec):
        flats, *levels = parts
        check_raggeds(leaf, flats, levels)
        pairs = zip(flats, zip(*levels, strict=True), strict=True)
        return [specs.Ragged(flat, splits) for flat, splits in pairs]
    if isinstance(leaf, specs.SparseSpec):
        check_sparses(leaf, *parts)
        return [specs.Sparse(*values) for values in zip(*parts, strict=True)]
    if isinstance(leaf, specs.OptionalSpec):
        return [
            join_record(leaf.value, values[1:]) if values[0] else None
            for values in zip(*parts, strict=True)
        ]
    return [None] * count


def as_component(spec: specs.TensorSpec, value: Any) -> Array | bytes:
    """A caller's value as the array (or, for a scalar string, the bytes) of a component.

    Raises:
        SpecMismatchError: dtype or shape do not fit. Python numbers and lists are converted to the
            spec's dtype where that keeps their values; an array must have it.
        UnsupportedTypeError: an object array with something else than strings in it.
    """
    if spec.is_string:
        return _as_strings(spec, value)
    dtype = dtypes.to_numpy(spec.dtype)
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedTypeError("a masked array would lose its mask; fill it first")
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.newbyteorder("=") != dtype:
            raise SpecMismatchError(f"an array of {array.dtype} does not fit {spec}")
        # The file is little-endian whatever the array was.
        array = np.asarray(array, dtype)
    else:
        array = _from_python(spec, value, dtype)
    check_shape(spec, array.shape)
    return array


_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def _from_python(spec: specs.TensorSpec, value: Any, dtype: np.dtype[Any]) -> Array:
    """Python numbers, or lists of them, as the spec's dtype, if that keeps their values.

    Integers may become floats and floats be rounded to fewer digits; nothing else may change.
    """
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise SpecMismatchError(f"{value!r:.100} does not fit {spec}") from error
    if given.size == 0:
        return given.astype(dtype)
    wanted = "u" if "int" in spec.dtype else "c" if "complex" in spec.dtype else "f"
    wanted = "b" if spec.dtype == "bool" else wanted
    rank = _RANKS.get(given.dtype.kind, 4)
    if rank > _RANKS[wanted] or (rank == 0) != (wanted == "b"):
        raise SpecMismatchError(f"{value!r:.100} does not fit {spec}")
    with np.errstate(all="ignore"):
        array = given.astype(dtype)
        if rank > 1:
            kept = np.isfinite(array.astype(np.complex128)) == np.isfinite(given)
        else:
            kept = (array if wanted in "bu" else array.astype(np.complex128)) == given
    if not kept.all():
        raise SpecMismatchError(f"{value!r:.100} does not fit {spec}: its value would change")
    return array


def check_shape(spec: specs.TensorSpec, shape: tuple[int, ...]) -> None:
    if spec.shape is None:
        return
    if len(shape) != len(spec.shape) or any(
        want is not None and want != got for want, got in zip(spec.shape, shape, strict=True)
    ):
        raise SpecMismatchError(f"an array of shape {shape} does not fit {spec}")


def _as_strings(spec: specs.TensorSpec, value: Any) -> Array | bytes:
    if isinstance(value, bytes | str):
        check_shape(spec, ())
        return _as_bytes(value)
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
    if array is None:
        # Lists go to an object array, lest NumPy make strings of the numbers among them.
        array = np.array(value, dtype=object)
    if array.dtype.kind not in "OSU":
        raise SpecMismatchError(f"an array of {array.dtype} does not fit {spec}")
    check_shape(spec, array.shape)
    strings = np.empty(array.shape, dtype=object)
    flat = strings.reshape(-1)
    try:
        for position, item in enumerate(array.reshape(-1).tolist()):
            flat[position] = _as_bytes(item)
    except UnsupportedTypeError as error:
        if isinstance(value, np.ndarray):
            raise
        raise SpecMismatchError(f"{value!r:.100} does not fit {spec}") from error
    return bytes(strings[()]) if array.shape == () else strings


def _as_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            raise SpecMismatchError(
                f"text that is no UTF-8: {error}; give bytes, as text.encode(errors=…) makes them"
            ) from error
    if isinstance(item, bytes):
        return item
    raise UnsupportedTypeError(
        f"an object array may hold only str and bytes, not {type(item).__name__}; give values of "
        "different types components of their own, and fill what is missing"
    )
