"""Cache ten numbers, and read them shuffled from the middle of the first epoch on.

Usage: python examples/walkthrough.py [STORAGE_DIR]

Without a directory a temporary one is used.
"""

from __future__ import annotations

import sys
import tempfile

import tensorflow as tf

import yogadl.storage
import yogadl.tensorflow


def walk_through(storage_dir: str) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)

    @storage.cacheable("range", "1.0")
    def make_dataset() -> tf.data.Dataset:
        print("Building the cache.")
        return tf.data.Dataset.range(10)

    dataref = make_dataset()
    stream = dataref.stream(start_offset=5, shuffle=True, shuffle_seed=777)

    dataset = yogadl.tensorflow.make_tf_dataset(stream).batch(5)

    for _epoch in range(3):
        for batch in dataset:
            print(batch)


def main() -> None:
    if len(sys.argv) > 1:
        walk_through(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as directory:
        walk_through(directory)


if __name__ == "__main__":
    main()
