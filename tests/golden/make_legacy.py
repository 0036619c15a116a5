"""Writes the golden caches of yogadl 0.1.4. Run in an environment that has yogadl 0.1.4::

    python make_legacy.py OUTPUT_DIRECTORY

``dimensions.mdb`` is written with the original's LMDB calls but for its shapes and dtypes, whose
pickles are made as TensorFlow 1.15 and 2.0 with Python 3.6 made them (protocol 4, ``Dimension``
objects), since these can no longer be installed. ``killed.mdb`` is what a ``submit`` that did not
finish leaves behind.
"""

from __future__ import annotations

import contextlib
import pathlib
import pickle
import sys
import types
from typing import Any

import lmdb
import numpy as np
import tensorflow as tf

import yogadl
import yogadl.tensorflow


def _ragged_rows() -> Any:
    for length in range(12):
        yield np.arange(length, dtype=np.int32), np.full((2, length), length, np.float32)


def _strings() -> Any:
    for number in range(12):
        yield {
            "image": np.full((4, 3), number, np.uint8),
            "name": f"näme {number}".encode(),
            "tags": np.array([b"a" * number, b"\0", b""], object),
            "nested": (np.float32(number / 2), np.bool_(number % 2 == 0)),
        }


class _KilledError(Exception):
    """Ends a submit half-way."""


def _killed() -> Any:
    yield np.int64(0)
    yield np.int64(1)
    raise _KilledError


def _image(number: Any) -> Any:
    return tf.fill((16, 16, 3), tf.cast(number, tf.float32)), number


def data_sets() -> dict[str, Any]:
    few = tf.data.Dataset.range(4)
    return {
        "range": tf.data.Dataset.range(1000),
        "images": few.map(_image),
        "features": tf.data.Dataset.from_generator(
            _strings,
            output_types={
                "image": tf.uint8,
                "name": tf.string,
                "tags": tf.string,
                "nested": (tf.float32, tf.bool),
            },
            output_shapes={"image": (4, 3), "name": (), "tags": (3,), "nested": ((), ())},
        ),
        "unknown": tf.data.Dataset.from_generator(
            _ragged_rows,
            output_types=(tf.int32, tf.float32),
            output_shapes=(tf.TensorShape([None]), tf.TensorShape(None)),
        ),
        "dtypes": few.map(
            lambda number: {
                "bfloat16": tf.cast(tf.fill([3], number), tf.bfloat16),
                "bfloat16_scalar": tf.cast(number, tf.bfloat16),
                "float16": tf.cast(number, tf.float16),
                "bool": tf.fill([2, 2], number % 2 == 0),
                "complex64": tf.complex(tf.cast(number, tf.float32), 1.0),
                "complex128": tf.fill([2], tf.cast(number, tf.complex128)),
                "uint64": tf.cast(number, tf.uint64),
                "quint8": tf.bitcast(tf.cast(tf.fill([2], number), tf.uint8), tf.quint8),
            }
        ),
        "empty": tf.data.Dataset.range(0),
        "none": few.map(lambda number: (number, None)),
    }


def _old_style(name: str, module: str) -> Any:
    """A class that pickles as ``module.name(*arguments)``."""

    def init(self: Any, *arguments: Any) -> None:
        self.arguments = arguments

    made = type(name, (), {"__init__": init, "__module__": module})
    made.__reduce__ = lambda self: (made, self.arguments)  # type: ignore[method-assign,assignment]
    return made


def write_dimensions(path: pathlib.Path) -> None:
    fake = types.ModuleType("tensorflow.python.framework.tensor_shape")
    fake.TensorShape = shape = _old_style("TensorShape", fake.__name__)  # type: ignore[attr-defined]
    fake.Dimension = dim = _old_style("Dimension", fake.__name__)  # type: ignore[attr-defined]
    real = sys.modules[fake.__name__]
    sys.modules[fake.__name__] = fake
    try:
        shapes = pickle.dumps((shape([dim(None), dim(2)]), shape([]), shape(None)), protocol=4)
    finally:
        sys.modules[fake.__name__] = real
    # The modules of NumPy 1, as protocol 4 stored arrays: through _reconstruct.
    records = [
        pickle.dumps(
            (np.full((number, 2), number, np.float32), np.int64(number), b"%d" % number),
            protocol=4,
        )
        for number in range(5)
    ]
    old = [_numpy_1(record) for record in records]
    keys = [b"%08d" % number for number in range(len(old))]
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 24) as env,
        env.begin(write=True) as txn,
    ):
        for key, value in zip(keys, old, strict=True):
            txn.put(key, value)
        txn.put(b"__keys__", pickle.dumps(keys, protocol=4))
        txn.put(b"__shapes__", shapes)
        types_ = (tf.float32, tf.int64, tf.string)
        txn.put(b"__types__", pickle.dumps(types_, protocol=4))


def _numpy_1(data: bytes) -> bytes:
    """A pickle with module names as of NumPy 1; frames and names have their lengths before them."""
    new, old = b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray"
    size = int.from_bytes(data[3:11], "little") - data.count(new)
    return data[:3] + size.to_bytes(8, "little") + data[11:].replace(new, old)


def _open_with_zeros(*arguments: Any, **options: Any) -> Any:
    """``lmdb.open`` as 0.1.4 calls it, but for ``meminit=False``, which writes whatever the process
    has in its memory into unused parts of pages: that has no place in a repository."""
    return _lmdb_open(*arguments, **{**options, "meminit": True})


_lmdb_open = lmdb.open


def main(directory: pathlib.Path) -> None:
    lmdb.open = _open_with_zeros
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.mdb*"):
        old.unlink()
    for name, data_set in data_sets().items():
        yogadl.tensorflow.serialize_tf_dataset_to_lmdb(
            data_set, directory / f"{name}.mdb", tf_config=None
        )
    write_dimensions(directory / "dimensions.mdb")
    with contextlib.suppress(_KilledError):
        yogadl.serialize_generator_to_lmdb(
            _killed(), tf.TensorShape([]), tf.int64, directory / "killed.mdb"
        )
    for lock in directory.glob("*.mdb-lock"):
        lock.unlink()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
