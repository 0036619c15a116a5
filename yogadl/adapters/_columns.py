"""Nests of arrays whose first axis is the record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters._base import Array, MapSource
from yogadl.adapters._convert import to_leaf, type_name
from yogadl.adapters._iterable import as_spec
from yogadl.adapters._rows import leaf_column
from yogadl.cache.columns import Column
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.contents import Packed
from yogadl.format.mismatch import check_rows

_AS_THEY_ARE = {bytes, str, np.ndarray}


def leaves_of(nest: Any) -> Iterator[Any]:
    """What stands in a nest of dicts and tuples."""
    if isinstance(nest, dict | tuple):
        for child in nest.values() if isinstance(nest, dict) else nest:
            yield from leaves_of(child)
    else:
        yield nest


def column_name(path: Sequence[Any]) -> str:
    """What to call an array of a nest in errors, by the keys that lead to it."""
    if not path:
        return "the array"
    return f"column {path[0]!r}" + "".join(f"[{key!r}]" for key in path[1:])


def one_length(counts: Iterable[int]) -> int:
    """What all counts are.

    Raises:
        InvalidArgumentError: they differ.
    """
    lengths = sorted(set(counts))
    if len(lengths) != 1:
        raise InvalidArgumentError(
            f"arrays whose rows are records must be equally long, and these have {lengths} rows; "
            "for an iterable of records of any shapes, give a list"
        )
    return lengths[0]


class ColumnsSource(MapSource):
    """Records of which record ``i`` is row ``i`` of every array of a nest.

    The arrays are not copied; who changes them changes the records.

    Args:
        nest: an array or tensor, or a nest of dicts and tuples of such. An array of objects holds
            strings, or one value of any kind in each row.
        spec: the element spec, inferred without.
        path: the keys that lead to the nest in a greater one, for errors.

    Raises:
        InvalidArgumentError: the arrays are not equally long.
        SpecMismatchError: they do not fit the spec.
        UnsupportedTypeError: an array that cannot be stored.
    """

    prefers_threads = True

    def __init__(self, nest: Any, spec: Any = None, path: tuple[Any, ...] = ()) -> None:
        shape = specs.map_nest(lambda _leaf: specs.NoneSpec(), nest)
        names = [column_name((*path, *below)) for below in specs.paths(shape)]
        arrays = list(map(_checked, specs.flatten(shape, nest), names))
        self.count = one_length(map(len, arrays))
        if spec is None:
            self.spec = specs.normalize(specs.unflatten(shape, map(_row_spec, arrays, names)))
        else:
            self.spec = as_spec(spec)
            arrays = specs.flatten(self.spec, specs.unflatten(shape, arrays))
        self._names = [column_name((*path, *below)) for below in specs.paths(self.spec)]
        self._leaves = list(specs.leaves(self.spec))
        self._arrays: list[Array] = arrays
        for leaf, array, name in zip(self._leaves, self._arrays, self._names, strict=True):
            _check(leaf, array, name)

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        targets: Sequence[Array | None] = [None] * len(self._leaves) if out is None else out
        return [
            _take(leaf, array, positions, target, name)
            for leaf, array, target, name in zip(
                self._leaves, self._arrays, targets, self._names, strict=True
            )
        ]

    def rows(self, start: int, stop: int) -> list[Any]:
        return [
            _slice(leaf, array, start, stop, name)
            for leaf, array, name in zip(self._leaves, self._arrays, self._names, strict=True)
        ]

    @property
    def fingerprint(self) -> None:
        """None: the arrays tell."""


def _checked(leaf: Any, where: str) -> Array:
    array = to_leaf(leaf, where)
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedTypeError(f"{where}, a masked array, would lose its mask; fill it first")
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise UnsupportedTypeError(
            f"{where}, a {type_name(leaf)} without a first axis, has no records; give an array of "
            "rows"
        )
    return array


def _row_spec(array: Array, where: str) -> Any:
    """The spec of a row; of a column of objects that of the first."""
    if array.dtype == object and array.ndim == 1 and len(array):
        return specs.infer(_row(array[0], where), f"a row of {where}")
    return specs.TensorSpec(dtypes.from_numpy(array.dtype), array.shape[1:])


def _row(value: Any, where: str) -> Any:
    """The value of a row of a column of objects."""
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping | tuple):
        raise UnsupportedTypeError(
            f"{where} holds a {type_name(value)} in a row, which is no array: {value!r:.100}; make "
            "a column of each of its parts, or submit a list of the records as dicts"
        )
    return to_leaf(value, f"a row of {where}")


def _is_numeric(leaf: specs.Leaf, array: Array) -> bool:
    return isinstance(leaf, specs.TensorSpec) and not leaf.is_string and array.dtype != object


def _check(leaf: specs.Leaf, array: Any, where: str) -> None:
    if not isinstance(array, np.ndarray):
        raise SpecMismatchError(f"{leaf} is to be the spec of {where}, a {type(array).__name__}")
    if _is_numeric(leaf, array):
        assert isinstance(leaf, specs.TensorSpec)
        native = array.dtype.newbyteorder("=")
        check_rows(leaf, native, array.shape[1:], where)


def _take(
    leaf: specs.Leaf, array: Array, positions: Array, out: Array | None, where: str
) -> Column:
    if not _is_numeric(leaf, array):
        return leaf_column(leaf, array[positions], positions, where)
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


def _slice(leaf: specs.Leaf, array: Array, start: int, stop: int, where: str) -> Any:
    """Some rows to be written: as they are, if they are what the leaf is stored as."""
    found = array[start:stop]
    assert isinstance(leaf, specs.TensorSpec)
    if _is_numeric(leaf, array):
        dtype = dtypes.to_numpy(leaf.dtype)
        found = found if array.dtype == dtype else found.astype(dtype)
        return found if leaf.static_shape is not None else _packed(found)
    varies = leaf.shape == () if leaf.is_string else leaf.static_shape is None
    if varies and set(map(type, found)) <= _AS_THEY_ARE:
        return found
    return leaf_column(leaf, found, np.arange(start, stop), where)


def _packed(rows: Array) -> Any:
    """Rows of one shape, of a leaf of which the shape is not known."""
    if not rows.size:
        return list(rows)
    flat = np.ascontiguousarray(rows).reshape(-1).view("u1")
    return Packed.between(flat, np.arange(len(rows) + 1) * (flat.size // len(rows)))
