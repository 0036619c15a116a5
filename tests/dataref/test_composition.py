"""Data sets made of others: each is a data set like any other, equal to a plain list of records."""

from __future__ import annotations

import copy
import itertools
import math
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stored import write

import yogadl
from yogadl.dataref import IndexedDataRef, LMDBDataRef
from yogadl.dataref._positions import split_positions
from yogadl.errors import (
    ClosedError,
    InvalidArgumentError,
    RecordIndexError,
    SpecMismatchError,
    StateMismatchError,
)
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

TEN = {"x": TensorSpec("float32", (2,)), "n": TensorSpec("int64"), "s": TensorSpec("string")}


def numbers(path: pathlib.Path, count: int, first: int = 0) -> LMDBDataRef:
    return write(path, TensorSpec("int64"), range(first, first + count))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("composition")


@pytest.fixture(scope="module")
def ten(folder: pathlib.Path) -> LMDBDataRef:
    return numbers(folder / "ten.mdb", 10)


@pytest.fixture(scope="module")
def six(folder: pathlib.Path) -> LMDBDataRef:
    """The numbers 100 … 105."""
    return numbers(folder / "six.mdb", 6, 100)


def ints(records: Any) -> list[int]:
    return [int(record) for record in records]


def check(dataref: IndexedDataRef, expected: list[int]) -> None:
    """It has these records, by every way to read them."""
    count = len(expected)
    assert len(dataref) == count
    assert ints(dataref[at] for at in range(-count, count)) == expected * 2
    assert dataref.read(np.arange(count)[::-1]).tolist() == expected[::-1]
    for clone in (dataref, copy.copy(dataref), pickle.loads(pickle.dumps(dataref))):
        assert ints(clone.stream()) == expected
        assert clone.reader.content_id == dataref.reader.content_id
    for rank in range(3):
        assert ints(dataref.stream(shard_rank=rank, num_shards=3)) == expected[rank::3]
    order = np.arange(count)
    np.random.RandomState(7).shuffle(order)
    stream = dataref.stream(shuffle=True, shuffle_seed=7)
    assert ints(stream) == [expected[at] for at in order]
    batches = dataref.stream(shuffle=True, shuffle_seed=7).batches(4)
    assert ints(itertools.chain.from_iterable(batches)) == [expected[at] for at in order]
    if count > 2:
        half = dataref.stream(shuffle=True, shuffle_seed=7)
        iterator = iter(half)
        taken = [int(next(iterator)) for _ in range(2)]
        rest = ints(dataref.stream(state=half.state_dict()))
        assert taken + rest == [expected[at] for at in order]


# Selecting


@given(indices=st.lists(st.integers(-10, 9), min_size=1, max_size=30))
def test_select(ten: LMDBDataRef, indices: list[int]) -> None:
    check(ten.select(indices), [range(10)[at] for at in indices])


@given(part=st.slices(10))
def test_slices(ten: LMDBDataRef, part: slice) -> None:
    check(ten[part], list(range(10))[part])


@given(first=st.slices(10), indices=st.lists(st.integers(0, 99), max_size=9))
def test_a_selection_of_a_selection(ten: LMDBDataRef, first: slice, indices: list[int]) -> None:
    kept = list(range(10))[first]
    indices = [index % len(kept) for index in indices] if kept else []
    check(ten[first].select(indices), [kept[index] for index in indices])


def test_what_is_not_there_cannot_be_selected(ten: LMDBDataRef) -> None:
    with pytest.raises(RecordIndexError, match="no record 10"):
        ten.select([0, 10])
    with pytest.raises(InvalidArgumentError, match="1-D array of integers"):
        ten.select([0.5])  # type: ignore[list-item]


# Metadata


