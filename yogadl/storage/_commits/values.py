"""Which values of a component are the same in two versions in which its specs differ.

What has one dtype is compared bit by bit; where the dtypes differ, numbers are compared as numbers,
exactly: 1, 1.0 and True are the same, and so is every NaN. Of two dtypes that have a negative zero,
that is another number than zero.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.format import spec_json
from yogadl.format.components import split_leaf

Array = np.ndarray[Any, Any]

# Numbers that are compared at once take some fifty bytes each.
_MOST_NUMBERS = 1 << 18
_BELOW, _ABOVE = -(2.0**63), 2.0**64


def nested_alike(one: specs.Structure, two: specs.Structure) -> bool:
    """Whether two specs have the same containers, names of tuples included, around any leaves."""
    return _containers(one) == _containers(two)


def _containers(spec: specs.Structure) -> str:
    return spec_json.canonical(specs.map_leaves(lambda _: specs.NoneSpec(), spec))


def are_numbers(column: Column) -> bool:
    """Whether the values of a column are numbers, and stand in one array."""
    return isinstance(column, np.ndarray) and column.dtype != object


def differing_numbers(one: Array, two: Array) -> Array:
    """Which numbers of two columns of one shape differ, bool ``[n]``; in arrays, any of them."""
    found = np.zeros(len(one), bool)
    for rows in _some_rows(one):
        words = _words(one[rows], two.dtype), _words(two[rows], one.dtype)
        found[rows] = (words[0] != words[1]).any(axis=tuple(range(1, words[0].ndim)))
    return found


def _some_rows(column: Array) -> Iterable[slice]:
    step = max(1, _MOST_NUMBERS // max(1, column[:1].size))
    return (slice(start, start + step) for start in range(0, len(column), step))


def packed_column(column: Column, leaf: specs.Leaf, other: specs.Leaf) -> list[bytes]:
    """What is the same of values that are the same, for each of a column.

    Args:
        column: the values.
        leaf: their spec.
        other: the spec of those that they are compared with.
    """
    if not (are_numbers(column) and isinstance(other, specs.TensorSpec)) or other.is_string:
        return [packed(value, leaf, other) for value in column]
    head = _head(column.shape[1:])
    found: list[bytes] = []
    for rows in _some_rows(column):
        found += [head + words.tobytes() for words in _comparable(column[rows], other.dtype)]
    return found


def packed(value: Any, spec: specs.Structure, other: specs.Structure) -> bytes:
    """The same of one value, which may be a nest."""
    if value is None:
        return b""
    spec, other = _of_what_is_there(spec), _of_what_is_there(other)
    if not isinstance(spec, specs.LEAVES):
        own = list(specs.leaves(spec))
        others = list(specs.leaves(other)) if nested_alike(spec, other) else own
        values = specs.flatten(spec, value)
        return _joined(_containers(spec), map(packed, values, own, others))
    if isinstance(spec, specs.TensorSpec):
        is_tensor = isinstance(other, specs.TensorSpec)
        return _packed_array(value, spec, other if is_tensor else spec)
    kinds, theirs = _components(spec), _components(other)
    if type(spec) is not type(other) or len(kinds) != len(theirs):
        theirs = kinds
    arrays = map(_packed_array, split_leaf(spec, value), kinds, theirs)
    return _joined(type(spec).__name__, arrays)


def _components(spec: specs.Structure) -> tuple[specs.TensorSpec, ...]:
    """The arrays of values that are several."""
    return spec.components if isinstance(spec, specs.RaggedSpec | specs.SparseSpec) else ()


def _of_what_is_there(spec: specs.Structure) -> specs.Structure:
    """The spec of a value that is not missing."""
    while isinstance(spec, specs.OptionalSpec):
        spec = spec.value
    return spec


def _joined(kind: str, parts: Iterable[bytes]) -> bytes:
    found = [b"nest", *[word for part in (kind.encode(), *parts) for word in (_size(part), part)]]
    return b"".join(found)


def _size(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little")


def _packed_array(value: Any, spec: specs.TensorSpec, other: specs.TensorSpec) -> bytes:
    if spec.is_string:
        # NumPy would take away the zeros at their ends.
        is_one = isinstance(value, bytes | str)
        shape, items = ((), [value]) if is_one else (np.shape(value), np.ravel(value).tolist())
        return b"text" + repr((shape, items)).encode()
    numbers = np.asarray(value)
    own = spec.dtype if other.is_string else other.dtype
    return _head(numbers.shape) + _comparable(numbers, own).tobytes()


def _head(shape: tuple[int, ...]) -> bytes:
    return f"numbers{shape}".encode()


def _comparable(numbers: Array, other: str) -> Array:
    """Numbers as they are where those that they are compared with are of the same dtype; else what
    :func:`_words` makes of them."""
    dtype = dtypes.to_numpy(other)
    return numbers if numbers.dtype == dtype else _words(numbers, dtype)


def _words(numbers: Array, other: np.dtype[Any]) -> Array:
    """What is the same for the same numbers of two dtypes, and for no others: uint64 ``[…, k]``.

    Args:
        numbers: of the one dtype, ``[…]``.
        other: the other dtype.
    """
    own = numbers.dtype
    are_signed = _has_negative_zero(own) and _has_negative_zero(other)
    # NaNs may come with a signal.
    with np.errstate(all="ignore"):
        if "c" not in (own.kind, other.kind):
            return _real_words(numbers, are_signed)
        real, imaginary = (
            (numbers.real, numbers.imag) if own.kind == "c" else (numbers, np.zeros(numbers.shape))
        )
        words = _real_words(real, are_signed), _real_words(imaginary, own.kind == other.kind)
        return np.concatenate(words, axis=-1)


def _real_words(numbers: Array, are_signed: bool) -> Array:
    """The nearest double, and modulo 2**64 the number itself if it is an integer of 64 bits: no
    dtype has both more digits and others than these, so the two tell all of them apart."""
    near = numbers.reshape(-1).astype("f8")
    if numbers.dtype.kind in "iub":
        kind = "i8" if numbers.dtype.kind == "i" else "u8"
        exact = numbers.reshape(-1).astype(kind).view("u8")
    else:
        exact = np.zeros(len(near), "u8")
        is_whole = (near == np.trunc(near)) & (near >= _BELOW) & (near < _ABOVE)
        is_small = near < -_BELOW
        low, high = is_whole & is_small, is_whole & ~is_small
        exact[low] = near[low].astype("i8").view("u8")
        exact[high] = near[high].astype("u8")
    near[np.isnan(near)] = np.nan
    if not are_signed:
        near += 0.0
    return np.stack([near.view("u8"), exact], axis=-1).reshape(*numbers.shape, 2)


@functools.cache
def _has_negative_zero(dtype: np.dtype[Any]) -> bool:
    zero = np.array(-0.0).astype(dtype).real.astype("f8")
    # Some have no zero at all.
    return bool(zero == 0 and np.signbit(zero))
