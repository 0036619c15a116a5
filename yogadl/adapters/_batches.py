"""Batches, taken apart into records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters._base import MapSource, Source, append_leaves
from yogadl.adapters._convert import to_leaf, type_name
from yogadl.adapters._iterable import as_spec
from yogadl.adapters._rows import explaining
from yogadl.cache.encoding import takes_columns
from yogadl.cache.writer import CacheWriter
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError


class SplitBatch:
    """The columns of a batch.

    Args:
        data: a nest of arrays or tensors ``[n, ...]``. Lists are tuples, but a list or tuple of
            ``n`` strings is a column. ``None`` is ``None`` in every record.

    Raises:
        InvalidArgumentError: its arrays are not equally long, or there is none.
        UnsupportedTypeError: something in it is no array.

    Attributes:
        columns: the nest with NumPy arrays.
        count: ``n``.
    """

    def __init__(self, data: Any) -> None:
        lengths: set[int] = set()
        self.columns = _columns(data, lengths, "batch")
        if len(lengths) != 1:
            raise InvalidArgumentError(
                f"a batch must have arrays of one length, not of {sorted(lengths)}; have the "
                "loader give single records, or batches whose first axis is the record"
            )
        (self.count,) = lengths

    @property
    def spec(self) -> specs.Structure:
        """The element spec of its records."""
        return specs.normalize(specs.map_nest(_row_spec, self.columns))

    def row(self, position: int) -> Any:
        """One of its records."""
        return specs.map_nest(
            lambda column: None if column is None else column[position], self.columns
        )


def _columns(data: Any, lengths: set[int], where: str) -> Any:
    if data is None:
        return None
    if isinstance(data, Mapping):
        return {key: _columns(child, lengths, f"{where}[{key!r}]") for key, child in data.items()}
    if isinstance(data, list | tuple):
        if data and all(isinstance(value, str | bytes) for value in data):
            lengths.add(len(data))
            return np.array(data, dtype=object)
        children = [_columns(child, lengths, f"{where}[{i}]") for i, child in enumerate(data)]
        return specs.tuple_like(data, children)
    array = to_leaf(data, where)
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise UnsupportedTypeError(
            f"{where} is a {type_name(data)} that cannot be taken apart into records; a batch has "
            "arrays whose first axis is the record"
        )
    lengths.add(len(array))
    return array


def _row_spec(column: Any) -> specs.Leaf:
    if column is None:
        return specs.NoneSpec()
    return specs.TensorSpec(dtypes.from_numpy(column.dtype), column.shape[1:])


class BatchedSource(Source):
    """The records of batches, in order.

    Args:
        batches: see ``SplitBatch``; they may be of different sizes.
        spec: of the records, as users write it; inferred from the first batch without.
        count: number of records, if known.
        map_source: makes the source of the same records by position.

    Raises:
        InvalidArgumentError: no spec is given, and there is no batch to infer it from.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        spec: Any = None,
        count: int | None = None,
        map_source: Callable[[], MapSource] | None = None,
    ) -> None:
        self.count = count
        self._inferred = spec is None
        self._map_source = map_source
        self._batches: Iterator[Any] = iter(batches)
        if spec is not None:
            self.spec = as_spec(spec)
            return
        try:
            first = next(self._batches)
        except StopIteration as error:
            raise InvalidArgumentError(
                "a loader without batches does not tell its element spec; give spec="
            ) from error
        self.spec = SplitBatch(first).spec
        self._batches = itertools.chain([first], self._batches)

    def feed(self, writer: CacheWriter) -> None:
        whole = takes_columns(self.spec)
        with explaining(self._inferred, "first batch"):
            for data in self._batches:
                batch = SplitBatch(data)
                if whole:
                    columns = specs.flatten(self.spec, batch.columns)
                    if not all(isinstance(column, np.ndarray) for column in columns):
                        raise SpecMismatchError(f"a batch of {batch.spec} does not fit {self.spec}")
                    append_leaves(writer, self.spec, columns, batch.count)
                    continue
                for position in range(batch.count):
                    writer.append(batch.row(position))

    def by_position(self) -> MapSource:
        return super().by_position() if self._map_source is None else self._map_source()
