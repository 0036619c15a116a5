"""Records of fixed size, read by TensorFlow itself out of the mapped file.

The whole mapped file is handed to TensorFlow as a tensor, without a copy. Every component of a
batch, or of a single record, is then one ``tf.gather`` from a view of it, with no Python per record
or batch.

The tensor must not be captured by the pipeline's functions: when an iterator is made, TensorFlow
optimizes the pipeline's graph, and copies into it what was captured. A function of the pipeline
makes it instead, once an epoch, by a ``numpy_function`` that shares the array
(:class:`MappedTables`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from yogadl.cache.record_reader import MappedRecords
from yogadl.extras import require
from yogadl.format.layout import INLINE_LIMIT, LEAD, WIDE_ALIGNMENT, Component, FixedArray
from yogadl.format.pages import PAGE_HEADER, PAGE_SIZE
from yogadl.tensorflow import _words
from yogadl.tensorflow._calls import Calls

tf = require("tensorflow", "tensorflow")

Array = np.ndarray[Any, Any]

# Reading beyond the end of a component, in larger rows, may waste one byte in so many.
_WASTE = 16
# Rows of so many bytes are copied as fast as longer ones.
_LONG_ROW = 512


class MappedComponent:
    """Reads one component from the mapped file, as its carrier dtype.

    Args:
        records: where the file is, and how its records lie in it.
        component: a component of static shape, not empty, that is no string.

    Attributes:
        table: the file in rows, an array ``[rows, items]`` that shares its memory.
    """

    def __init__(self, records: MappedRecords, component: Component) -> None:
        (place,) = component.arrays
        assert isinstance(place, FixedArray)
        self._place = place
        self._dtype = component.spec.dtype
        self._word = _words.shared_word(self._dtype)
        large = records.value_size > INLINE_LIMIT
        self._start = (LEAD if large else 0) + place.offset
        # Where the component begins in a value, all values being alike modulo ``period``.
        period = PAGE_SIZE if large else math.gcd(records.alignment, place.offset)
        begins = (PAGE_HEADER + self._start) if large else 0
        self._row = self._row_bytes(period, begins)
        self._shift = begins % self._row
        self._count = -(-place.nbytes // self._row)
        whole = records.buffer[self._shift :]
        whole = whole[: len(whole) // self._row * self._row]
        self.table: Array = whole.view(self._word).reshape(-1, self._row // self._word.itemsize)

    def _row_bytes(self, period: int, begins: int) -> int:
        """The largest row, a power of two, that wastes little and keeps the table aligned."""
        size = self._place.nbytes
        fits = [self._word.itemsize]
        while fits[-1] < period:
            fits.append(fits[-1] * 2)
        # TensorFlow shares an array only if it starts on a multiple of 64 bytes.
        good = [row for row in fits if begins % row % WIDE_ALIGNMENT == 0 and period % row == 0]
        # To cut off what was read too much is a second copy.
        exact = [row for row in good if row >= _LONG_ROW and size % row == 0]
        if exact:
            return max(exact)
        return max(row for row in good if row == good[0] or -size % row <= size // _WASTE)

    def read(self, table: Any, offsets: Any) -> Any:
        """The component of the records at file offsets, int64 ``[n]``; shape ``[n, *shape]``.

        It is a copy: a slice of the table would share the file's memory, and TensorFlow would write
        to it when it computes in place.
        """
        first = self._first_row(offsets)
        rows = first[:, tf.newaxis] + self._steps() if self._count > 1 else first
        words = tf.gather(table, rows)
        if self._wanted != self._gathered:
            words = tf.reshape(words, [-1, self._gathered])[:, : self._wanted]
        found = self._shaped(words)
        found.set_shape([offsets.shape[0], *self._place.shape])
        return found

    def _first_row(self, offsets: Any) -> Any:
        return (offsets + (self._start - self._shift)) // self._row

    def _steps(self) -> Any:
        return tf.range(self._count, dtype=tf.int64)

    @property
    def _wanted(self) -> int:
        """Words of the component."""
        return self._place.nbytes // self._word.itemsize

    @property
    def _gathered(self) -> int:
        """Words of the rows it lies in."""
        return self._count * self._row // self._word.itemsize

    def _shaped(self, words: Any) -> Any:
        """The values, of their carrier dtype, from their words."""
        shape = [-1, *self._place.shape]
        carrier = _words.carrier(self._dtype)
        words_per_item = self._place.dtype.itemsize // self._word.itemsize
        if words_per_item > 1:
            return tf.bitcast(tf.reshape(words, [*shape, words_per_item]), tf.as_dtype(carrier))
        return _words.from_words(tf.reshape(words, shape), carrier)


class MappedTables:
    """The tables of some components as tensors, made in a graph without capturing them."""

    def __init__(self, components: list[MappedComponent], calls: Calls) -> None:
        self._tables = [component.table for component in components]
        self._calls = calls

    def tensors(self, key: Any) -> list[Any]:
        """One tensor per table, sharing its memory.

        Args:
            key: any tensor that is not constant, lest TensorFlow fold the result into its graph.
        """
        kinds = [tf.as_dtype(table.dtype) for table in self._tables]
        found = self._calls.numpy_function(lambda _key: self._tables, [key], kinds)
        for tensor, table in zip(found, self._tables, strict=True):
            tensor.set_shape(table.shape)
        return list(found)
