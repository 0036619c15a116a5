"""Whole batches of records whose shapes vary, padded or ragged, read by NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.reader import RecordReader
from yogadl.cache.spans import Spans
from yogadl.dataref import Padding
from yogadl.extras import require
from yogadl.format import dtypes
from yogadl.tensorflow import _words
from yogadl.tensorflow._calls import Calls
from yogadl.tensorflow._rows import as_words, is_empty

tf = require("tensorflow", "tensorflow")

Array = np.ndarray[Any, Any]


def can_read(spec: specs.Structure) -> bool:
    """Whether :class:`VaryingBatches` serves this spec: numbers and strings of static shape, and
    numbers of which the first dimension is unknown."""
    return all(
        isinstance(leaf, specs.TensorSpec)
        and not is_empty(leaf)
        and (leaf.static_shape is not None or _is_sequence(leaf))
        for leaf in specs.leaves(spec)
    )


def _is_sequence(leaf: specs.TensorSpec) -> bool:
    shape = leaf.shape
    return (
        shape is not None
        and not leaf.is_string
        and shape[:1] == (None,)
        and None not in shape[1:]
        and 0 not in shape
    )


class VaryingBatches:
    """Reads batches, each by one call into Python.

    Args:
        reader: of records for which :func:`can_read` holds.
        padding: how to pad what varies; without, it becomes ragged.
        calls: where to put the functions that TensorFlow calls.
    """

    def __init__(self, reader: RecordReader, padding: Padding | None, calls: Calls) -> None:
        self._reader = reader
        self._padding = padding
        self._calls = calls
        self._leaves = [
            leaf for leaf in specs.leaves(reader.spec) if isinstance(leaf, specs.TensorSpec)
        ]

    def read(self, positions: Any) -> Any:
        """The batch of the records at some positions, an int64 tensor ``[n]``."""
        kinds = [kind for leaf in self._leaves for kind in self._kinds(leaf)]
        found = iter(self._calls.numpy_function(self._arrays, [positions], kinds))
        values = [self._tensor(leaf, found, positions.shape[0]) for leaf in self._leaves]
        return specs.unflatten(self._reader.spec, values)

    def _kinds(self, leaf: specs.TensorSpec) -> list[Any]:
        """The dtypes of the arrays of a leaf."""
        word = tf.as_dtype(_words.carrier(leaf.dtype))
        is_ragged = self._padding is None and leaf.static_shape is None
        return [word, tf.int64] if is_ragged else [word]

    def _arrays(self, positions: Array) -> list[Array]:
        columns = self._reader.read_columns(positions, spans=True)
        if self._padding is not None:
            columns = [_dense(column) for column in self._padding.apply(columns)]
        return [
            array
            for leaf, column in zip(self._leaves, columns, strict=True)
            for array in _column_arrays(leaf, column)
        ]

    def _tensor(self, leaf: specs.TensorSpec, found: Iterator[Any], count: int | None) -> Any:
        values = next(found)
        assert leaf.shape is not None
        if self._padding is not None or leaf.static_shape is not None:
            values.set_shape([count, *leaf.shape])
            return _words.from_words(values, leaf.dtype)
        lengths = next(found)
        values.set_shape([None, *leaf.shape[1:]])
        lengths.set_shape([count])
        flat = _words.from_words(values, leaf.dtype)
        return tf.RaggedTensor.from_row_lengths(flat, lengths, validate=False)


def _dense(column: Any) -> Any:
    """A column that is not to be padded as one array, which TensorFlow needs; else as it is."""
    return np.stack(column) if isinstance(column, list) else column


def _column_arrays(leaf: specs.TensorSpec, column: Any) -> Iterator[Array]:
    """What TensorFlow gets of a column: its words, and for a ragged one the row lengths."""
    word = dtypes.to_numpy(_words.carrier(leaf.dtype))
    if isinstance(column, np.ndarray):
        yield as_words(column, word)
        return
    assert leaf.shape is not None
    if isinstance(column, Spans):
        values, sizes = column.joined()
    else:
        # A cache of 0.1.4 has its values read already.
        values = np.concatenate([np.empty(0, dtypes.to_numpy(leaf.dtype)), *map(np.ravel, column)])
        sizes = np.array([array.size for array in column], "i8")
    inner = [dim or 0 for dim in leaf.shape[1:]]
    yield as_words(values, word).reshape(-1, *inner)
    yield sizes // int(np.prod(inner, dtype="i8"))
