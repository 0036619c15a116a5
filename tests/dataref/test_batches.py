"""``stream.batches``: the records of the plain stream, as arrays, whoever reads them and when."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, data_sets, element_specs, same, structures

from yogadl import chunk_sizes, dtypes
from yogadl import spec as specs
from yogadl.cache.reader import CacheFile
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef, _batches
from yogadl.errors import ChecksumError, ClosedError, InvalidArgumentError
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, Sparse, SparseSpec, TensorSpec

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"
OLD = ("dimensions", "dtypes", "empty", "features", "images", "none", "range", "unknown")


def write(path: pathlib.Path, spec: Any, records: Any) -> pathlib.Path:
    with CacheWriter(path, spec) as writer:
        for record in records:
            writer.append(record)
        writer.commit()
    return path


@pytest.fixture(scope="module")
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


@pytest.fixture
def ten(tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache of the numbers 0 … 9."""
    return write(tmp_path / "cache.mdb", TensorSpec("int64"), range(10))


@pytest.fixture
def wide(tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache of 60 records, of 8 kB and a number each."""
    spec = {"x": TensorSpec("int64", (1000,)), "y": TensorSpec("int16")}
    records = [{"x": np.full(1000, at), "y": np.int16(at)} for at in range(60)]
    return write(tmp_path / "wide.mdb", spec, records)


ONE_BATCH = chunk_sizes.ChunkSize(1, 1)


@contextlib.contextmanager
def always_in_a_thread(chunk_bytes: int = 1) -> Iterator[None]:
    """Takes every consumer for a busy one, and reads one batch at a time."""
    with (
        mock.patch.object(_batches, "_BUSY", -1.0),
        mock.patch.object(chunk_sizes, "BATCHES", chunk_sizes.ChunkSize(chunk_bytes, 8192)),
    ):
        yield


def threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("yogadl-read-ahead")}


def ended(before: set[threading.Thread]) -> bool:
    """Whether there are soon no more threads than there were."""
    limit = time.monotonic() + 20
    while threads() - before and time.monotonic() < limit:
        time.sleep(0.01)
    return not threads() - before


def stacked(spec: Any, records: list[Any]) -> Any:
    """A batch as it is documented, made by hand."""
    rows = [specs.flatten(spec, record) for record in records]
    columns = []
    for number, leaf in enumerate(specs.leaves(spec)):
        values = [row[number] for row in rows]
        if not isinstance(leaf, TensorSpec) or leaf.static_shape is None:
            columns.append(values)
            continue
        dtype = object if leaf.is_string else dtypes.to_numpy(leaf.dtype)
        column = np.empty((len(values), *leaf.static_shape), dtype)
        for position, value in enumerate(values):
            column[position] = value
        columns.append(column)
    return specs.unflatten(spec, columns)


def in_batches(spec: Any, records: list[Any], size: int, drop: bool = False) -> list[Any]:
    parts = [records[at : at + size] for at in range(0, len(records), size)]
    return [stacked(spec, part) for part in parts if len(part) == size or not drop]


# Order


@st.composite
def stream_arguments(draw: st.DrawFn) -> dict[str, Any]:
    shards = draw(st.integers(1, 3))
    return {
        "start_offset": draw(st.integers(0, 15)),
        "shuffle": draw(st.booleans()),
        "shuffle_seed": draw(st.integers(0, 2**32 - 1)),
        "shard_rank": draw(st.integers(0, shards - 1)),
        "num_shards": shards,
        "drop_shard_remainder": draw(st.booleans()),
    }


@given(
    data_set=data_sets(element_specs, max_size=9),
    arguments=stream_arguments(),
    size=st.integers(1, 5),
    drop=st.booleans(),
    ahead=st.sampled_from([None, 0, 1, 3]),
    chunk_bytes=st.sampled_from([1, 100, 1 << 20]),
)
def test_batches_are_the_records_of_the_stream(
    folder: pathlib.Path,
    data_set: Any,
    arguments: dict[str, Any],
    size: int,
    drop: bool,
    ahead: int | None,
    chunk_bytes: int,
) -> None:
    spec, records = data_set
    before = threads()
    with LMDBDataRef(write(folder / "any.mdb", spec, records)) as dataref:
        plain = dataref.stream(**arguments)
        stream = dataref.stream(**arguments)
        batches = stream.batches(size, drop_remainder=drop, read_ahead=ahead)
        with always_in_a_thread(chunk_bytes):
            for epoch in range(3):
                expected = in_batches(spec, list(plain), size, drop)
                assert same(list(batches), expected)
                if epoch:
                    assert len(batches) == len(expected)
        if ahead == 0:
            assert threads() <= before


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("ahead", [None, 0, 1, 3])
def test_busy_consumers_get_the_same(wide: pathlib.Path, ahead: int | None, busy: bool) -> None:
    with LMDBDataRef(wide) as dataref:
        options: dict[str, Any] = {"start_offset": 7, "shuffle": True, "shuffle_seed": 5}
        plain = dataref.stream(**options)
        batches = dataref.stream(**options).batches(2, read_ahead=ahead)
        with mock.patch.object(chunk_sizes, "BATCHES", ONE_BATCH):
            for _epoch in range(2):
                found = []
                for batch in batches:
                    found.append(batch)
                    if busy:
                        time.sleep(0.001)
                assert same(found, in_batches(dataref.spec, list(plain), 2))


def test_a_busy_consumer_is_read_ahead_for_in_one_thread(wide: pathlib.Path) -> None:
    names = []
    plain = CacheFile.read_columns

    def read_columns(self: CacheFile, *arguments: Any, **options: Any) -> Any:
        names.append(threading.current_thread().name)
        return plain(self, *arguments, **options)

    with (
        LMDBDataRef(wide) as dataref,
        mock.patch.object(CacheFile, "read_columns", read_columns),
        mock.patch.object(chunk_sizes, "BATCHES", ONE_BATCH),
    ):
        for _batch in dataref.stream().batches(6):
            time.sleep(0.01)
    assert len(names) == 10
    assert len({name for name in names if name.startswith("yogadl-read-ahead")}) == 1


def test_without_an_epoch_being_read_none_is_used_up(ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref:
        stream = dataref.stream(start_offset=8)
        batches = stream.batches(4)
        assert len(batches) == 3
        unread = [iter(batches) for _ in range(3)]
        begun = iter(batches)
        assert next(begun).tolist() == [8, 9]
        assert [int(record) for record in stream] == list(range(10))
        assert [len(batch) for batch in batches] == [4, 4, 2]
        assert list(begun) == []
        assert [[len(b) for b in iterator] for iterator in unread] == [[4, 4, 2]] * 3


def test_streams_and_batches_share_their_epochs(ten: pathlib.Path) -> None:
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 777}
    with LMDBDataRef(ten) as dataref:
        plain = dataref.stream(**order)
        expected = [[int(record) for record in plain] for _ in range(5)]
        stream = dataref.stream(**order)
        threes, twos = stream.batches(3), stream.batches(2)
        assert np.concatenate(list(threes)).tolist() == expected[0]
        assert np.concatenate(list(twos)).tolist() == expected[1]
        assert [int(record) for record in stream] == expected[2]
        pairs = list(zip(threes, threes, strict=True))
        for side, epoch in zip(zip(*pairs, strict=True), expected[3:], strict=True):
            assert np.concatenate(side).tolist() == epoch


def test_batches_are_counted_from_the_offset(ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref:
        batches = dataref.stream(start_offset=3).batches(4, drop_remainder=True)
        assert len(batches) == 2
        assert [batch.tolist() for batch in batches] == [[3, 4, 5, 6]]
        assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        large = dataref.stream().batches(np.int64(100))  # type: ignore[arg-type]
        assert (len(large), [len(batch) for batch in large]) == (1, [10])
        none = dataref.stream().batches(11, drop_remainder=True)
        assert (len(none), list(none)) == (0, [])


def test_no_records(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "cache.mdb", TensorSpec("int64", (None,)), [])
    with LMDBDataRef(path) as dataref:
        for options in ({}, {"pad": 0}, {"read_ahead": 0}):
            batches = dataref.stream(start_offset=7).batches(3, **options)
            assert (len(batches), list(batches), list(batches)) == (0, [], [])


@pytest.mark.parametrize("name", OLD)
def test_caches_of_yogadl_014(name: str) -> None:
    options: dict[str, Any] = {"start_offset": 1, "shuffle": True, "shuffle_seed": 4}
    with LMDBDataRef(GOLDEN / f"{name}.mdb") as dataref:
        plain = dataref.stream(**options)
        for ahead in (0, 3):
            batches = dataref.stream(**options).batches(3, read_ahead=ahead)
            with always_in_a_thread():
                assert same(list(batches), in_batches(dataref.spec, list(plain), 3))
            plain = dataref.stream(**options)


def test_caches_of_yogadl_014_into_given_memory_and_padded() -> None:
    with LMDBDataRef(GOLDEN / "range.mdb") as dataref:
        out = [np.empty(64, "i8") for _ in range(2)]
        found = [batch.tolist() for batch in dataref.stream().batches(64, out=out)]
        assert list(itertools.chain(*found)) == list(range(1000))
    with LMDBDataRef(GOLDEN / "dimensions.mdb") as dataref:
        (batch,) = dataref.stream().batches(len(dataref), pad=-1)
        (plain,) = dataref.stream().batches(len(dataref))
        assert same(batch, padded(dataref.spec, plain, [-1, None, None]))


# Leaves


def test_what_the_leaves_of_a_batch_are(tmp_path: pathlib.Path) -> None:
    spec = {
        "image": TensorSpec("uint8", (2, 3)),
        "label": TensorSpec("int32"),
        "name": TensorSpec("string"),
        "words": TensorSpec("string", (2,)),
        "tokens": TensorSpec("int64", (None,)),
        "any": TensorSpec("float32", None),
        "maybe": OptionalSpec(TensorSpec("int64")),
        "nothing": specs.NoneSpec(),
    }
    records = [
        {
            "image": np.full((2, 3), at, "u1"),
            "label": np.int32(at),
            "name": b"%d" % at,
            "words": np.array([b"a", b"b" * at], object),
            "tokens": np.arange(at),
            "any": np.zeros((1,) * at, "f4"),
            "maybe": None if at % 2 else np.int64(at),
            "nothing": None,
        }
        for at in range(3)
    ]
    with LMDBDataRef(write(tmp_path / "cache.mdb", spec, records)) as dataref:
        (batch,) = dataref.stream().batches(3)
        assert (batch["image"].dtype, batch["image"].shape) == (np.uint8, (3, 2, 3))
        assert (batch["label"].dtype, batch["label"].tolist()) == (np.int32, [0, 1, 2])
        assert (batch["name"].dtype, batch["name"].tolist()) == (object, [b"0", b"1", b"2"])
        assert (batch["words"].dtype, batch["words"].shape) == (object, (3, 2))
        assert batch["words"][2].tolist() == [b"a", b"bb"]
        assert isinstance(batch["tokens"], list)
        assert [array.tolist() for array in batch["tokens"]] == [[], [0], [0, 1]]
        assert [array.shape for array in batch["any"]] == [(), (1,), (1, 1)]
        assert batch["maybe"] == [0, None, 2]
        assert batch["nothing"] == [None] * 3


FRESH: dict[str, tuple[Any, Any]] = {
    "one small array": (TensorSpec("int32", (3,)), lambda at: np.full(3, at, "i4")),
    "scalars": (TensorSpec("int64"), np.int64),
    "side by side": (
        (TensorSpec("int32", (3,)), TensorSpec("uint8"), TensorSpec("bool")),
        lambda at: (np.full(3, at, "i4"), np.uint8(at), np.bool_(at % 2)),
    ),
    "on pages of their own": (
        {"x": TensorSpec("int64", (700,)), "y": TensorSpec("int8")},
        lambda at: {"x": np.full(700, at), "y": np.int8(at)},
    ),
    "of varying size": (
        (TensorSpec("int32", (None,)), TensorSpec("float32", (2,)), TensorSpec("string")),
        lambda at: (np.full(at % 5 + 1, at, "i4"), np.full(2, at, "f4"), b"%d" % at),
    ),
}


def arrays_of(nest: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, tuple | list):
        for child in nest:
            yield from arrays_of(child)
    elif isinstance(nest, np.ndarray):
        yield nest


@pytest.mark.parametrize("padded_too", [False, True])
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("kind", FRESH)
def test_arrays_are_fresh_and_writable(
    kind: str, size: int, padded_too: bool, tmp_path: pathlib.Path
) -> None:
    spec, make = FRESH[kind]
    path = write(tmp_path / "cache.mdb", spec, map(make, range(13)))
    before = path.read_bytes()
    with LMDBDataRef(path) as dataref:
        options: dict[str, Any] = {"pad": 0} if padded_too else {}
        expected = list(dataref.stream().batches(size, **options))
        iterator = iter(dataref.stream().batches(size, **options))
        kept = []
        for wanted in expected:
            batch = next(iterator)
            assert same(batch, wanted)
            for array in arrays_of(batch):
                assert array.flags.writeable
                array[...] = 99 if array.dtype != object else b"changed"
            kept.append(batch)
        # No two share memory: each can be changed by itself.
        arrays = [array for batch in kept for array in arrays_of(batch)]
        for number, array in enumerate(arrays):
            array[...] = number % 2 if array.dtype != object else b"%d" % number
        for number, array in enumerate(arrays):
            assert (array == (number % 2 if array.dtype != object else b"%d" % number)).all()
        assert same(list(dataref.stream().batches(size, **options)), expected)
        dataref.verify()
    assert path.read_bytes() == before


# Padding


def padded(spec: Any, batch: Any, values: list[Any]) -> Any:
    """A batch with lists of arrays padded by hand, item by item."""
    columns = []
    for leaf, column, value in zip(
        specs.leaves(spec), specs.flatten(spec, batch), values, strict=True
    ):
        if value is None:
            columns.append(column)
            continue
        assert isinstance(leaf, TensorSpec)
        shape = [max(dims) for dims in zip(*[array.shape for array in column], strict=True)]
        whole = np.empty((len(column), *shape), dtypes.to_numpy(leaf.dtype))
        for position, array in enumerate(column):
            for index in np.ndindex(*shape):
                inside = all(at < dim for at, dim in zip(index, array.shape, strict=True))
                whole[(position, *index)] = array[index] if inside else value
        columns.append(whole)
    return specs.unflatten(spec, columns)


def varies(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec) and not leaf.is_string and leaf.static_shape is None


# One of them is unknown at least.
ranked = st.lists(st.integers(0, 3) | st.none(), min_size=1, max_size=3).map(tuple)
varying_leaves = st.builds(TensorSpec, st.sampled_from(NUMBERS), ranked)
other_leaves = st.sampled_from(
    [TensorSpec("string"), TensorSpec("string", (None,)), TensorSpec("int16", (2,)),
     specs.NoneSpec(), OptionalSpec(TensorSpec("int8")), SparseSpec("int32", (None,)),
     RaggedSpec("int32", (None, None), 1, "int64")]
)  # fmt: skip


@given(
    data_set=data_sets(structures(varying_leaves | other_leaves), max_size=7),
    size=st.integers(1, 4),
    busy=st.booleans(),
    data=st.data(),
)
def test_padded_batches(
    folder: pathlib.Path, data_set: Any, size: int, busy: bool, data: st.DataObject
) -> None:
    spec, records = data_set
    leaves = list(specs.leaves(spec))
    # 1 is a number that every dtype has.
    everywhere = data.draw(st.booleans())
    values = [1 if varies(x) and (everywhere or data.draw(st.booleans())) else None for x in leaves]
    with LMDBDataRef(write(folder / "padded.mdb", spec, records)) as dataref:
        pad = 1 if everywhere else specs.unflatten(spec, values)
        batches = dataref.stream().batches(size, pad=pad)
        with always_in_a_thread() if busy else contextlib.nullcontext():
            found = list(batches)
        expected = [padded(spec, b, values) for b in in_batches(spec, records, size)]
        assert same(found, expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", -1),
        ("int64", np.int8(-3)),
        ("uint8", 255),
        ("float32", -1e9),
        ("float32", float("nan")),
        ("float64", 0.1),
        ("float32", 0.1),
        ("float32", float("-inf")),
        ("bool", True),
        ("bfloat16", float("nan")),
        ("float16", 0.5),
        ("complex64", 1j),
    ],
)
@pytest.mark.parametrize("shape", [(None,), (None, 2), (2, None), (None, None)])
def test_pad_values(dtype: str, value: Any, shape: Any, tmp_path: pathlib.Path) -> None:
    made = [
        np.ones([at if dim is None else dim for dim in shape], dtypes.to_numpy(dtype))
        for at in (2, 0, 3, 1)
    ]
    path = write(tmp_path / "cache.mdb", TensorSpec(dtype, shape), made)
    with LMDBDataRef(path) as dataref:
        found = list(dataref.stream().batches(2, pad=value))
        expected = [padded(dataref.spec, made[at : at + 2], [value]) for at in (0, 2)]
        assert same(found, expected)
        assert same(list(dataref.stream().batches(2, pad=np.array(value))), expected)


PADDED_SPEC = {
    "tokens": TensorSpec("int32", (None,)),
    "scores": TensorSpec("float32", (None, 2)),
    "text": TensorSpec("string", (None,)),
    "any": TensorSpec("int64", None),
    "size": TensorSpec("int64"),
}
NONE = dict.fromkeys(PADDED_SPEC)


@pytest.mark.parametrize(
    "pad",
    [
        0,  # "any" has no rank
        {**NONE, "any": 0},
        {**NONE, "text": b""},
        {**NONE, "text": 0},
        {**NONE, "size": 0},
        {**NONE, "tokens": 2**40},
        {**NONE, "tokens": 2**70},
        {**NONE, "tokens": 0.5},
        {**NONE, "tokens": float("nan")},
        {**NONE, "tokens": float("inf")},
        {**NONE, "tokens": 1j},
        {**NONE, "tokens": "a"},
        {**NONE, "tokens": [0]},
        {**NONE, "tokens": np.zeros(2, "i4")},
        {**NONE, "scores": "nan"},
        {**NONE, "scores": 1e300},
        {"tokens": 0},
        {**NONE, "more": 0},
        (0, None, None, None, None),
        [],
        "0",
    ],
    ids=repr,
)
def test_pads_that_do_not_fit(pad: Any, tmp_path: pathlib.Path) -> None:
    record = {
        "tokens": np.zeros(1, "i4"), "scores": np.zeros((1, 2), "f4"),
        "text": np.array([b"a"], object), "any": np.zeros(1, "i8"), "size": np.int64(1),
    }  # fmt: skip
    with LMDBDataRef(write(tmp_path / "cache.mdb", PADDED_SPEC, [record])) as dataref:
        with pytest.raises(InvalidArgumentError):
            dataref.stream().batches(2, pad=pad)
        (batch,) = dataref.stream().batches(2, pad={**NONE, "tokens": 0, "scores": -1})
        assert batch["scores"].shape == (1, 1, 2)


def test_ragged_and_sparse_values_beside_padded_ones(tmp_path: pathlib.Path) -> None:
    spec = {
        "tokens": TensorSpec("int32", (None,)),
        "rows": RaggedSpec("int32", (None, None), 1, "int64"),
        "cells": SparseSpec("int32", (None,)),
    }
    records = [
        {
            "tokens": np.arange(at, dtype="i4"),
            "rows": Ragged(np.arange(3, dtype="i4"), (np.array([0, 1, 3]),)),
            "cells": Sparse(np.array([[at]]), np.array([at], "i4"), np.array([5])),
        }
        for at in range(4)
    ]
    with LMDBDataRef(write(tmp_path / "cache.mdb", spec, records)) as dataref:
        (plain,) = dataref.stream().batches(4)
        (batch,) = dataref.stream().batches(4, pad=0)
        assert same(plain, stacked(spec, records))
        assert same(batch, padded(spec, plain, [None, None, 0]))


# Memory of the caller


def memory(dataref: LMDBDataRef, size: int, number: int) -> list[Any]:
    def empty(leaf: Any) -> Any:
        return np.full((size, *leaf.shape), 77, dtypes.to_numpy(leaf.dtype))

    return [specs.map_leaves(empty, dataref.spec) for _ in range(number)]


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_given_memory_is_filled_in_turn(wide: pathlib.Path, number: int, busy: bool) -> None:
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1}
    with LMDBDataRef(wide) as dataref:
        out = memory(dataref, 8, number)
        expected = in_batches(dataref.spec, list(dataref.stream(**order)), 8)
        found = 0
        with always_in_a_thread() if busy else contextlib.nullcontext():
            for at, batch in enumerate(dataref.stream(**order).batches(8, out=out)):
                assert same(batch, expected[at])
                for key, array in batch.items():
                    target = out[at % number][key]
                    assert np.shares_memory(array, target)
                    assert array.ctypes.data == target.ctypes.data
                found += 1
        assert found == 8
        assert len(expected[-1]["y"]) == 4


@given(
    data_set=data_sets(
        structures(st.builds(TensorSpec, st.sampled_from(NUMBERS), st.just((2,)) | st.just(()))),
        max_size=7,
    ),
    size=st.integers(1, 4),
    number=st.integers(1, 3),
)
def test_records_in_given_memory(
    folder: pathlib.Path, data_set: Any, size: int, number: int
) -> None:
    spec, records = data_set
    with LMDBDataRef(write(folder / "out.mdb", spec, records)) as dataref:
        out = memory(dataref, size, number)
        expected = in_batches(spec, records, size)
        with always_in_a_thread():
            for batch, wanted in itertools.zip_longest(
                dataref.stream().batches(size, out=out), expected
            ):
                assert same(batch, wanted)


def test_memory_that_does_not_fit(wide: pathlib.Path) -> None:
    good = {"x": np.empty((4, 1000), "i8"), "y": np.empty(4, "i2")}
    frozen = np.empty(4, "i2")
    frozen.flags.writeable = False
    wrong: list[dict[str, Any]] = [
        {**good, "y": np.empty(4, "i4")},
        {**good, "y": np.empty(4, ">i2")},
        {**good, "y": np.empty(3, "i2")},
        {**good, "y": np.empty((4, 1), "i2")},
        {**good, "y": np.empty(8, "i2")[::2]},
        {**good, "x": np.empty((1000, 4), "i8").T},
        {**good, "y": frozen},
        {**good, "y": [0, 0, 0, 0]},
        {**good, "y": None},
        {"x": good["x"]},
        {**good, "z": np.empty(4, "i2")},
    ]
    with LMDBDataRef(wide) as dataref:
        stream = dataref.stream()
        for nest in wrong:
            for out in ([nest], [good, nest]):
                with pytest.raises(InvalidArgumentError):
                    stream.batches(4, out=out)
        for out in ([], good):
            with pytest.raises(InvalidArgumentError):
                stream.batches(4, out=out)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="read ahead"):
            stream.batches(4, out=[good], read_ahead=1)
        assert next(iter(stream.batches(4, out=[good])))["y"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("spec", "record", "array"),
    [
        (TensorSpec("string"), b"a", np.empty(2, object)),
        (TensorSpec("string", (1,)), np.array([b"a"], object), np.empty((2, 1), object)),
        (TensorSpec("int64", (None,)), np.zeros(3, "i8"), np.empty((2, 3), "i8")),
        (OptionalSpec(TensorSpec("int64")), 1, np.empty(2, "i8")),
    ],
)
def test_leaves_that_given_memory_cannot_hold(
    spec: Any, record: Any, array: Any, tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path / "cache.mdb", spec, [record] * 3)
    with LMDBDataRef(path) as dataref, pytest.raises(InvalidArgumentError, match="out="):
        dataref.stream().batches(2, out=[array])


def test_given_memory_is_the_callers_again_after_an_early_exit(wide: pathlib.Path) -> None:
    """What a thread has under way when the loop ends must not be written later."""
    before, go = threads(), threading.Event()
    plain = CacheFile.read_columns

    def read_columns(self: CacheFile, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread().name.startswith("yogadl-read-ahead"):
            go.wait(0.5)
        return plain(self, *arguments, **options)

    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        out = memory(dataref, 4, 3)
        with mock.patch.object(CacheFile, "read_columns", read_columns):
            iterator: Any = iter(dataref.stream().batches(4, out=out))
            for _ in range(2):
                next(iterator)
            iterator.close()
            for nest in out:
                for array in nest.values():
                    array[...] = -1
            go.set()
            assert ended(before)
        assert all((array == -1).all() for nest in out for array in nest.values())


# Arguments


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"batch_size": 2, "read_ahead": -1}, "read_ahead"),
        ({"batch_size": 2, "read_ahead": 1.5}, "read_ahead"),
        ({"batch_size": 2, "read_ahead": "1"}, "read_ahead"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], named: str, ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref, pytest.raises(InvalidArgumentError, match=named):
        dataref.stream().batches(**options)


# Threads and processes


def test_no_thread_is_left_running(wide: pathlib.Path) -> None:
    before = threads()
    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        batches = dataref.stream().batches(2, read_ahead=3)
        for at, _batch in enumerate(batches):
            if at == 4:
                assert threads() - before, "the test is of threads"
                break
        assert ended(before), "after break"
        iterator: Any = iter(batches)
        for _ in range(4):
            next(iterator)
        iterator.close()
        assert ended(before), "after close"
        iterator = iter(batches)
        for _ in range(4):
            next(iterator)
        del iterator
        assert ended(before), "after the last reference"
        assert len(list(batches)) == 30
        assert ended(before), "after the end"


def test_threads_with_an_iterator_each(wide: pathlib.Path) -> None:
    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        stream = dataref.stream(shuffle=True, shuffle_seed=3)
        expected = [[int(record["y"]) for record in stream] for _ in range(6)]
        batches = dataref.stream(shuffle=True, shuffle_seed=3).batches(7)
        found: list[list[int]] = []

        def consume() -> None:
            for _ in range(2):
                found.append([int(y) for batch in batches for y in batch["y"]])

        consumers = [threading.Thread(target=consume) for _ in range(3)]
        for thread in consumers:
            thread.start()
        for thread in consumers:
            thread.join()
        assert sorted(found) == sorted(expected)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("taken", [1, 3, 9])
@pytest.mark.parametrize("given_memory", [False, True])
def test_a_fork_in_the_middle_of_an_epoch(
    wide: pathlib.Path, taken: int, given_memory: bool
) -> None:
    plain = CacheFile.read_columns

    def read_columns(self: CacheFile, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.003)  # so that the fork finds chunks under way
        return plain(self, *arguments, **options)

    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 2}
        expected = in_batches(dataref.spec, list(dataref.stream(**order)), 4)
        options: dict[str, Any] = (
            {"out": memory(dataref, 4, 4)} if given_memory else {"read_ahead": 3}
        )
        with mock.patch.object(CacheFile, "read_columns", read_columns):
            iterator = iter(dataref.stream(**order).batches(4, **options))
            for _ in range(taken):
                next(iterator)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(60)
                    rest = [same(batch, expected[taken + at]) for at, batch in enumerate(iterator)]
                    code = 0 if rest == [True] * (15 - taken) else 2
                finally:
                    os._exit(code)
            rest = [same(batch, expected[taken + at]) for at, batch in enumerate(iterator)]
            assert rest == [True] * (15 - taken)
        assert os.waitpid(child, 0)[1] == 0


def test_pickled_streams_go_on_where_they_stood(wide: pathlib.Path) -> None:
    with LMDBDataRef(wide) as dataref:
        stream = dataref.stream(shuffle=True, shuffle_seed=9)
        next(iter(stream.batches(4)))
        again = pickle.loads(pickle.dumps(stream))
        assert same(list(again.batches(4)), list(stream.batches(4)))
        again.epochs.dataref.close()


# Closing and damage


@pytest.mark.parametrize("busy", [False, True])
def test_after_close(wide: pathlib.Path, busy: bool) -> None:
    before = threads()
    with always_in_a_thread() if busy else contextlib.nullcontext():
        for close_stream in (True, False):
            dataref = LMDBDataRef(wide)
            stream = dataref.stream()
            with mock.patch.object(chunk_sizes, "BATCHES", ONE_BATCH):
                batches = stream.batches(5)
                begun = iter(batches)
                first = next(begun)
                (stream if close_stream else dataref).close()
                with pytest.raises(ClosedError):
                    # What was read before may still come.
                    list(begun)
            assert list(begun) == []
            assert first["y"].tolist() == [0, 1, 2, 3, 4]
            with pytest.raises(ClosedError):
                next(iter(batches))
            with pytest.raises(ClosedError):
                stream.batches(5)
            dataref.close()
    assert ended(before)


DAMAGED = 33
DAMAGE: dict[str, tuple[Any, Any]] = {
    "inside leaves": (TensorSpec("int64", (4,)), lambda at: np.full(4, at)),
    "on pages of their own": (TensorSpec("int64", (1000,)), lambda at: np.full(1000, at)),
    "of varying size": (TensorSpec("int64", (None,)), lambda at: np.full(at % 7 + 1, at)),
}


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("kind", DAMAGE)
def test_check_records_finds_damage(kind: str, ahead: int, tmp_path: pathlib.Path) -> None:
    spec, make = DAMAGE[kind]
    path = write(tmp_path / "cache.mdb", spec, map(make, range(50)))
    with LMDBDataRef(path) as dataref:
        value = bytes(dataref.reader.read_value(DAMAGED))  # type: ignore[attr-defined]
        expected = list(dataref.stream().batches(5))
    content = bytearray(path.read_bytes())
    content[content.index(value) + len(value) - 9] ^= 4
    path.write_bytes(content)
    before = threads()
    with LMDBDataRef(path, check_records=True) as dataref, always_in_a_thread():
        found = []
        with pytest.raises(ChecksumError, match=f"record {DAMAGED} is not what was written"):
            found.extend(dataref.stream().batches(5, read_ahead=ahead))
        # What comes before it is delivered. Extending a list keeps what came.
        assert same(found, expected[: DAMAGED // 5])
        pad: Any = 0 if kind == "of varying size" else None
        with pytest.raises(ChecksumError):
            list(dataref.stream().batches(5, pad=pad, read_ahead=ahead))
        if pad is None:
            with pytest.raises(ChecksumError):
                list(dataref.stream().batches(5, out=memory(dataref, 5, 2)))
        assert ended(before)
    with LMDBDataRef(path) as dataref:
        assert len(list(dataref.stream().batches(5))) == 10
