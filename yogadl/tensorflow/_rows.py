"""Records of any kind, read by NumPy many at a time, and put together by TensorFlow.

This path serves where the mapped file cannot: records of varying size, strings, ragged, sparse
and optional components, caches of yogadl 0.1.4. A row of records leaves Python as *parts*, which
``tf.data`` can batch and unbatch whatever the records' shapes are: dense arrays ``[n, …]`` and flat
arrays with a length per record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.columns import stack
from yogadl.extras import require
from yogadl.format import dtypes
from yogadl.format.components import split_leaf
from yogadl.format.layout import components_of, leaf_components
from yogadl.tensorflow import _words
from yogadl.tensorflow._calls import Calls
from yogadl.tf_specs import to_tf

tf = require("tensorflow", "tensorflow")

Array = np.ndarray[Any, Any]
ReadColumns = Callable[[Array], Sequence[Any]]


class RowReader:
    """Reads rows of records as parts, and makes elements of parts.

    Args:
        spec: the element spec.
        read_columns: as ``RecordReader.read_columns``.
        calls: where to put the functions that TensorFlow calls.
    """

    def __init__(self, spec: specs.Structure, read_columns: ReadColumns, calls: Calls) -> None:
        self._calls = calls
        self._spec = spec
        self._read_columns = read_columns
        self._leaves = list(specs.leaves(spec))
        self._components = components_of(spec)

    def read(self, positions: Any) -> tuple[Any, ...]:
        """The parts of the records at some positions, an int64 tensor ``[n]``.

        Returns:
            The positions, lest there be no part at all; then per component a tensor
            ``[n, *shape]``, or for one of varying shape two ragged tensors ``[n, None]``, flat
            values and shape. Components that are always empty have no part: TensorFlow, as of 2.21,
            crashes when it takes apart a batch of them.
        """
        kinds = [kind for component in self._components for kind in _part_kinds(component)]
        found = self._calls.numpy_function(self._read_arrays, [positions], kinds) if kinds else []
        remaining = iter(found)
        parts: list[Any] = [positions]
        for component in self._components:
            parts.extend(_tensors(component, remaining, positions.shape[0]))
        return tuple(parts)

    def _read_arrays(self, positions: Array) -> list[Array]:
        arrays: list[Array] = []
        for leaf, column in zip(self._leaves, self._read_columns(positions), strict=True):
            arrays.extend(self._leaf_arrays(leaf, column))
        return arrays

    def _leaf_arrays(self, leaf: specs.Leaf, column: Any) -> Iterator[Array]:
        if isinstance(leaf, specs.TensorSpec):
            columns = [column]
        else:
            rows = [split_leaf(leaf, value) for value in column]
            columns = list(zip(*rows, strict=True)) or [()] * len(leaf_components(leaf))
        for component, values in zip(leaf_components(leaf), columns, strict=True):
            yield from _component_arrays(component, values)

    def element(self, *parts: Any) -> Any:
        """One element from the parts of one record, as unbatched."""
        return _element(self._spec, iter(parts[1:]))


def is_empty(spec: specs.TensorSpec) -> bool:
    """Whether no value of a component has any item."""
    return spec.static_shape is not None and 0 in spec.static_shape


def _part_kinds(spec: specs.TensorSpec) -> list[Any]:
    """The dtypes of the arrays of :func:`_component_arrays`."""
    if is_empty(spec):
        return []
    values = tf.as_dtype(_words.carrier(spec.dtype))
    return [values] if spec.static_shape is not None else [values, tf.int64, tf.int64, tf.int64]


def _component_arrays(spec: specs.TensorSpec, values: Any) -> Iterator[Array]:
    """The values of some records: stacked, or joined with their sizes, shapes and ranks."""
    if is_empty(spec):
        return
    word = dtypes.to_numpy(_words.carrier(spec.dtype))
    if spec.static_shape is not None:
        stacked = values if isinstance(values, np.ndarray) else stack(spec, values)
        yield as_words(np.asarray(stacked), word)
        return
    arrays = [_as_array(value) for value in values]
    yield np.concatenate([np.empty(0, word), *[as_words(a.reshape(-1), word) for a in arrays]])
    yield np.array([array.size for array in arrays], "i8")
    yield np.array([dim for array in arrays for dim in array.shape], "i8")
    yield np.array([array.ndim for array in arrays], "i8")


def _as_array(value: Any) -> Array:
    if not isinstance(value, bytes):
        return np.asarray(value)
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def _tensors(spec: specs.TensorSpec, remaining: Iterator[Any], count: int | None) -> Iterator[Any]:
    """The parts of one component, from the tensors of its arrays."""
    if is_empty(spec):
        return
    values = next(remaining)
    if spec.static_shape is not None:
        values.set_shape([count, *spec.static_shape])
        yield values
        return
    yield _ragged(values, next(remaining))
    yield _ragged(next(remaining), next(remaining))


def as_words(array: Array, word: np.dtype[Any]) -> Array:
    """An array as words of the same width."""
    # NumPy 1 refuses a view of objects even as objects.
    return array if array.dtype == word else array.view(word)


def _ragged(values: Any, lengths: Any) -> Any:
    values.set_shape([None])
    lengths.set_shape([None])
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def _element(spec: specs.Structure, parts: Iterator[Any]) -> Any:
    return specs.map_leaves(lambda leaf: _leaf(leaf, parts), spec)


def _leaf(leaf: specs.Leaf, parts: Iterator[Any]) -> Any:
    if isinstance(leaf, specs.NoneSpec):
        return None
    if isinstance(leaf, specs.OptionalSpec):
        return _optional(leaf, parts)
    values = [_component(spec, parts) for spec in leaf_components(leaf)]
    if isinstance(leaf, specs.RaggedSpec):
        ragged = tf.RaggedTensor.from_nested_row_splits(values[0], values[1:], validate=False)
        return _with_static_shape(ragged, leaf)
    if isinstance(leaf, specs.SparseSpec):
        sparse = tf.SparseTensor(*values)
        if leaf.shape is not None:
            sparse.set_shape(leaf.shape)
        return sparse
    return values[0]


def _with_static_shape(ragged: Any, leaf: specs.RaggedSpec) -> Any:
    ragged._set_shape(leaf.shape)  # the one way TensorFlow has to state a ragged shape
    return ragged


def _component(spec: specs.TensorSpec, parts: Iterator[Any]) -> Any:
    if is_empty(spec):
        nothing = tf.zeros(spec.static_shape, tf.as_dtype(_words.carrier(spec.dtype)))
        return _words.from_words(nothing, spec.dtype)
    values = _words.from_words(next(parts), spec.dtype)
    if spec.static_shape is not None:
        return values
    shaped = tf.reshape(values, next(parts))
    shaped.set_shape(spec.shape)
    return shaped


def _optional(leaf: specs.OptionalSpec, parts: Iterator[Any]) -> Any:
    present = next(parts)
    value = _element(leaf.value, parts)
    spec = to_tf(leaf.value)
    return tf.cond(
        present,
        lambda: tf.experimental.Optional.from_value(value),
        lambda: tf.experimental.Optional.empty(spec),
    )
