"""What the tests of ``yogadl.keras`` share: data sets, models, and what a model was given."""

from __future__ import annotations

import json
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

with warnings.catch_warnings():
    # Back ends warn of themselves when they are imported.
    warnings.simplefilter("ignore")
    import keras

import yogadl.keras
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec

COUNT = 23

SPEC = (TensorSpec("float32", (3,)), TensorSpec("float32", (1,)))


def record(number: int) -> tuple[Any, ...]:
    x = np.array([number, number % 5, 1], "float32") / COUNT
    return x, np.array([number % 3], "float32")


def write(
    path: pathlib.Path,
    make: Callable[[int], Any] = record,
    spec: Any = SPEC,
    count: int = COUNT,
) -> LMDBDataRef:
    with CacheWriter(path, spec) as writer:
        for number in range(count):
            writer.append(make(number))
        writer.commit()
    return LMDBDataRef(path)


def numbers(batch: Any) -> list[int]:
    """Which records a batch of ``record`` has."""
    return np.rint(np.asarray(batch[0])[:, 0] * COUNT).astype(int).tolist()


class _Seen(keras.layers.Layer):  # type: ignore[misc]
    """Notes in a weight ``[COUNT]`` the turn, from 1 on, of each record in the batch."""

    def build(self, shape: Any) -> None:
        self.turns = self.add_weight(
            shape=(COUNT,), initializer="zeros", trainable=False, name="turns"
        )

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            record = keras.ops.cast(keras.ops.round(x[:, 0] * COUNT), "int32")
            turn = keras.ops.cumsum(keras.ops.ones_like(x[:, :1]), 0)
            self.turns.assign(keras.ops.sum(keras.ops.one_hot(record, COUNT) * turn, 0))
        return x


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes which records each step of :func:`small_model` trains on, in a file if there is one."""

    def __init__(self, path: pathlib.Path | None = None) -> None:
        super().__init__()
        self.epochs: list[list[list[int]]] = []
        self._path = path

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append([])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        turns = keras.ops.convert_to_numpy(self.model.layers[0].turns.value).astype(int)
        records = [int(turns.tolist().index(turn)) for turn in range(1, turns.max() + 1)]
        self.epochs[-1].append(records)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(records) + "\n")


def small_model(**compiled: Any) -> Any:
    """A model with an optimizer and a layer that have states of their own."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((3,)),
            _Seen(),
            layers.Dense(4, "tanh"),
            layers.Dropout(0.3, seed=5),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), loss="mse", **compiled)
    return model


def weights(model: Any) -> list[Any]:
    return [keras.ops.convert_to_numpy(weight.value).tolist() for weight in model.weights]


def train(
    folder: pathlib.Path, name: str, save_freq: int | str, workers: int = 1, *callbacks: Any
) -> None:
    """Trains for three epochs of six steps, with a backup in ``folder``, or goes on with that.

    Notes each step in ``folder/name.steps``, and the weights in ``folder/name.weights`` at the end.
    """
    dataref = LMDBDataRef(folder / "cache.mdb")
    order = {"shuffle": True, "shuffle_seed": 4}
    with yogadl.keras.PyDataset(dataref, 4, **order, workers=workers) as dataset:
        backup = yogadl.keras.BackupAndRestore(folder / f"{name}.backup", dataset, save_freq)
        model = small_model()
        every = [Recorder(folder / f"{name}.steps"), backup, *callbacks]
        model.fit(dataset, epochs=3, shuffle=False, callbacks=every, verbose=0)
    (folder / f"{name}.weights").write_text(json.dumps(weights(model)))
