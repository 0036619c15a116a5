"""Streams of a cache file: their order against a plain model, and the life of what they hold."""

from __future__ import annotations

import itertools
import pathlib
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import data_sets, element_specs, same

import yogadl
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError, RecordIndexError
from yogadl.orders import Order
from yogadl.shuffles import BlockShuffle, KeyedShuffle
from yogadl.spec import TensorSpec, namedtuple_class

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"
TEN = list(range(10))


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


# Order


def model(
    count: int,
    start_offset: int = 0,
    shuffle: bool = False,
    skip_shuffle_at_epoch_end: bool = False,
    shuffle_seed: int | None = None,
    shard_rank: int = 0,
    num_shards: int = 1,
    drop_shard_remainder: bool = False,
) -> Iterator[list[int]]:
    """The epochs of a stream over the records 0, 1, …, with lists of keys as 0.1.4 had them."""
    keys = list(range(count))
    if drop_shard_remainder:
        keys = keys[: count // num_shards * num_shards]
    keys = keys[shard_rank::num_shards]
    for number in itertools.count():
        if not keys:
            yield []
            continue
        epoch = start_offset // len(keys) + number
        order = keys.copy()
        if shuffle:
            assert shuffle_seed is not None
            seed = shuffle_seed if skip_shuffle_at_epoch_end else shuffle_seed + epoch
            np.random.RandomState(seed % 2**32).shuffle(order)
        yield order[start_offset % len(keys) :] if number == 0 else order


@st.composite
def stream_arguments(draw: st.DrawFn) -> dict[str, Any]:
    shards = draw(st.integers(1, 7))
    return {
        "start_offset": draw(st.integers(0, 60)),
        "shuffle": draw(st.booleans()),
        "skip_shuffle_at_epoch_end": draw(st.booleans()),
        "shuffle_seed": draw(st.integers(0, 2**32 - 1) | st.sampled_from([0, 2**32 - 1])),
        "shard_rank": draw(st.integers(0, shards - 1)),
        "num_shards": shards,
        "drop_shard_remainder": draw(st.booleans()),
    }


def check_epochs(dataref: LMDBDataRef, arguments: dict[str, Any], epochs: int) -> None:
    stream = dataref.stream(**arguments)
    whole = {**arguments, "start_offset": 0}
    assert len(stream) == stream.length == len(next(model(len(dataref), **whole)))
    for expected in itertools.islice(model(len(dataref), **arguments), epochs):
        assert [int(record) for record in stream] == expected


@given(count=st.integers(0, 40), arguments=stream_arguments(), epochs=st.integers(1, 4))
def test_order(folder: pathlib.Path, count: int, arguments: dict[str, Any], epochs: int) -> None:
    path = folder / f"{count}.mdb"
    if not path.exists():
        write(path, TensorSpec("int64"), range(count))
    with LMDBDataRef(path) as dataref:
        assert len(dataref) == count
        check_epochs(dataref, arguments, epochs)


@given(arguments=stream_arguments(), offset=st.integers(0, 2500))
def test_order_of_a_cache_of_0_1_4(arguments: dict[str, Any], offset: int) -> None:
    with LMDBDataRef(GOLDEN) as dataref:
        assert len(dataref) == 1000
        check_epochs(dataref, {**arguments, "start_offset": offset}, 2)


def test_golden_case(ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref:
        stream = dataref.stream(start_offset=5, shuffle=True, shuffle_seed=777)
        read = [int(record) for _ in range(3) for record in stream.iterator_fn()]
    batches = [read[at : at + 5] for at in range(0, 25, 5)]
    assert batches == [
        [5, 1, 9, 6, 7],
        [1, 7, 3, 9, 8],
        [2, 6, 0, 4, 5],
        [9, 5, 3, 0, 8],
        [6, 7, 4, 1, 2],
    ]


def test_more_records_than_are_read_at_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    with CacheWriter(path, (TensorSpec("int64"), TensorSpec("float32", (999,)))) as writer:
        writer.append_columns([np.arange(3000), np.zeros((3000, 999), "f4")], 3000)
        writer.commit()
    with LMDBDataRef(path) as dataref:
        for arguments in ({}, {"start_offset": 777, "shuffle": True, "shuffle_seed": 1}):
            found = [int(number) for number, _ in dataref.stream(**arguments)]
            assert found == next(model(3000, **arguments))


@pytest.mark.parametrize("shuffle", [True, False])
def test_resuming_at_every_position_gives_the_rest(ten: pathlib.Path, shuffle: bool) -> None:
    order: dict[str, Any] = {
        "shuffle": shuffle,
        "shuffle_seed": 5,
        "num_shards": 3,
        "shard_rank": 1,
    }
    with LMDBDataRef(ten) as dataref:
        stream = dataref.stream(**order)
        whole = [int(record) for _ in range(5) for record in stream]
        for at in range(len(whole) - 2 * len(stream)):
            resumed = dataref.stream(start_offset=at, **order)
            rest = [int(record) for _ in range(2) for record in resumed]
            assert rest == whole[at : at + len(rest)]


def test_an_epoch_begins_with_its_first_record(ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref:
        stream = dataref.stream(start_offset=8)
        unread = [iter(stream) for _ in range(3)]
        begun = iter(stream)
        assert next(begun) == 8
        assert list(stream) == TEN
        assert list(begun) == [9]
        assert [list(iterator) for iterator in unread] == [TEN] * 3


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("batched", [False, True])
def test_iterators_in_turn_have_each_order_made_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, count: int, batched: bool
) -> None:
    made: list[int] = []
    make = Order.permutation
    monkeypatch.setattr(
        Order, "permutation", lambda order, epoch: (made.append(epoch), make(order, epoch))[1]
    )
    numbers = range(10_000)
    dataref = LMDBDataRef(write(tmp_path / "cache.mdb", TensorSpec("int64"), numbers))
    stream = dataref.stream(shuffle=True, shuffle_seed=1)
    iterators = [
        iter(stream.batches(100, read_ahead=0) if batched else stream) for _ in range(count)
    ]
    found: list[list[Any]] = [[] for _ in iterators]
    for items in zip(*iterators, strict=True):
        for one, item in zip(found, items, strict=True):
            one.extend(item.tolist() if batched else [int(item)])
    for epoch, one in enumerate(found):
        assert one == np.random.RandomState(1 + epoch).permutation(len(numbers)).tolist()
    assert made == list(range(count))


def test_without_a_seed_one_order_is_drawn_and_kept(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "cache.mdb", TensorSpec("int64"), range(200))
    with LMDBDataRef(path) as dataref:
        stream = dataref.stream(shuffle=True, skip_shuffle_at_epoch_end=True)
        first = list(stream)
        assert first != sorted(first)
        assert sorted(first) == list(range(200))
        assert list(stream) == first
        assert list(pickle.loads(pickle.dumps(stream))) == first


def test_empty_data_set_and_empty_shard(tmp_path: pathlib.Path) -> None:
    empty = write(tmp_path / "empty.mdb", TensorSpec("int64"), [])
    two = write(tmp_path / "two.mdb", TensorSpec("int64"), [1, 2])
    shard: dict[str, Any] = {"shard_rank": 2, "num_shards": 3}
    for path, arguments in ((empty, {}), (empty, shard), (two, shard)):
        with LMDBDataRef(path) as dataref:
            for offset in (0, 7):
                stream = dataref.stream(offset, True, shuffle_seed=1, **arguments)
                assert len(stream) == 0
                assert [list(stream), list(stream.iterator_fn())] == [[], []]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start_offset": -1}, "start_offset must be at least 0, not -1"),
        ({"start_offset": 1.5}, "start_offset must be an integer, not 1.5"),
        ({"shuffle": True}, "shuffle=True needs a shuffle_seed"),
        ({"shuffle": True, "shuffle_seed": -1}, "shuffle_seed must be at least 0, not -1"),
        ({"shuffle": True, "shuffle_seed": 2**32}, f"below 2**32, and {2**32} is not"),
        ({"shuffle": True, "shuffle_seed": "a"}, "shuffle_seed must be an integer, not 'a'"),
        ({"skip_shuffle_at_epoch_end": 777}, "must be True or False, not 777"),
        ({"drop_shard_remainder": "no"}, "drop_shard_remainder must be True or False, not 'no'"),
        ({"shuffle_then_shard": [True]}, "shuffle_then_shard must be True or False, not [True]"),
        ({"num_shards": 0}, "num_shards must be at least 1, not 0"),
        ({"shard_rank": -1}, "shard_rank must be at least 0, not -1"),
        ({"shard_rank": 3, "num_shards": 3}, "shard_rank must be less than num_shards"),
    ],
)
def test_impossible_streams(ten: pathlib.Path, arguments: dict[str, Any], message: str) -> None:
    with LMDBDataRef(ten) as dataref:
        with pytest.raises(InvalidArgumentError) as caught:
            dataref.stream(**arguments)
        assert message in str(caught.value)
        assert list(dataref.stream(np.int64(8), shuffle_seed=np.uint32(3))) == [8, 9]


