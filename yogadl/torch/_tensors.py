"""Records and batches of NumPy arrays as tensors, which share their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.columns import records_of
from yogadl.errors import UnsupportedTypeError
from yogadl.extras import require

torch = require("torch", "torch")

Array = np.ndarray[Any, Any]

# NumPy's own dtypes that torch has under the same name. Looking up a dtype is faster than its name.
_SHARED = frozenset(
    np.dtype(name)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    + ("float16", "float32", "float64", "complex64", "complex128")
)
# Dtypes of ml_dtypes that torch has too, and integers of the same size to get there.
_VIEWED = {
    "bfloat16": np.int16,
    "float8_e4m3fn": np.uint8,
    "float8_e4m3fnuz": np.uint8,
    "float8_e5m2": np.uint8,
    "float8_e5m2fnuz": np.uint8,
    "float8_e8m0fnu": np.uint8,
}


def check_spec(spec: specs.Structure) -> None:
    """Checks that torch has the dtypes of all tensors of a spec.

    Raises:
        UnsupportedTypeError: it lacks one.
    """
    for leaf in specs.leaves(spec):
        if isinstance(leaf, specs.OptionalSpec):
            check_spec(leaf.value)
        elif isinstance(leaf, specs.TensorSpec) and not leaf.is_string:
            _check_dtype(dtypes.to_numpy(leaf.dtype))


def _check_dtype(dtype: np.dtype[Any]) -> None:
    name = dtype.name
    if dtype in _SHARED or (name in _VIEWED and hasattr(torch, name)):
        return
    raise UnsupportedTypeError(
        f"torch {torch.__version__} has no dtype for {name}; store the records with another dtype, "
        "or read NumPy batches with stream.batches(n)"
    )


def as_tensor(value: Array | np.generic) -> Any:
    """A tensor over the memory of an array of numbers; that of a scalar is a copy.

    Raises:
        UnsupportedTypeError: torch has no such dtype.
    """
    array = np.asarray(value)
    if array.dtype in _SHARED:
        return torch.from_numpy(array)
    _check_dtype(array.dtype)
    name = array.dtype.name
    return torch.from_numpy(array.view(_VIEWED[name])).view(getattr(torch, name))


def _as_torch(leaf: specs.Leaf, value: Any) -> Any:
    """One value of a leaf: a tensor; ``bytes`` or a list of them; anything else as it is."""
    if isinstance(leaf, specs.OptionalSpec):
        return None if value is None else record_tensors(leaf.value, value)
    if not isinstance(leaf, specs.TensorSpec):
        return value
    if leaf.is_string:
        return value.tolist() if isinstance(value, np.ndarray) else value
    return as_tensor(value)


def _column_as_torch(leaf: specs.Leaf, column: Any) -> Any:
    """The values of a leaf in a batch: one tensor, or a list of what they are in a record."""
    if isinstance(column, np.ndarray):
        return column.tolist() if column.dtype == object else as_tensor(column)
    return [_as_torch(leaf, value) for value in column]


def record_tensors(spec: specs.Structure, record: Any) -> Any:
    """A record with tensors for its arrays."""
    return _map(_as_torch, spec, record)


def batch_tensors(spec: specs.Structure, batch: Any) -> Any:
    """A batch, as ``IndexedDataRef.read`` returns it, with tensors for its arrays."""
    return _map(_column_as_torch, spec, batch)


def _map(function: Callable[[specs.Leaf, Any], Any], spec: specs.Structure, nest: Any) -> Any:
    """The nest with ``function`` of each leaf and its value."""
    # One pass, without a check of the nest: a batch has been made of the spec.
    if isinstance(spec, specs.LEAVES):
        return function(spec, nest)
    if isinstance(spec, dict):
        return {key: _map(function, child, nest[key]) for key, child in spec.items()}
    values = [_map(function, child, value) for child, value in zip(spec, nest, strict=True)]
    return specs.tuple_like(spec, values)


def stacked_spec(spec: specs.Structure, batch: Any) -> specs.Structure:
    """The spec of the records of a padded batch, which are as large as the largest."""
    return _map(_stacked_leaf, spec, batch)


def _stacked_leaf(leaf: specs.Leaf, column: Any) -> specs.Leaf:
    if isinstance(leaf, specs.TensorSpec) and isinstance(column, torch.Tensor):
        return specs.TensorSpec(leaf.dtype, tuple(column.shape[1:]))
    return leaf


def with_own_containers(spec: specs.Structure, batch: Any) -> Any:
    """A batch of the same values in dicts and lists of its own."""
    return _map(lambda _leaf, column: column[:] if type(column) is list else column, spec, batch)


def parts(spec: specs.Structure, batch: Any, size: int) -> list[Any]:
    """A batch of :func:`batch_tensors` as smaller ones; their tensors are views of its tensors."""
    columns = [
        column.split(size)
        if isinstance(column, torch.Tensor)
        else [column[start : start + size] for start in range(0, len(column), size)]
        for column in specs.flatten(spec, batch)
    ]
    return [specs.unflatten(spec, list(values)) for values in zip(*columns, strict=True)]


def first(spec: specs.Structure, batch: Any) -> Any:
    """The first record of a batch of :func:`batch_tensors`, with views of the batch's tensors."""
    return _map(lambda _leaf, column: column[0], spec, batch)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def split(spec: specs.Structure, batch: Any, copies: bool = False) -> list[Any]:
    """The records of a batch of :func:`batch_tensors`.

    Their tensors are views of the batch's, or copies.
    """
    columns = [
        column.unbind() if isinstance(column, torch.Tensor) else column
        for column in specs.flatten(spec, batch)
    ]
    if copies:
        columns = [[_copied(value) for value in column] for column in columns]
    return list(records_of(spec, columns))
