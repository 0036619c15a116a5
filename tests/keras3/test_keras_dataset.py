"""``yogadl.keras.PyDataset``: the batches of the plain stream, whatever Keras does with it."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pathlib
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras.utils", reason="needs Keras")

import keras_rig as rig

from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    ClosedError,
    InvalidArgumentError,
    RecordIndexError,
    StateMismatchError,
    UnsupportedTypeError,
)
from yogadl.keras import BackupAndRestore, PyDataset
from yogadl.spec import TensorSpec

# Of Keras's own conversions to NumPy.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

BACKEND = rig.keras.backend.backend()
SHUFFLED = {"shuffle": True, "shuffle_seed": 4}
ORDERS: list[dict[str, Any]] = [
    {},
    SHUFFLED,
    {**SHUFFLED, "skip_shuffle_at_epoch_end": True},
    *[{**SHUFFLED, "shard_rank": rank, "num_shards": 3} for rank in range(3)],
    {**SHUFFLED, "shard_rank": 2, "num_shards": 3, "drop_shard_remainder": True},
    {**SHUFFLED, "shard_rank": 1, "num_shards": 3, "shuffle_then_shard": True},
]


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return rig.write(tmp_path_factory.mktemp("keras") / "cache.mdb")


def expected(dataref: LMDBDataRef, size: int, epochs: int, **order: Any) -> list[list[list[int]]]:
    drop = order.pop("drop_remainder", False)
    stream = dataref.stream(**order)
    batches = stream.batches(size, drop_remainder=drop)
    return [[rig.numbers(batch) for batch in batches] for _ in range(epochs)]


def by_hand(dataset: PyDataset, epochs: int) -> list[list[list[int]]]:
    found = []
    for _ in range(epochs):
        found.append([rig.numbers(batch) for batch in dataset])
        dataset.on_epoch_end()
    return found


def fit(dataset: PyDataset, epochs: int, **arguments: Any) -> list[list[list[int]]]:
    recorder = rig.Recorder()
    callbacks = [recorder, *arguments.pop("callbacks", [])]
    model = arguments.pop("model", None) or rig.small_model()
    model.fit(dataset, epochs=epochs, shuffle=False, callbacks=callbacks, verbose=0, **arguments)
    return recorder.epochs


# The order


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("offset", [0, 5, 30])
def test_batches_are_those_of_the_stream(
    dataref: LMDBDataRef, order: dict[str, Any], offset: int
) -> None:
    arguments = {**order, "start_offset": offset}
    for drop in (False, True):
        dataset = PyDataset(dataref, 4, **arguments, drop_remainder=drop)
        epochs = expected(dataref, 4, 4, **arguments, drop_remainder=drop)
        # What is left of the first epoch may be less than a batch. Keras knows no empty epochs.
        assert by_hand(dataset, 3) == [batches for batches in epochs if batches][:3]


def test_arrays_are_those_of_the_stream(dataref: LMDBDataRef) -> None:
    dataset = PyDataset(dataref, 4, **SHUFFLED)
    for found, batch in zip(dataset, dataref.stream(**SHUFFLED).batches(4), strict=True):
        for array, other in zip(found, batch, strict=True):
            np.testing.assert_array_equal(array, other)
            assert array.dtype == other.dtype


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_resuming_at_every_batch(dataref: LMDBDataRef, order: dict[str, Any]) -> None:
    for drop in (False, True):
        dataset = PyDataset(dataref, 3, **order, drop_remainder=drop)
        epochs = expected(dataref, 3, 4, **order, drop_remainder=drop)
        for epoch in range(2):
            for batch in range(len(dataset) + 1):
                state = json.loads(json.dumps(dataset.state_dict(batch)))
                rest = [epochs[epoch][batch:], *epochs[epoch + 1 :]]
                rest = [batches for batches in rest if batches][:2]
                made = PyDataset(dataref, 3, **order, drop_remainder=drop, state=state)
                assert by_hand(made, 2) == rest
                other = PyDataset(dataref, 3, **order, drop_remainder=drop)
                other.load_state_dict(state)
                assert by_hand(other, 2) == rest
            by_hand(dataset, 1)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_fit(dataref: LMDBDataRef, workers: int) -> None:
    dataset = PyDataset(dataref, 4, **SHUFFLED, workers=workers)
    assert fit(dataset, 2) == expected(dataref, 4, 3, **SHUFFLED)[:2]
    # A second call goes on with the next epoch.
    assert dataset.epoch == 2
    assert fit(dataset, 1) == expected(dataref, 4, 3, **SHUFFLED)[2:]
    dataset.close()


def look_at(dataset: PyDataset) -> None:
    """What a log line, a debugger or a progress bar may do at any time."""
    repr(dataset)
    for name in dir(dataset):
        getattr(dataset, name)
    vars(dataset)
    copied = copy.copy(dataset)
    copied.on_epoch_begin()
    copied[0]
    copied.on_epoch_end()
    pickle.loads(pickle.dumps(dataset)).on_epoch_end()
    assert (copied.epoch, len(copied)) == (dataset.epoch + 1, 6)
    copied.close()


class LookAt(rig.keras.callbacks.Callback):  # type: ignore[misc]
    """Looks at a data set whenever Keras lets it."""

    def __init__(self, *datasets: PyDataset) -> None:
        super().__init__()
        self.datasets = datasets
        for kind in ("train", "test", "predict"):
            for when in ("begin", "end", "batch_begin", "batch_end"):
                setattr(self, f"on_{kind}_{when}", self.look)
        self.on_epoch_begin = self.on_epoch_end = self.look

    def look(self, *_: Any, **__: Any) -> None:
        for dataset in self.datasets:
            look_at(dataset)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("offset", [0, 9])
@pytest.mark.long_for(0)
def test_looking_at_a_data_set_changes_nothing(
    dataref: LMDBDataRef, workers: int, offset: int
) -> None:
    order = {**SHUFFLED, "start_offset": offset}
    dataset = PyDataset(dataref, 4, **order, workers=workers)
    validation = PyDataset(dataref, 4, shuffle=True, shuffle_seed=1)
    look = LookAt(dataset, validation)
    look.look()
    epochs = expected(dataref, 4, 6, **order)
    assert fit(dataset, 2, callbacks=[look], validation_data=validation) == epochs[:2]
    look.look()
    assert fit(dataset, 1, callbacks=[look]) == epochs[2:3]
    assert (dataset.epoch, validation.epoch) == (3, 2)
    # Each is an epoch, too, also of a model that is yet to be built.
    model = rig.keras.Sequential([rig.keras.layers.Dense(1)])
    model.compile(loss="mse")
    look.look()
    model.predict(dataset, callbacks=[look], verbose=0)
    look.look()
    model.evaluate(dataset, callbacks=[look], verbose=0)
    assert dataset.epoch == 5
    look.look()
    assert by_hand(dataset, 1) == epochs[5:]
    dataset.close()


@pytest.mark.parametrize("size", [4, 12, 23])
def test_a_model_that_fit_builds(dataref: LMDBDataRef, size: int) -> None:
    """Keras reads batches to do so, of which it tells as of an epoch."""
    dataset = PyDataset(dataref, size, **SHUFFLED)
    seen: list[list[int]] = []
    places: list[int] = []

    class Places(rig.keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            places.append(dataset.epoch)
            seen.append(rig.numbers(dataset[0]))

    model = rig.keras.Sequential([rig.keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit(dataset, epochs=3, shuffle=False, callbacks=[Places()], verbose=0)
    assert places == [0, 1, 2]
    assert seen == [epoch[0] for epoch in expected(dataref, size, 3, **SHUFFLED)]


def test_looking_at_padded_batches(tmp_path: pathlib.Path) -> None:
    spec = (TensorSpec("float32", (None,)), TensorSpec("float32", (1,)))
    dataref = rig.write(
        tmp_path / "cache.mdb", lambda n: (np.full(3, n, "float32"), np.zeros(1, "float32")), spec
    )
    dataset = PyDataset(dataref, 4, pad=-1)
    look_at(dataset)
    assert dataset[1][0].shape == (4, 3)


def twice(batch: Any) -> Any:
    return batch[0], batch[1] * 2


# JAX has threads, and warns of forks.
METHODS = ["spawn", "forkserver"] if BACKEND == "jax" else ["fork", "spawn"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.long_for("spawn")
def test_fit_with_processes(
    dataref: LMDBDataRef, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_context = multiprocessing.get_context
    monkeypatch.setattr(multiprocessing, "get_context", lambda: get_context(method))
    processes = set(multiprocessing.active_children())
    dataset = PyDataset(
        dataref, 4, **SHUFFLED, transform=twice, workers=2, use_multiprocessing=True
    )
    assert fit(dataset, 2) == expected(dataref, 4, 2, **SHUFFLED)
    dataset.close()
    assert set(multiprocessing.active_children()) <= processes


def test_worker_processes_do_without_keras() -> None:
    """Which would take seconds and memory in each."""
    code = "import sys, yogadl.keras._workers; assert 'keras' not in sys.modules"
    root = pathlib.Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=root)


@pytest.mark.parametrize("use_multiprocessing", [False, True])
def test_workers_end_with_a_data_set_that_nobody_closed(
    dataref: LMDBDataRef, use_multiprocessing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_context = multiprocessing.get_context
    monkeypatch.setattr(multiprocessing, "get_context", lambda: get_context("spawn"))
    before = {*multiprocessing.active_children(), *threading.enumerate()}
    dataset = PyDataset(dataref, 4, workers=2, use_multiprocessing=use_multiprocessing)
    dataset.on_epoch_begin()
    assert rig.numbers(dataset[0]) == [0, 1, 2, 3]
    started = {*multiprocessing.active_children(), *threading.enumerate()} - before
    assert started
    del dataset
    # Threads first: one of them waits for the processes, which two cannot do at once.
    for ending in sorted(started, key=lambda one: not isinstance(one, threading.Thread)):
        ending.join(60)
        assert not ending.is_alive()


def test_an_epoch_of_one_batch(dataref: LMDBDataRef) -> None:
    dataset = PyDataset(dataref, 100, **SHUFFLED, workers=3)
    assert fit(dataset, 3) == expected(dataref, 100, 3, **SHUFFLED)
    dataset.close()


def test_an_epoch_that_begins_at_an_offset(dataref: LMDBDataRef) -> None:
    order = {**SHUFFLED, "start_offset": 9}
    dataset = PyDataset(dataref, 4, **order)
    assert len(dataset) == 4
    assert fit(dataset, 3) == expected(dataref, 4, 3, **order)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras's back end for PyTorch cannot do it")
def test_several_steps_an_execution(dataref: LMDBDataRef) -> None:
    model = rig.small_model(steps_per_execution=2)
    dataset = PyDataset(dataref, 4, **SHUFFLED)
    found = fit(dataset, 2, model=model)
    # The recorder sees every second batch.
    assert found == [epoch[1::2] for epoch in expected(dataref, 4, 2, **SHUFFLED)]


def test_batches_that_keras_shuffles_are_refused(dataref: LMDBDataRef) -> None:
    recorder = rig.Recorder()
    with pytest.raises(InvalidArgumentError, match="shuffle=False"):
        rig.small_model().fit(PyDataset(dataref, 1), shuffle=True, callbacks=[recorder], verbose=0)
    # None was trained on but in order.
    steps = [step for epoch in recorder.epochs for step in epoch]
    trained = [number for step in steps for number in step]
    assert trained == list(range(len(trained)))


def test_breaking_off_and_beginning_again(dataref: LMDBDataRef) -> None:
    class Stop(rig.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 1

    dataset = PyDataset(dataref, 4, **SHUFFLED, workers=3)
    epochs = expected(dataref, 4, 1, **SHUFFLED)
    assert fit(dataset, 2, callbacks=[Stop()]) == [epochs[0][:2]]
    assert fit(dataset, 1) == epochs
    dataset.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("yogadl-keras")]


@pytest.mark.parametrize("workers", [1, 3])
def test_another_place_has_other_batches(dataref: LMDBDataRef, workers: int) -> None:
    """Also where those of an epoch that was left had been read ahead."""
    with PyDataset(dataref, 4, **SHUFFLED, workers=workers) as dataset:
        state = dataset.state_dict(3)
        dataset.on_epoch_begin()
        assert len(dataset[0][0]) == 4
        dataset.load_state_dict(state)
        dataset.on_epoch_begin()
        found = [rig.numbers(batch) for batch in dataset]
    assert found == expected(dataref, 4, 1, **SHUFFLED, start_offset=12)[0]


# Evaluation, prediction, weights, padding


def test_evaluate_and_predict(dataref: LMDBDataRef) -> None:
    model = rig.small_model(metrics=["mae"])
    x, y = dataref.read(range(rig.COUNT))
    dataset = PyDataset(dataref, 4)
    np.testing.assert_allclose(model.predict(dataset, verbose=0), model.predict(x, verbose=0), 1e-4)
    whole = model.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(model.evaluate(dataset, verbose=0), whole, 1e-4)


def test_validation_data(dataref: LMDBDataRef) -> None:
    validation = PyDataset(dataref, 5, shuffle=True, shuffle_seed=1)
    dataset = PyDataset(dataref, 4, **SHUFFLED)
    assert fit(dataset, 3, validation_data=validation) == expected(dataref, 4, 3, **SHUFFLED)
    assert (dataset.epoch, validation.epoch) == (3, 3)


def test_class_weight_and_sample_weight(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    class_weight = {0: 1.0, 1: 3.0, 2: 0.5}

    def weighted(number: int) -> Any:
        return *rig.record(number), np.float32(class_weight[number % 3])

    spec = (*rig.SPEC, TensorSpec("float32"))
    samples = rig.write(tmp_path / "cache.mdb", weighted, spec)
    first, second = rig.small_model(), rig.small_model()
    fit(PyDataset(dataref, 4, **SHUFFLED), 1, model=first, class_weight=class_weight)
    fit(PyDataset(samples, 4, **SHUFFLED), 1, model=second)
    assert rig.weights(first) == rig.weights(second)


def test_padded(tmp_path: pathlib.Path) -> None:
    def varying(number: int) -> Any:
        # The first batches are equally long, which must not be taken for all.
        length = 3 if number < 8 else number % 5 + 1
        return np.full(length, number, "float32"), np.zeros(1, "float32")

    spec = (TensorSpec("float32", (None,)), TensorSpec("float32", (1,)))
    dataref = rig.write(tmp_path / "cache.mdb", varying, spec)
    dataset = PyDataset(dataref, 4, pad=-1)
    for found, batch in zip(dataset, dataref.stream().batches(4, pad=-1), strict=True):
        np.testing.assert_array_equal(found[0], batch[0])
    dataset.on_epoch_end()
    layers = rig.keras.layers
    model = rig.keras.Sequential(
        [rig.keras.Input((None,)), layers.Reshape((-1, 1)), layers.GlobalMaxPooling1D()]
    )
    found = model.predict(dataset, verbose=0)[:, 0].tolist()
    assert found == list(range(rig.COUNT))
    with pytest.raises(UnsupportedTypeError, match="pad="):
        PyDataset(dataref, 4)


def test_large_batches(tmp_path: pathlib.Path) -> None:
    """Their memory is used again, but not while anybody has got it."""
    spec = (TensorSpec("uint8", (300, 300)), TensorSpec("float32", (1,)))
    images = np.arange(rig.COUNT, dtype="uint8")[:, None, None] + np.zeros((300, 300), "uint8")
    data = rig.write(
        tmp_path / "cache.mdb", lambda number: (images[number], np.float32([number])), spec
    )
    dataset = PyDataset(data, 4, shuffle=True, shuffle_seed=7)
    as_tensor, as_array = rig.keras.ops.convert_to_tensor, rig.keras.ops.convert_to_numpy
    held: list[Any] = []
    for _ in range(3):
        for number in range(len(dataset)):
            batch = dataset[number]
            held = [*held[-2:], (batch[0][1:], batch[1][1:], as_tensor(batch[0]))]
            del batch
            for image, label, tensor in held:
                wanted = images[label[:, 0].astype(int)]
                assert (image == wanted).all()
                assert (as_array(tensor)[1:] == wanted).all()
        dataset.on_epoch_end()
    assert dataset.epoch == 3


def test_dicts_and_transform(tmp_path: pathlib.Path) -> None:
    def named(number: int) -> Any:
        x, y = rig.record(number)
        return {"x": x, "y": y, "name": str(number).encode()}

    spec = {"x": rig.SPEC[0], "y": rig.SPEC[1], "name": TensorSpec("string")}
    dataref = rig.write(tmp_path / "cache.mdb", named, spec)
    with pytest.raises(UnsupportedTypeError, match="transform="):
        PyDataset(dataref, 4)
    dataset = PyDataset(dataref, 4, transform=lambda batch: (batch["x"], batch["y"]))
    assert fit(dataset, 1) == [[list(range(at, min(at + 4, 23))) for at in range(0, 23, 4)]]


# Pickling, closing, errors


def test_pickled(dataref: LMDBDataRef) -> None:
    dataset = PyDataset(dataref, 4, **SHUFFLED, workers=3)
    by_hand(dataset, 1)
    made = pickle.loads(pickle.dumps(dataset))
    assert by_hand(made, 2) == by_hand(dataset, 2) == expected(dataref, 4, 3, **SHUFFLED)[1:]
    assert fit(made, 1) == expected(dataref, 4, 4, **SHUFFLED)[3:]
    made.close()


def test_closed(dataref: LMDBDataRef) -> None:
    with PyDataset(dataref, 4) as dataset:
        assert len(dataset) == 6
    with pytest.raises(ClosedError):
        dataset[0]


def test_wrong_arguments(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"batch_size": 0},
        {"batch_size": 24, "drop_remainder": True},
        {"shuffle": True},
        {"shard_rank": 3, "num_shards": 3},
        {"workers": -1},
        {"max_queue_size": 0},
    ]
    for arguments in wrong:
        with pytest.raises(InvalidArgumentError):
            PyDataset(dataref, **{"batch_size": 4, **arguments})
    with pytest.raises(InvalidArgumentError, match="DataRef"):
        PyDataset(dataref.stream(), 4)  # type: ignore[arg-type]
    dataset = PyDataset(dataref, 4)
    with pytest.raises(RecordIndexError, match="has 6"):
        dataset[6]
    with pytest.raises(InvalidArgumentError, match="at most 6"):
        dataset.state_dict(7)
    other = rig.write(tmp_path / "cache.mdb", count=5)
    with pytest.raises(StateMismatchError):
        PyDataset(other, 4, state=dataset.state_dict())


def test_backup_refuses_other_data(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    dataset, other = PyDataset(dataref, 4), PyDataset(dataref, 4)
    backup = BackupAndRestore(tmp_path / "backup", dataset)
    with pytest.raises(InvalidArgumentError, match="steps_per_epoch"):
        fit(other, 1, callbacks=[backup])
    with pytest.raises(InvalidArgumentError, match="steps_per_epoch"):
        fit(dataset, 1, callbacks=[backup], steps_per_epoch=2)
    for freq in (0, False, "batch"):
        with pytest.raises(InvalidArgumentError, match="save_freq"):
            BackupAndRestore(tmp_path / "backup", dataset, freq)
    with pytest.raises(InvalidArgumentError, match="PyDataset"):
        BackupAndRestore(tmp_path / "backup", copy)  # type: ignore[arg-type]
    assert not (tmp_path / "backup").exists()


def test_backup_kept(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    """What is kept of a finished run lets a longer one go on."""
    epochs = expected(dataref, 4, 3, **SHUFFLED)
    for number, found in ((2, epochs[:2]), (3, epochs[2:])):
        dataset = PyDataset(dataref, 4, **SHUFFLED)
        backup = BackupAndRestore(tmp_path / "backup", dataset, delete_checkpoint=False)
        assert fit(dataset, number, callbacks=[backup]) == found
    assert [path.name for path in (tmp_path / "backup").iterdir()] == ["2"]
