"""Rows of Arrow arrays, whichever they are, and arrays without their encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl.adapters._arrow_tensors import is_tensor
from yogadl.adapters._arrow_types import is_list
from yogadl.adapters._base import Array
from yogadl.extras import require

pa = require("pyarrow", "arrow")


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
    decoded = [_decoded(part) if is_encoded(part.type) else part for part in parts]
    return pa.chunked_array(decoded).combine_chunks()


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
    if is_encoded(kind):
        return _can_take(kind.value_type, is_inside)
    if is_list(kind):
        return _can_take(kind.value_type, True)
    return all(_can_take(kind.field(at).type, True) for at in range(kind.num_fields))


def one_array(column: Any) -> Any:
    """A chunked array as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def is_encoded(kind: Any) -> bool:
    return bool(pa.types.is_dictionary(kind))


def plain(array: Any) -> Any:
    """Without dictionary encoding and extension types, but for those of tensors."""
    if isinstance(array.type, pa.FixedShapeTensorType) or is_tensor(array.type):
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return plain(array.storage)
    return _decoded(array) if is_encoded(array.type) else array


def _decoded(array: Any) -> Any:
    """Without dictionary encoding."""
    values = array.dictionary
    if not _can_take(values.type):
        # polars has its categories as views.
        are_bytes = pa.types.is_binary_view(values.type)
        values = values.cast(pa.large_binary() if are_bytes else pa.large_string())
    return values.take(array.indices)
