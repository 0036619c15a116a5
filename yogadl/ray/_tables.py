"""Batches of records as tables of Arrow, with the types that Ray Data has for tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import UnsupportedTypeError
from yogadl.extras import require
from yogadl.format.spec_text import spec_text

pa = require("pyarrow", "ray")
extensions = require("ray.data.extensions", "ray")

_ITEM = "item"


def check_columns(spec: specs.Structure) -> None:
    """Sees to it that records of a spec can be rows of a table.

    Raises:
        UnsupportedTypeError: a component has no type in Arrow.
    """
    _check_names(spec, "the record")
    for name, child in _columns(spec):
        _check(child, f"column {name!r}")


def _check_names(spec: specs.Structure, where: str) -> None:
    names = [name for name, _ in _columns(spec)]
    if not names or len(set(names)) < len(names):
        raise UnsupportedTypeError(
            f"{where} has the keys {names}, and a row of Ray Data needs some, all different"
        )


def table_of(spec: specs.Structure, batch: Any) -> Any:
    """A ``pyarrow.Table`` of a batch as ``DataRef.read`` returns it.

    Args:
        spec: of the records, one that has passed ``check_columns``.
        batch: the records.
    """
    if isinstance(spec, specs.LEAVES):
        return pa.table({_ITEM: _array(spec, batch)})
    children = batch.values() if isinstance(spec, dict) else batch
    named = zip(_columns(spec), children, strict=True)
    return pa.table({name: _array(child, values) for (name, child), values in named})


def _columns(spec: specs.Structure) -> Iterator[tuple[str, Any]]:
    """The names and specs of the columns, in the order of the spec."""
    if isinstance(spec, specs.LEAVES):
        yield _ITEM, spec
    elif isinstance(spec, dict):
        for key, child in spec.items():
            yield str(key), child
    else:
        for position, child in enumerate(spec):
            yield str(position), child


def _check(spec: Any, where: str) -> None:
    if not isinstance(spec, specs.LEAVES):
        _check_names(spec, where)
        for name, child in _columns(spec):
            _check(child, f"{where}[{name!r}]")
        return
    inner = spec.value if isinstance(spec, specs.OptionalSpec) else spec
    if isinstance(inner, specs.NoneSpec):
        return
    is_array = isinstance(inner, specs.TensorSpec | specs.RaggedSpec)
    if not is_array or inner.shape is None or not _is_known(inner.dtype):
        raise UnsupportedTypeError(
            f"{where} is {spec_text(spec)}, which Ray Data has no type for; select other columns, "
            "or make dense arrays of known rank, of integers, floats, bools or strings of it"
        )


def _is_known(dtype: str) -> bool:
    return dtype == dtypes.STRING or dtypes.to_numpy(dtype).kind in "biuf"


def _array(spec: Any, values: Any) -> Any:
    """A column of the values of a component."""
    if not isinstance(spec, specs.LEAVES):
        children = values.values() if isinstance(spec, dict) else values
        named = list(zip(_columns(spec), children, strict=True))
        arrays = [_array(child, found) for (_, child), found in named]
        return pa.StructArray.from_arrays(arrays, [name for (name, _), _ in named])
    if isinstance(spec, specs.NoneSpec):
        return pa.nulls(len(values))
    if isinstance(spec, specs.TensorSpec) and not spec.is_string:
        return _numbers(spec, values)
    inner: Any = spec.value if isinstance(spec, specs.OptionalSpec) else spec
    return pa.array([_nested(value) for value in values], _list_type(inner))


def _numbers(spec: specs.TensorSpec, values: Any) -> Any:
    if spec.shape == ():
        return pa.array(values)
    if spec.static_shape is not None:
        return extensions.ArrowTensorArray.from_numpy(values)
    assert spec.shape is not None
    # Ray's own way takes no empty batches.
    dtype = dtypes.to_numpy(spec.dtype)
    flat = np.concatenate([np.empty(0, dtype), *[value.reshape(-1) for value in values]])
    ends = np.cumsum([0, *[value.size for value in values]])
    items = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.array(flat))
    shapes = pa.array([value.shape for value in values], pa.list_(pa.int64()))
    storage = pa.StructArray.from_arrays([items, shapes], ["data", "shape"])
    kind = extensions.ArrowVariableShapedTensorType(pa.from_numpy_dtype(dtype), len(spec.shape))
    return kind.wrap_array(storage)


def _list_type(spec: specs.TensorSpec | specs.RaggedSpec) -> Any:
    is_string = spec.dtype == dtypes.STRING
    kind = pa.binary() if is_string else pa.from_numpy_dtype(dtypes.to_numpy(spec.dtype))
    for _ in spec.shape or ():
        kind = pa.list_(kind)
    return kind


def _nested(value: Any) -> Any:
    """A value as Python's lists."""
    if isinstance(value, specs.Ragged):
        rows = value.flat_values.tolist()
        for splits in reversed(value.nested_row_splits):
            ends = splits.tolist()
            rows = [rows[start:stop] for start, stop in itertools.pairwise(ends)]
        return rows
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
