"""``stream.batches``: the records of the plain stream, as arrays, whoever reads them and when."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from batch_rig import (
    ONE_BATCH,
    always_in_a_thread,
    ended,
    in_batches,
    memory,
    padded,
    threads,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from strategies import data_sets, element_specs, same

from yogadl import chunk_sizes
from yogadl import spec as specs
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError, ClosedError, InvalidArgumentError
from yogadl.spec import OptionalSpec, TensorSpec

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"
OLD = ("dimensions", "dtypes", "empty", "features", "images", "none", "range", "unknown")


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


# Arguments


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"batch_size": 2, "drop_remainder": "no"}, "drop_remainder"),
        ({"batch_size": 2, "read_ahead": -1}, "read_ahead"),
        ({"batch_size": 2, "read_ahead": 1.5}, "read_ahead"),
        ({"batch_size": 2, "read_ahead": "1"}, "read_ahead"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], named: str, ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref, pytest.raises(InvalidArgumentError, match=named):
        dataref.stream().batches(**options)


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


@pytest.mark.parametrize("size", [1, 3, 4, 5, 7, 10])
@pytest.mark.parametrize("offset", [0, 1, 4])
@pytest.mark.parametrize("order", [{}, {"num_shards": 3, "shard_rank": 1}], ids=str)
def test_what_is_left_out_does_not_come_after_a_resume(
    ten: pathlib.Path, size: int, offset: int, order: dict[str, Any]
) -> None:
    """Saved behind the last batch of an epoch, or anywhere, what comes next is the next batch."""
    with LMDBDataRef(ten) as dataref:
        stream = dataref.stream(start_offset=offset, **order)
        batches = stream.batches(size, drop_remainder=True)
        told: list[tuple[Any, list[int]]] = []
        for _ in range(3):
            for batch in batches:
                told.append((stream.state_dict(), batch.tolist()))
        following = [batch for _, batch in told]
        for number, (state, _) in enumerate(told[:-1]):
            resumed = dataref.stream(state=state, **order).batches(size, drop_remainder=True)
            assert next(iter(resumed)).tolist() == following[number + 1]


def test_behind_the_last_batch_all_ranks_are_in_the_next_epoch(ten: pathlib.Path) -> None:
    """Also those that have fewer records, if these are left out."""
    with LMDBDataRef(ten) as dataref:
        for count in (2, 3, 4):
            states = []
            for rank in range(count):
                stream = dataref[:7].stream(
                    num_shards=count, shard_rank=rank, shuffle_then_shard=True
                )
                for _ in stream.batches(1 if count == 4 else 2, drop_remainder=True):
                    states.append(stream.state_dict())
            lasts = [(it["epoch"], it["offset"]) for it in states if it["epoch"]]
            assert lasts == [(1, 0)] * count
