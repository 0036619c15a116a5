"""Nests of arrays and of columns of tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from yogadl import spec as specs
from yogadl.adapters._base import Array, MapSource
from yogadl.adapters._columns import ColumnsSource, column_name, leaves_of, one_length
from yogadl.adapters._convert import is_array, type_name
from yogadl.adapters._iterable import as_spec
from yogadl.adapters._pandas import open_column
from yogadl.adapters._registry import is_a
from yogadl.cache.columns import Column
from yogadl.errors import SpecMismatchError, UnsupportedTypeError

_OF_PANDAS = ("pandas.Series", "pandas.Index", "pandas.api.extensions.ExtensionArray")


def are_columns(data: Any) -> bool:
    """Whether data is a dict or tuple, perhaps of others, with nothing but arrays and columns of
    tables in it."""
    leaves = list(leaves_of(data))
    return bool(leaves) and all(is_array(leaf) or _is_of_table(leaf) for leaf in leaves)


def open_nest(nest: Any, spec: Any) -> MapSource:
    """The records of which record ``i`` is row ``i`` of every array and column of a nest.

    Columns of tables (series of pandas and polars, arrays of Arrow) are what they are in a table:
    what is missing in them is refused, or ``None`` where the spec has an ``OptionalSpec``.

    Raises:
        InvalidArgumentError: they are not equally long.
        SpecMismatchError: they do not fit the spec.
        UnsupportedTypeError: something in it cannot be stored, or is a whole table.
    """
    leaves = list(leaves_of(nest))
    for leaf in leaves:
        if is_table(leaf):
            raise UnsupportedTypeError(
                f"a {type_name(leaf)} cannot be one of the arrays; give its columns, or an array "
                "made of it"
            )
    if not any(map(_is_of_table, leaves)):
        return ColumnsSource(nest, spec)
    return NestSource(nest, spec)


def is_table(value: Any) -> bool:
    """Whether a value has columns with names."""
    return hasattr(value, "__dataframe__") or hasattr(type(value), "columns")


def _is_of_table(value: Any) -> bool:
    """Whether a value is a column of a table, which knows of missing values."""
    if isinstance(value, type) or is_table(value):
        return False
    speaks_arrow = hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")
    return speaks_arrow or is_a(value, *_OF_PANDAS)


class NestSource(MapSource):
    """The records of a nest of which each leaf has a source of its own; see ``open_nest``."""

    prefers_threads = True

    def __init__(self, nest: Any, spec: Any = None) -> None:
        found = _opened(nest, None if spec is None else as_spec(spec), ())
        shape = specs.map_nest(lambda _source: specs.NoneSpec(), found)
        self._sources: list[MapSource] = specs.flatten(shape, found)
        self.count = one_length([source.count for source in self._sources])
        self.spec = specs.map_nest(lambda source: source.spec, found)

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        columns: list[Column] = []
        for source in self._sources:
            width = sum(1 for _ in specs.leaves(source.spec))
            start = len(columns)
            targets = None if out is None else out[start : start + width]
            columns.extend(source.columns(positions, targets))
        return columns

    def rows(self, start: int, stop: int) -> list[Any]:
        return [column for source in self._sources for column in source.rows(start, stop)]

    @property
    def fingerprint(self) -> None:
        """None: the values tell."""


def _opened(nest: Any, spec: Any, path: tuple[Any, ...]) -> Any:
    """The nest with a source for each leaf."""
    if not isinstance(nest, dict | tuple):
        return _open_leaf(nest, spec, path)
    if spec is not None and not _has_parts(spec, nest):
        raise SpecMismatchError(
            f"{column_name(path)} is nested otherwise than spec=: {spec!r:.200}"
        )
    children = {
        key: _opened(nest[key], None if spec is None else spec[key], (*path, key))
        for key in _keys(nest)
    }
    return children if isinstance(nest, dict) else specs.tuple_like(nest, children.values())


def _keys(nest: Any) -> Iterator[Any]:
    return iter(nest) if isinstance(nest, dict) else iter(range(len(nest)))


def _has_parts(spec: Any, nest: Any) -> bool:
    if isinstance(nest, dict):
        return isinstance(spec, dict) and spec.keys() == nest.keys()
    return isinstance(spec, tuple) and len(spec) == len(nest)


def _open_leaf(leaf: Any, spec: Any, path: tuple[Any, ...]) -> MapSource:
    if not _is_of_table(leaf):
        return ColumnsSource(leaf, spec, path)
    if is_a(leaf, *_OF_PANDAS):
        return open_column(path, sys.modules["pandas"].Series(leaf), spec)
    from yogadl.adapters._arrow import open_array

    return open_array(leaf, spec, column_name(path))
