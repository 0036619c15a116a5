"""The leaves of specs, and the values of those that NumPy has no array for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from yogadl import dtypes
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError

Shape: TypeAlias = "tuple[int | None, ...] | None"
"""Dimensions, ``None`` where one is unknown; ``None`` instead of a tuple for unknown rank."""

Structure: TypeAlias = Any
"""A nest of dict, tuple and named tuple; recursive types do not survive all type checkers."""


class Ragged(NamedTuple):
    """A ragged array: rows of differing lengths over one flat array.

    ``flat_values`` has shape ``[n, ...]``; ``nested_row_splits`` are 1-D int64 or int32 arrays,
    outermost first, each starting at 0 and ending at the length of the next (of ``flat_values``
    for the last).
    """

    flat_values: np.ndarray[Any, Any]
    nested_row_splits: tuple[np.ndarray[Any, Any], ...]


class Sparse(NamedTuple):
    """A sparse array in coordinate form.

    ``indices`` is int64 of shape ``[n, rank]``, ``values`` has shape ``[n]``, ``dense_shape`` is
    int64 of shape ``[rank]``.
    """

    indices: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    dense_shape: np.ndarray[Any, Any]


MAX_RANK = 63 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 31
"""Dimensions of an array, one less than NumPy's own limit: a batch has one more."""

_MAX_DIMENSION = 2**63 - 1
# A record has no more bytes. What counts is that NumPy has arrays of many such, too.
_MAX_ITEMS = 2**32


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def checked_shape(shape: Any) -> Shape:
    if shape is None:
        return None
    if not isinstance(shape, tuple | list) or not all(dim is None or _is_int(dim) for dim in shape):
        raise InvalidArgumentError(
            f"a shape is a tuple of integers, or None for what is not known; not {shape!r}"
        )
    if any(dim is not None and dim < 0 for dim in shape):
        raise InvalidArgumentError(f"shape {shape!r} has a negative dimension; unknown is None")
    if len(shape) > MAX_RANK or any(dim is not None and dim > _MAX_DIMENSION for dim in shape):
        raise InvalidArgumentError(
            f"shape {shape!r:.200} is none that NumPy can handle: up to {MAX_RANK} dimensions of "
            "63 bits"
        )
    return tuple(None if dim is None else int(dim) for dim in shape)


def _checked_dtype(dtype: Any) -> str:
    """A dtype name from a name or anything NumPy takes for a dtype."""
    if isinstance(dtype, str) and dtype in dtypes.NAMES:
        return dtype
    if dtype is None or (isinstance(dtype, str) and not dtype.isprintable()):
        # To NumPy, None is float64, and a control character the dtype of its number.
        raise UnsupportedTypeError(
            f"{dtype!r:.100} is no dtype; a cache can hold {sorted(dtypes.NAMES)}"
        )
    try:
        return dtypes.from_numpy(np.dtype(dtype))
    except UnsupportedTypeError:
        raise
    except (TypeError, ValueError, OverflowError, SyntaxError) as error:
        raise UnsupportedTypeError(
            f"{dtype!r:.100} is no dtype; a cache can hold {sorted(dtypes.NAMES)}"
        ) from error


@dataclass(frozen=True)
class TensorSpec:
    """A dense array of ``dtype`` (a name or a NumPy dtype) and ``shape``.

    ``shape`` may have unknown dimensions (``None``) or unknown rank (``shape=None``).
    """

    dtype: str
    shape: Shape = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))
        object.__setattr__(self, "shape", checked_shape(self.shape))
        # As NumPy counts: an array without items may not be too large without its zeros, either.
        if math.prod(dim or 1 for dim in self.shape or ()) > _MAX_ITEMS:
            raise InvalidArgumentError(f"no array can have shape {self.shape!r:.200}")

    @property
    def is_string(self) -> bool:
        return self.dtype == dtypes.STRING

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape where every dimension is known, else ``None``."""
        if self.shape is None or any(dim is None for dim in self.shape):
            return None
        return tuple(dim for dim in self.shape if dim is not None)


@dataclass(frozen=True)
class RaggedSpec:
    """A ragged array; ``shape`` is that of the whole, ``ragged_rank`` its number of row splits."""

    dtype: str
    shape: Shape
    ragged_rank: int
    row_splits_dtype: str = "int64"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))
        object.__setattr__(self, "shape", checked_shape(self.shape))
        if not _is_int(self.ragged_rank):
            raise InvalidArgumentError(f"ragged_rank must be an integer, not {self.ragged_rank!r}")
        rank = MAX_RANK if self.shape is None else len(self.shape)
        if not 1 <= self.ragged_rank < rank:
            raise InvalidArgumentError(
                f"ragged_rank {self.ragged_rank} does not fit shape {self.shape}; it counts the "
                "row splits, at least 1 and below the rank"
            )
        if self.row_splits_dtype not in ("int32", "int64"):
            raise InvalidArgumentError(
                f"row_splits_dtype must be int32 or int64, not {self.row_splits_dtype!r}"
            )
        _ = self.components  # which check their shapes

    @property
    def components(self) -> tuple[TensorSpec, ...]:
        """The dense arrays a value is stored as: the flat values, then the row splits."""
        inner = None if self.shape is None else (None, *self.shape[self.ragged_rank + 1 :])
        splits = TensorSpec(self.row_splits_dtype, (None,))
        return (TensorSpec(self.dtype, inner), *[splits] * self.ragged_rank)


@dataclass(frozen=True)
class SparseSpec:
    """A sparse array in coordinate form."""

    dtype: str
    shape: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))
        object.__setattr__(self, "shape", checked_shape(self.shape))

    @property
    def components(self) -> tuple[TensorSpec, ...]:
        """The dense arrays a value is stored as: indices, values, dense shape."""
        rank = None if self.shape is None else len(self.shape)
        return (
            TensorSpec("int64", (None, rank)),
            TensorSpec(self.dtype, (None,)),
            TensorSpec("int64", (rank,)),
        )


@dataclass(frozen=True)
class NoneSpec:
    """A component that is always ``None``."""


@dataclass(frozen=True)
class OptionalSpec:
    """A value of the spec ``value``, or ``None`` where a record has none."""

    value: Structure


Leaf: TypeAlias = TensorSpec | RaggedSpec | SparseSpec | NoneSpec | OptionalSpec
LEAVES = (TensorSpec, RaggedSpec, SparseSpec, NoneSpec, OptionalSpec)
