"""A stream that begins at an offset, in Keras: every record of every epoch, or an error."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras", reason="needs Keras")

import yogadl  # noqa: E402
from yogadl.keras import PyDataset  # noqa: E402
from yogadl.tensorflow import make_tf_dataset  # noqa: E402

# What Keras says of an epoch of unknown length, at its end.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")

BATCH = 4
ORDER: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1}


def dataref(count: int = 20) -> Any:
    numbers = np.arange(count, dtype="f4")[:, None]
    return yogadl.from_arrays((numbers, numbers))


class Batches(keras.callbacks.Callback):  # type: ignore[misc]
    """How many batches each epoch had."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.counts.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.counts[-1] += 1


def fit(dataset: Any, **arguments: Any) -> list[int]:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    batches = Batches()
    model.fit(dataset, shuffle=False, verbose=0, callbacks=[batches], **arguments)
    return batches.counts


def stream(offset: int) -> Any:
    return dataref().stream(**ORDER, start_offset=offset)


@pytest.mark.parametrize("made", ["directly", "by others"])
def test_what_keras_would_drop_is_an_error(made: str) -> None:
    """Of batches 2, 5, 5, 5 it would train on 2, 3, 3, 3."""
    dataset = make_tf_dataset(stream(12), batch_size=BATCH)
    if made == "by others":
        dataset = dataset.map(lambda x, y: (x * 2, y)).prefetch(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"after 3 batches.*epochs=1"):
        fit(dataset, epochs=4)


@pytest.mark.parametrize(
    "make",
    [
        lambda batches: batches.unbatch().batch(2),
        lambda batches: batches.rebatch(2),
        lambda batches: batches.repeat(3),
        lambda batches: batches.concatenate(make_tf_dataset(stream(12), batch_size=BATCH)),
    ],
    ids=["unbatched", "smaller", "several epochs", "another after it"],
)
def test_more_elements_than_batches(make: Any) -> None:
    """Where Keras counts more than there were, it would drop what is more in later epochs."""
    dataset = make(make_tf_dataset(stream(12), batch_size=BATCH))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Keras would stop this epoch"):
        fit(dataset, epochs=2)


@pytest.mark.parametrize("steps", [2, 5])
def test_steps_of_an_epoch_that_began_at_an_offset(steps: int) -> None:
    """Keras stops there whatever it was told."""
    dataset = make_tf_dataset(stream(12), batch_size=BATCH)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"after 3 batches"):
        fit(dataset, epochs=6, steps_per_epoch=steps)


def test_fewer_elements_than_records() -> None:
    """A ``fit`` that counted no shorter epoch reads all there is, whatever became of a record."""
    dataset = make_tf_dataset(stream(12)).batch(BATCH)
    assert fit(dataset, epochs=1) == [2]
    assert fit(dataset, epochs=3) == [5, 5, 5]


@pytest.mark.parametrize("has_strategy", [False, True])
def test_validation_data(has_strategy: bool) -> None:
    """Keras counts it anew each time."""
    validation = make_tf_dataset(stream(12), batch_size=BATCH)
    training = make_tf_dataset(stream(0), batch_size=BATCH)
    tests: list[int] = []

    class Tests(keras.callbacks.Callback):  # type: ignore[misc]
        def on_test_begin(self, logs: Any = None) -> None:
            tests.append(0)

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            tests[-1] += 1

    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope() if has_strategy else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", loss="mse")
    arguments = {"epochs": 3, "validation_data": validation, "callbacks": [Tests()]}
    model.fit(training, shuffle=False, verbose=0, **arguments)
    assert tests == [2, 5, 5]


def test_validation_data_that_is_trained_on() -> None:
    dataset = make_tf_dataset(stream(12), batch_size=BATCH)
    assert fit(dataset, epochs=1, validation_data=dataset) == [2]


def test_what_the_error_says_to_do() -> None:
    rest = make_tf_dataset(stream(12), batch_size=BATCH)
    assert fit(rest, epochs=1) == [2]
    assert fit(rest, initial_epoch=1, epochs=4) == [5, 5, 5]
    endless = make_tf_dataset(stream(12), batch_size=BATCH, epochs=None)
    assert fit(endless, epochs=4, steps_per_epoch=5) == [5, 5, 5, 5]
    assert fit(PyDataset(dataref(), BATCH, **ORDER, start_offset=12), epochs=4) == [2, 5, 5, 5]


@pytest.mark.parametrize("offset", [0, 2, 20])
def test_nothing_would_be_dropped(offset: int) -> None:
    """Where the first epoch has as many batches as the others, their number is known."""
    dataset = make_tf_dataset(stream(offset), batch_size=BATCH)
    assert int(dataset.cardinality()) == 5
    assert fit(dataset, epochs=3) == [5, 5, 5]


