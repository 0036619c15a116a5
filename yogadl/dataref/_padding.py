"""Arrays of differing shapes as one, filled up at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.errors import InvalidArgumentError
from yogadl.format import dtypes

Array = np.ndarray[Any, Any]


class Padding:
    """How to pad the leaves of a spec whose shape varies.

    Args:
        spec: the element spec.
        pad: the number to pad with: one for all, or a nest as of the spec, with ``None`` for leaves
            that are not to be padded.

    Raises:
        InvalidArgumentError: a leaf cannot be padded, or not with that.
    """

    def __init__(self, spec: specs.Structure, pad: Any) -> None:
        leaves = list(specs.leaves(spec))
        if isinstance(pad, int | float | complex | np.generic):
            wanted = [pad if _varies(leaf) else None for leaf in leaves]
        else:
            wanted = specs.flatten(spec, pad)
        self._values = [
            None if value is None else _checked(leaf, value)
            for leaf, value in zip(leaves, wanted, strict=True)
        ]

    def apply(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Per leaf its batches, padded where asked for."""
        return [
            batches if value is None else [_pad(batch, value) for batch in batches]
            for batches, value in zip(columns, self._values, strict=True)
        ]


def _varies(leaf: specs.Leaf) -> bool:
    return isinstance(leaf, specs.TensorSpec) and not leaf.is_string and leaf.static_shape is None


def _checked(leaf: specs.Leaf, value: Any) -> Array:
    if not _varies(leaf):
        raise InvalidArgumentError(
            f"only arrays of numbers of varying shape can be padded, not {leaf}; give None for it"
        )
    assert isinstance(leaf, specs.TensorSpec)
    if leaf.shape is None:
        raise InvalidArgumentError(f"{leaf} cannot be padded: its rank is not known")
    dtype = dtypes.to_numpy(leaf.dtype)
    try:
        number = np.asarray(value)
        padding = number.astype(dtype)
        fits = number.shape == () and (padding == number or number != number)  # noqa: PLR0124 # NaN
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise InvalidArgumentError(f"pad={value!r} is no number that {dtype} can hold")
    return padding


def _pad(batch: Sequence[Array], value: Array) -> Array:
    """Arrays of one rank as ``[n, *largest shape]``."""
    shapes = np.array([array.shape for array in batch])
    padded = np.full((len(batch), *shapes.max(axis=0).tolist()), value, value.dtype)
    for row, array in zip(padded, batch, strict=True):
        row[tuple(map(slice, array.shape))] = array
    return padded
