"""``make_tf_dataset``: the records of the plain stream, in its order, in every form asked for."""

from __future__ import annotations

import itertools
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from test_round_trip import KINDS, elements, make_storage, plain

import yogadl
import yogadl.tensorflow
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ClosedError, InvalidArgumentError, UnsupportedTypeError
from yogadl.spec import TensorSpec
from yogadl.tensorflow import make_tf_dataset
from yogadl.tensorflow._pipeline import Pipeline

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"
OLD = ("dimensions", "dtypes", "empty", "features", "images", "none", "range", "unknown")
# TensorFlow can batch these.
STACKED = (
    ("scalar", "nested", "namedtuple", "none", "empty dim", "all empty", "large images")
    + ("large complex", "string", "strings", "1992 bytes", "2000 bytes", "2008 bytes", "sparse")
    + ("sparse unknown", "ragged", "ragged inner", "ragged 2", "ragged strings", "no records")
)  # fmt: skip
MAPPED = (
    ("scalar", "nested", "namedtuple", "none", "large images", "large complex")
    + ("1992 bytes", "2000 bytes", "2008 bytes", "no records")
)  # fmt: skip

Forced = Callable[[], None]


@pytest.fixture
def rows_path(monkeypatch: pytest.MonkeyPatch) -> Forced:
    """Makes NumPy read the records from now on, also where TensorFlow could."""
    return lambda: monkeypatch.setattr(Pipeline, "_mapped_components", lambda self, mapped: [])


def store(data: Any, directory: pathlib.Path, **options: Any) -> LMDBDataRef:
    storage = make_storage(directory)
    storage.submit(data, "a", "1", **options)
    return storage.fetch("a", "1")


def numbers(directory: pathlib.Path, count: int) -> LMDBDataRef:
    data = ((np.int64(n), np.full(3, n, np.float32)) for n in range(count))
    spec = (TensorSpec("int64"), TensorSpec("float32", (3,)))
    return store(data, directory, spec=spec)


def firsts(dataset: Any) -> list[Any]:
    return [np.asarray(element[0]).tolist() for element in dataset]


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_are_those_of_the_plain_stream(kind: str, storage_dir: pathlib.Path) -> None:
    original = KINDS[kind]()
    ref = store(original, storage_dir)
    arguments: list[dict[str, Any]] = [
        {"start_offset": 4},
        {"start_offset": 1, "shuffle": True, "shuffle_seed": 9, "shard_rank": 1, "num_shards": 3},
    ]
    for options in arguments:
        stream = ref.stream(**options)
        dataset = make_tf_dataset(ref.stream(**options))
        assert dataset.element_spec == original.element_spec
        for _epoch in range(2):
            assert elements(dataset) == [plain(record) for record in stream]


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("kind", STACKED)
def test_batches_are_those_of_batch(
    kind: str, drop_remainder: bool, storage_dir: pathlib.Path
) -> None:
    original = KINDS[kind]()
    expected = original.batch(4, drop_remainder)
    stream = store(original, storage_dir).stream()
    dataset = make_tf_dataset(stream, batch_size=4, drop_remainder=drop_remainder)
    assert dataset.element_spec == expected.element_spec
    assert elements(dataset) == elements(expected)
    assert elements(dataset) == elements(expected), "second epoch"


def test_batches_that_tensorflow_cannot_make_are_refused_as_batch_does(
    storage_dir: pathlib.Path,
) -> None:
    ref = store(KINDS["unknown dim"](), storage_dir)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(make_tf_dataset(ref.stream(), batch_size=4))
    ref = store(KINDS["optional"](), storage_dir)
    with pytest.raises(UnsupportedTypeError, match="optional"):
        make_tf_dataset(ref.stream(), batch_size=4)


