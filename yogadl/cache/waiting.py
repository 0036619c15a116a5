"""Records that come one by one, and are written many at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.codec import RecordCodec
from yogadl.format.components import as_component
from yogadl.format.contents import Contents, Pieces, whole
from yogadl.format.layout import LEAD, MAX_VALUE, Component, Kind, align
from yogadl.format.rows import are_simple, rows_of

Array = np.ndarray[Any, Any]
_Put = Callable[[int, Any], int]
_Pick = Callable[[Any, list[Any]], None]

_RECORDS = 1024
_BYTES = 4 << 20
# What adapters leave as it is in a record, but for containers.
_PLAIN = (np.ndarray, np.generic, bool, int, float, complex, str, bytes)
# The type of Python's whose numbers NumPy puts into an array of a dtype unchanged, or not at all.
_PYTHON: dict[str, type] = {"bool": bool, "int64": int, "float64": float}


class WaitingRecords:
    """Copies of some records. Not thread-safe.

    Args:
        codec: of their spec.

    Attributes:
        count: of the records.
    """

    def __init__(self, codec: RecordCodec) -> None:
        layout = codec.layout
        self._codec = codec
        self._head_size = align(layout.fixed_end)
        self._is_fixed = layout.content_size is not None
        self._limit = max(1, min(_RECORDS, _BYTES // (layout.value_size or self._head_size or 1)))
        # Of records of which every component is in one array; the contents of others.
        self._columns: list[Any] | None = [] if are_simple(layout) else None
        self._puts: list[_Put] = []
        self._contents: list[bytes] = []
        leaves = list(specs.leaves(codec.spec))
        is_plain = all(isinstance(leaf, specs.TensorSpec) for leaf in leaves)
        self._pick = _picker(codec.spec) if is_plain and self._columns is not None else None
        self._nbytes = 0
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether they are to be taken before more are added."""
        return self.count >= self._limit or self._nbytes >= _BYTES

    def add_plain(self, record: Any) -> bool:
        """Adds a record of arrays, numbers and strings alone, if it fits the spec as it is.

        Returns:
            Whether it does; if not, nothing was added.

        Raises:
            InvalidArgumentError: it is above the format's limit.
        """
        if self._pick is None:
            return False
        if not self._puts:
            self._begin()
        values: list[Any] = []
        row, size = self.count, self._head_size
        try:
            self._pick(record, values)
            for put, value in zip(self._puts, values, strict=True):
                size += put(row, value)
        except (LookupError, OverflowError, SpecMismatchError, UnsupportedTypeError):
            return False
        self._added(size)
        return True

    def add(self, components: Sequence[Array | bytes]) -> None:
        """Adds a record of which the components were checked.

        Raises:
            InvalidArgumentError: it is above the format's limit.
        """
        if self._columns is None:
            content = self._codec.encode_components(components)
            self._added(len(content))
            self._contents.append(content)
            return
        if not self._puts:
            self._begin()
        row, size = self.count, self._head_size
        for put, value in zip(self._puts, components, strict=True):
            size += put(row, value)
        self._added(size)

    def _begin(self) -> None:
        components = self._codec.layout.components
        self._columns = [_new_column(component, self._limit) for component in components]
        self._puts = [
            _putter(component, column)
            for component, column in zip(components, self._columns, strict=True)
        ]

    def _added(self, size: int) -> None:
        if size + LEAD > MAX_VALUE:
            raise InvalidArgumentError(
                f"it has {size + LEAD:,} bytes, and the limit is {MAX_VALUE:,}"
            )
        self._nbytes += size
        self.count += 1

    def take_columns(self) -> list[Array]:
        """The columns of records of fixed size, which are overwritten by others that are added."""
        assert self._columns is not None
        columns = [column[: self.count] for column in self._columns]
        self.count = self._nbytes = 0
        return columns

    def take_contents(self) -> Contents:
        """The contents of records of varying size."""
        if self._columns is None:
            found = whole(self._contents)
            self._contents = []
        else:
            parts = [column[: self.count] for column in self._columns]
            columns = [Pieces(part) if isinstance(part, list) else part for part in parts]
            found = rows_of(self._codec, columns, self.count)
        self.count = self._nbytes = 0
        return found


