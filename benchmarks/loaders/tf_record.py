"""TFRecord files of ``tf.train.Example``, read by ``tf.data``.

As TensorFlow's guides advise: several files, read by a parallel ``interleave``; a shuffle buffer
of the data set's size, over records that are still serialized; batches parsed at once by
``tf.io.parse_example`` in a parallel ``map``; ``prefetch``. Arrays are stored as their bytes, for
``decode_raw``. Shards are taken by the file where the files can be dealt out evenly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_source
import workloads
from workloads import Field, Record

from loaders import BATCH, Loader

FILES = 64


def _feature(field: Field, value: Any) -> Any:
    if field.dtype == "bytes" or field.shape:
        value = value if isinstance(value, bytes) else value.tobytes()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if np.dtype(field.dtype).kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))


def _specification(field: Field) -> Any:
    if field.dtype == "bytes" or field.shape:
        return tf.io.FixedLenFeature([], tf.string)
    is_float = np.dtype(field.dtype).kind == "f"
    return tf.io.FixedLenFeature([], tf.float32 if is_float else tf.int64)


def _decode(field: Field, value: Any, way: str) -> Any:
    """A batch of one feature."""
    if field.dtype == "bytes":
        return value
    if not field.shape:
        return tf.cast(value, field.dtype)
    if field.is_static:
        length = math.prod(field.shape) * np.dtype(field.dtype).itemsize
        flat = tf.io.decode_raw(value, field.dtype, fixed_length=length)
        return tf.reshape(flat, [-1, *field.shape])
    sizes = tf.strings.length(value)
    if way == "padded":
        return tf.io.decode_raw(value, field.dtype, fixed_length=tf.reduce_max(sizes))
    values = tf.io.decode_raw(tf.strings.reduce_join(value), field.dtype)
    lengths = sizes // np.dtype(field.dtype).itemsize
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


class PeerLoader(Loader):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        varies = any(None in field.shape for field in self.workload.fields.values())
        self.ways = ("padded", "ragged") if varies else ("batches",)

    @classmethod
    def version(cls) -> str:
        return f"TFRecord, TensorFlow {tf.__version__}"

    def write_records(self, records: Iterator[Record]) -> None:
        fields = self.workload.fields
        writers = [
            tf.io.TFRecordWriter(str(self.directory / f"{number:02}.tfrecord"))
            for number in range(FILES)
        ]
        for number, record in enumerate(records):
            features = {name: _feature(fields[name], value) for name, value in record.items()}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writers[number % FILES].write(example.SerializeToString())
        for writer in writers:
            writer.close()

    def open(self) -> None:
        self._files = sorted(str(path) for path in self.directory.glob("*.tfrecord"))

    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        by_file = FILES % shards == 0
        paths = self._files[shard::shards] if by_file else self._files
        files = tf.data.Dataset.from_tensor_slices(paths)
        dataset = files.interleave(
            tf.data.TFRecordDataset,
            cycle_length=os.cpu_count(),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        if not by_file:
            dataset = dataset.shard(shards, shard)
        dataset = dataset.shuffle(self.workload.count // shards + FILES, seed=seed).skip(offset)
        dataset = dataset.batch(BATCH).map(
            lambda serialized: self._parse(serialized, way), num_parallel_calls=tf.data.AUTOTUNE
        )
        return iter(dataset.prefetch(tf.data.AUTOTUNE))

    def _parse(self, serialized: Any, way: str) -> Any:
        fields = self.workload.fields
        specifications = {name: _specification(field) for name, field in fields.items()}
        values = tf.io.parse_example(serialized, specifications)
        flat = {name: _decode(field, values[name], way) for name, field in fields.items()}
        return workloads.nest(flat)

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        return tf_source.records_of_batch(self.workload, batch)
