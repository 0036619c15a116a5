"""Where a data set of a stream is used: functions, graphs, Keras, strategies, restarts."""

from __future__ import annotations

import json
import pathlib
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy as np
import pytest
import tensorflow as tf
from test_round_trip import KINDS, elements, make_storage, plain

from yogadl import spec as specs
from yogadl.dataref import LMDBDataRef
from yogadl.errors import UnsupportedTypeError
from yogadl.tensorflow import make_tf_dataset

SHUFFLED: dict[str, Any] = {"shuffle": True, "shuffle_seed": 777}


def store(data: Any, directory: pathlib.Path) -> LMDBDataRef:
    storage = make_storage(directory)
    storage.submit(data, "a", "1")
    return storage.fetch("a", "1")


def run(script: str, *arguments: Any) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def ten(storage_dir: pathlib.Path) -> LMDBDataRef:
    return store(tf.data.Dataset.range(10), storage_dir)


# tf.function


def test_iterated_in_a_function(ten: LMDBDataRef) -> None:
    stream = ten.stream(**SHUFFLED)
    expected = [[int(n) for n in stream] for _ in range(3)]
    dataset = make_tf_dataset(ten.stream(**SHUFFLED))

    @tf.function  # type: ignore[untyped-decorator]
    def digits(data: Any) -> Any:
        number = tf.constant(0, tf.int64)
        for record in data:
            number = number * 10 + record
        return number

    for epoch in range(3):
        assert int(digits(dataset)) == int("".join(map(str, expected[epoch])))


def test_captured_by_a_function(ten: LMDBDataRef) -> None:
    dataset = make_tf_dataset(ten.stream(), batch_size=4)

    @tf.function  # type: ignore[untyped-decorator]
    def total() -> Any:
        return dataset.reduce(tf.constant(0, tf.int64), lambda so_far, b: so_far + sum_of(b))

    def sum_of(batch: Any) -> Any:
        return tf.reduce_sum(batch)

    assert [int(total()) for _ in range(3)] == [45, 45, 45]


@pytest.mark.parametrize(
    ("kind", "batch_size"),
    [("scalar", None), ("scalar", 4), ("large images", None), ("large images", 4), ("mixed", None)],
)
def test_made_in_a_function(kind: str, batch_size: int | None, storage_dir: pathlib.Path) -> None:
    ref = store(KINDS[kind](), storage_dir)
    expected = elements(make_tf_dataset(ref.stream(), batch_size=batch_size, epochs=1))

    @tf.function  # type: ignore[untyped-decorator]
    def all_elements() -> Any:
        iterator = iter(make_tf_dataset(ref.stream(), batch_size=batch_size, epochs=1))
        return [next(iterator) for _ in expected]

    for _ in range(2):
        assert [plain(element) for element in all_elements()] == expected


# Graph mode


@pytest.mark.parametrize("kind", ["scalar", "nested", "large images", "mixed", "ragged", "sparse"])
def test_in_a_graph(kind: str, storage_dir: pathlib.Path) -> None:
    ref = store(KINDS[kind](), storage_dir)
    expected = elements(make_tf_dataset(ref.stream(**SHUFFLED), epochs=1))
    with tf.Graph().as_default():
        dataset = make_tf_dataset(ref.stream(**SHUFFLED), epochs=1)
        assert dataset.element_spec == KINDS[kind]().element_spec
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        following = iterator.get_next()
        with tf.compat.v1.Session() as session:
            for _again in range(2):
                session.run(iterator.initializer)
                found = []
                while True:
                    try:
                        found.append(plain(_numpy(session.run(following))))
                    except tf.errors.OutOfRangeError:
                        break
                assert found == expected


def _numpy(value: Any) -> Any:
    """What a session returns, with the values that stand for ragged and sparse tensors."""
    if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue):
        return specs.Ragged(value.flat_values, tuple(value.nested_row_splits))
    if isinstance(value, tf.compat.v1.SparseTensorValue):
        return specs.Sparse(*value)
    return value


@pytest.mark.parametrize(
    "kind",
    ["nested", "namedtuple", "mixed", "ragged 2", "sparse", "none", "unknown rank"],
)
def test_submitted_in_a_graph(kind: str, storage_dir: pathlib.Path) -> None:
    expected = elements(KINDS[kind]())
    with tf.Graph().as_default():
        ref = store(KINDS[kind](), storage_dir)
    assert [plain(record) for record in ref.stream()] == expected


def test_optionals_are_refused_in_a_graph(storage_dir: pathlib.Path) -> None:
    with tf.Graph().as_default(), pytest.raises(UnsupportedTypeError, match="eager mode only"):
        store(KINDS["optional"](), storage_dir)


