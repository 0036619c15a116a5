"""The workloads as ``tf.data`` pipelines, for the loaders that store such pipelines.

The pipelines are made of TensorFlow operations alone and cut large fields from the pools of
``workloads.py``, so that what is measured is storing, not making records.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import workloads
from loaders import BATCH
from workloads import NUMBER, Record, Workload


def tf_dataset(workload: Workload) -> Any:
    """A ``tf.data.Dataset`` of a workload's records, as nested dicts."""
    make = _MAKERS[workload.name]()
    return tf.data.Dataset.range(workload.count).map(
        lambda number: workloads.nest(make(number)), num_parallel_calls=tf.data.AUTOTUNE
    )


def lists(records: Iterable[Any]) -> Iterator[list[Any]]:
    """Batches of single records, as lists."""
    remaining = iter(records)
    while batch := list(itertools.islice(remaining, BATCH)):
        yield batch


def records_of_batch(workload: Workload, batch: Any) -> list[Record]:
    """The records of a batch of tensors: stacked, padded with zeros, or ragged."""
    columns = {}
    for name, value in workloads.flatten(batch).items():
        ragged = isinstance(value, tf.RaggedTensor)
        columns[name] = [row.numpy() for row in value] if ragged else value.numpy()
    return records_of_columns(workload, columns)


def records_of_columns(workload: Workload, columns: dict[str, Any]) -> list[Record]:
    """The records of a batch of NumPy values: stacked, padded with zeros, or in lists."""
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for name, field in workload.fields.items():
        if None in field.shape:
            for record in records:
                record[name] = _unpadded(workload, record, name)
    return records


def _unpadded(workload: Workload, record: Record, name: str) -> Any:
    """A field without its padding; as it is, if what is beyond its length is not all zero."""
    value = np.asarray(record[name])
    length = len(workload.record(int(record[NUMBER]))[name])
    return value if value[length:].any() else value[:length]


_Maker = Callable[[Any], dict[str, Any]]


def _scalars() -> _Maker:
    return lambda number: {NUMBER: number}


def _images_of(shape: tuple[int, ...], dtype: str) -> _Maker:
    pool = tf.constant(workloads.image_pool(shape, dtype))
    return lambda number: {"image": pool[number % len(pool)], NUMBER: number}


def _strings() -> _Maker:
    pool = tf.constant(workloads.text_pool())

    def make(number: Any) -> dict[str, Any]:
        start, length = workloads.span(number, *workloads.STRING_SPAN)
        return {"text": tf.strings.substr(pool, start, length), NUMBER: number}

    return make


def _tokens() -> _Maker:
    pool = tf.constant(workloads.token_pool())

    def make(number: Any) -> dict[str, Any]:
        start, length = workloads.span(number, *workloads.TOKEN_SPAN)
        return {"tokens": pool[start : start + length], NUMBER: number}

    return make


def _features() -> _Maker:
    embeddings = tf.constant(workloads.embedding_pool())
    tags = tf.constant(np.arange(8, dtype=np.int32))

    def make(number: Any) -> dict[str, Any]:
        return {
            "user/id": number * 31,
            "user/age": tf.cast(number % 90, tf.float32),
            "user/embedding": embeddings[number % len(embeddings)],
            "item/id": tf.cast(number % 100_003, tf.int32),
            "item/price": tf.cast(number % 997, tf.float32) / 8,
            "item/tags": tags + tf.cast(number % 7, tf.int32),
            "clicked": number % 3 == 0,
            NUMBER: number,
        }

    return make


_MAKERS: dict[str, Callable[[], _Maker]] = {
    "scalars": _scalars,
    "small_images": lambda: _images_of((28, 28, 1), "float32"),
    "images": lambda: _images_of((224, 224, 3), "uint8"),
    "strings": _strings,
    "tokens": _tokens,
    "features": _features,
}
