"""Arrow tables: specs of their schemas, and their columns as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters._base import Array, MapSource
from yogadl.adapters._iterable import as_spec
from yogadl.adapters._registry import is_a
from yogadl.adapters._rows import leaf_column, put
from yogadl.cache.columns import Column
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.extras import require

pa = require("pyarrow", "arrow")


class ArrowSource(MapSource):
    """The rows of a ``pyarrow.Table`` or ``RecordBatch``, as dicts.

    Raises:
        UnsupportedTypeError: a column of a type that cannot be stored, by its name; or, when it is
            read, a null where the spec has no ``OptionalSpec``.
    """

    def __init__(self, data: Any, spec: Any = None) -> None:
        is_batch = isinstance(data, pa.RecordBatch)
        table = pa.Table.from_batches([data]) if is_batch else data
        self.count = table.num_rows
        names = table.column_names
        _check_different(names, "the table")
        self.spec = schema_spec(table.schema) if spec is None else as_spec(spec)
        check_names(self.spec, names)
        self._rows = {name: Rows(table.column(name)) for name in names}

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        columns: list[Column] = []
        for name in specs.sorted_keys(self.spec):
            taken = self._rows[name].at(positions)
            columns.extend(arrow_columns(self.spec[name], taken, positions, f"column {name!r}"))
        return put(columns, out)

    @property
    def fingerprint(self) -> None:
        """None: the values tell."""


class ArrowArraySource(MapSource):
    """The values of a ``pyarrow.ChunkedArray``. Errors are those of ``ArrowSource``."""

    def __init__(self, values: Any, spec: Any = None, where: str = "the array") -> None:
        self.count = len(values)
        self.spec = type_spec(values.type, where) if spec is None else as_spec(spec)
        self._rows = Rows(values)
        self._where = where

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        taken = self._rows.at(positions)
        return put(arrow_columns(self.spec, taken, positions, self._where), out)

    @property
    def fingerprint(self) -> None:
        """None: the values tell."""


def _check_different(names: Sequence[str], where: str) -> None:
    if len(set(names)) != len(names):
        raise InvalidArgumentError(
            f"{where} has columns of the same name, which cannot be told apart: {list(names)}"
        )


def open_array(data: Any, spec: Any, where: str = "the array") -> MapSource:
    """The source of an array of Arrow's, or of what hands one over as a PyCapsule stream.

    Tables do, and series. Rows of a table, and structs, are dicts.

    Args:
        data: the array, table or series.
        spec: the element spec, or ``None``.
        where: what to call it in errors.
    """
    _check_polars(data, where)
    values = _chunked(data, where)
    if pa.types.is_struct(values.type):
        return ArrowSource(pa.Table.from_struct_array(values), spec)
    return ArrowArraySource(values, spec, where)


def _chunked(data: Any, where: str) -> Any:
    try:
        return pa.chunked_array([data] if isinstance(data, pa.Array) else data)
    except pa.ArrowInvalid as error:
        raise UnsupportedTypeError(
            f"{where} is of a type that pyarrow does not know, and a cache cannot hold: {error}; "
            "cast it to a number or a string first, or drop it"
        ) from error


def _check_polars(data: Any, where: str) -> None:
    """Refuses the columns of polars that it cannot hand over, by their names if they have some."""
    if is_a(data, "polars.DataFrame"):
        columns = data.get_columns()
    else:
        columns = [data] if is_a(data, "polars.Series") else []
    for column in columns:
        where = f"column {column.name!r}" if column.name else where
        if str(column.dtype) == "Object":
            # Polars hands over the addresses of the objects as if they were bytes.
            raise UnsupportedTypeError(
                f"{where} is of polars' type Object, which a cache cannot hold; make it a number "
                "or a string first, or drop it"
            )
        _chunked(column.slice(0, 0), where)


class Rows:
    """The rows of a chunked array by position. pyarrow itself copies all chunks to take some rows.

    Args:
        column: a ``pyarrow.ChunkedArray``.
    """

    def __init__(self, column: Any) -> None:
        self._type = column.type
        self._empty = one_array(column.slice(0, 0))
        self._chunks = [chunk for chunk in column.chunks if len(chunk)]
        self._ends = np.cumsum([len(chunk) for chunk in self._chunks], dtype=np.int64)
        self._can_take = _can_take(column.type)

    def at(self, positions: Array) -> Any:
        """The rows at some positions as one array."""
        if not len(positions):
            return self._empty
        numbers = np.searchsorted(self._ends, positions, side="right")
        # Runs of neighbours in a chunk, or of any rows of it where pyarrow can take such.
        is_run = (numbers[1:] == numbers[:-1]) & (np.diff(positions) == 1)
        order = np.arange(len(positions))
        if self._can_take and not is_run.all():
            order = np.argsort(numbers, kind="stable")
            is_run = np.diff(numbers[order]) == 0
        heads = np.flatnonzero(np.concatenate([[True], ~is_run]))
        ends = [*heads[1:].tolist(), len(positions)]
        parts = [
            self._part(positions[order[head:end]], int(numbers[order[head]]))
            for head, end in zip(heads.tolist(), ends, strict=True)
        ]
        taken = parts[0] if len(parts) == 1 else _joined(parts)
        if (np.diff(order) == 1).all():
            return taken
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return taken.take(pa.array(places))

    def _part(self, positions: Array, number: int) -> Any:
        """Rows of one chunk, which are neighbours unless pyarrow can take such rows."""
        chunk = self._chunks[number]
        local = positions - (int(self._ends[number]) - len(chunk))
        first = int(local[0])
        if len(local) == 1 or (np.diff(local) == 1).all():
            return chunk.slice(first, len(local))
        return chunk.take(pa.array(local))


def _joined(parts: Sequence[Any]) -> Any:
    """Some arrays as one. Dictionaries are decoded, as those of all parts would become one."""
    plain = [_decoded(part) if _is_encoded(part.type) else part for part in parts]
    return pa.chunked_array(plain).combine_chunks()


def _is_encoded(kind: Any) -> bool:
    return bool(pa.types.is_dictionary(kind))


def _can_take(kind: Any, is_inside: bool = False) -> bool:
    """Whether pyarrow can take any rows of an array of some type.

    Its version 26 cannot for strings that are views, and takes the wrong rows of a slice of an
    array that has lists of fixed length in other lists or in structs.
    """
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return _can_take(kind.storage_type, is_inside)
    if pa.types.is_fixed_size_list(kind) and is_inside:
        return False
    if _is_encoded(kind):
        return _can_take(kind.value_type, is_inside)
    if _is_list(kind):
        return _can_take(kind.value_type, True)
    return all(_can_take(kind.field(at).type, True) for at in range(kind.num_fields))


def one_array(column: Any) -> Any:
    """A chunked array as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def check_names(spec: Any, names: Sequence[str]) -> None:
    """Sees to it that the spec of a table is a dict of its columns."""
    if not isinstance(spec, dict) or set(spec) != set(names):
        raise InvalidArgumentError(
            f"spec= of a table must be a dict of its columns {list(names)}, not {spec!r:.200}"
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
    if isinstance(kind, pa.BaseExtensionType):
        return type_spec(kind.storage_type, where)
    if types.is_dictionary(kind):
        return type_spec(kind.value_type, where)
    if types.is_struct(kind):
        fields = [kind.field(position) for position in range(kind.num_fields)]
        _check_different([field.name for field in fields], where)
        return {field.name: type_spec(field.type, f"{where}[{field.name!r}]") for field in fields}
    if not _is_list(kind):
        return specs.TensorSpec(_dtype(kind, where), ())
    dims: list[int | None] = []
    while _is_list(kind):
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


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
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


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary_view(kind))


