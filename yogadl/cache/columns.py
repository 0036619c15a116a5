"""Reading many records at once: from places in a buffer to one column per component."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.gather import Toucher, gather
from yogadl.cache.memory import LARGE_BYTES, returning
from yogadl.cache.spans import Spans
from yogadl.errors import ChecksumError, SpecMismatchError
from yogadl.format.codec import RecordCodec
from yogadl.format.components import join_column
from yogadl.format.layout import (
    INLINE_LIMIT,
    LEAD,
    WIDE_ALIGNMENT,
    Component,
    FixedArray,
    Kind,
    align,
    leaf_components,
)

Array = np.ndarray[Any, Any]
Column = Any
"""The values of one component or leaf: a stacked array where the spec is of static shape, an object
array of ``bytes`` for scalar strings, else a list of values, or ``Spans`` where asked for."""


class ColumnReader:
    """Reads columns of one spec. Immutable; may be shared by threads."""

    def __init__(self, codec: RecordCodec) -> None:
        self._codec = codec
        self._leaves = list(specs.leaves(codec.spec))
        self._widths = [len(leaf_components(leaf)) for leaf in self._leaves]
        self._plain = all(isinstance(leaf, specs.TensorSpec) for leaf in self._leaves)
        layout = codec.layout
        self._is_simple = all(
            component.kind in (Kind.FIXED, Kind.FLAT, Kind.STRING)
            for component in layout.components
        )
        fixed = [place for component in layout.components for place in component.arrays]
        self._fixed = [place for place in fixed if isinstance(place, FixedArray)]
        small = [place for place in self._fixed if 0 < place.nbytes < WIDE_ALIGNMENT]
        # Small arrays lie side by side at the end of the fixed part: one gather brings them all.
        self._small_start = min((place.offset for place in small), default=0)
        small_end = max((place.offset + place.nbytes for place in small), default=0)
        self._small_size = small_end - self._small_start
        self._toucher = Toucher(layout.content_size or 0, self._small_start, self._small_size)

    def read(
        self,
        buffer: Array,
        offsets: Array,
        lengths: Array | None,
        out: Sequence[Array] | None = None,
        spans: bool = False,
    ) -> list[Column]:
        """One column per leaf of the spec.

        Args:
            buffer: the bytes of the file.
            offsets: where the values of the records begin, in the order wanted, int64 ``[n]``.
            lengths: of these values, int64 ``[n]``; for records of fixed size, ``None`` will do.
            out: for records of fixed size, C-contiguous arrays to read into, of the columns' shapes
                and dtypes.
            spans: leave values of one unknown dimension unread where they lie, as ``Spans``.

        Raises:
            ChecksumError: a record does not fit the spec.
        """
        if self._codec.layout.content_size is not None:
            components = self._read_fixed(buffer, offsets, out)
        else:
            assert lengths is not None
            components = self._read_variable(buffer, offsets, lengths, spans and self._plain)
        if self._plain:
            return components
        try:
            return self._join(components, len(offsets))
        except SpecMismatchError as error:
            raise ChecksumError(f"a record holds what does not fit: {error}") from error

    def room_for(self, count: int) -> list[Array] | None:
        """Memory for large columns that the system has again when nobody has it any more.

        Returns:
            What :meth:`read` can be given as ``out``; ``None`` where it would be of no use, as for
            records of varying size.
        """
        size = self._codec.layout.content_size
        if size is None or size * count < LARGE_BYTES or not self._plain:
            return None
        return [returning((count, *place.shape), place.dtype) for place in self._fixed]

    def _read_fixed(
        self, buffer: Array, offsets: Array, out: Sequence[Array] | None
    ) -> list[Column]:
        value_size = self._codec.layout.value_size
        if value_size is not None and value_size > INLINE_LIMIT:
            offsets = offsets + LEAD
        count = len(offsets)
        self._toucher.touch(buffer, offsets)
        start, size = self._small_start, self._small_size
        small = gather(buffer, offsets + start, size) if size else None
        columns = []
        for number, place in enumerate(self._fixed):
            target = None if out is None else out[number]
            if place.nbytes >= WIDE_ALIGNMENT:
                raw = gather(buffer, offsets + place.offset, place.nbytes, target)
            elif place.nbytes and small is not None:
                at = place.offset - start
                # A row alone is contiguous wherever it lies, and would be taken unaligned as it is.
                raw = small if place.nbytes == size else small[:, at : at + place.nbytes].copy()
            else:
                raw = np.empty((count, 0), "u1")
            column = raw.view(place.dtype).reshape(count, *place.shape)
            if target is not None and place.nbytes < WIDE_ALIGNMENT:
                target[...] = column
            columns.append(column if target is None else target)
        return columns

    def _read_variable(
        self, buffer: Array, offsets: Array, lengths: Array, spans: bool
    ) -> list[Column]:
        leads = np.where(lengths > INLINE_LIMIT, LEAD, 0)
        offsets, lengths = offsets + leads, lengths - leads
        if self._is_simple and len(offsets):
            return self._read_simple(buffer, offsets, lengths, spans)
        decode = self._codec.decode_components
        view = memoryview(buffer)
        rows = [
            decode(view[start : start + length])
            for start, length in zip(offsets.tolist(), lengths.tolist(), strict=True)
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(self._codec.layout.components)
        return [
            stack(component.spec, values)
            for component, values in zip(self._codec.layout.components, columns, strict=True)
        ]

    def _read_simple(
        self, buffer: Array, offsets: Array, lengths: Array, spans: bool
    ) -> list[Column]:
        """Records whose components are one array each; what can be is done for all at once."""
        layout = self._codec.layout
        head_size = align(layout.fixed_end)
        head = gather(buffer, offsets, head_size)
        sizes = head[:, : 8 * layout.size_slots].copy().view("<i8")
        if int(sizes.min()) < 0 or (sizes > lengths[:, None]).any():
            raise ChecksumError("a record has an array of impossible size")
        ends = np.cumsum((sizes + 7) // 8 * 8, axis=1) + head_size
        if (ends[:, -1] != lengths).any():
            raise ChecksumError("a record has arrays that end elsewhere than it does")
        starts = np.empty_like(ends)
        starts[:, 0] = head_size
        starts[:, 1:] = ends[:, :-1]
        starts += offsets[:, None]
        columns: list[Column] = []
        for component in layout.components:
            (place,) = component.arrays
            if isinstance(place, FixedArray):
                raw = head[:, place.offset : place.offset + place.nbytes].copy()
                columns.append(raw.view(place.dtype).reshape(len(offsets), *place.shape))
            else:
                first, size = starts[:, place.slot], sizes[:, place.slot]
                if component.kind is Kind.STRING:
                    columns.append(_strings(buffer, component, first, first + size))
                    continue
                found = Spans(buffer, component.spec, place.dtype, first, size)
                columns.append(found if spans else found.arrays())
        return columns

    def _join(self, components: list[Column], count: int) -> list[Column]:
        columns: list[Column] = []
        position = 0
        for leaf, width in zip(self._leaves, self._widths, strict=True):
            columns.append(join_column(leaf, components[position : position + width], count))
            position += width
        return columns


def _strings(buffer: Array, component: Component, starts: Array, ends: Array) -> Column:
    view = memoryview(buffer)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return stack(component.spec, [bytes(view[start:end]) for start, end in spans])


def stack(spec: specs.TensorSpec, values: Sequence[Any]) -> Column:
    """Some values of one component as a column."""
    if spec.static_shape is None:
        return list(values)
    if spec.is_string:
        column = np.empty((len(values), *spec.static_shape), dtype=object)
        for position, value in enumerate(values):
            column[position] = value
        return column
    if not values:
        return np.empty((0, *spec.static_shape), dtypes.to_numpy(spec.dtype))
    return np.stack(values)


def records_of(spec: specs.Structure, columns: Sequence[Column]) -> Iterator[Any]:
    """The records whose leaves are the rows of ``columns``."""
    if isinstance(spec, specs.LEAVES):
        return iter(columns[0])
    if isinstance(spec, dict) and _holds_leaves_only(spec.values()):
        keys = tuple(spec)
        named = dict(zip(specs.sorted_keys(spec), columns, strict=True))
        rows = zip(*[named[key] for key in keys], strict=True)
        return (dict(zip(keys, row, strict=True)) for row in rows)
    rows = zip(*columns, strict=True)
    if type(spec) is tuple and _holds_leaves_only(spec):
        return rows
    return (specs.unflatten(spec, row) for row in rows)


def _holds_leaves_only(children: Iterable[Any]) -> bool:
    return all(isinstance(child, specs.LEAVES) for child in children)


def copied_rows(column: Column) -> Column:
    """The rows of a column, each with memory of its own."""
    if isinstance(column, np.ndarray):
        return list(map(np.array, column)) if column.ndim > 1 and len(column) > 1 else column
    return list(map(_copied, column))


def _copied(value: Any) -> Any:
    """A value of a leaf, of which no array is a part of another."""
    return specs.map_nest(_own, value)


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) and value.base is not None else value
