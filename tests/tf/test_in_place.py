"""TensorFlow computes in place where it may; the mapped file must never be such a place."""

from __future__ import annotations

import pathlib
import subprocess
import sys

# In a process of its own: writing to the read-only map would end it.
PROGRAM = """
import gc, sys
import numpy as np
import tensorflow as tf
import yogadl.storage, yogadl.tensorflow

storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(sys.argv[1]))
records = np.random.default_rng(0).random((3, 128, 128, 4), dtype="float32")
storage.submit(list(records), "large", "1")


def dataset(**arguments):
    stream = storage.fetch("large", "1").stream()
    return yogadl.tensorflow.make_tf_dataset(stream, **arguments)


@tf.function
def change(value):
    return tf.sqrt(tf.nn.relu(value) + 1)


for arguments in ({}, {"batch_size": 1}, {"batch_size": 3}):
    for _ in range(2):
        for count in (1, 2, 3):
            # What outlives its epoch in a buffer may be the only owner of its memory.
            buffered = dataset(**arguments).take(count).prefetch(4)
            for _element in buffered.map(lambda value: tf.sqrt(tf.nn.relu(value) * 2)).prefetch(2):
                pass
        held = list(dataset(**arguments))
        gc.collect()
        change(held.pop())
        change(next(iter(dataset(**arguments))))
ref = storage.fetch("large", "1")
ref.verify()
assert all((read == record).all() for read, record in zip(ref.stream(), records, strict=True))
print("unchanged")
"""


def test_the_file_is_not_computed_in(storage_dir: pathlib.Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(storage_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "unchanged\n"), done.stderr[-2000:]