def _new_column(component: Component, rows: int) -> Any:
    """Room for the values of a component: an array, or a list for the bytes of each."""
    if component.kind is not Kind.FIXED:
        return [b""] * rows
    assert component.spec.static_shape is not None
    return np.empty((rows, *component.spec.static_shape), dtypes.to_numpy(component.spec.dtype))


def _putter(component: Component, column: Any) -> _Put:
    """What puts a value in a row of a column, and returns the bytes that it takes besides those
    that all records have. It raises ``SpecMismatchError`` or the like if the value does not fit, or
    is of no type that a record has after its conversion."""
    if component.kind is Kind.STRING:
        return _string_putter(component.spec, column)
    if component.kind is Kind.FLAT:
        return _flat_putter(component.spec, column)
    return _fixed_putter(component.spec, column)


def _fixed_putter(spec: specs.TensorSpec, column: Array) -> _Put:
    dtype, shape = column.dtype, column.shape[1:]
    # Of the types of scalars, only these fit; and none where there are dimensions.
    scalar = dtype.type if shape == () else None
    python = _PYTHON.get(spec.dtype) if shape == () else None

    def put(row: int, value: Any) -> int:
        kind = type(value)
        if (
            kind is scalar
            or kind is python
            or (kind is np.ndarray and value.dtype is dtype and value.shape == shape)
        ):
            column[row] = value
        else:
            column[row] = _converted(spec, value)
        return 0

    return put


def _string_putter(spec: specs.TensorSpec, column: list[bytes]) -> _Put:
    def put(row: int, value: Any) -> int:
        string = value if type(value) is bytes else _converted(spec, value)
        column[row] = string
        return align(len(string))

    return put


def _flat_putter(spec: specs.TensorSpec, column: list[bytes]) -> _Put:
    dtype = dtypes.to_numpy(spec.dtype)
    is_vector = spec.shape == (None,)

    def put(row: int, value: Any) -> int:
        fits = is_vector and type(value) is np.ndarray and value.dtype is dtype and value.ndim == 1
        array = value if fits else _converted(spec, value)
        column[row] = array.tobytes()
        return align(array.nbytes)

    return put


def _converted(spec: specs.TensorSpec, value: Any) -> Any:
    if not isinstance(value, _PLAIN):
        raise UnsupportedTypeError(f"a {type(value).__name__} is yet to be converted")
    return as_component(spec, value)


def _picker(spec: specs.Structure) -> _Pick:
    """What adds the leaf values of a record to a list, in the order of ``specs.leaves``.

    It raises ``LookupError`` for a record that is nested otherwise, or in containers of classes of
    their own.
    """
    if isinstance(spec, specs.LEAVES):
        return lambda record, values: values.append(record)
    is_dict = isinstance(spec, dict)
    keys = specs.sorted_keys(spec) if isinstance(spec, dict) else list(range(len(spec)))
    container, count = dict if is_dict else tuple, len(keys)
    if specs.is_namedtuple(spec):
        container = type(spec)
    children = [None if isinstance(spec[key], specs.LEAVES) else _picker(spec[key]) for key in keys]
    parts = operator.itemgetter(*keys) if count > 1 else None  # of one key, it gives no tuple

    def pick(record: Any, values: list[Any]) -> None:
        if type(record) is not container or len(record) != count:
            raise LookupError("the record is nested otherwise")
        found = [record[key] for key in keys] if parts is None else parts(record)
        for child, value in zip(children, found, strict=True):
            if child is None:
                values.append(value)
            else:
                child(value, values)

    return pick