GRAPH_SCRIPT = """
import sys
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
import yogadl.storage, yogadl.tensorflow

config = tf.compat.v1.ConfigProto()
storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(sys.argv[1]), config)
storage.submit(tf.data.Dataset.range(10).map(lambda n: (n, tf.as_string(n))), "a", "1")

@storage.cacheable("b", "1")
def make():
    return tf.data.Dataset.range(10)

for batch_size in (None, 5):
    for ref in (make(), storage.fetch("a", "1")):
        stream = ref.stream(start_offset=5, shuffle=True, shuffle_seed=777)
        dataset = yogadl.tensorflow.make_tf_dataset(stream, batch_size=batch_size)
        dataset = dataset if batch_size else dataset.batch(5)
        following = tf.compat.v1.data.make_one_shot_iterator(dataset.repeat(3)).get_next()
        found = []
        with tf.compat.v1.Session(config=config) as session:
            try:
                while True:
                    found.append(session.run(following))
            except tf.errors.OutOfRangeError:
                pass
        print([(batch if len(batch) == 5 else batch[0]).tolist() for batch in found])
try:
    storage.submit(tf.data.Dataset.range(10).map(lambda n: n // (n - 7)), "a", "1")
except tf.errors.InvalidArgumentError:
    print(len(storage.fetch("a", "1")))
"""


def test_without_eager_execution(storage_dir: pathlib.Path) -> None:
    golden = "[[5, 1, 9, 6, 7], [1, 7, 3, 9, 8], [2, 6, 0, 4, 5], [9, 5, 3, 0, 8], [6, 7, 4, 1, 2]]"
    assert run(GRAPH_SCRIPT, storage_dir).splitlines() == [golden] * 4 + ["10"]


# Keras and what is put behind


class _Seen(keras.callbacks.Callback):  # type: ignore[misc]
    """Remembers the number of batches of every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.epochs[-1] += 1


@pytest.mark.parametrize("batch_size", [None, 8])
def test_fit(batch_size: int | None, storage_dir: pathlib.Path) -> None:
    features = np.random.RandomState(0).normal(size=(40, 4)).astype("f4")
    targets = features @ np.array([[1.0], [-2.0], [0.5], [3.0]], "f4")
    ref = store(list(zip(features, targets, strict=True)), storage_dir)

    def trained(dataset: Any, **options: Any) -> tuple[Any, list[int]]:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        seen = _Seen()
        model.fit(dataset, epochs=3, verbose=0, shuffle=False, callbacks=[seen], **options)
        return model.get_weights()[0], seen.epochs

    stream = ref.stream(**SHUFFLED)
    order = [record for _ in range(3) for record in stream]
    arrays = tuple(np.stack(column) for column in zip(*order, strict=True))
    by_hand = tf.data.Dataset.from_tensor_slices(arrays).batch(8)
    expected, _ = trained(by_hand.repeat(), steps_per_epoch=5)

    dataset = make_tf_dataset(ref.stream(**SHUFFLED), batch_size=batch_size)
    weights, seen = trained(dataset if batch_size else dataset.batch(8))
    assert seen == [5, 5, 5]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)

    endless = make_tf_dataset(ref.stream(**SHUFFLED), batch_size=8, epochs=None)
    weights, seen = trained(endless, steps_per_epoch=5)
    assert seen == [5, 5, 5]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


def test_downstream(ten: LMDBDataRef) -> None:
    stream = ten.stream(start_offset=5, **SHUFFLED)
    epochs = [[int(n) for n in stream] for _ in range(3)]
    flat = [n for epoch in epochs for n in epoch]

    def make() -> Any:
        return make_tf_dataset(ten.stream(start_offset=5, **SHUFFLED))

    def numbers(dataset: Any) -> list[Any]:
        return [element.numpy().tolist() for element in dataset]

    assert numbers(make().repeat(3)) == flat
    assert numbers(make().repeat(3).batch(4)) == [flat[at : at + 4] for at in range(0, 25, 4)]
    assert numbers(make().prefetch(2).map(lambda n: n * 2)) == [2 * n for n in epochs[0]]
    parallel = make().repeat().map(lambda n: n, num_parallel_calls=2, deterministic=True)
    assert numbers(parallel.take(25).prefetch(tf.data.AUTOTUNE)) == flat
    assert sorted(numbers(make().repeat(3).shuffle(100))) == sorted(flat)
    assert numbers(make().filter(lambda n: n > 5)) == [n for n in epochs[0] if n > 5]
    cached = make().cache()
    assert numbers(cached) == numbers(cached) == epochs[0]
    assert numbers(make().enumerate().map(lambda i, n: i)) == [0, 1, 2, 3, 4]
    assert numbers(tf.data.Dataset.zip((make(), make())).map(lambda a, b: a - b)) == [0] * 5
    assert [int(n) for n in make().as_numpy_iterator()] == epochs[0]


# Strategies

DISTRIBUTED = """
import json, sys
import tensorflow as tf
from yogadl.dataref import LMDBDataRef
from yogadl.tensorflow import make_tf_dataset

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
ref = LMDBDataRef(sys.argv[1])
found = []
for shards in (1, 2):
    stream = ref.stream(shuffle=True, shuffle_seed=1, shard_rank=shards - 1, num_shards=shards)
    for dataset in (make_tf_dataset(stream, batch_size=4), make_tf_dataset(stream).batch(4)):
        distributed = strategy.experimental_distribute_dataset(dataset)
        seen = [[], []]
        for batch in distributed:
            for replica, part in enumerate(strategy.experimental_local_results(batch)):
                seen[replica] += part.numpy().tolist()
        found.append(seen)
