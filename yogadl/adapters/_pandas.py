"""Data frames of pandas."""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.adapters._base import Array
from yogadl.adapters._columns import ColumnsSource, column_name
from yogadl.adapters._iterable import as_spec
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError


def open_frame(frame: Any, spec: Any) -> ColumnsSource:
    """The rows of a ``pandas.DataFrame`` as dicts of its columns; the index is left out.

    Raises:
        UnsupportedTypeError: a column that has missing values or cannot be stored, by its name.
        InvalidArgumentError: columns have the same name, or there is none.
    """
    names = list(frame.columns)
    if len(set(names)) != len(names) or not names:
        raise InvalidArgumentError(f"a data frame needs columns of different names, not {names}")
    wanted = {} if spec is None else as_spec(spec)
    leaves = wanted if isinstance(wanted, dict) else {}
    columns = {
        _key(name): _column(column_name([name]), frame[name], leaves.get(_key(name)))
        for name in names
    }
    return ColumnsSource(columns, spec)


def open_series(series: Any, spec: Any) -> ColumnsSource:
    """The values of a ``pandas.Series``; the index is left out. For errors, see ``open_frame``."""
    path = () if series.name is None else (series.name,)
    return open_column(path, series, None if spec is None else as_spec(spec))


def open_column(path: tuple[Any, ...], series: Any, spec: Any) -> ColumnsSource:
    """The same, of a series to which some keys lead in a nest."""
    return ColumnsSource(_column(column_name(path), series, spec), spec, path)


def _key(name: Any) -> Any:
    return int(name) if isinstance(name, np.integer) else name


def _refuse_missing(where: str, series: Any) -> None:
    missing = series.isna().to_numpy(dtype=bool)
    if missing.any():
        raise UnsupportedTypeError(
            f"{where} has {int(missing.sum()):,} missing values, the first in row "
            f"{int(missing.argmax())}; fill them by fillna, drop them by dropna, or give spec= "
            "with OptionalSpec for it"
        )


def _column(where: str, series: Any, leaf: Any) -> Array:
    """The values of a column, with ``None`` for those that are missing if its leaf is optional."""
    if isinstance(leaf, specs.OptionalSpec):
        values: Array = series.astype(object).to_numpy(dtype=object, copy=True)
        values[series.isna().to_numpy(dtype=bool)] = None
        return values
    dtype = series.dtype
    # NaN in a plain column of floats is a value like any other.
    if not (isinstance(dtype, np.dtype) and dtype.kind in "fc"):
        _refuse_missing(where, series)
    if not isinstance(dtype, np.dtype):
        # Of pandas' own types, those of numbers name one of NumPy.
        dtype = getattr(dtype, "numpy_dtype", None)
        if not isinstance(dtype, np.dtype) or dtype.kind not in "biufc":
            categories = getattr(series.dtype, "categories", None)
            if getattr(series.dtype, "kind", "O") in "mM":
                dtype = np.dtype("M8[ns]")
            else:
                dtype = np.dtype(object) if categories is None else np.asarray(categories).dtype
    if dtype.kind in "mM":
        raise UnsupportedTypeError(
            f"{where} is of {series.dtype}, which a cache cannot hold; convert it to int64 "
            "first, with astype"
        )
    found: Array = series.to_numpy(dtype=dtype)
    return found