def test_a_part_of_a_data_set_keeps_its_metadata(folder: pathlib.Path, six: LMDBDataRef) -> None:
    storage = LFSStorage(folder)
    storage.submit(range(6), "classes", "1", metadata={"class_names": ["cat", "dog"]})
    whole = storage.fetch("classes", "1")
    parts = whole.split({"train": 0.5, "valid": 0.5}, seed=1)
    for part in (*parts.values(), whole[:3], whole.select([1]), whole[1:][1:]):
        assert part.metadata == {"class_names": ["cat", "dog"]}
        assert pickle.loads(pickle.dumps(part)).metadata == part.metadata
    joined = [
        yogadl.concat([whole, six]),
        yogadl.zip((whole, six)),
        yogadl.mix([whole, six], [1, 1]),
    ]
    for dataref in (six[:2], *joined, joined[0][:2]):
        assert dataref.metadata == {}
    closed = whole[:3]
    closed.close()
    with pytest.raises(ClosedError):
        _ = closed.metadata


# Splitting


@given(
    count=st.integers(0, 40),
    shares=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any),
    seed=st.none() | st.integers(0, 2**32 - 1),
)
def test_a_split_has_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, count: int, shares: list[int], seed: int | None
) -> None:
    whole = numbers(tmp_path_factory.mktemp("split") / "cache.mdb", count)
    parts = {str(number): share / sum(shares) for number, share in enumerate(shares)}
    found = {name: ints(part.stream()) for name, part in whole.split(parts, seed).items()}
    assert sorted(itertools.chain.from_iterable(found.values())) == list(range(count))
    for name, records in found.items():
        assert abs(len(records) - parts[name] * count) <= 1
        assert records == sorted(records)
    whole.close()


@st.composite
def shares_of_1(draw: st.DrawFn) -> list[float]:
    """Floats that add up to 1, or nearly so."""
    parts = draw(st.lists(st.floats(0, 1) | st.sampled_from([0.1, 1e-12]), min_size=1, max_size=6))
    total = math.fsum(parts)
    if total == 0:
        return [1.0]
    shares = [part / total for part in parts]
    at = draw(st.integers(0, len(shares) - 1))
    shares[at] = min(1.0, max(0.0, shares[at] + draw(st.floats(-9e-10, 9e-10))))
    return shares


@given(count=st.integers(0, 10**15) | st.integers(0, 100), shares=shares_of_1())
@example(10**10, [0.5, 0.4999999995])
@example(10**15, [0.1] * 10)
@example(3, [0.3333333333333333] * 3)
def test_a_split_without_a_seed_has_every_record_once(count: int, shares: list[float]) -> None:
    named = {str(number): share for number, share in enumerate(shares)}
    runs = [part.range for part in split_positions(count, named, None).values()]
    assert [run.start for run in runs] == [0, *[run.stop for run in runs[:-1]]]
    assert runs[-1].stop == count
    for run, share in zip(runs, shares, strict=True):
        assert abs(len(run) - share * count) <= 1 + 2e-9 * count


@given(count=st.integers(0, 300), shares=shares_of_1(), seed=st.integers(0, 2**32 - 1))
def test_a_split_by_a_seed_has_every_position_once(
    count: int, shares: list[float], seed: int
) -> None:
    named = {str(number): share for number, share in enumerate(shares)}
    parts = split_positions(count, named, seed).values()
    found = [part.of(np.arange(len(part))) for part in parts]
    assert np.sort(np.concatenate(found)).tolist() == list(range(count))


