"""Records of fixed size, read by TensorFlow itself out of the mapped file.

The whole file is handed to TensorFlow as one tensor, without a copy, through DLPack. Every
component of a batch is then one ``tf.gather`` from a view of it, with no Python per record or
batch; a single record is one ``tf.slice``, which shares the file's memory where alignment allows.
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

# Gathering more and smaller rows costs more than reading a little beyond the end.
_MOST_ROWS_FOR_ONE = 4


class MappedComponent:
    """Reads one component from the mapped file, as its carrier dtype.

    Args:
        reader: the open file.
        component: a component of static shape that is no string.
    """

    def __init__(self, reader: CacheFile, component: Component) -> None:
        (place,) = component.arrays
        assert isinstance(place, FixedArray)
        self._place = place
        self._dtype = component.spec.dtype
        lead = LEAD if reader.header.value_size > INLINE_LIMIT else 0
        self._start = lead + place.offset
        # Every record's component starts on a multiple of so many bytes.
        aligned = math.gcd(reader.header.alignment, place.offset)
        self._word = _words.dlpack_word(self._dtype)
        if aligned % self._word.itemsize:
            # Keys of nine digits leave values unaligned.
            self._word = np.dtype("u1")
        self._row = self._row_bytes(aligned)
        self._rows = _tensor(reader, self._word, self._row)
        self._items = _tensor(reader, self._word, self._word.itemsize)

    def _row_bytes(self, aligned: int) -> int:
        """How many bytes to gather at a time: whole rows if that wastes little, at least a word."""
        exact = math.gcd(aligned, self._place.nbytes)
        few = -(-self._place.nbytes // aligned)
        if self._place.nbytes // exact > few * _MOST_ROWS_FOR_ONE:
            return aligned
        return max(exact, self._word.itemsize)

    def batch(self, offsets: Any) -> Any:
        """The component of the records at file offsets, int64 ``[n]``; shape ``[n, *shape]``."""
        first = (offsets + self._start) // self._row
        count = -(-self._place.nbytes // self._row)
        rows = first[:, tf.newaxis] + tf.range(count, dtype=tf.int64) if count > 1 else first
        gathered = tf.gather(self._rows, rows)
        if count * self._row == self._place.nbytes:
            return self._shaped(gathered, (-1,))
        width = self._word.itemsize
        flat = tf.reshape(gathered, [-1, count * self._row // width])
        return self._shaped(flat[:, : self._place.nbytes // width], (-1,))

    def one(self, offset: Any) -> Any:
        """The component of the record at a file offset, an int64 scalar."""
        width = self._word.itemsize
        start = (offset + self._start) // width
        return self._shaped(tf.slice(self._items, [start], [self._place.nbytes // width]), ())

    def _shaped(self, words: Any, batch: tuple[int, ...]) -> Any:
        carrier = _words.carrier(self._dtype)
        words_per_item = self._place.dtype.itemsize // self._word.itemsize
        if words_per_item > 1:
            split = tf.reshape(words, [*batch, *self._place.shape, words_per_item])
            return tf.bitcast(split, tf.as_dtype(carrier))
        return _words.from_words(tf.reshape(words, [*batch, *self._place.shape]), carrier)


def _tensor(reader: CacheFile, word: np.dtype[Any], row_bytes: int) -> Any:
    """The file as a tensor of words, in rows if a row is more than one."""
    buffer = reader.buffer
    whole = buffer[: len(buffer) // row_bytes * row_bytes].view(word)
    items = row_bytes // word.itemsize
    array = whole.reshape(-1, items) if items > 1 else whole
    with tf.init_scope(), tf.device("/CPU:0"):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
