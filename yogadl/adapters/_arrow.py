"""Arrow tables and arrays as sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.adapters._arrow_columns import arrow_columns
from yogadl.adapters._arrow_rows import Rows
from yogadl.adapters._arrow_types import check_different, check_names, schema_spec, type_spec
from yogadl.adapters._base import Array, MapSource
from yogadl.adapters._iterable import as_spec
from yogadl.adapters._registry import is_a
from yogadl.adapters._rows import put
from yogadl.cache.columns import Column
from yogadl.errors import UnsupportedTypeError
from yogadl.extras import require

pa = require("pyarrow", "arrow")


class ArrowSource(MapSource):
    """The rows of a ``pyarrow.Table`` or ``RecordBatch``, as dicts.

    Raises:
        UnsupportedTypeError: a column of a type that cannot be stored, by its name; or, when it is
            read, a null where the spec has no ``OptionalSpec``.
    """

    prefers_threads = True

    def __init__(self, data: Any, spec: Any = None) -> None:
        is_batch = isinstance(data, pa.RecordBatch)
        table = pa.Table.from_batches([data]) if is_batch else data
        self.count = table.num_rows
        names = table.column_names
        check_different(names, "the table")
        self.spec = schema_spec(table.schema) if spec is None else as_spec(spec)
        check_names(self.spec, names)
        self._rows = {name: Rows(table.column(name)) for name in names}

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        return put(self._columns(positions, to_write=False), out)

    def rows(self, start: int, stop: int) -> list[Any]:
        return self._columns(np.arange(start, stop), to_write=True)

    def _columns(self, positions: Array, to_write: bool) -> list[Any]:
        columns: list[Any] = []
        for name in specs.sorted_keys(self.spec):
            taken, where = self._rows[name].at(positions), f"column {name!r}"
            columns.extend(arrow_columns(self.spec[name], taken, positions, where, to_write))
        return columns

    @property
    def fingerprint(self) -> None:
        """None: the values tell."""


class ArrowArraySource(MapSource):
    """The values of a ``pyarrow.ChunkedArray``. Errors are those of ``ArrowSource``."""

    prefers_threads = True

    def __init__(self, values: Any, spec: Any = None, where: str = "the array") -> None:
        self.count = len(values)
        self.spec = type_spec(values.type, where) if spec is None else as_spec(spec)
        self._rows = Rows(values)
        self._where = where

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        taken = self._rows.at(positions)
        return put(arrow_columns(self.spec, taken, positions, self._where), out)

    def rows(self, start: int, stop: int) -> list[Any]:
        positions = np.arange(start, stop)
        taken = self._rows.at(positions)
        return arrow_columns(self.spec, taken, positions, self._where, to_write=True)

    @property
    def fingerprint(self) -> None:
        """None: the values tell."""


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