def test_splits_are_frozen(ten: LMDBDataRef) -> None:
    shares = {"train": 0.7, "valid": 0.3}
    found = ten.split(shares, seed=777)
    order = np.arange(10)
    np.random.RandomState(777).shuffle(order)
    assert ints(found["train"].stream()) == sorted(order[:7].tolist())
    assert ints(found["valid"].stream()) == sorted(order[7:].tolist())
    check(found["train"], sorted(order[:7].tolist()))
    in_order = ten.split(shares)
    assert ints(in_order["train"].stream()) == list(range(7))
    assert ints(in_order["valid"].stream()) == [7, 8, 9]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"a": 0.5, "b": 0.4}, "must add up to 1"),
        ({"a": 1.5, "b": -0.5}, "'a' has 1.5"),
        ({"a": True}, "'a' has True"),
        ({"a": "1"}, "'a' has '1'"),
        ({}, "must add up to 1"),
    ],
)
def test_impossible_splits(ten: LMDBDataRef, shares: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ten.split(shares, seed=1)


# One after the other


def test_concat(ten: LMDBDataRef, six: LMDBDataRef) -> None:
    check(yogadl.concat([ten, six]), [*range(10), *range(100, 106)])
    check(yogadl.concat([six[:0], six, ten[::2]]), [*range(100, 106), *range(0, 10, 2)])
    check(yogadl.concat([ten, ten]), [*range(10), *range(10)])


def test_concat_of_shapes_that_differ(folder: pathlib.Path) -> None:
    """What differs is unknown in the whole; strings, and what does not differ, are as ever."""
    short = {**TEN, "x": TensorSpec("float32", (3,))}
    left = [{"x": np.full(2, n, "f4"), "n": n, "s": b"l"} for n in range(3)]
    right = [{"x": np.full(3, n, "f4"), "n": n, "s": b"r"} for n in range(3)]
    whole = yogadl.concat(
        [write(folder / "left.mdb", TEN, left), write(folder / "right.mdb", short, right)]
    )
    assert whole.spec == {**TEN, "x": TensorSpec("float32", (None,))}
    for record, expected in zip(whole.stream(), left + right, strict=True):
        assert np.array_equal(record["x"], expected["x"])
        assert record["s"] == expected["s"]
    (batch,) = whole.stream(shuffle=True, shuffle_seed=1).batches(6, pad=-1)
    assert batch["x"].shape == (6, 3)
    assert sorted(batch["n"].tolist()) == [0, 0, 1, 1, 2, 2]
    only_left = whole.read([0, 1])
    assert [value.tolist() for value in only_left["x"]] == [[0, 0], [1, 1]]


def test_concat_of_what_does_not_fit(ten: LMDBDataRef, folder: pathlib.Path) -> None:
    floats = write(folder / "floats.mdb", TensorSpec("float32"), [1.0])
    with pytest.raises(SpecMismatchError, match="nothing in common"):
        yogadl.concat([ten, floats])
    with pytest.raises(InvalidArgumentError, match="takes a list"):
        yogadl.concat([])
    with pytest.raises(InvalidArgumentError, match="takes a list"):
        yogadl.concat(ten)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="can be read by position"):
        yogadl.concat([ten, range(3)])  # type: ignore[list-item]


# Side by side


def test_zip(ten: LMDBDataRef, six: LMDBDataRef) -> None:
    pairs = yogadl.zip((ten[:6], {"six": six}))
    assert pairs.spec == (TensorSpec("int64"), {"six": TensorSpec("int64")})
    expected = [(n, {"six": n + 100}) for n in range(6)]
    assert list(pairs.stream()) == expected
    assert [pairs[at] for at in range(6)] == expected
    order = ints(ten[:6].stream(shuffle=True, shuffle_seed=3))
    assert [int(n) for n, _ in pairs.stream(shuffle=True, shuffle_seed=3)] == order
    (batch,) = pairs.stream().batches(6)
    assert batch[0].tolist() == list(range(6))
    assert batch[1]["six"].tolist() == list(range(100, 106))
    memory = [(np.empty(3, "i8"), {"six": np.empty(3, "i8")})]
    for first, second in pairs.stream().batches(3, out=memory):
        assert (second["six"] - first == 100).all()
    assert list(pickle.loads(pickle.dumps(pairs)).stream()) == expected


def test_only_what_is_equally_long_can_be_zipped(ten: LMDBDataRef, six: LMDBDataRef) -> None:
    with pytest.raises(InvalidArgumentError, match=r"have \[6, 10\]; .* dataref\[:6\]"):
        yogadl.zip((ten, six))
    with pytest.raises(InvalidArgumentError, match="can be read by position"):
        yogadl.zip((ten, [1, 2]))


