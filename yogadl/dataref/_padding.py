"""Arrays of differing shapes as one, filled up at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.spans import Spans, pad_arrays
from yogadl.errors import InvalidArgumentError, SpecMismatchError

Array = np.ndarray[Any, Any]


class Padding:
    """How to pad the leaves of a spec whose shape varies.

    Args:
        spec: the element spec.
        pad: the number to pad with: one for all, or a nest as of the spec, with ``None`` for leaves
            that are not to be padded. One for all leaves arrays of strings as they are.

    Raises:
        InvalidArgumentError: a leaf cannot be padded, or not with that.
    """

    def __init__(self, spec: specs.Structure, pad: Any) -> None:
        self._leaves = leaves = list(specs.leaves(spec))
        if isinstance(pad, str | bytes):
            raise InvalidArgumentError(
                f"pad= takes the number to pad with, as 0, a nest of numbers as of the spec, or "
                f"None to pad nothing, not {pad!r:.100}"
            )
        if isinstance(pad, int | float | complex | np.generic):
            wanted = [pad if _varies(leaf) else None for leaf in leaves]
        else:
            try:
                wanted = specs.flatten(spec, pad)
            except SpecMismatchError as error:
                raise InvalidArgumentError(f"pad= is not nested as the spec: {error}") from error
        self._values = [
            None if value is None else _checked(leaf, value)
            for leaf, value in zip(leaves, wanted, strict=True)
        ]

    @property
    def values(self) -> list[Array | None]:
        """Per leaf the number to pad with, of the leaf's dtype; ``None`` where it is left alone."""
        return self._values

    def apply(self, columns: Sequence[Column]) -> list[Column]:
        """The columns of a batch, padded where asked for."""
        return [
            _pad(leaf, column, value)
            for leaf, column, value in zip(self._leaves, columns, self._values, strict=True)
        ]


def _pad(leaf: specs.Leaf, column: Column, value: Array | None) -> Column:
    if value is not None and not len(column):
        # There is no largest one, so it is as small as can be.
        assert isinstance(leaf, specs.TensorSpec)
        return np.empty((0, *[dim or 0 for dim in leaf.shape or ()]), value.dtype)
    if isinstance(column, Spans):
        return column.arrays() if value is None else column.padded(value)
    return column if value is None else pad_arrays(column, value)


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
    number = np.asarray(value)
    fits = number.shape == () and (number.dtype.kind != "b" or dtype.kind == "b")
    padding = _converted(number, dtype) if fits else None
    if padding is None:
        raise InvalidArgumentError(f"pad={value!r} is no number that {dtype} can hold")
    return padding


def _converted(number: Array, dtype: np.dtype[Any]) -> Array | None:
    """A number as of a dtype; to the nearest one of floats, else exactly or not at all."""
    exact = dtype.kind in "biu" or np.array(0.5).astype(dtype) == 0
    if number.dtype.kind not in "biufcV" or (number.dtype.kind == "c" and dtype.kind != "c"):
        return None
    with np.errstate(all="ignore"):
        padding = number.astype(dtype)
        if exact:
            return padding if padding == number else None
        return padding if np.isfinite(padding) == np.isfinite(number) else None
