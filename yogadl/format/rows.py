"""Records of varying length, given as columns, as contents in pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl.errors import SpecMismatchError
from yogadl.format.codec import RecordCodec
from yogadl.format.components import as_component
from yogadl.format.contents import Contents, Packed, Piece, Pieces
from yogadl.format.layout import Component, Kind, RecordLayout, VariableArray, align

Array = np.ndarray[Any, Any]

_PADDING = [bytes(size) for size in range(8)]
# Shorter heads are copied sooner than views of them are made.
_SHORT_HEAD = 512


def are_simple(layout: RecordLayout) -> bool:
    """Whether every component is stored in one array, so that columns can be encoded."""
    simple = (Kind.FIXED, Kind.FLAT, Kind.STRING)
    return all(component.kind in simple for component in layout.components)


def rows_of(codec: RecordCodec, columns: Sequence[Any], count: int) -> Contents:
    """The contents of some records of a spec that :func:`are_simple` is true of.

    Args:
        codec: of the spec, which has something that varies.
        columns: per component the values of the records: an array ``[n, *component shape]`` of
            those that do not vary; of others a ``Packed`` or ``Pieces``, or a sequence of arrays or
            of strings.
        count: number of records.

    Raises:
        SpecMismatchError, UnsupportedTypeError: a value does not fit the spec.
    """
    layout = codec.layout
    head = np.zeros((count, align(layout.fixed_end)), "u1")
    table = head[:, : 8 * layout.size_slots]
    sizes = np.full(count, head.shape[1], "i8")
    pieces: list[Sequence[Piece]] = []
    for component, column in zip(layout.components, columns, strict=True):
        (place,) = component.arrays
        if not isinstance(place, VariableArray):
            codec.encode_column(component, column, head)
            continue
        own, found = _pieces(component, column)
        table[:, 8 * place.slot : 8 * place.slot + 8] = own[:, None].view("u1")
        pieces.append(found)
        padding = -own % 8
        if padding.any():
            pieces.append([_PADDING[size] for size in padding.tolist()])
        sizes += own + padding
    return Contents(sizes, [_rows(head), *pieces])


def _rows(head: Array) -> Sequence[Piece]:
    """The rows of a contiguous array."""
    count, size = head.shape
    if size <= _SHORT_HEAD:
        rows: list[Piece] = head.view(f"V{size}").reshape(count).tolist()
        return rows
    view = memoryview(head.reshape(-1))
    return [view[start : start + size] for start in range(0, count * size, size)]


def _pieces(component: Component, column: Any) -> tuple[Array, Sequence[Piece]]:
    """The sizes and the bytes of the values of a component that varies."""
    spec = component.spec
    if isinstance(column, Packed | Pieces):
        if component.kind is Kind.FLAT:
            assert spec.shape is not None
            known = math.prod(dim for dim in spec.shape if dim is not None)
            if (column.sizes % (known * dtypes.to_numpy(spec.dtype).itemsize)).any():
                raise SpecMismatchError(f"a value of a column does not fit {spec}")
        return column.sizes, column.pieces()
    if component.kind is Kind.STRING:
        values = [v if type(v) is bytes else as_component(spec, v) for v in column]
        return np.fromiter(map(len, values), "i8", len(values)), values
    dtype, rank = component.arrays[0].dtype, 1 if spec.shape == (None,) else -1
    arrays: list[Any] = [
        value
        if type(value) is np.ndarray and value.dtype is dtype and value.ndim == rank
        else as_component(spec, value)
        for value in column
    ]
    sizes = np.fromiter((array.nbytes for array in arrays), "i8", len(arrays))
    return sizes, list(map(_bytes, arrays))


def _bytes(value: Array) -> Piece:
    """The bytes of an array, which are not copied if they lie together."""
    flat = np.ascontiguousarray(value)
    # Some dtypes are no buffers.
    return flat if flat.dtype.isbuiltin == 1 else flat.reshape(-1).view("u1")