print(json.dumps(found))
"""


def test_mirrored_replicas_share_every_record(storage_dir: pathlib.Path) -> None:
    store(tf.data.Dataset.range(23), storage_dir)
    found = json.loads(run(DISTRIBUTED, storage_dir / "a" / "1" / "cache.mdb"))
    whole = list(range(23))
    for replicas, records in zip(found, [whole, whole, whole[1::2], whole[1::2]], strict=True):
        assert all(replicas), "both replicas have something to do"
        assert sorted(replicas[0] + replicas[1]) == records


def test_a_shard_is_not_sharded_again(ten: LMDBDataRef) -> None:
    off = tf.data.experimental.AutoShardPolicy.OFF
    for batch_size in (None, 2):
        shard = make_tf_dataset(ten.stream(shard_rank=1, num_shards=2), batch_size=batch_size)
        assert shard.options().experimental_distribute.auto_shard_policy == off
        whole = make_tf_dataset(ten.stream(), batch_size=batch_size)
        assert whole.options().experimental_distribute.auto_shard_policy != off


# Checkpoints

PIPELINES = """
import tensorflow as tf
from yogadl.tensorflow import make_tf_dataset

def make(ref, name):
    stream = ref.stream(start_offset=3, shuffle=True, shuffle_seed=777)
    if name == "batches":
        return make_tf_dataset(stream, epochs=3, batch_size=4)
    if name == "dropped":
        return make_tf_dataset(stream, epochs=3, batch_size=4, drop_remainder=True)
    if name == "endless":
        return make_tf_dataset(stream, epochs=None, batch_size=4)
    dataset = make_tf_dataset(stream, epochs=3)
    if name == "downstream":
        dataset = dataset.map(lambda *parts: parts, num_parallel_calls=2).prefetch(2)
    return dataset

def rest(iterator, most=40):
    return [element for element, _ in zip(iterator, range(most))]
"""
RESTORE = (
    PIPELINES
    + """
import pathlib, pickle, sys
import test_round_trip
from yogadl.dataref import LMDBDataRef

folder, found = pathlib.Path(sys.argv[1]), {}
for save in sorted(folder.glob("*/*/*")):
    kind, name, position = save.relative_to(folder).parts
    iterator = iter(make(LMDBDataRef(folder / kind / "cache.mdb"), name))
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    checkpoint.restore(str(save / "saved-1")).assert_consumed()
    found[kind, name, int(position)] = [test_round_trip.plain(e) for e in rest(iterator)]
(folder / "found.pickle").write_bytes(pickle.dumps(found))
"""
)
MADE: dict[str, Callable[..., Any]] = {}
exec(PIPELINES, MADE)  # the other process runs the same lines
# Positions in epochs of 6, 9 and 9 records: beginning, middle, border, end.
RESUMED = {
    "scalar": {
        "batches": [0, 1, 3, 8],
        "dropped": [3],
        "endless": [11],
        "elements": [5, 6, 23],
        "downstream": [3],
    },
    "mixed": {"elements": [1], "downstream": [10]},
    "string": {"batches": [6]},
    "large images": {"elements": [7]},
}


def test_a_checkpoint_goes_on_at_the_exact_next_element(
    storage_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    saves, expected = tmp_path / "saves", {}
    for kind, names in RESUMED.items():
        ref = store(KINDS[kind]().take(9), storage_dir)
        for name, positions in names.items():
            whole = elements(MADE["rest"](iter(MADE["make"](ref, name)), 60))
            iterator = iter(MADE["make"](ref, name))
            for position in range(max(positions) + 1):
                if position in positions:
                    folder = saves / kind / name / str(position)
                    folder.mkdir(parents=True)
                    tf.train.Checkpoint(iterator=iterator).save(str(folder / "saved"))
                    expected[kind, name, position] = whole[position:][:40]
                if position < max(positions):
                    assert plain(next(iterator)) == whole[position], "saving disturbs nothing"
        shutil.copy(storage_dir / "a" / "1" / "cache.mdb", saves / kind)

    for (kind, name, position), following in expected.items():
        again = iter(MADE["make"](LMDBDataRef(saves / kind / "cache.mdb"), name))
        checkpoint = tf.train.Checkpoint(iterator=again)
        checkpoint.restore(str(saves / kind / name / str(position) / "saved-1"))
        assert elements(MADE["rest"](again)) == following, (kind, name, position)

    script = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n" + RESTORE
    run(script, saves)
    assert pickle.loads((saves / "found.pickle").read_bytes()) == expected
