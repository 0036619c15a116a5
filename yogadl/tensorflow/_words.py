"""Dtypes that parts of TensorFlow cannot handle travel as plain integers of the same width.

``tf.data`` can neither batch nor slice the small floats, and a NumPy array of bool or bfloat16
reaches TensorFlow only by a copy. Their bytes are moved as integers, and become the dtype last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl.extras import require
from yogadl.tf_specs import BATCHABLE

tf = require("tensorflow", "tensorflow")

_SHARED = frozenset(
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    + ("float16", "float32", "float64")
)
_BITCAST = frozenset(
    ("bfloat16", "complex64", "complex128", "qint8", "quint8", "qint16", "quint16", "qint32")
)
_WORDS = {1: "uint8", 2: "uint16", 4: "int32", 8: "int64"}


def shared_word(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype as which an array is shared with TensorFlow: itself if possible.

    A value of 16 bytes is two words.
    """
    if dtype in _SHARED:
        return np.dtype(dtype)
    return np.dtype(_WORDS[min(dtypes.to_numpy(dtype).itemsize, 8)])


def carrier(dtype: str) -> str:
    """The dtype as which values of a dtype go through ``tf.data``: itself if possible."""
    return dtype if dtype in BATCHABLE else _WORDS[dtypes.to_numpy(dtype).itemsize]


def from_words(words: Any, dtype: str) -> Any:
    """A tensor of ``dtype`` from a tensor of its words, in a graph or eagerly."""
    target = tf.as_dtype(dtype)
    if words.dtype == target:
        return words
    if dtype == "bool":
        return tf.cast(words, tf.bool)
    if dtype in _BITCAST:
        return tf.bitcast(words, target)
    numpy_dtype = dtypes.to_numpy(dtype)
    tensor = tf.numpy_function(
        lambda array: array.view(numpy_dtype), [words], target, stateful=False
    )
    tensor.set_shape(words.shape)
    return tensor