# Records


@given(data_set=data_sets(element_specs))
def test_records_of_every_spec(folder: pathlib.Path, data_set: Any) -> None:
    spec, records = data_set
    with LMDBDataRef(write(folder / "any.mdb", spec, records)) as dataref:
        assert same(dataref.spec, spec)
        stream = dataref.stream()
        assert same(stream.spec, spec)
        assert same(list(stream), records)
        assert same(list(dataref.stream(shuffle=True, shuffle_seed=3)), [
            records[at] for at in next(model(len(records), shuffle=True, shuffle_seed=3))
        ])  # fmt: skip
        assert same([dataref[at] for at in range(len(records))], records)


def test_types_of_records(tmp_path: pathlib.Path) -> None:
    pair = namedtuple_class("Pair", ("a", "b"))
    spec = {"n": TensorSpec("int64"), "t": (TensorSpec("string"), TensorSpec("bool")),
            "p": pair(TensorSpec("float32", (2,)), TensorSpec("string", (1,)))}  # fmt: skip
    record = {"n": 3, "t": ("ä", True), "p": pair([1.0, 2.0], ["x"])}
    path = write(tmp_path / "cache.mdb", spec, [record] * 3)
    with LMDBDataRef(path) as dataref:
        for found in (*dataref.stream(), dataref[0]):
            assert type(found["n"]) is np.int64
            assert type(found["t"]) is tuple
            assert found["t"] == ("ä".encode(), True)
            assert type(found["t"][1]) is np.bool_
            assert (type(found["p"]).__name__, found["p"]._fields) == ("Pair", ("a", "b"))
            assert found["p"].a.dtype == np.float32
            assert found["p"].b.tolist() == [b"x"]


