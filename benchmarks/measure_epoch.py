"""Measures one workload with whichever yogadl is installed; see local_storage.py.

    python measure_epoch.py WORKLOAD DIRECTORY SCALE SECONDS

Prints a line of JSON: records/s of writing and of a shuffled epoch, read in several ways. An epoch
that would take longer than SECONDS is stopped there. Best of three for what takes under a second.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

import yogadl
import yogadl.storage
import yogadl.tensorflow

BATCH = 32


def scalars(count: int) -> tuple[str, Any]:
    return "int64 scalars", tf.data.Dataset.range(count)


def _pairs(count: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Differing records without the cost of making each."""
    pool = tf.constant(np.random.default_rng(0).integers(0, 255, (64, *shape)).astype(dtype))
    return tf.data.Dataset.range(count).map(lambda number: (pool[number % 64], number))


def small_images(count: int) -> tuple[str, Any]:
    return "28×28×1 float32 + label", _pairs(count, (28, 28, 1), "float32")


def images(count: int) -> tuple[str, Any]:
    return "224×224×3 uint8 + label", _pairs(count, (224, 224, 3), "uint8")


def strings(count: int) -> tuple[str, Any]:
    random = np.random.default_rng(0)
    text = tf.constant(random.bytes(400_000))
    lengths = tf.constant(random.integers(60_000, 160_000, count, dtype=np.int32))
    starts = tf.constant(random.integers(0, 240_000, count, dtype=np.int32))
    cut = tf.data.Dataset.range(count).map(
        lambda number: (tf.strings.substr(text, starts[number], lengths[number]), number)
    )
    return "60–160 kB byte strings + label", cut


WORKLOADS: dict[str, tuple[Callable[[int], tuple[str, Any]], int]] = {
    "scalars": (scalars, 1_000_000),
    "small_images": (small_images, 60_000),
    "images": (images, 6_000),
    "strings": (strings, 8_000),
}


def rate(items: Callable[[], Iterable[Any]], weight: int, seconds: float) -> float:
    """Records/s of reading ``items()``, each of which stands for ``weight`` records."""
    best = 0.0
    for _ in range(3):
        started = time.perf_counter()
        count = 0
        for count, _item in enumerate(items(), 1):
            if count % 64 == 0 and time.perf_counter() - started > seconds:
                break
        elapsed = time.perf_counter() - started
        best = max(best, count * weight / elapsed)
        if elapsed > seconds / 2:
            break
    return best


def main() -> None:
    workload, directory, scale, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:5])
    make, size = WORKLOADS[workload]
    count = int(size * scale) // BATCH * BATCH
    title, dataset = make(count)
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(directory))
    started = time.perf_counter()
    storage.submit(dataset, workload, "1")
    written = count / (time.perf_counter() - started)
    dataref = storage.fetch(workload, "1")

    def stream() -> Any:
        return dataref.stream(shuffle=True, shuffle_seed=1)

    make_tf_dataset = yogadl.tensorflow.make_tf_dataset
    results = {
        "title": title,
        "records": count,
        "tensorflow": tf.__version__,
        "write": written,
        "plain": rate(stream, 1, seconds),
        "batch": rate(lambda: make_tf_dataset(stream()).batch(BATCH), BATCH, seconds),
    }
    if "batch_size" in inspect.signature(make_tf_dataset).parameters:
        results["batch_size"] = rate(
            lambda: make_tf_dataset(stream(), batch_size=BATCH), BATCH, seconds
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