def _dtype(kind: Any, where: str) -> str:
    types = pa.types
    if _is_text(kind):
        return dtypes.STRING
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return dtypes.from_numpy(np.dtype(kind.to_pandas_dtype()))
    if types.is_null(kind):
        raise UnsupportedTypeError(f"{where} has only nulls; drop it")
    raise UnsupportedTypeError(
        f"{where} is of Arrow type {kind}, which a cache cannot hold; cast it to a number or a "
        "string first, or drop it"
    )


def arrow_columns(spec: Any, array: Any, positions: Array, where: str) -> list[Column]:
    """The values of an Arrow array as one column per leaf of their spec.

    Args:
        spec: of the values.
        array: one Arrow array.
        positions: of the records they are of, for errors.
        where: what to call it in errors.

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
            columns.extend(arrow_columns(spec[name], found, positions, f"{where}[{name!r}]"))
        return columns
    if not isinstance(spec, specs.LEAVES):
        raise InvalidArgumentError(f"{where} is {kind}, whose spec is no {spec!r:.100}")
    if isinstance(spec, specs.OptionalSpec):
        return [leaf_column(spec, _optional_values(spec, array), positions, where)]
    _refuse_nulls(array, positions, where)
    array = _plain(array)
    if spec == _spec_or_none(array.type):
        return [_fast_column(spec, array, positions, where)]
    return [leaf_column(spec, _cells(spec, array, where), positions, where)]


def _spec_or_none(kind: Any) -> Any:
    return None if pa.types.is_struct(kind) else type_spec(kind, "a column")


def _plain(array: Any) -> Any:
    """Without dictionary encoding and extension types."""
    if isinstance(array.type, pa.FixedShapeTensorType):
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain(array.storage)
    return _decoded(array) if _is_encoded(array.type) else array


def _decoded(array: Any) -> Any:
    """Without dictionary encoding."""
    values = array.dictionary
    if not _can_take(values.type):
        # polars has its categories as views.
        values = values.cast(pa.large_binary() if _is_bytes(values.type) else pa.large_string())
    return values.take(array.indices)


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


def _fast_column(spec: specs.Leaf, array: Any, positions: Array, where: str) -> Column:
    """The column of a spec that was made of the array's type."""
    if isinstance(spec, specs.TensorSpec) and spec.static_shape is not None and not spec.is_string:
        dims = len(spec.static_shape)
        return _values(array, positions, where).reshape(len(array), *spec.static_shape[:dims])
    return leaf_column(spec, _cells(spec, array, where), positions, where)


def _values(array: Any, positions: Array, where: str) -> Array:
    """All numbers in lists of fixed length, one after the other; fresh."""
    if isinstance(array.type, pa.FixedShapeTensorType):
        return np.array(array.to_numpy_ndarray())
    while _is_list(array.type):
        size = array.type.list_size
        array = array.flatten()
        positions = np.repeat(positions, size)
        _refuse_nulls(array, positions, where)
    return np.array(array.to_numpy(zero_copy_only=False))


def _cells(spec: specs.Leaf, array: Any, where: str) -> list[Any]:
    """The values of an array, one by one: arrays, strings and Ragged."""
    if not _is_list(array.type):
        return [nested(spec, value) for value in array.to_pylist()]
    if not pa.types.is_fixed_size_list(array.type) and not _is_list(array.type.value_type):
        values = array.flatten()
        if values.null_count:
            _refuse_item_nulls(array, where)
        if not _is_text(values.type) and not pa.types.is_dictionary(values.type):
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
