"""Nests of arrays whose first axis is the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters._base import Array, MapSource
from yogadl.adapters._convert import is_array, to_leaf, type_name
from yogadl.adapters._iterable import as_spec
from yogadl.adapters._rows import leaf_column
from yogadl.cache.columns import Column
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.components import check_shape


def are_columns(data: Any) -> bool:
    """Whether data is a dict or tuple, perhaps of others, with nothing but arrays in it."""
    leaves = list(_leaves(data))
    return bool(leaves) and all(is_array(leaf) for leaf in leaves)


def _leaves(nest: Any) -> Iterator[Any]:
    if isinstance(nest, dict | tuple):
        for child in nest.values() if isinstance(nest, dict) else nest:
            yield from _leaves(child)
    else:
        yield nest


class ColumnsSource(MapSource):
    """Records of which record ``i`` is row ``i`` of every array of a nest.

    The arrays are not copied; who changes them changes the records.

    Args:
        nest: an array or tensor, or a nest of dicts and tuples of such. An array of objects holds
            strings, or one value of any kind in each row.
        spec: the element spec, inferred without.

    Raises:
        InvalidArgumentError: the arrays are not equally long.
        SpecMismatchError: they do not fit the spec.
        UnsupportedTypeError: an array that cannot be stored.
    """

    def __init__(self, nest: Any, spec: Any = None) -> None:
        arrays = [_checked(leaf) for leaf in _leaves(nest)]
        lengths = sorted({len(array) for array in arrays})
        if len(lengths) != 1:
            raise InvalidArgumentError(
                f"arrays whose rows are records must be equally long, and these have {lengths} "
                "rows; for an iterable of records of any shapes, give a list"
            )
        self.count = lengths[0]
        values = iter(arrays)
        columns = specs.map_nest(lambda _leaf: next(values), nest)
        self.spec = (
            specs.normalize(specs.map_nest(_row_spec, columns)) if spec is None else as_spec(spec)
        )
        self._leaves = list(specs.leaves(self.spec))
        self._arrays: list[Array] = specs.flatten(self.spec, columns)
        for leaf, array in zip(self._leaves, self._arrays, strict=True):
            _check(leaf, array)

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        targets: Sequence[Array | None] = [None] * len(self._leaves) if out is None else out
        return [
            _take(leaf, array, positions, target)
            for leaf, array, target in zip(self._leaves, self._arrays, targets, strict=True)
        ]

    @property
    def fingerprint(self) -> None:
        """None: the arrays tell."""


def _checked(leaf: Any) -> Array:
    array = to_leaf(leaf)
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedTypeError("a masked array would lose its mask; fill it first")
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise UnsupportedTypeError(
            f"a {type_name(leaf)} without a first axis has no records; give an array of rows"
        )
    return array


def _row_spec(array: Array) -> Any:
    """The spec of a row; of a column of objects that of the first."""
    if array.dtype == object and array.ndim == 1 and len(array):
        return specs.infer(to_leaf(array[0]) if not isinstance(array[0], list) else array[0])
    return specs.TensorSpec(dtypes.from_numpy(array.dtype), array.shape[1:])


def _is_numeric(leaf: specs.Leaf, array: Array) -> bool:
    return isinstance(leaf, specs.TensorSpec) and not leaf.is_string and array.dtype != object


def _check(leaf: specs.Leaf, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise SpecMismatchError(f"{leaf} is to be the spec of a {type(array).__name__}")
    if _is_numeric(leaf, array):
        assert isinstance(leaf, specs.TensorSpec)
        if array.dtype.newbyteorder("=") != dtypes.to_numpy(leaf.dtype):
            raise SpecMismatchError(f"an array of {array.dtype} does not fit {leaf}")
        check_shape(leaf, array.shape[1:])


def _take(leaf: specs.Leaf, array: Array, positions: Array, out: Array | None) -> Column:
    if not _is_numeric(leaf, array):
        return leaf_column(leaf, array[positions], positions)
    assert isinstance(leaf, specs.TensorSpec)
    dtype = dtypes.to_numpy(leaf.dtype)
    if array.dtype == dtype:
        # The positions were checked; checking them again would take another copy.
        taken = np.take(array, positions, axis=0, out=out, mode="clip")
    else:
        # Of the other byte order.
        taken = array[positions].astype(dtype)
        if out is not None:
            out[...] = taken
            return out
    return taken if leaf.static_shape is not None else list(taken)