def test_arrays_of_other_shapes_with_as_many_items_are_no_batch(storage_dir: pathlib.Path) -> None:
    arrays = [np.zeros((1, 2)), np.ones((2, 1))]
    ref = store(arrays, storage_dir, spec=TensorSpec("float64", (None, None)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="different shapes"):
        list(make_tf_dataset(ref.stream(), batch_size=2))
    # A remainder that is left out is not put together.
    assert list(make_tf_dataset(ref.stream(), batch_size=3, drop_remainder=True)) == []


@pytest.mark.parametrize("batch_size", [None, 1, 5])
@pytest.mark.parametrize("kind", MAPPED)
def test_the_mapped_file_gives_what_numpy_reads(
    kind: str, batch_size: int | None, storage_dir: pathlib.Path, rows_path: Forced
) -> None:
    ref = store(KINDS[kind](), storage_dir)
    options: dict[str, Any] = {"shuffle": True, "shuffle_seed": 3, "start_offset": 2}

    def make() -> Any:
        return make_tf_dataset(ref.stream(**options), batch_size=batch_size, epochs=2)

    fast = make()
    rows_path()
    slow = make()
    assert fast.element_spec == slow.element_spec
    assert elements(fast) == elements(slow)


@pytest.mark.parametrize("rows", [False, True])
def test_golden_order(rows: bool, storage_dir: pathlib.Path, rows_path: Forced) -> None:
    if rows:
        rows_path()
    ref = store(tf.data.Dataset.range(10), storage_dir)
    expected = [[5, 1, 9, 6, 7], [1, 7, 3, 9, 8], [2, 6, 0, 4, 5], [9, 5, 3, 0, 8], [6, 7, 4, 1, 2]]

    def stream() -> yogadl.Stream:
        return ref.stream(start_offset=5, shuffle=True, shuffle_seed=777)

    batched = make_tf_dataset(stream(), batch_size=5)
    assert [b.numpy().tolist() for _ in range(3) for b in batched] == expected
    at_once = make_tf_dataset(stream(), batch_size=5, epochs=3)
    assert [batch.numpy().tolist() for batch in at_once] == expected
    as_of_old = make_tf_dataset(stream()).batch(5).repeat(3)
    assert [batch.numpy().tolist() for batch in as_of_old] == expected


CARDINALITIES = list(
    itertools.product(
        [(None, False), (4, False), (4, True), (30, False), (30, True)],
        [0, 3, 7, 17],
        [(0, 1), (1, 3), (2, 3)],
        [0, 1, 2, "each"],
    )
)


# Each takes a tenth of a second, so that every count has some of the combinations.
@pytest.mark.parametrize(
    ("count", "cases"),
    [(0, CARDINALITIES[::29]), (1, CARDINALITIES[::23]), (7, CARDINALITIES[::13])],
)
def test_cardinality_is_the_number_of_elements(
    count: int, cases: list[Any], storage_dir: pathlib.Path
) -> None:
    ref = numbers(storage_dir, count)
    for (batch_size, drop), offset, (rank, shards), epochs in cases:
        options: dict[str, Any] = {} if epochs == "each" else {"epochs": epochs}
        stream = ref.stream(start_offset=offset, shard_rank=rank, num_shards=shards)
        dataset = make_tf_dataset(stream, batch_size=batch_size, drop_remainder=drop, **options)
        known = int(dataset.cardinality())
        case = (count, batch_size, drop, offset, rank, shards, epochs)
        if known == tf.data.UNKNOWN_CARDINALITY:
            assert epochs == "each", case
            assert offset % len(stream) > 0, case
            rest, size = len(stream) - offset % len(stream), batch_size or 1
            known = rest // size if drop else -(-rest // size)
        # With a wrong cardinality TensorFlow itself raises here.
        assert len(list(dataset)) == known, case


@pytest.mark.parametrize("kind", ["ragged", "sparse", "string", "scalar", "2008 bytes"])
def test_drop_remainder_drops_less_than_a_batch(kind: str, storage_dir: pathlib.Path) -> None:
    """With an offset, TensorFlow is told no cardinality that would show a loss."""
    ref = store(KINDS[kind](), storage_dir)
    dataset = make_tf_dataset(ref.stream(start_offset=3), batch_size=4, drop_remainder=True)
    expected = make_tf_dataset(ref.stream(start_offset=3)).batch(4, drop_remainder=True)
    assert elements(dataset) == elements(expected)
    assert len(elements(expected)) == 5


def test_fewer_records_than_a_batch(
    storage_dir: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = make_storage(storage_dir)
    storage.submit(np.arange(5), "a", "1")
    for drop in (True, False):
        caplog.clear()
        made = make_tf_dataset(storage.fetch("a", "1").stream(), batch_size=6, drop_remainder=drop)
        assert ("no batches: an epoch has 5 records" in caplog.text) == drop
        assert len(list(made)) == (not drop)


def test_endless_epochs(storage_dir: pathlib.Path) -> None:
    stream = numbers(storage_dir, 5).stream(start_offset=3, shuffle=True, shuffle_seed=1)
    dataset = make_tf_dataset(stream, epochs=None)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    expected = [int(record[0]) for _ in range(4) for record in stream]
    assert firsts(dataset.take(len(expected))) == expected
    assert firsts(dataset.take(3)) == expected[:3], "every iteration begins at the same place"


@pytest.mark.parametrize("epochs", [None, 2**40])
@pytest.mark.parametrize("kind", ["scalar", "string"])
def test_epochs_without_batches_end(
    kind: str, epochs: int | None, storage_dir: pathlib.Path
) -> None:
    ref = store(KINDS[kind]().take(2), storage_dir)
    options: dict[str, Any] = {"batch_size": 3, "drop_remainder": True, "epochs": epochs}
    dataset = make_tf_dataset(ref.stream(), **options)
    assert int(dataset.cardinality()) == 0
    assert list(dataset) == []


def test_epochs_begin_where_the_stream_stands(storage_dir: pathlib.Path) -> None:
    ref = numbers(storage_dir, 6)
    options: dict[str, Any] = {"shuffle": True, "shuffle_seed": 5}
    expected = [[int(r[0]) for r in epoch] for epoch in itertools.repeat(ref.stream(**options), 4)]
    stream = ref.stream(**options)
    list(stream)
    dataset = make_tf_dataset(stream, epochs=2)
    for _ in range(2):
        assert firsts(dataset) == expected[1] + expected[2]
    assert [int(record[0]) for record in stream] == expected[1], "it takes no epoch of the stream"


def test_iterations_are_the_next_epochs_of_the_stream(storage_dir: pathlib.Path) -> None:
    ref = numbers(storage_dir, 8)
    options: dict[str, Any] = {"start_offset": 6, "shuffle": True, "shuffle_seed": 2}
    plain_stream = ref.stream(**options)
    expected = [[int(record[0]) for record in plain_stream] for _ in range(4)]
    stream = ref.stream(**options)
    dataset = make_tf_dataset(stream)
    assert firsts(dataset) == expected[0]
    assert [int(record[0]) for record in stream] == expected[1]
    assert firsts(make_tf_dataset(stream)) == expected[2]
    assert firsts(dataset) == expected[3]


def test_interleaved_iterators_have_an_epoch_each(storage_dir: pathlib.Path) -> None:
    ref = numbers(storage_dir, 9)
    options: dict[str, Any] = {"shuffle": True, "shuffle_seed": 2}
    stream = ref.stream(**options)
    expected = [[int(record[0]) for record in stream] for _ in range(2)]
    dataset = make_tf_dataset(ref.stream(**options))
    pairs = list(zip(dataset, dataset, strict=True))
    assert sorted([firsts(side) for side in zip(*pairs, strict=True)]) == sorted(expected)


def test_shards_are_disjoint_and_whole(storage_dir: pathlib.Path) -> None:
    ref = numbers(storage_dir, 3)
    found = [
        firsts(make_tf_dataset(ref.stream(shard_rank=rank, num_shards=5))) for rank in range(5)
    ]
    assert found == [[0], [1], [2], [], []]
    empty = ref.stream(shard_rank=4, num_shards=5, shuffle=True, shuffle_seed=1, start_offset=7)
    assert list(make_tf_dataset(empty, batch_size=2, epochs=3)) == []
    assert list(make_tf_dataset(empty, epochs=None)) == []
    assert list(make_tf_dataset(ref.stream(num_shards=5, drop_shard_remainder=True))) == []


@pytest.mark.parametrize("name", OLD)
def test_caches_of_yogadl_014(name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    shutil.copy(GOLDEN / f"{name}.mdb", path)
    ref = LMDBDataRef(path)
    options: dict[str, Any] = {"start_offset": 1, "shuffle": True, "shuffle_seed": 4}
    stream = ref.stream(**options)
    dataset = make_tf_dataset(ref.stream(**options))
    if name != "none":
        assert tf.compat.v1.data.get_output_types(dataset) == stream.output_types
    for _epoch in range(2):
        assert elements(dataset) == [plain(record) for record in stream]
    if name in ("images", "range", "features"):
        records = make_tf_dataset(ref.stream())
        batches = make_tf_dataset(ref.stream(), batch_size=3)
        assert batches.element_spec == records.batch(3).element_spec
        assert elements(batches) == elements(records.batch(3))


def test_a_stream_of_ones_own() -> None:
    def generate() -> Any:
        return iter([(1, b"a"), (2, b"bc"), (3, b"")])

    stream = yogadl.Stream(generate, 3, (tf.int32, tf.string), (tf.TensorShape([]), ()))
    assert elements(make_tf_dataset(stream)) == elements(
        tf.data.Dataset.from_tensor_slices(([1, 2, 3], ["a", "bc", ""]))
    )
    batched = make_tf_dataset(stream, batch_size=2, drop_remainder=True, epochs=2)
    assert firsts(batched) == [[1, 2], [1, 2]]
    with pytest.raises(InvalidArgumentError, match="output_types"):
        make_tf_dataset(yogadl.Stream(generate, 3))


def test_a_stream_built_by_hand_of_keys(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    yogadl.tensorflow.serialize_tf_dataset_to_lmdb(tf.data.Dataset.range(10), path, None)
    access = yogadl.LmdbAccess(path)
    keys = yogadl.shard_keys(access.get_keys(), 0, 1, drop_shard_remainder=True)
    generator = yogadl.GeneratorFromKeys(
        keys=keys,
        initial_offset=5,
        read_val_from_key_fn=access.read_value_by_key,
        shuffle_at_start=True,
        shuffle_after_epoch=True,
        shuffle_seed=777,
    )
    stream = yogadl.Stream(
        generator.instantiate_generator, len(keys), access.get_types(), access.get_shapes()
    )
    dataset = make_tf_dataset(stream)
    assert dataset.element_spec == tf.TensorSpec([], tf.int64)
    found = [int(value) for _ in range(3) for value in dataset]
    assert found == [5, 1, 9, 6, 7, 1, 7, 3, 9, 8, 2, 6, 0, 4, 5, 9, 5, 3, 0, 8, 6, 7, 4, 1, 2]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"batch_size": "2"}, "batch_size"),
        ({"drop_remainder": True}, "batch_size"),
        ({"batch_size": 2, "drop_remainder": "no"}, "drop_remainder"),
        ({"batch_size": 2, "ragged": "no"}, "ragged"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": 1.5}, "epochs"),
        ({"epochs": "all"}, "epochs"),
    ],
)
def test_arguments_out_of_range(
    options: dict[str, Any], named: str, storage_dir: pathlib.Path
) -> None:
    stream = numbers(storage_dir, 2).stream()
    with pytest.raises(InvalidArgumentError, match=named):
        make_tf_dataset(stream, **options)


@pytest.mark.parametrize("size", [2**31, 2**62, 2**70])
def test_batches_larger_than_all_there_is(size: int) -> None:
    """Padded, TensorFlow would end the process over the room for them."""
    ref = yogadl.from_source(
        [np.arange(n % 3) for n in range(10)], spec=TensorSpec("int64", (None,))
    )
    (batch,) = make_tf_dataset(ref.stream(start_offset=3), batch_size=size, pad=-1, epochs=1)
    assert batch.shape == (7, 2)
    whole = make_tf_dataset(ref.stream(), batch_size=size, ragged=True, epochs=2)
    assert [int(batch.nrows()) for batch in whole] == [10, 10]
    dropped = make_tf_dataset(ref.stream(), batch_size=size, pad=0, drop_remainder=True, epochs=2)
    assert list(dropped) == []


@pytest.mark.parametrize("size", [2**31, 2**62, 2**70])
def test_batches_larger_than_a_stream_of_ones_own(size: int) -> None:
    """TensorFlow would end the process over the room for those that are left out."""
    stream = yogadl.Stream(lambda: iter(range(5)), 5, tf.int64, tf.TensorShape([]))
    (batch,) = make_tf_dataset(stream, batch_size=size)
    assert batch.numpy().tolist() == [0, 1, 2, 3, 4]
    assert list(make_tf_dataset(stream, batch_size=size, drop_remainder=True, epochs=2)) == []


def test_more_epochs_than_can_be_counted() -> None:
    own = yogadl.Stream(lambda: iter(range(5)), 5, tf.int64, tf.TensorShape([]))
    with pytest.raises(InvalidArgumentError, match="None never ends"):
        make_tf_dataset(own, epochs=2**63)
    ref = yogadl.from_arrays(np.arange(10))
    with pytest.raises(InvalidArgumentError, match="None never ends"):
        make_tf_dataset(ref.stream(), epochs=2**63 - 1)
    many = make_tf_dataset(ref.stream(), epochs=2**59)
    assert [int(n) for n in many.take(12)] == [*range(10), 0, 1]


def test_what_is_no_stream(storage_dir: pathlib.Path) -> None:
    others: list[Any] = [None, 5, [1, 2], "stream", numbers(storage_dir, 2)]
    for other in others:
        with pytest.raises(InvalidArgumentError, match="Stream"):
            make_tf_dataset(other)


@pytest.mark.parametrize("kind", ["nested", "large images", "mixed"])
def test_a_data_set_outlives_its_dataref(kind: str, storage_dir: pathlib.Path) -> None:
    ref = store(KINDS[kind](), storage_dir)
    expected = [plain(record) for record in ref.stream()]
    dataset, closed_stream = make_tf_dataset(ref.stream()), ref.stream()
    iterator = iter(dataset)
    assert plain(next(iterator)) == expected[0]
    ref.close()
    make_storage(storage_dir).submit([0, 1], "a", "1")
    assert elements(iterator) == expected[1:]
    assert elements(dataset) == expected
    with pytest.raises(ClosedError):
        make_tf_dataset(closed_stream)


MEMORY = """
import gc, json, pathlib, sys
import numpy as np
import tensorflow as tf
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec
from yogadl.tensorflow import make_tf_dataset

folder, shape, count = pathlib.Path(sys.argv[1]), (25, 2000), 4000
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]) if sys.argv[2] == "mirrored" else None
column = np.zeros((200, *shape), "u1")
column[:] = np.arange(200, dtype="u1").reshape(-1, 1, 1)
for name, parts in (("small", 1), ("large", count // 200)):
    with CacheWriter(folder / name, TensorSpec("uint8", shape)) as writer:
        for _ in range(parts):
            writer.append_columns([column], 200)
        writer.commit()

def anonymous():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

def mapped():
    return pathlib.Path("/proc/self/maps").read_text().count(str(folder / "large"))

def grown(name, batch_size):
    ref = LMDBDataRef(folder / name)
    dataset = make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=1), batch_size=batch_size)
    if strategy is not None:
        dataset = strategy.experimental_distribute_dataset(dataset)
    before = anonymous()
    iterator = iter(dataset)
    next(iterator)
    after = anonymous()
    assert mapped() or name == "small"
    return after - before

found = []
for batch_size in (8,) if strategy else (None, 8):
    grown("small", batch_size)  # what TensorFlow needs the first time
    found.append(grown("large", batch_size))
    gc.collect()
print(json.dumps({"grown": found, "size": (folder / "large").stat().st_size, "maps": mapped()}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["plain", "mirrored"])
@pytest.mark.long_for("mirrored")
def test_a_large_file_is_mapped_and_not_copied(how: str, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", MEMORY, str(tmp_path), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["size"] > 200_000_000
    assert max(found["grown"]) < found["size"] / 4, found
    assert found["maps"] == 0, "the file is still mapped when nothing refers to it any more"
