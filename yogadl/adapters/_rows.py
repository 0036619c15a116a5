"""Records, one by one, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.adapters._base import Array
from yogadl.adapters._convert import to_record
from yogadl.cache.columns import Column, stack
from yogadl.errors import SpecMismatchError, UnsupportedTypeError
from yogadl.format.codec import RecordCodec
from yogadl.format.components import join_column
from yogadl.format.layout import leaf_components


class RowStacker:
    """Makes columns of records of one spec, which are checked. Immutable; threads may share it.

    Args:
        spec: of the records.
        name: what errors call a record, by its number: such as a column that it is a value of.
    """

    def __init__(self, spec: specs.Structure, name: str = "record") -> None:
        self.codec = RecordCodec(spec, name)
        self._leaves = list(specs.leaves(spec))

    def columns(self, records: Iterable[Any], positions: Array) -> list[Column]:
        """One fresh column per leaf.

        Args:
            records: nests as of the spec.
            positions: their positions, for errors.

        Raises:
            SpecMismatchError, UnsupportedTypeError: a record does not fit the spec.
        """
        rows = []
        for position, record in zip(positions.tolist(), records, strict=True):
            with NamingRecord(position):
                rows.append(self.codec.components(record))
        components = self.codec.layout.components
        values = list(zip(*rows, strict=True)) if rows else [()] * len(components)
        parts = [
            _fresh(stack(component.spec, column))
            for component, column in zip(components, values, strict=True)
        ]
        columns: list[Column] = []
        for leaf in self._leaves:
            width = len(leaf_components(leaf))
            own, parts = parts[:width], parts[width:]
            columns.append(join_column(leaf, own, len(rows)))
        return columns


def _fresh(column: Column) -> Column:
    """Values of varying shape copied; what was stacked is a copy already."""
    if isinstance(column, np.ndarray):
        return column
    # Indexing with () makes a scalar of a 0-d array.
    return [value if isinstance(value, bytes) else np.array(value)[()] for value in column]


def leaf_column(leaf: specs.Leaf, values: Iterable[Any], positions: Array, where: str) -> Column:
    """Some values of one leaf, converted and checked, as a column that errors call ``where``."""
    converted = []
    for position, value in zip(positions.tolist(), values, strict=True):
        with NamingRecord(position):
            converted.append(to_record(value, where=where))
    return RowStacker(leaf, where).columns(converted, positions)[0]


def put(columns: list[Column], out: Sequence[Array] | None) -> list[Column]:
    """The columns, or ``out`` with them in it."""
    if out is None:
        return columns
    for target, column in zip(out, columns, strict=True):
        target[...] = column
    return list(out)


class NamingRecord:
    """A context that says in errors which record it was.

    Entered for every record, so no generator, which would take a microsecond longer.
    """

    __slots__ = ("_position",)

    def __init__(self, position: int) -> None:
        self._position = position

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, SpecMismatchError | UnsupportedTypeError):
            raise type(error)(f"record {self._position}: {error}") from error


@contextmanager
def explaining(is_inferred: bool, first: str = "first record") -> Iterator[None]:
    """Says in errors that the spec was inferred."""
    try:
        yield
    except SpecMismatchError as error:
        if not is_inferred:
            raise
        raise SpecMismatchError(f"{error}. The spec was inferred from the {first}") from error
