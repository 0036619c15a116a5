"""The place of a stream, saved and restored."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import pathlib
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleaving import in_between

from yogadl import KeyedShuffle
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.dataref._epochs import Epochs
from yogadl.errors import ClosedError, InvalidArgumentError, StateMismatchError
from yogadl.spec import TensorSpec

COUNT = 11


def write(path: pathlib.Path, count: int = COUNT, first: int = 0) -> LMDBDataRef:
    with CacheWriter(path, TensorSpec("int64")) as writer:
        for number in range(count):
            writer.append(first + number)
        writer.commit()
    return LMDBDataRef(path)


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return write(tmp_path_factory.mktemp("state") / "cache.mdb")


ORDERS: list[dict[str, Any]] = [
    {},
    {"shuffle": True, "shuffle_seed": 5},
    {"shuffle": True, "shuffle_seed": 5, "skip_shuffle_at_epoch_end": True},
    {"shuffle": True, "skip_shuffle_at_epoch_end": True},
    {"shard_rank": 1, "num_shards": 3},
    {"shuffle": True, "shuffle_seed": 5, "shard_rank": 2, "num_shards": 3},
    {
        "shuffle": True,
        "shuffle_seed": 5,
        "shard_rank": 1,
        "num_shards": 2,
        "drop_shard_remainder": True,
    },
    {
        "shuffle": True,
        "shuffle_seed": 5,
        "shard_rank": 0,
        "num_shards": 2,
        "shuffle_then_shard": True,
    },
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("offset", [0, 3, 25])
def test_resuming_at_every_position(
    dataref: LMDBDataRef, order: dict[str, Any], offset: int
) -> None:
    shard = {name: order[name] for name in ("shard_rank", "num_shards") if name in order}
    original = dataref.stream(offset, **order)
    epochs = []
    for _ in range(3):
        states = [original.state_dict()]
        records = []
        for record in original:
            records.append(int(record))
            states.append(original.state_dict())
        epochs.append((records, states, original.state_dict()))
    for number, (records, states, after) in enumerate(epochs[:-1]):
        following = epochs[number + 1][0]
        for taken, state in enumerate(states):
            resumed = dataref.stream(state=json.loads(json.dumps(state)), **shard)
            rest = records[taken:]
            if rest:
                assert list(map(int, resumed)) == rest
                assert list(map(int, resumed)) == following
            assert dataref.stream(state=state, **shard).state_dict() == state
        # Between the last record and the end, a rank may stand at the end of others, or its own.
        assert list(map(int, dataref.stream(state=after, **shard))) == following


@given(size=st.integers(1, 13), taken=st.integers(0, 12), offset=st.integers(0, 30))
def test_batches_count(dataref: LMDBDataRef, size: int, taken: int, offset: int) -> None:
    original = dataref.stream(offset, shuffle=True, shuffle_seed=5)
    batches = iter(original.batches(size))
    given_out = sum(len(batch) for batch in itertools.islice(batches, taken))
    if given_out == 0:
        return
    resumed = dataref.stream(state=original.state_dict())
    plain = dataref.stream(offset + given_out, shuffle=True, shuffle_seed=5)
    assert list(resumed) == list(plain)


def test_the_iterator_begun_last_counts(dataref: LMDBDataRef) -> None:
    stream = dataref.stream()
    first, second = iter(stream), iter(stream)
    next(first)
    next(first)
    assert (stream.state_dict()["epoch"], stream.state_dict()["offset"]) == (0, 2)
    next(second)
    assert (stream.state_dict()["epoch"], stream.state_dict()["offset"]) == (1, 1)
    next(first)
    assert (stream.state_dict()["epoch"], stream.state_dict()["offset"]) == (1, 1)


def test_the_place_never_goes_back_while_threads_begin_epochs(dataref: LMDBDataRef) -> None:
    stream = dataref.stream(shuffle=True, shuffle_seed=5)

    def place() -> tuple[int, int]:
        state = stream.state_dict()
        return state["epoch"], state["offset"]

    def read(_: int) -> bool:
        last, is_right = place(), True
        for _ in range(200):
            iterator = iter(stream)
            for _ in range(2):
                next(iterator)
                now = place()
                is_right, last = is_right and last <= now, now
        return is_right

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert place() == (799, 2)


def test_another_epoch_is_begun_at_any_moment(dataref: LMDBDataRef) -> None:
    for function in (Epochs.begin, Epochs._keep_cursor, Epochs._next_record):
        pairs = in_between(
            function,
            lambda: dataref.stream(1).epochs,
            lambda epochs: (
                epochs.place().what_comes(),
                next(epochs()),
                epochs.place().what_comes(),
            ),
        )
        for epochs, run in pairs:
            before, first, after = run(lambda epochs=epochs: next(epochs()))
            assert before in [(0, 1), (0, 2)]
            assert (int(first), after) in [(1, (0, 2)), (1, (1, 1)), (0, (1, 1))]
            assert epochs.place().what_comes() == (1, 1)
            assert len(epochs._cursors) <= 2


def test_what_a_state_is(dataref: LMDBDataRef) -> None:
    stream = dataref.stream(shuffle=True, shuffle_seed=5, shard_rank=1, num_shards=3)
    next(iter(stream))
    assert stream.state_dict() == {
        "format": 1,
        "dataset": dataref.reader.content_id,
        "records": COUNT,
        "shuffle": True,
        "reshuffle": True,
        "seed": 5,
        "drop_shard_remainder": False,
        "shuffle_then_shard": False,
        "shard_rank": 1,
        "num_shards": 3,
        "epoch": 0,
        "offset": 1,
    }


def test_the_same_order_may_be_given_again(dataref: LMDBDataRef) -> None:
    for order in ORDERS:
        state = dataref.stream(4, **order).state_dict()
        assert dataref.stream(state=state, **order).state_dict() == state


@pytest.mark.parametrize(
    "changed",
    [
        {"shuffle": True, "shuffle_seed": 6},
        {"shuffle_seed": 6},
        {"shuffle": True, "shuffle_seed": 5, "skip_shuffle_at_epoch_end": True},
        {"shuffle": True, "shuffle_seed": 5, "drop_shard_remainder": True},
        {"shuffle": True, "shuffle_seed": 5, "shuffle_then_shard": True},
        {"drop_shard_remainder": True},
        {"shard_rank": 1, "num_shards": 3},
        {"num_shards": 2},
    ],
    ids=str,
)
def test_another_order_is_refused(dataref: LMDBDataRef, changed: dict[str, Any]) -> None:
    state = dataref.stream(4, shuffle=True, shuffle_seed=5).state_dict()
    with pytest.raises(StateMismatchError, match=r"another order|not of shard"):
        dataref.stream(state=state, **changed)


def test_the_seed_alone_may_be_given_again(dataref: LMDBDataRef) -> None:
    state = dataref.stream(4, shuffle=True, shuffle_seed=5).state_dict()
    assert dataref.stream(state=state, shuffle_seed=np.int64(5)).state_dict() == state
    plain = dataref.stream(4, shuffle_seed=5).state_dict()
    assert dataref.stream(state=plain, shuffle_seed=6).state_dict() == plain


def test_what_differs_is_told_by_the_arguments(dataref: LMDBDataRef) -> None:
    state = dataref.stream(4, shuffle=True, shuffle_seed=5).state_dict()
    with pytest.raises(StateMismatchError) as caught:
        dataref.stream(state=state, shuffle=KeyedShuffle(), shuffle_seed=6)
    assert "shuffle=True is now KeyedShuffle(" in str(caught.value)
    assert "shuffle_seed=5 is now 6" in str(caught.value)


def test_another_data_set_is_refused(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    state = dataref.stream(4).state_dict()
    for number, (count, first) in enumerate(((COUNT, 1), (COUNT + 1, 0))):
        other = write(tmp_path / f"{number}.mdb", count, first)
        with pytest.raises(StateMismatchError, match="another data set"):
            other.stream(state=state)
    # The same records, built again, are the same data set.
    assert list(write(tmp_path / "copy.mdb").stream(state=state)) == list(range(4, COUNT))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: None, "takes what state_dict"),
        (lambda state: {**state, "format": 2}, "takes what state_dict"),
        (lambda state: {name: state[name] for name in state if name != "seed"}, "lacks 'seed'"),
        (lambda state: {**state, "offset": -1}, "offset must be at least 0"),
        (lambda state: {**state, "offset": COUNT + 1}, "beyond"),
        (lambda state: {**state, "epoch": 1.5}, "epoch must be an integer"),
        (lambda state: {**state, "shuffle": "yes"}, "shuffle of a state must be a bool"),
        (lambda state: {**state, "seed": 2**32}, "seed must be below"),
        (lambda state: {**state, "shard_rank": 1}, "shard_rank must be less"),
    ],
)
def test_what_is_no_state(dataref: LMDBDataRef, change: Any, message: str) -> None:
    changed = change(dataref.stream(4).state_dict())
    if changed is None:
        changed = "state"
    with pytest.raises(InvalidArgumentError, match=message):
        dataref.stream(state=changed)


def test_an_offset_and_a_state_contradict_each_other(dataref: LMDBDataRef) -> None:
    with pytest.raises(InvalidArgumentError, match="not both"):
        dataref.stream(3, state=dataref.stream(4).state_dict())


def test_a_closed_stream_has_no_place(dataref: LMDBDataRef) -> None:
    stream = dataref.stream()
    stream.close()
    with pytest.raises(ClosedError):
        stream.state_dict()


def test_an_empty_data_set(tmp_path: pathlib.Path) -> None:
    empty = write(tmp_path / "cache.mdb", 0)
    stream = empty.stream()
    assert list(stream) == []
    assert list(empty.stream(state=stream.state_dict())) == []


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("shuffle_then_shard", [False, True])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("count", [0, 2])
def test_epochs_without_records_count(
    tmp_path: pathlib.Path,
    count: int,
    drop: bool,
    shuffle_then_shard: bool,
    batch_size: int | None,
) -> None:
    """A rank that has no records is done when the others are."""
    dataref = write(tmp_path / "cache.mdb", count)
    stream = dataref.stream(
        shuffle=True,
        shuffle_seed=1,
        shard_rank=2,
        num_shards=3,
        drop_shard_remainder=drop,
        shuffle_then_shard=shuffle_then_shard,
    )
    for epoch in range(3):
        state = json.loads(json.dumps(stream.state_dict()))
        assert (state["epoch"], state["offset"]) == (epoch, 0)
        resumed = dataref.stream(state=state, shard_rank=2, num_shards=3)
        assert resumed.state_dict() == state
        assert list(stream if batch_size is None else stream.batches(batch_size)) == []
