"""The specs of Arrow's types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters._arrow_tensors import is_tensor, item_type, tensor_shape
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.extras import require

pa = require("pyarrow", "arrow")


def check_names(spec: Any, names: Sequence[str]) -> None:
    """Sees to it that the spec of a table is a dict of its columns."""
    if not isinstance(spec, dict) or set(spec) != set(names):
        raise InvalidArgumentError(
            f"spec= of a table must be a dict of its columns {list(names)}, not {spec!r:.200}"
        )


def check_different(names: Sequence[str], where: str) -> None:
    if len(set(names)) != len(names):
        raise InvalidArgumentError(
            f"{where} has columns of the same name, which cannot be told apart: {list(names)}"
        )


def schema_spec(schema: Any) -> dict[str, Any]:
    """The element spec of the rows of a table.

    Raises:
        UnsupportedTypeError: a column of a type that cannot be stored.
    """
    return {field.name: type_spec(field.type, f"column {field.name!r}") for field in schema}


def type_spec(kind: Any, where: str) -> Any:
    """The spec of the values of an Arrow type.

    Numbers, bools, strings and bytes are scalars; a struct is a dict; a list is an array whose
    first dimension is not known unless its type fixes it; a list of lists of varying length is
    ragged.

    Raises:
        UnsupportedTypeError: it cannot be stored.
    """
    types = pa.types
    if isinstance(kind, pa.FixedShapeTensorType):
        return specs.TensorSpec(_dtype(kind.value_type, where), _tensor_shape(kind))
    if is_tensor(kind):
        return specs.TensorSpec(_dtype(item_type(kind), where), tensor_shape(kind))
    if isinstance(kind, pa.BaseExtensionType):
        return type_spec(kind.storage_type, where)
    if types.is_dictionary(kind):
        return type_spec(kind.value_type, where)
    if types.is_struct(kind):
        fields = [kind.field(position) for position in range(kind.num_fields)]
        check_different([field.name for field in fields], where)
        return {field.name: type_spec(field.type, f"{where}[{field.name!r}]") for field in fields}
    if not is_list(kind):
        return specs.TensorSpec(_dtype(kind, where), ())
    dims: list[int | None] = []
    while is_list(kind):
        dims.append(kind.list_size if types.is_fixed_size_list(kind) else None)
        kind = kind.value_type
    inner = type_spec(kind, f"{where}, a list,")
    if not isinstance(inner, specs.TensorSpec) or inner.shape is None:
        raise UnsupportedTypeError(
            f"{where} has lists of {kind}; make one list of each of its fields instead"
        )
    last = max((at for at, dim in enumerate(dims) if dim is None), default=0)
    if last == 0:
        return specs.TensorSpec(inner.dtype, (*dims, *inner.shape))
    shape = (dims[0], *[None] * last, *dims[last + 1 :], *inner.shape)
    return specs.RaggedSpec(inner.dtype, shape, last)


def _tensor_shape(kind: Any) -> tuple[int, ...]:
    shape = tuple(kind.shape)
    return shape if kind.permutation is None else tuple(shape[axis] for axis in kind.permutation)


def is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    types = pa.types
    tests: list[Callable[[Any], bool]] = [
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
    ]
    return any(test(kind) for test in tests)


def _dtype(kind: Any, where: str) -> str:
    types = pa.types
    if is_text(kind):
        return dtypes.STRING
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return dtypes.from_numpy(np.dtype(kind.to_pandas_dtype()))
    if types.is_null(kind):
        raise UnsupportedTypeError(f"{where} has only nulls; drop it")
    raise UnsupportedTypeError(
        f"{where} is of Arrow type {kind}, which a cache cannot hold; cast it to a number or a "
        "string first, or drop it"
    )