# In turn


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((1, 1), [0, 100, 1, 101, 2, 102, 3, 103, 4, 104, 5, 105, 6]),
        ((0.75, 0.25), [0, 1, 100, 2, 3, 4, 101, 5, 6, 7, 102, 8, 9]),
        ((1, 2), [100, 0, 101, 102, 1, 103, 104, 2, 105]),
    ],
)
def test_mixes_are_frozen(
    ten: LMDBDataRef, six: LMDBDataRef, weights: tuple[float, float], expected: list[int]
) -> None:
    check(yogadl.mix([ten, six], weights), expected)


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    data=st.data(),
)
def test_a_mix_keeps_to_its_weights(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    weights = [data.draw(st.integers(1, 30) | st.floats(0.01, 9)) for _ in lengths]
    parts = [numbers(folder / f"{at}.mdb", length, 1000 * at) for at, length in enumerate(lengths)]
    records = ints(yogadl.mix(parts, weights).stream())
    counts = np.zeros(len(lengths), int)
    for number, record in enumerate(records, 1):
        source, position = divmod(record, 1000)
        assert position == counts[source], "each is read in its own order"
        counts[source] += 1
        shares = np.array(weights) / sum(weights) * number
        assert (abs(counts - shares) < len(lengths) + 1e-3 * number).all()
    # It could not have gone on: one of them has run out.
    assert any(count == length for count, length in zip(counts, lengths, strict=True))
    for part in parts:
        part.close()


@pytest.mark.parametrize(
    "weights",
    [(1,), (1, 0), (1, -1), (1, float("nan")), (1, "1"), (1, True), (1, np.complex64(1))]
    + [0.5, None, np.array(2), {1: 1, 2: 1}, iter([1, 1])],
)
def test_impossible_weights(ten: LMDBDataRef, six: LMDBDataRef, weights: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="weight"):
        yogadl.mix([ten, six], weights)


# Life


MAKERS: list[Callable[[LMDBDataRef], IndexedDataRef]] = [
    lambda ref: ref[2:5],
    lambda ref: ref.select([3, 1]),
    lambda ref: yogadl.concat([ref, ref]),
    lambda ref: yogadl.zip((ref, ref)),
    lambda ref: yogadl.mix([ref, ref], [1, 2]),
]


@pytest.mark.usefixtures("ten")
@pytest.mark.parametrize("make", MAKERS)
def test_closing(make: Callable[[LMDBDataRef], IndexedDataRef], folder: pathlib.Path) -> None:
    with LMDBDataRef(folder / "ten.mdb") as base:
        with make(base) as made:
            stream = made.stream()
        with pytest.raises(ClosedError):
            list(stream)
        with pytest.raises(ClosedError):
            made[0]
        made.close()
        assert len(base) == 10, "what it is made of stays open"
        again = make(base)
    with pytest.raises(ClosedError):
        again[0]


def test_identities_differ(ten: LMDBDataRef, six: LMDBDataRef) -> None:
    made = [
        ten,
        six,
        ten[:5],
        ten[:6],
        ten[::2],
        ten.select([0, 1, 2, 4]),
        ten.select([0, 1, 2, 4, 3]),
        ten.split({"a": 0.5, "b": 0.5}, seed=1)["a"],
        ten.split({"a": 0.5, "b": 0.5}, seed=2)["a"],
        yogadl.concat([ten, six]),
        yogadl.concat([six, ten]),
        yogadl.mix([ten, six], [1, 1]),
        yogadl.mix([ten, six], [1, 2]),
        yogadl.zip((ten[:6], six)),
        yogadl.zip({"a": ten[:6], "b": six}),
        yogadl.zip({"a": ten[:6], "c": six}),
    ]
    assert len({dataref.reader.content_id for dataref in made}) == len(made)
    state = made[5].stream().state_dict()
    with pytest.raises(StateMismatchError):
        made[6].stream(state=state)
