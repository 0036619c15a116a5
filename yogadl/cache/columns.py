"""Reading many records at once: from places in a buffer to one column per component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.format import dtypes
from yogadl.format.codec import RecordCodec, join_leaf
from yogadl.format.layout import (
    INLINE_LIMIT,
    LEAD,
    WIDE_ALIGNMENT,
    FixedArray,
    leaf_components,
)

Array = np.ndarray[Any, Any]
Column = Any
"""The values of one component or leaf: a stacked array where the spec is of static shape, an object
array of ``bytes`` for scalar strings, else a list of values."""


def gather(buffer: Array, offsets: Array, size: int) -> Array:
    """Copies ``size`` bytes at each offset of a uint8 buffer, into uint8 ``[n, size]``.

    Every byte of the buffer is taken as the start of an item of ``size`` bytes, of which NumPy then
    copies some: measured against loops, ``take`` and other strides, the fastest at every size.

    Raises:
        IndexError: an offset outside the buffer.
    """
    items = max(len(buffer) - size + 1, 0)
    window = np.ndarray((items,), f"V{size}", buffer, strides=(1,))
    found: Array = window[offsets]
    return found.view("u1").reshape(len(offsets), size)


class ColumnReader:
    """Reads columns of one spec. Immutable; may be shared by threads."""

    def __init__(self, codec: RecordCodec) -> None:
        self._codec = codec
        self._leaves = list(specs.leaves(codec.spec))
        self._widths = [len(leaf_components(leaf)) for leaf in self._leaves]
        self._plain = all(isinstance(leaf, specs.TensorSpec) for leaf in self._leaves)
        layout = codec.layout
        fixed = [place for component in layout.components for place in component.arrays]
        self._fixed = [place for place in fixed if isinstance(place, FixedArray)]
        small = [place for place in self._fixed if 0 < place.nbytes < WIDE_ALIGNMENT]
        # Small arrays lie side by side at the end of the fixed part: one gather brings them all.
        self._small_start = min((place.offset for place in small), default=0)
        self._small_end = max((place.offset + place.nbytes for place in small), default=0)

    def read(self, buffer: Array, entries: Array) -> list[Column]:
        """One column per leaf of the spec.

        Args:
            buffer: the bytes of the file.
            entries: index entries of the records, in the order wanted.

        Raises:
            ChecksumError: a record does not fit the spec.
        """
        if self._codec.layout.content_size is not None:
            components = self._read_fixed(buffer, entries["offset"].astype("<i8"))
        else:
            components = self._read_variable(buffer, entries)
        if self._plain:
            return components
        return self._join(components, len(entries))

    def _read_fixed(self, buffer: Array, offsets: Array) -> list[Column]:
        value_size = self._codec.layout.value_size
        if value_size is not None and value_size > INLINE_LIMIT:
            offsets = offsets + LEAD
        count = len(offsets)
        start, end = self._small_start, self._small_end
        small = gather(buffer, offsets + start, end - start) if end else None
        columns = []
        for place in self._fixed:
            if place.nbytes >= WIDE_ALIGNMENT:
                raw = gather(buffer, offsets + place.offset, place.nbytes)
            elif place.nbytes and small is not None:
                at = place.offset - start
                raw = np.ascontiguousarray(small[:, at : at + place.nbytes])
            else:
                raw = np.empty((count, 0), "u1")
            columns.append(raw.view(place.dtype).reshape(count, *place.shape))
        return columns

    def _read_variable(self, buffer: Array, entries: Array) -> list[Column]:
        decode = self._codec.decode_components
        view = memoryview(buffer)
        rows = []
        for offset, length, _ in entries.tolist():
            start = offset + LEAD if length > INLINE_LIMIT else offset
            rows.append(decode(view[start : offset + length]))
        columns = zip(*rows, strict=True) if rows else [()] * len(self._codec.layout.components)
        return [
            stack(component.spec, values)
            for component, values in zip(self._codec.layout.components, columns, strict=True)
        ]

    def _join(self, components: list[Column], count: int) -> list[Column]:
        columns: list[Column] = []
        position = 0
        for leaf, width in zip(self._leaves, self._widths, strict=True):
            parts = components[position : position + width]
            position += width
            if isinstance(leaf, specs.TensorSpec):
                columns.append(parts[0])
            elif width == 0:
                columns.append([None] * count)
            else:
                columns.append([join_leaf(leaf, values) for values in zip(*parts, strict=True)])
        return columns


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
