"""Scripts written for yogadl 0.1.4: its functions, classes and a whole program."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from test_round_trip import plain

import yogadl
import yogadl.storage
import yogadl.tensorflow
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheNotFoundError,
    InfiniteDatasetError,
    InvalidArgumentError,
    RecordIndexError,
    SpecMismatchError,
    UnsupportedTypeError,
)


def _data_set(count: int = 6) -> Any:
    return tf.data.Dataset.range(count).map(
        lambda n: {"x": tf.fill([2], tf.cast(n, tf.float32)), "y": (n, tf.as_string(n))}
    )


def _expected(count: int = 6) -> list[Any]:
    return [
        plain({"x": np.full(2, n, np.float32), "y": (np.int64(n), str(n).encode())})
        for n in range(count)
    ]


def _values(path: pathlib.Path) -> list[Any]:
    access = yogadl.LmdbAccess(path)
    return [plain(access.read_value_by_key(key)) for key in access.get_keys()]


# read_tf_dataset


def test_read_tf_dataset() -> None:
    found = list(yogadl.tensorflow.read_tf_dataset(_data_set(), tf_config=None))
    assert [plain(record) for record in found] == _expected()
    assert isinstance(found[0]["x"], np.ndarray)
    assert list(yogadl.tensorflow.read_tf_dataset(_data_set(0), None)) == []


def test_read_tf_dataset_of_a_graph() -> None:
    with tf.Graph().as_default():
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        found = list(yogadl.tensorflow.read_tf_dataset(_data_set(), config))
        one_tensor = list(yogadl.tensorflow.read_tf_dataset(tf.data.Dataset.range(3), None))
    assert [plain(record) for record in found] == _expected()
    assert one_tensor == [0, 1, 2]


@pytest.mark.parametrize("other", [None, [1, 2], np.zeros(3), "x"])
def test_what_is_no_data_set_is_refused(other: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnsupportedTypeError):
        list(yogadl.tensorflow.read_tf_dataset(other, None))
    with pytest.raises(UnsupportedTypeError):
        yogadl.tensorflow.serialize_tf_dataset_to_lmdb(other, tmp_path / "a.mdb", None)
    assert list(tmp_path.iterdir()) == []


# serialize_tf_dataset_to_lmdb


@pytest.mark.parametrize("graph", [False, True])
def test_serialize_tf_dataset(graph: bool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    with tf.Graph().as_default() if graph else tf.init_scope():
        count = yogadl.tensorflow.serialize_tf_dataset_to_lmdb(
            dataset=_data_set(), checkpoint_path=path, tf_config=None, write_frequency=2
        )
    assert count == 6
    assert [file.name for file in tmp_path.iterdir()] == ["cache.mdb"]
    assert _values(path) == _expected()
    assert [plain(record) for record in LMDBDataRef(path).stream()] == _expected()


def test_serialize_takes_strings_as_paths_and_empty_data_sets(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "cache.mdb")
    assert yogadl.tensorflow.serialize_tf_dataset_to_lmdb(_data_set(0), path, None) == 0
    access = yogadl.LmdbAccess(path)
    assert access.get_keys() == []
    assert access.get_types() == {"x": tf.float32, "y": (tf.int64, tf.string)}


def test_serialize_refuses_what_would_lose_something(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    path.write_bytes(b"precious")
    serialize = yogadl.tensorflow.serialize_tf_dataset_to_lmdb
    with pytest.raises(InvalidArgumentError, match=r"cache\.mdb"):
        serialize(_data_set(), path, None)
    with pytest.raises(InvalidArgumentError, match=r"cache\.mdb"):
        yogadl.serialize_generator_to_lmdb(iter([1]), (), np.int64, path)
    assert path.read_bytes() == b"precious"
    with pytest.raises(InvalidArgumentError, match="missing"):
        serialize(_data_set(), tmp_path / "missing" / "cache.mdb", None)
    with pytest.raises(InvalidArgumentError, match="File name too long"):
        serialize(_data_set(), tmp_path / ("x" * 300), None)
    with pytest.raises(InfiniteDatasetError):
        serialize(_data_set().repeat(), tmp_path / "b.mdb", None)
    assert [file.name for file in tmp_path.iterdir()] == ["cache.mdb"]


# serialize_generator_to_lmdb


def test_serialize_generator_with_the_types_and_shapes_of_a_data_set(
    tmp_path: pathlib.Path,
) -> None:
    dataset, path = _data_set(), tmp_path / "cache.mdb"
    count = yogadl.serialize_generator_to_lmdb(
        dataset_generator=yogadl.tensorflow.read_tf_dataset(dataset, None),
        data_shapes=tf.compat.v1.data.get_output_shapes(dataset),
        data_types=tf.compat.v1.data.get_output_types(dataset),
        lmdb_path=path,
        write_frequency=1,
    )
    assert count == 6
    assert _values(path) == _expected()
    access = yogadl.LmdbAccess(path)
    assert access.get_types() == tf.compat.v1.data.get_output_types(dataset)
    assert access.get_shapes() == tf.compat.v1.data.get_output_shapes(dataset)


@pytest.mark.parametrize(
    ("types", "shapes", "records"),
    [
        (tf.int64, tf.TensorShape([]), [1, 2]),
        (tf.float32, [], [1.5, 2.5]),
        (tf.int32, (2,), [[1, 2], [3, 4]]),
        (tf.int32, [None], [[1], [], [1, 2, 3]]),
        (tf.int32, tf.TensorShape([None, 2]), [[[1, 2]], np.zeros((0, 2), np.int32)]),
        (tf.uint8, tf.TensorShape(None), [3, [1, 2], [[1], [2]]]),
        (tf.uint8, None, [3, [1, 2]]),
        (tf.string, tf.TensorShape([]), [b"a", "ü"]),
        ((tf.int64, tf.string), (tf.TensorShape([]), tf.TensorShape([2])), [(1, [b"a", b""])]),
        ([tf.int64, tf.bool], [[], [2]], [(1, [True, False]), [2, [False, False]]]),
        ({"a": tf.int64, "b": (tf.bool,)}, {"a": (), "b": ([1],)}, [{"a": 1, "b": ([True],)}]),
        (np.float64, (1,), [[1], [2]]),
        ("bfloat16", (), [1, 2]),
    ],
)
def test_serialize_generator(
    types: Any, shapes: Any, records: list[Any], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "cache.mdb"
    assert yogadl.serialize_generator_to_lmdb(iter(records), shapes, types, path) == len(records)
    access = yogadl.LmdbAccess(path)
    flat_types = [tf.as_dtype(dtype) for dtype in tf.nest.flatten(types)]
    assert tf.nest.flatten(access.get_types()) == flat_types
    for key, record in zip(access.get_keys(), records, strict=True):
        _assert_same(access.read_value_by_key(key), record, types)


def _assert_same(found: Any, record: Any, types: Any) -> None:
    """Along the nest of the types, for lists are arrays in a record."""
    if isinstance(types, dict):
        assert found.keys() == record.keys()
        for name, child in types.items():
            _assert_same(found[name], record[name], child)
    elif isinstance(types, tuple | list):
        for one, other, child in zip(found, record, types, strict=True):
            _assert_same(one, other, child)
    else:
        expected = record.encode() if isinstance(record, str) else record
        assert np.asarray(found).tolist() == np.asarray(expected).tolist()


def test_serialize_generator_checks_records(tmp_path: pathlib.Path) -> None:
    serialize = yogadl.serialize_generator_to_lmdb
    with pytest.raises(SpecMismatchError, match="record 1"):
        serialize(iter([[1, 2], [1, 2, 3]]), tf.TensorShape([2]), tf.int64, tmp_path / "a.mdb")
    with pytest.raises((SpecMismatchError, UnsupportedTypeError)):
        serialize(iter(["text"]), tf.TensorShape([]), tf.int64, tmp_path / "a.mdb")
    with pytest.raises(InvalidArgumentError):
        serialize(iter([]), None, None, tmp_path / "a.mdb")
    assert list(tmp_path.iterdir()) == []
    assert serialize(iter([(1, b"x")]), None, None, tmp_path / "a.mdb") == 1


# LmdbAccess


def test_access(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    yogadl.tensorflow.serialize_tf_dataset_to_lmdb(_data_set(12), path, None)
    access = yogadl.LmdbAccess(lmdb_path=path)
    keys = access.get_keys()
    assert keys == [b"%08d" % number for number in range(12)]
    keys.clear()
    assert len(access.get_keys()) == 12, "a list of one's own"
    assert access.get_shapes() == {"x": tf.TensorShape([2]), "y": (tf.TensorShape([]),) * 2}
    assert access.get_types() == {"x": tf.float32, "y": (tf.int64, tf.string)}
    assert plain(access.read_value_by_key(b"00000007")) == _expected(12)[7]
    for bad in (b"00000012", b"7", b"__spec__", b"-0000001", b"", "00000007", 7, None):
        with pytest.raises(RecordIndexError):
            access.read_value_by_key(bad)  # type: ignore[arg-type]
    yogadl.LmdbAccess(str(path)).close()
    with pytest.raises(CacheNotFoundError, match="other"):
        yogadl.LmdbAccess(tmp_path / "other.mdb")


# A whole program

SCRIPT = """
import os, pathlib, sys