@pytest.mark.parametrize("size", [2, 700])
@pytest.mark.parametrize("dims", [True, False])
def test_arrays_are_writable_and_not_the_file(
    tmp_path: pathlib.Path, size: int, dims: bool
) -> None:
    spec = TensorSpec("int32", (size if dims else None,))
    path = write(tmp_path / "cache.mdb", spec, [np.full(size, at, "i4") for at in range(5)])
    before = path.read_bytes()
    with LMDBDataRef(path) as dataref:
        found = [*dataref.stream(), *(dataref[at] for at in range(5)), *dataref.read(range(5))]
        for array in found:
            array[:] = -1
        assert [int(array[0]) for array in dataref.stream()] == list(range(5))
        assert dataref[3].tolist() == [3] * size
        dataref.verify()
    assert path.read_bytes() == before


def test_single_records(ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref:
        for at in range(-10, 10):
            assert dataref[at] == dataref[np.int8(at)] == TEN[at]
        for at in (10, -11, 2**70):
            with pytest.raises(RecordIndexError, match=f"there is no record {at}"):
                dataref[at]
        for wrong in ("1", 1.0, True, None, [1]):
            with pytest.raises(InvalidArgumentError):
                dataref[wrong]  # type: ignore[index]
        # An IndexError at the end is what makes an object iterable.
        assert [int(record) for record in dataref] == TEN  # type: ignore[attr-defined]


@given(indices=st.lists(st.integers(-10, 9), max_size=30))
def test_batches(indices: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        spec = {"n": TensorSpec("int32", (2,)), "s": TensorSpec("string"),
                "v": TensorSpec("int8", None)}  # fmt: skip
        rows = [{"n": [at, -at], "s": b"%d" % at, "v": np.zeros(at, "i1")} for at in range(10)]
        with LMDBDataRef(write(pathlib.Path(name, "cache.mdb"), spec, rows)) as dataref:
            for given_ in (indices, np.array(indices, "i2"), tuple(indices)):
                batch = dataref.read(given_)
                wanted = [rows[at] for at in indices]
                assert batch["n"].dtype == np.int32
                assert batch["n"].tolist() == [row["n"] for row in wanted]
                assert batch["n"].shape == (len(indices), 2)
                assert batch["s"].tolist() == [row["s"] for row in wanted]
                assert [len(row) for row in batch["v"]] == [len(row["v"]) for row in wanted]


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("varies", [False, True])
def test_columns_are_aligned_whatever_stands_before_them(
    tmp_path: pathlib.Path, count: int, varies: bool
) -> None:
    spec: dict[str, Any] = {"flag": TensorSpec("bool"), "number": TensorSpec("int64", (1,))}
    record: dict[str, Any] = {"flag": True, "number": np.array([3])}
    if varies:
        spec["tokens"], record["tokens"] = TensorSpec("int8", (None,)), np.ones(3, "i1")
    dataref = LMDBDataRef(write(tmp_path / "cache.mdb", spec, [record] * 2))
    batch = dataref.read(list(range(count)))
    for name, strides in {"flag": (1,), "number": (8, 8)}.items():
        assert batch[name].strides == strides or not count
        assert batch[name].flags.aligned
        assert batch[name].flags.owndata or batch[name].base.nbytes == batch[name].nbytes


def test_batches_of_uint64_positions(ten: pathlib.Path) -> None:
    with LMDBDataRef(ten) as dataref:
        assert dataref.read(np.array([9, 0], "u8")).tolist() == [9, 0]
        assert dataref.read(np.array([9, 0, 255], "u1")[:2]).tolist() == [9, 0]
        wrong = (
            [10],
            [-11],
            [0, 99],
            np.array([2**63], "u8"),
            np.array([2**64 - 1], "u8"),
            [2**70],
        )
        for indices in wrong:
            with pytest.raises((RecordIndexError, InvalidArgumentError)):
                dataref.read(indices)
        for indices in (3, [[1]], [1.0], ["1"], [True], None):
            with pytest.raises(InvalidArgumentError):
                dataref.read(indices)  # type: ignore[arg-type]


def test_a_batch_of_none_of_the_largest_records(tmp_path: pathlib.Path) -> None:
    # Over 2 GiB each, which NumPy has no item type for.
    path = write(tmp_path / "cache.mdb", TensorSpec("uint8", (2**31,)), [])
    with LMDBDataRef(path) as dataref:
        assert dataref.read([]).shape == (0, 2**31)
        assert list(dataref.stream()) == []


@pytest.mark.parametrize("given", [KeyedShuffle, BlockShuffle, "keyed", "False", 2, [True], 1.0])
def test_what_says_nothing_of_shuffling(given: Any) -> None:
    """It would be the full shuffle, in whose order the run would have to go on."""
    dataref = yogadl.from_arrays(np.arange(10))
    with pytest.raises(InvalidArgumentError, match="shuffle must be True, False, or a way"):
        dataref.stream(shuffle=given, shuffle_seed=1)


@pytest.mark.parametrize("given", [True, 1, np.bool_(True), False, 0, None])
def test_what_says_whether_to_shuffle(given: Any) -> None:
    dataref = yogadl.from_arrays(np.arange(10))
    wanted = list(dataref.stream(shuffle=bool(given), shuffle_seed=1))
    assert list(dataref.stream(shuffle=given, shuffle_seed=1)) == wanted
