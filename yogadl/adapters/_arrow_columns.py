"""The values of Arrow arrays as columns of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters._arrow_rows import is_encoded, plain
from yogadl.adapters._arrow_tensors import is_tensor, tensors
from yogadl.adapters._arrow_types import is_list, is_text, type_spec
from yogadl.adapters._base import Array
from yogadl.adapters._rows import leaf_column
from yogadl.cache.columns import Column
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.extras import require
from yogadl.format.contents import Packed

pa = require("pyarrow", "arrow")


def arrow_columns(
    spec: Any, array: Any, positions: Array, where: str, to_write: bool = False
) -> list[Any]:
    """The values of an Arrow array as one column per leaf of their spec.

    Args:
        spec: of the values.
        array: one Arrow array.
        positions: of the records they are of, for errors.
        where: what to call it in errors.
        to_write: columns as a ``MapSource`` gives them to a writer, which may share memory with the
            array, instead of fresh ones.

    Raises:
        UnsupportedTypeError: there is a null, and the spec has no ``OptionalSpec``.
        SpecMismatchError: a value does not fit the spec.
    """
    kind = array.type
    if isinstance(spec, dict) and pa.types.is_struct(kind):
        _refuse_nulls(array, positions, where)
        columns: list[Column] = []
        for name in specs.sorted_keys(spec):
            found = array.field(name)
            name_of_it = f"{where}[{name!r}]"
            columns.extend(arrow_columns(spec[name], found, positions, name_of_it, to_write))
        return columns
    if not isinstance(spec, specs.LEAVES):
        raise InvalidArgumentError(f"{where} is {kind}, whose spec is no {spec!r:.100}")
    if isinstance(spec, specs.OptionalSpec):
        return [leaf_column(spec, _optional_values(spec, array), positions, where)]
    _refuse_nulls(array, positions, where)
    array = plain(array)
    if spec == _spec_or_none(array.type):
        return [_fast_column(spec, array, positions, where, to_write)]
    return [leaf_column(spec, _cells(spec, array, where), positions, where)]


def _spec_or_none(kind: Any) -> Any:
    return None if pa.types.is_struct(kind) else type_spec(kind, "a column")


def _refuse_nulls(array: Any, positions: Array, where: str) -> None:
    if not array.null_count:
        return
    first = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
    raise UnsupportedTypeError(
        f"{where} of record {positions[first]} is None; fill or drop what is missing, or give "
        "spec= with OptionalSpec for it"
    )


def _optional_values(spec: specs.OptionalSpec, array: Any) -> list[Any]:
    return [nested(spec, value) for value in array.to_pylist()]


def nested(spec: Any, value: Any) -> Any:
    """A value of Python lists and dicts as one of a spec: what is ragged in it becomes Ragged."""
    if isinstance(spec, specs.OptionalSpec):
        return None if value is None else nested(spec.value, value)
    if isinstance(spec, specs.RaggedSpec) and isinstance(value, list):
        return _ragged_of(spec, value)
    if isinstance(spec, dict) and isinstance(value, dict) and spec.keys() == value.keys():
        return {key: nested(child, value[key]) for key, child in spec.items()}
    if isinstance(spec, specs.TensorSpec) and isinstance(value, list) and spec.shape:
        # An empty list does not tell its other dimensions.
        return value if value else np.zeros([dim or 0 for dim in spec.shape], _numpy(spec))
    return value


def _numpy(spec: specs.TensorSpec | specs.RaggedSpec) -> np.dtype[Any]:
    return dtypes.to_numpy(spec.dtype)


def _ragged_of(spec: specs.RaggedSpec, value: list[Any]) -> specs.Ragged:
    splits, flat = [], value
    for _ in range(spec.ragged_rank):
        lengths = [len(row) for row in flat]
        splits.append(np.cumsum([0, *lengths]).astype(spec.row_splits_dtype))
        flat = [item for row in flat for item in row]
    inner = spec.components[0].shape or (None,)
    if not flat:
        empty = np.zeros((0, *[dim or 0 for dim in inner[1:]]), _numpy(spec))
        return specs.Ragged(empty, tuple(splits))
    return specs.Ragged(np.array(flat, _numpy(spec)), tuple(splits))


def _fast_column(spec: specs.Leaf, array: Any, positions: Array, where: str, to_write: bool) -> Any:
    """The column of a spec that was made of the array's type."""
    if isinstance(spec, specs.TensorSpec) and spec.static_shape is not None and not spec.is_string:
        values = _values(array, positions, where)
        values = values if to_write else np.array(values)
        return values.reshape(len(array), *spec.static_shape)
    if isinstance(spec, specs.TensorSpec) and to_write:
        if _has_offsets(array.type) and spec.shape == ():
            return _packed_strings(array)
        if _has_offsets(array.type) and not spec.is_string:
            return _packed_lists(array, positions, where)
    return leaf_column(spec, _cells(spec, array, where), positions, where)


