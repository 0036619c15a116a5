"""Arrays of varying length, as the places in a file where they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.gather import gather
from yogadl.errors import ChecksumError

Array = np.ndarray[Any, Any]


class Spans:
    """The values of one component of some records, arrays with one unknown dimension, not yet read.

    Immutable; may be shared by threads. A slice of it is one, too.

    Args:
        buffer: the bytes of the file.
        spec: of the component.
        dtype: of its items in the file.
        starts, sizes: bytes, int64 ``[n]`` each, inside the buffer.

    Raises:
        ChecksumError: the sizes do not fit the spec.
    """

    def __init__(
        self,
        buffer: Array,
        spec: specs.TensorSpec,
        dtype: np.dtype[Any],
        starts: Array,
        sizes: Array,
    ) -> None:
        assert spec.shape is not None
        self._buffer = buffer
        self._spec = spec
        self._dtype = dtype
        self._starts = starts
        self._sizes = sizes
        known = math.prod(dim for dim in spec.shape if dim is not None)
        self._step = known * dtype.itemsize
        if (sizes % self._step).any():
            raise ChecksumError(f"an array of a record does not fit {spec}")

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, part: slice) -> Spans:
        starts, sizes = self._starts[part], self._sizes[part]
        return Spans(self._buffer, self._spec, self._dtype, starts, sizes)

    def arrays(self) -> list[Array]:
        """The values, fresh arrays.

        Raises:
            ChecksumError: NumPy has no arrays of the spec's rank.
        """
        assert self._spec.shape is not None
        axis = self._spec.shape.index(None)
        shape = [dim or 0 for dim in self._spec.shape]
        before, after = shape[:axis], shape[axis + 1 :]
        buffer, dtype = self._buffer, self._dtype
        lengths = (self._sizes // self._step).tolist()
        try:
            return [
                np.ndarray((*before, length, *after), dtype, buffer, start).copy()
                for start, length in zip(self._starts.tolist(), lengths, strict=True)
            ]
        except ValueError as error:
            raise ChecksumError(f"an array of {self._spec}: {error}") from error

    def joined(self) -> tuple[Array, Array]:
        """The values one behind the other, flat, and the number of items of each, int64 ``[n]``."""
        buffer = self._buffer
        parts = [
            buffer[start : start + size]
            for start, size in zip(self._starts.tolist(), self._sizes.tolist(), strict=True)
        ]
        whole = np.concatenate([np.empty(0, "u1"), *parts])
        return whole.view(self._dtype), self._sizes // self._dtype.itemsize

    def padded(self, value: Array) -> Array:
        """The values as one array, filled up with ``value`` to the longest."""
        longest = int(self._sizes.max(initial=0))
        if (
            self._spec.shape != (None,)
            or not longest
            or (self._starts + longest > len(self._buffer)).any()
        ):
            return pad_arrays(self.arrays(), value)
        # What lies behind a shorter array is copied with it, and covered.
        padded = gather(self._buffer, self._starts, longest).view(self._dtype)
        for row, length in zip(padded, (self._sizes // self._step).tolist(), strict=True):
            row[length:] = value
        return padded


def pad_arrays(arrays: Sequence[Array], value: Array) -> Array:
    """Arrays of one rank, at least one, as ``[n, *largest shape]``, filled up with ``value``."""
    shapes = np.array([array.shape for array in arrays])
    padded = np.full((len(arrays), *shapes.max(axis=0).tolist()), value, value.dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[tuple(map(slice, array.shape))] = array
    return padded