class Noting(keras.Model):  # type: ignore[misc]
    """Notes what it is trained on, epoch by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.noted: list[list[float]] = []

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        def note(numbers: Any) -> Any:
            self.noted[-1].extend(numbers.ravel())
            return np.int64(0)

        with tf.control_dependencies([tf.numpy_function(note, [data[0]], tf.int64)]):
            return super().train_step(data)


class Begins(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.noted.append([])


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_several_steps_an_execution(steps: int) -> None:
    """Of 4, 5 and 5 batches, Keras counts whole executions of the first, and one step or execution
    more: it drops none, and it is no error."""
    model = Noting()
    model.compile("sgd", loss="mse", steps_per_execution=steps)
    dataset = make_tf_dataset(stream(4), batch_size=BATCH)
    model.fit(dataset, epochs=3, shuffle=False, verbose=0, callbacks=[Begins()])
    assert [len(noted) for noted in model.noted] == [16, 20, 20]


@pytest.mark.parametrize("made", ["directly", "by others", "distributed", "by a function"])
@pytest.mark.parametrize("offset", [0, 12])
def test_what_a_model_is_built_by_is_trained_on(made: str, offset: int) -> None:
    """With a strategy, Keras takes a batch of an iteration beforehand, and goes on with another."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = Noting()
        model.compile("sgd", loss="mse")
    dataset = make_tf_dataset(stream(offset), batch_size=BATCH)
    if made == "by others":
        dataset = dataset.map(lambda x, y: (x + 0, y)).prefetch(2)
    if made == "distributed":
        dataset = strategy.experimental_distribute_dataset(dataset)
    if made == "by a function":
        one = dataset
        dataset = strategy.distribute_datasets_from_function(lambda _: one)
    alike = stream(offset)
    wanted = [[float(x[0]) for x, _ in alike.iterator_fn()] for _ in range(3)]
    for epochs in (1, 2):
        model.fit(dataset, epochs=epochs, shuffle=False, verbose=0, callbacks=[Begins()])
    assert model.noted == wanted


def test_what_a_model_is_built_by_with_other_backends() -> None:
    """By the method with which Keras builds it there, in environments without TensorFlow's fit."""
    from keras.src.backend.tensorflow.trainer import TFEpochIterator

    dataset = make_tf_dataset(stream(12), batch_size=BATCH)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    model._symbolic_build(
        iterator=TFEpochIterator(x=dataset, distribute_strategy=model.distribute_strategy)
    )
    assert model.optimizer.built
    assert [len(list(dataset)) for _ in range(2)] == [2, 5]


def test_what_a_model_is_built_by_to_predict() -> None:
    """As ``predict`` does with JAX, in environments without it: before there are any outputs."""
    from keras.src.backend.tensorflow.trainer import TFEpochIterator

    dataset = make_tf_dataset(stream(12), batch_size=BATCH)
    strategy = tf.distribute.get_strategy()
    source = """
def predict(epoch_iterator):
    for _, _, iterator in epoch_iterator:
        next(iterator)
        break
    epoch_iterator.reset()
    outputs = None
    for _, _, iterator in epoch_iterator:
        outputs = [*(outputs or []), next(iterator, None)]
        if outputs[-1] is None:
            return outputs[:-1]
"""
    names: dict[str, Any] = {"__name__": "keras.src.backend.jax.trainer"}
    exec(source, names)
    for wanted in (2, 5):
        epochs = TFEpochIterator(x=dataset, distribute_strategy=strategy)
        assert len(names["predict"](epochs)) == wanted


def test_a_loop_of_ones_own_before_a_prediction() -> None:
    dataset = make_tf_dataset(stream(12), batch_size=BATCH).map(lambda x, _: x)
    counts: list[int] = []

    class Loop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_predict_begin(self, logs: Any = None) -> None:
            counts.append(len(list(dataset)))

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    assert len(model.predict(dataset, verbose=0, callbacks=[Loop()])) == 20
    assert counts == [2]


def test_what_keras_would_drop_with_a_strategy() -> None:
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", loss="mse")
    dataset = make_tf_dataset(stream(12), batch_size=BATCH)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"after 3 batches.*epochs=1"):
        model.fit(dataset, epochs=4, shuffle=False, verbose=0)


def test_a_loop_of_ones_own_inside_a_fit() -> None:
    """Whoever is not Keras reads every epoch to its end, wherever it is called from."""
    other = make_tf_dataset(stream(12), batch_size=BATCH)
    counts: list[int] = []

    class Loop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            counts.append(len(list(other)))

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    dataset = make_tf_dataset(stream(0), batch_size=BATCH)
    model.fit(dataset, epochs=3, shuffle=False, verbose=0, callbacks=[Loop()])
    assert counts == [2, 5, 5]