def _values(array: Any, positions: Array, where: str) -> Array:
    """All numbers in lists of fixed length, one after the other."""
    if isinstance(array.type, pa.FixedShapeTensorType):
        found: Array = array.to_numpy_ndarray()
        return found
    if is_tensor(array.type):
        return np.asarray(tensors(array, where))
    while is_list(array.type):
        size = array.type.list_size
        array = array.flatten()
        positions = np.repeat(positions, size)
        _refuse_nulls(array, positions, where)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


def _has_offsets(kind: Any) -> bool:
    """Whether the values of a type lie one behind the other, with offsets between them."""
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_binary = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(is_text or is_binary or types.is_list(kind) or types.is_large_list(kind))


def _packed_strings(array: Any) -> Packed:
    """Strings where Arrow has them."""
    _, offsets, data = array.buffers()
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype("i8" if is_large else "i4")
    count = len(array) + 1
    found = np.frombuffer(offsets, dtype, count, array.offset * dtype.itemsize)
    buffer = np.empty(0, "u1") if data is None else np.frombuffer(data, "u1")
    return Packed.between(buffer, found.astype("i8"))


def _packed_lists(array: Any, positions: Array, where: str) -> Packed:
    """Lists of numbers, or of lists of fixed length of such, where Arrow has them."""
    offsets = array.offsets.to_numpy().astype("i8")
    items = array.flatten()
    _refuse_nulls(items, np.repeat(positions, np.diff(offsets)), where)
    values = _values(items, np.repeat(positions, np.diff(offsets)), where)
    flat = np.ascontiguousarray(values).reshape(-1).view("u1")
    size = len(flat) // len(items) if len(items) else 1
    return Packed.between(flat, (offsets - offsets[0]) * size)


def _cells(spec: specs.Leaf, array: Any, where: str) -> list[Any]:
    """The values of an array, one by one: arrays, strings and Ragged."""
    if is_tensor(array.type):
        return list(tensors(array, where))
    if not is_list(array.type):
        return [nested(spec, value) for value in array.to_pylist()]
    if not pa.types.is_fixed_size_list(array.type) and not is_list(array.type.value_type):
        values = array.flatten()
        if values.null_count:
            _refuse_item_nulls(array, where)
        if not is_text(values.type) and not is_encoded(values.type):
            offsets = array.offsets.to_numpy()
            rows = values.to_numpy(zero_copy_only=False)
            return np.split(rows, offsets[1:-1] - offsets[0]) if len(array) else []
    cells = array.to_pylist()
    _refuse_none(cells, where)
    return [nested(spec, value) for value in cells]


def _refuse_item_nulls(array: Any, where: str) -> None:
    _refuse_none(array.to_pylist(), where)


def _refuse_none(values: Any, where: str) -> None:
    for value in values:
        if value is None:
            raise UnsupportedTypeError(
                f"{where} has None inside a list; fill or drop what is missing"
            )
        if isinstance(value, list):
            _refuse_none(value, where)
