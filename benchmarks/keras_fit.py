"""Times Keras's ``fit`` on images, from memory and from yogadl. Run in an environment of Keras.

    KERAS_BACKEND=… python keras_fit.py --directory DIRECTORY [--scale 1.0] (--write | --way NAME)

With --write, stores the images and checks that all ways give them; prints a line of JSON with the
version and the ways. With --way, trains in that way, and prints a line for every size of images and
model. A process is for one way, as some change the whole process: TensorFlow, asked to read from
Python, has the C library give freed memory back early. The same images
come three ways: as NumPy arrays given to ``fit``; from a ``keras.utils.PyDataset`` over these
arrays; from a ``yogadl.keras.PyDataset``; and with TensorFlow in a fourth, by ``make_tf_dataset``.
All are shuffled anew in every epoch, in uint8, in batches of 32, without workers. Nothing is
decoded.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

# Whoever runs this file from a checkout measures that checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras
import numpy as np
import workloads

import yogadl
import yogadl.keras
import yogadl.storage

BATCH = 32
CLASSES = 10
EPOCHS = 8
SIZES = {32: 4096, 128: 1024}
"""Images by their side, before they are scaled."""
MODELS = ("convolutions", "one_pixel")
WAYS = ("memory", "memory_dataset", "yogadl")
TENSORFLOW_WAYS = (*WAYS, "yogadl_tf_data")


def ways() -> tuple[str, ...]:
    """What feeds a model under this back end."""
    return TENSORFLOW_WAYS if keras.backend.backend() == "tensorflow" else WAYS


Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


class WrongBatchesError(Exception):
    """A data set delivered something else than the images."""


def make_arrays(side: int, scale: float) -> Arrays:
    """uint8 images ``[n, side, side, 3]`` and int64 labels ``[n]``, whole batches of them."""
    count = max(round(SIZES[side] * scale / BATCH), 2) * BATCH
    pool = workloads.image_pool((side, side, 3), "uint8")
    numbers = np.arange(count)
    return pool[numbers % len(pool)], numbers // len(pool) % CLASSES


class MemoryDataset(keras.utils.PyDataset):  # type: ignore[misc] # Keras is untyped
    """Batches of arrays in memory, in another random order every epoch."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        self._arrays = arrays
        self._random = np.random.default_rng(0)
        self.on_epoch_end()

    def __len__(self) -> int:
        return len(self._order) // BATCH

    def __getitem__(self, index: int) -> Arrays:
        places = self._order[index * BATCH : (index + 1) * BATCH]
        images, labels = self._arrays
        return images[places], labels[places]

    def on_epoch_end(self) -> None:
        self._order = self._random.permutation(len(self._arrays[0]))


def make_model(name: str, side: int) -> Any:
    """``"convolutions"``, small but to be taken seriously, or ``"one_pixel"``, next to nothing."""
    layers = keras.layers
    if name == "one_pixel":
        hidden = [layers.Cropping2D(((0, side - 1), (0, side - 1))), layers.Rescaling(1 / 255)]
    else:
        hidden = [layers.Rescaling(1 / 255)]
        # Large images are made smaller by the first layer, as usual.
        first = 1 if side <= 32 else 2
        for filters, strides in ((16, first), (32, 1), (64, 1)):
            hidden += [
                layers.Conv2D(filters, 3, strides, "same", activation="relu"),
                layers.MaxPooling2D(),
            ]
    keras.utils.set_random_seed(0)
    shape = layers.Input((side, side, 3), dtype="uint8")
    model = keras.Sequential([shape, *hidden, layers.Flatten(), layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    return model


class EpochTimes(keras.callbacks.Callback):  # type: ignore[misc] # Keras is untyped
    """How long each epoch took, from its beginning to the end of its last batch, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.batches = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.batches = 0
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.batches += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.seconds.append(time.perf_counter() - self._started)


class Feeds:
    """The ways to feed a model with the same images."""

    def __init__(self, arrays: Arrays, dataref: Any) -> None:
        self.arrays = arrays
        self._dataref = dataref

    def dataset(self, way: str) -> Any:
        if way == "memory_dataset":
            return MemoryDataset(self.arrays)
        if way == "yogadl_tf_data":
            from yogadl.tensorflow import make_tf_dataset

            stream = self._dataref.stream(shuffle=True, shuffle_seed=0)
            return make_tf_dataset(stream, batch_size=BATCH)
        return yogadl.keras.PyDataset(self._dataref, BATCH, shuffle=True, shuffle_seed=0)

    def check(self) -> None:
        """Compares a whole epoch of either data set with the arrays.

        Raises:
            WrongBatchesError: an image or a label is wrong, missing, or comes twice.
        """
        wanted = _contents(*self.arrays)
        for way in ways()[1:]:
            found: collections.Counter[Any] = collections.Counter()
            dataset = self.dataset(way)
            batches = dataset
            if isinstance(dataset, keras.utils.PyDataset):
                batches = map(dataset.__getitem__, range(len(dataset)))
            for batch in batches:
                images, labels = map(np.asarray, batch)
                if images.dtype != np.uint8 or labels.dtype != np.int64:
                    raise WrongBatchesError(f"{way}: {images.dtype} and {labels.dtype}")
                found.update(_contents(images, labels))
            if found != wanted:
                raise WrongBatchesError(f"{way} delivers other images or labels")

    def seconds(self, way: str, model: Any) -> float:
        """The best of some epochs, after one that does not count."""
        times = EpochTimes()
        arguments: dict[str, Any] = {"epochs": 1 + EPOCHS, "verbose": 0, "callbacks": [times]}
        if way == "memory":
            images, labels = self.arrays
            model.fit(images, labels, batch_size=BATCH, shuffle=True, **arguments)
        else:
            model.fit(self.dataset(way), shuffle=False, **arguments)
        if times.batches != len(self.arrays[0]) // BATCH:
            raise WrongBatchesError(f"{way}: {times.batches} batches in the last epoch")
        return min(times.seconds[1:])


def _contents(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Any:
    pairs = zip(images, labels.tolist(), strict=True)
    return collections.Counter((hash(image.tobytes()), label) for image, label in pairs)


def make_feeds(side: int, scale: float, directory: pathlib.Path, write: bool) -> Feeds:
    """The images of a size, in memory and stored; with ``write``, they are stored now."""
    arrays = make_arrays(side, scale)
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(directory))
    if write:
        storage.submit(zip(*arrays, strict=True), f"images{side}", "1")
    return Feeds(arrays, storage.fetch(f"images{side}", "1"))


def measure(feeds: Feeds, side: int, way: str) -> Iterator[dict[str, Any]]:
    """Seconds of an epoch of each model."""
    for model_name in MODELS:
        model = make_model(model_name, side)
        yield {
            "side": side,
            "model": model_name,
            "images": len(feeds.arrays[0]),
            "seconds": feeds.seconds(way, model),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--way", choices=ways())
    arguments = parser.parse_args()
    # Keras and its back ends may print: their standard output becomes standard error.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.redirect_stdout(sys.stderr):
        for side in SIZES:
            feeds = make_feeds(side, arguments.scale, arguments.directory, arguments.write)
            if arguments.write:
                feeds.check()
                continue
            for found in measure(feeds, side, arguments.way):
                print(json.dumps(found), file=output, flush=True)
    if arguments.write:
        backend = keras.backend.backend()
        version = f"yogadl {yogadl.__version__}, Keras {keras.__version__} with {backend}"
        print(json.dumps({"version": version, "ways": ways()}), file=output, flush=True)


if __name__ == "__main__":
    main()
