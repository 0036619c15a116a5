"""Train a small Keras model on handwritten digits, from the middle of the first epoch on.

Usage: python examples/mnist.py [STORAGE_DIR]

The digits are MNIST's where tensorflow_datasets is installed and can get them, otherwise the 1,797
of scikit-learn, which need no download. Without a directory a temporary one is used.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import sklearn.datasets

import yogadl.storage
import yogadl.tensorflow

BATCH_SIZE = 16
EPOCHS = 5

Loader = Callable[[str], Any]
"""Takes "train" or "test"; returns what can be stored: (image in 0 … 1, label) records."""


def load_small(split: str) -> list[tuple[Any, Any]]:
    """scikit-learn's digits, 8×8 pixels; every fifth is for testing."""
    digits = sklearn.datasets.load_digits()
    testing = np.arange(len(digits.target)) % 5 == 0
    chosen = testing if split == "test" else ~testing
    images = (digits.images[chosen] / 16).astype("float32")
    return list(zip(images, digits.target[chosen].astype("int64"), strict=True))


def load_mnist(split: str) -> Any:
    """MNIST, 28×28 pixels, as a tf.data.Dataset."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def scale(image: Any, label: Any) -> tuple[Any, Any]:
        return tf.cast(image, tf.float32)[..., 0] / 255, label

    return tfds.load("mnist", split=split, as_supervised=True).map(scale)


def choose_source() -> tuple[str, Loader]:
    try:
        load_mnist("train")
    except Exception as error:  # whatever is wrong with the download, there is another source
        print(f"MNIST is not to be had ({type(error).__name__}: {error}).")
        print("Using scikit-learn's load_digits.")
        return "digits", load_small
    print("Using MNIST from tensorflow_datasets.")
    return "mnist", load_mnist


def build_model(shape: tuple[int, ...]) -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.Input(shape),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def train(storage_dir: str) -> None:
    name, load = choose_source()

    storage = yogadl.storage.LFSStorage(storage_dir)

    def digits(split: str) -> yogadl.DataRef:
        @storage.cacheable(f"{name}/{split}", "1.0")
        def make_records() -> Any:
            print(f"Building the cache of {name}/{split}.")
            return load(split)

        return make_records()

    training, testing = digits("train"), digits("test")

    make_tf_dataset = yogadl.tensorflow.make_tf_dataset
    halfway = training.stream(start_offset=len(training) // 2, shuffle=True, shuffle_seed=23)
    rest_of_first_epoch = make_tf_dataset(halfway, batch_size=BATCH_SIZE, epochs=1)
    one_epoch_on = training.stream(start_offset=len(training), shuffle=True, shuffle_seed=23)
    later_epochs = make_tf_dataset(one_epoch_on, batch_size=BATCH_SIZE)

    model = build_model(later_epochs.element_spec[0].shape[1:])
    # Keras takes the length of the first epoch it sees for that of all, so what is left of the
    # interrupted epoch is a fit of its own.
    model.fit(rest_of_first_epoch, epochs=1, shuffle=False, verbose=2)
    model.fit(later_epochs, initial_epoch=1, epochs=EPOCHS, shuffle=False, verbose=2)
    test_dataset = yogadl.tensorflow.make_tf_dataset(testing.stream(), batch_size=BATCH_SIZE)
    accuracy = model.evaluate(test_dataset, verbose=0, return_dict=True)["accuracy"]
    print(f"Accuracy on {len(testing):,} test digits: {accuracy:.3f}")

    again = digits("train")
    print(f"Asked again: {len(again):,} records read from the cache.")


def main() -> None:
    if len(sys.argv) > 1:
        train(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as directory:
        train(directory)


if __name__ == "__main__":
    main()
