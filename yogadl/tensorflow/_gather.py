"""Records of fixed size, read by TensorFlow itself out of the mapped file.

The whole mapped file is handed to TensorFlow as a tensor, without a copy. Every component of a
batch is then one ``tf.gather`` from a view of it, with no Python per record or batch; a single
record is one ``tf.slice``, which shares the file's memory where alignment allows.

The tensor must not be captured by the pipeline's functions: when an iterator is made, TensorFlow
optimizes the pipeline's graph, and copies into it what was captured. A function of the pipeline
makes it instead, once an epoch, by a ``numpy_function`` that shares the array
(:class:`MappedTables`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from yogadl.cache.reader import CacheFile
from yogadl.extras import require
from yogadl.format.layout import INLINE_LIMIT, LEAD, Component, FixedArray
from yogadl.tensorflow import _words

tf = require("tensorflow", "tensorflow")

Array = np.ndarray[Any, Any]

# Gathering more and smaller rows costs more than reading a little beyond the end.
_MOST_ROWS_FOR_ONE = 4


class MappedComponent:
    """Reads one component from the mapped file, as its carrier dtype.

    Args:
        reader: the open file.
        component: a component of static shape, not empty, that is no string.
        one: read single records, by :meth:`one`, instead of batches, by :meth:`batch`.

    Attributes:
        table: the file as the method expects it, an array that shares its memory.
    """

    def __init__(self, reader: CacheFile, component: Component, one: bool) -> None:
        (place,) = component.arrays
        assert isinstance(place, FixedArray)
        self._place = place
        self._dtype = component.spec.dtype
        lead = LEAD if reader.header.value_size > INLINE_LIMIT else 0
        self._start = lead + place.offset
        # Every record's component starts on a multiple of so many bytes.
        aligned = math.gcd(reader.header.alignment, place.offset)
        self._word = _words.shared_word(self._dtype)
        if aligned % self._word.itemsize:
            # Keys of nine digits leave values unaligned.
            self._word = np.dtype("u1")
        self._row = self._word.itemsize if one else self._row_bytes(aligned)
        whole = reader.buffer[: len(reader.buffer) // self._row * self._row].view(self._word)
        words = self._row // self._word.itemsize
        self.table: Array = whole.reshape(-1, words) if words > 1 else whole

    def _row_bytes(self, aligned: int) -> int:
        """How many bytes to gather at a time: large rows if that wastes little, or a word."""
        exact = math.gcd(aligned, self._place.nbytes)
        few = -(-self._place.nbytes // aligned)
        if self._place.nbytes // exact > few * _MOST_ROWS_FOR_ONE:
            return aligned
        return max(exact, self._word.itemsize)

    def batch(self, table: Any, offsets: Any) -> Any:
        """The component of the records at file offsets, int64 ``[n]``; shape ``[n, *shape]``."""
        first = (offsets + self._start) // self._row
        count = -(-self._place.nbytes // self._row)
        rows = first[:, tf.newaxis] + tf.range(count, dtype=tf.int64) if count > 1 else first
        words = tf.gather(table, rows)
        if count * self._row != self._place.nbytes:
            width = self._word.itemsize
            words = tf.reshape(words, [-1, count * self._row // width])
            words = words[:, : self._place.nbytes // width]
        found = self._shaped(words, (-1,))
        found.set_shape([offsets.shape[0], *self._place.shape])
        return found

    def one(self, table: Any, offset: Any) -> Any:
        """The component of the record at a file offset, an int64 scalar."""
        start = (offset + self._start) // self._row
        words = tf.slice(table, [start], [self._place.nbytes // self._row])
        return self._shaped(words, ())

    def _shaped(self, words: Any, batch: tuple[int, ...]) -> Any:
        carrier = _words.carrier(self._dtype)
        words_per_item = self._place.dtype.itemsize // self._word.itemsize
        if words_per_item > 1:
            split = tf.reshape(words, [*batch, *self._place.shape, words_per_item])
            return tf.bitcast(split, tf.as_dtype(carrier))
        return _words.from_words(tf.reshape(words, [*batch, *self._place.shape]), carrier)


class MappedTables:
    """The tables of some components as tensors, made in a graph without capturing them."""

    def __init__(self, components: list[MappedComponent]) -> None:
        self._tables = [component.table for component in components]

    def tensors(self, key: Any) -> list[Any]:
        """One tensor per table, sharing its memory.

        Args:
            key: any tensor that is not constant, lest TensorFlow fold the result into its graph.
        """
        kinds = [tf.as_dtype(table.dtype) for table in self._tables]
        found = tf.numpy_function(lambda _key: self._tables, [key], kinds, stateful=False)
        for tensor, table in zip(found, self._tables, strict=True):
            tensor.set_shape(table.shape)
        return list(found)