import tensorflow as tf

import yogadl
import yogadl.storage
import yogadl.tensorflow

lfs_config = yogadl.storage.LFSConfigurations(storage_dir_path=pathlib.Path(sys.argv[1]))
storage = yogadl.storage.LFSStorage(lfs_config, tensorflow_config=tf.compat.v1.ConfigProto())

@storage.cacheable(dataset_id="ints", dataset_version="0")
def make_records(count):
    print("building", count)
    return tf.data.Dataset.range(count)

for _ in range(2):
    dataref = make_records(10)
assert isinstance(dataref, yogadl.DataRef) and len(dataref) == 10

stream = dataref.stream(start_offset=5, shuffle=True, skip_shuffle_at_epoch_end=False,
                        shuffle_seed=777, shard_rank=0, num_shards=1, drop_shard_remainder=False)
assert isinstance(stream, yogadl.Stream) and len(stream) == stream.length == 10
assert stream.output_types == tf.int64 and stream.output_shapes == tf.TensorShape([])
assert [int(n) for n in stream.iterator_fn()] == [5, 1, 9, 6, 7]

dataset = yogadl.tensorflow.make_tf_dataset(stream)
assert isinstance(dataset, tf.data.Dataset)
for batch in dataset.repeat(2).batch(5):
    print(batch.numpy().tolist())

shards = [[int(n) for n in dataref.stream(shard_rank=r, num_shards=3)] for r in range(3)]
print(shards)

storage.submit(data=tf.data.Dataset.range(3), dataset_id="ints", dataset_version="1")
access = yogadl.LmdbAccess(os.path.join(sys.argv[1], "ints", "1", "cache.mdb"))
print(access.get_keys(), [int(access.read_value_by_key(k)) for k in access.get_keys()])
try:
    storage.fetch("ints", "2")
except FileNotFoundError:
    print("not there")
"""


def test_a_program_of_014(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", SCRIPT]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "building 10",
        "[1, 7, 3, 9, 8]",
        "[2, 6, 0, 4, 5]",
        "[9, 5, 3, 0, 8]",
        "[6, 7, 4, 1, 2]",
        "[[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]",
        "[b'00000000', b'00000001', b'00000002'] [0, 1, 2]",
        "not there",
    ]
