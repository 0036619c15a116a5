"""Records of any kind, read by NumPy many at a time, and put together by TensorFlow.

This path serves where the mapped file cannot: records of varying size, strings, ragged, sparse
and optional components, caches of yogadl 0.1.4. A row of records leaves Python as *parts*: dense
arrays ``[n, …]``, and for what varies flat arrays with a length per record. TensorFlow cuts them
into records by ``rebatch``, which takes a vector of lengths and needs no function call per record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.columns import stack
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.spans import Spans
from yogadl.extras import require
from yogadl.format.components import split_leaf
from yogadl.format.layout import components_of, leaf_components
from yogadl.tensorflow import _words
from yogadl.tensorflow._calls import Calls
from yogadl.tf_specs import to_tf

tf = require("tensorflow", "tensorflow")

Array = np.ndarray[Any, Any]


class RowReader:
    """Reads rows of records as parts, and makes data sets of parts.

    Args:
        reader: of the records.
        calls: where to put the functions that TensorFlow calls.

    Attributes:
        is_plain: whether every leaf is one component that is dense or a sequence. Then a row is cut
            into records of the spec's nesting, which only lack their dtypes where TensorFlow cannot
            handle these (see ``_words``).
    """

    def __init__(self, reader: RecordReader, calls: Calls) -> None:
        self._reader = reader
        self._calls = calls
        self._spec = reader.spec
        self._leaves = list(specs.leaves(self._spec))
        self._components = components_of(self._spec)
        self.is_plain = all(
            isinstance(leaf, specs.TensorSpec)
            and not is_empty(leaf)
            and (leaf.static_shape is not None or is_sequence(leaf))
            for leaf in self._leaves
        )

    def read(self, positions: Any) -> tuple[Any, ...]:
        """The parts of the records at some positions, an int64 tensor ``[n]``.

        Returns:
            The positions, lest there be no part at all; then the parts of each component:

            - of static shape: a tensor ``[n, *shape]``;
            - a sequence, of which only the first dimension is unknown: its items one behind the
              other, ``[sum of lengths, *inner]``, and the lengths, int64 ``[n]``;
            - any other: flat values, their number per record, all dimensions, and the ranks.

            Components that are always empty have no part: TensorFlow, as of 2.21, crashes when it
            takes apart a batch of them.
        """
        kinds = [kind for component in self._components for kind in _part_kinds(component)]
        found = self._calls.numpy_function(self._read_arrays, [positions], kinds) if kinds else []
        remaining = iter(found)
        parts: list[Any] = [positions]
        for component in self._components:
            parts.extend(_parts(component, remaining, positions.shape[0]))
        return tuple(parts)

    def records(self, *parts: Any) -> Any:
        """The records of a row, as a data set of what :meth:`finished` finishes."""
        remaining = iter(parts[1:])
        pieces = [
            piece for component in self._components for piece in _pieces(component, remaining)
        ]
        if not self.is_plain:
            return tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(parts[0]), *pieces))
        nest = specs.unflatten(self._spec, pieces)
        return pieces[0] if nest is pieces[0] else tf.data.Dataset.zip(nest)

    def ragged_batches(self, size: int, drop_remainder: bool, *parts: Any) -> Any:
        """The records of a row, which must be plain, as a data set of ragged batches.

        Args:
            size: records per batch; only the last may have fewer.
            drop_remainder: leave that one out.
            parts: of :meth:`read`.
        """
        remaining = iter(parts[1:])
        pieces = [
            piece
            for component in self._components
            for piece in _batch_pieces(component, remaining, size, drop_remainder)
        ]
        return tf.data.Dataset.zip(tuple(pieces)).map(self._ragged_batch)

    def _ragged_batch(self, *parts: Any) -> Any:
        remaining = iter(parts)
        values = [_batch(component, remaining) for component in self._components]
        return specs.unflatten(self._spec, values)

    def _read_arrays(self, positions: Array) -> list[Array]:
        arrays: list[Array] = []
        columns = self._reader.read_columns(positions, spans=True)
        for leaf, column in zip(self._leaves, columns, strict=True):
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

    def finished(self, dataset: Any) -> Any:
        """What :meth:`records` makes, or batches of it if it is plain, as the spec has it."""
        if not self.is_plain:
            return dataset.map(lambda _position, *parts: _element(self._spec, iter(parts)))
        tensors = [leaf for leaf in self._leaves if isinstance(leaf, specs.TensorSpec)]
        if all(_words.carrier(leaf.dtype) == leaf.dtype for leaf in tensors):
            return dataset
        return dataset.map(self._from_words)

    def _from_words(self, *elements: Any) -> Any:
        # A plain tuple arrives as so many arguments.
        is_tuple = isinstance(self._spec, tuple) and not specs.is_namedtuple(self._spec)
        words = specs.flatten(self._spec, elements if is_tuple else elements[0])
        values = [
            _words.from_words(word, component.dtype)
            for word, component in zip(words, self._components, strict=True)
        ]
        return specs.unflatten(self._spec, values)


def is_empty(spec: specs.TensorSpec) -> bool:
    """Whether no value of a component has any item."""
    return spec.static_shape is not None and 0 in spec.static_shape


def is_sequence(spec: specs.TensorSpec) -> bool:
    """Whether just the first dimension of a component is unknown, and no other is zero."""
    shape = spec.shape
    return shape is not None and shape[:1] == (None,) and None not in shape[1:] and 0 not in shape


def _part_kinds(spec: specs.TensorSpec) -> list[Any]:
    """The dtypes of the arrays of :func:`_component_arrays`."""
    if is_empty(spec):
        return []
    values = tf.as_dtype(_words.carrier(spec.dtype))
    if spec.static_shape is not None:
        return [values]
    return [values, tf.int64] if is_sequence(spec) else [values, tf.int64, tf.int64, tf.int64]


def _component_arrays(spec: specs.TensorSpec, column: Any) -> Iterator[Array]:
    """The values of some records: stacked, or joined with what tells them apart."""
    if is_empty(spec):
        return
    word = dtypes.to_numpy(_words.carrier(spec.dtype))
    if spec.static_shape is not None:
        stacked = column if isinstance(column, np.ndarray) else stack(spec, column)
        yield as_words(np.asarray(stacked), word)
        return
    if isinstance(column, Spans) and is_sequence(spec):
        values, lengths = column.joined()
        inner = _inner(spec)
        yield as_words(values, word).reshape(-1, *inner)
        yield lengths // math.prod(inner)
        return
    items = column.arrays() if isinstance(column, Spans) else column
    arrays = [_as_array(item) for item in items]
    values = np.concatenate([np.empty(0, word), *[as_words(a.reshape(-1), word) for a in arrays]])
    if is_sequence(spec):
        yield values.reshape(-1, *_inner(spec))
        yield np.array([len(array) for array in arrays], "i8")
        return
    yield values
    yield np.array([array.size for array in arrays], "i8")
    yield np.array([dim for array in arrays for dim in array.shape], "i8")
    yield np.array([array.ndim for array in arrays], "i8")


def _inner(spec: specs.TensorSpec) -> list[int]:
    """The known dimensions of a sequence."""
    assert spec.shape is not None
    return [dim for dim in spec.shape if dim is not None]


def _as_array(value: Any) -> Array:
    if not isinstance(value, bytes):
        return np.asarray(value)
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def _parts(spec: specs.TensorSpec, remaining: Iterator[Any], count: int | None) -> Iterator[Any]:
    """The parts of one component, the tensors of its arrays with what is known of their shapes."""
    if is_empty(spec):
        return
    values = next(remaining)
    if spec.static_shape is not None:
        values.set_shape([count, *spec.static_shape])
        yield values
        return
    sequence = is_sequence(spec)
    values.set_shape([None, *(_inner(spec) if sequence else [])])
    yield values
    for length in [count] if sequence else [count, None, count]:
        integers = next(remaining)
        integers.set_shape([length])
        yield integers


def _pieces(spec: specs.TensorSpec, remaining: Iterator[Any]) -> Iterator[Any]:
    """Data sets of the parts of one component of each record."""
    if is_empty(spec):
        return
    values = next(remaining)
    if spec.static_shape is not None:
        yield tf.data.Dataset.from_tensor_slices(values)
        return
    yield _cut(values, next(remaining))
    if not is_sequence(spec):
        yield _cut(next(remaining), next(remaining))


def _cut(values: Any, lengths: Any) -> Any:
    """A data set of pieces of a tensor, of given lengths, also zero."""
    # Else it would begin again with the first length where the last ones are zero.
    pieces = tf.data.Dataset.from_tensors(values).rebatch(lengths)
    return pieces.take(tf.size(lengths, tf.int64))


def _batch_pieces(
    spec: specs.TensorSpec, remaining: Iterator[Any], size: int, drop_remainder: bool
) -> Iterator[Any]:
    """Data sets of the parts of one component of each batch."""
    values = next(remaining)
    if spec.static_shape is not None:
        yield tf.data.Dataset.from_tensors(values).rebatch(size, drop_remainder)
        return
    lengths = next(remaining)
    batch_of = tf.range(tf.size(lengths)) // size
    yield _cut(values, tf.math.segment_sum(lengths, batch_of))
    yield tf.data.Dataset.from_tensors(lengths).rebatch(size, drop_remainder)


def _batch(spec: specs.TensorSpec, remaining: Iterator[Any]) -> Any:
    """One component of a batch, ragged if it is a sequence."""
    values = _words.from_words(next(remaining), spec.dtype)
    if spec.static_shape is not None:
        return values
    return tf.RaggedTensor.from_row_lengths(values, next(remaining), validate=False)


def as_words(array: Array, word: np.dtype[Any]) -> Array:
    """An array as words of the same width."""
    # NumPy 1 refuses a view of objects even as objects.
    return array if array.dtype == word else array.view(word)


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
    if spec.static_shape is not None or is_sequence(spec):
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
