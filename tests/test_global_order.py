"""``shuffle_then_shard``: one order for all ranks, any number of which go on where others stopped.

The orders here are frozen: runs are resumed by them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.cache.writer import CacheWriter
from yogadl.dataref import IndexedStream, LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.spec import TensorSpec

COUNT = 23
SEED = 777
ranks = st.integers(1, 5)


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    path = tmp_path_factory.mktemp("global") / "cache.mdb"
    with CacheWriter(path, TensorSpec("int64")) as writer:
        for number in range(COUNT):
            writer.append(number)
        writer.commit()
    return LMDBDataRef(path)


def flat(parts: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(parts))


def order_of_epoch(epoch: int) -> list[int]:
    positions = np.arange(COUNT)
    np.random.RandomState(SEED + epoch).shuffle(positions)
    return positions.tolist()  # type: ignore[no-any-return]


def stream(dataref: LMDBDataRef, rank: int, count: int, **options: Any) -> IndexedStream:
    options = {"shuffle": True, "shuffle_seed": SEED, **options}
    return dataref.stream(shard_rank=rank, num_shards=count, shuffle_then_shard=True, **options)


def test_ranks_take_turns_in_one_order(dataref: LMDBDataRef) -> None:
    streams = [stream(dataref, rank, 3) for rank in range(3)]
    for epoch in range(2):
        order = order_of_epoch(epoch)
        for rank, part in enumerate(streams):
            assert list(part) == order[rank::3]
    assert [len(part) for part in streams] == [8, 8, 7]


def test_unshuffled_is_as_ever(dataref: LMDBDataRef) -> None:
    for rank in range(3):
        ours = stream(dataref, rank, 3, shuffle=False, shuffle_seed=None)
        assert list(ours) == list(dataref.stream(shard_rank=rank, num_shards=3))


def test_remainders_differ_from_epoch_to_epoch(dataref: LMDBDataRef) -> None:
    streams = [stream(dataref, rank, 4, drop_shard_remainder=True) for rank in range(4)]
    left_out = []
    for epoch in range(2):
        parts = [list(part) for part in streams]
        assert {len(part) for part in parts} == {5}
        assert sorted(flat(parts)) == sorted(order_of_epoch(epoch)[:20])
        left_out.append(set(range(COUNT)) - set(flat(parts)))
    assert left_out[0] != left_out[1]


@given(first=ranks, second=ranks, steps=st.integers(0, 60))
def test_others_go_on_where_some_stopped(
    dataref: LMDBDataRef, first: int, second: int, steps: int
) -> None:
    """Stopped after any number of steps, also in a later epoch: every record comes just once."""
    running = [stream(dataref, rank, first) for rank in range(first)]
    epoch = 0
    while True:
        seen: list[int] = []
        iterators = [iter(part) for part in running]
        taken = 0
        while taken < steps:
            records = [
                int(record) for it in iterators for record in [next(it, None)] if record is not None
            ]
            if not records:
                break
            seen += records
            taken += 1
        steps -= taken
        if len(seen) < COUNT or steps == 0:
            break
        for it in iterators:
            assert next(it, None) is None
        epoch += 1
    state = json.loads(json.dumps(running[0].state_dict()))
    later = [
        dataref.stream(state=state, shard_rank=rank, num_shards=second) for rank in range(second)
    ]
    if len(seen) == COUNT:
        seen, epoch = [], epoch + 1
    assert seen == order_of_epoch(epoch)[: len(seen)]
    rest = [list(map(int, part)) for part in later]
    assert sorted(seen + flat(rest)) == list(range(COUNT))
    for rank, part in enumerate(rest):
        assert part == order_of_epoch(epoch)[len(seen) + rank :: second]
    for rank, following in enumerate(later):
        assert list(following) == order_of_epoch(epoch + 1)[rank::second]


@given(first=ranks, second=ranks, third=ranks, stops=st.tuples(*[st.integers(0, 4)] * 2))
def test_stopping_twice_in_an_epoch(
    dataref: LMDBDataRef, first: int, second: int, third: int, stops: tuple[int, int]
) -> None:
    seen: list[int] = []
    state = None
    for count, stop in zip((first, second), stops, strict=True):
        parts = [
            stream(dataref, rank, count)
            if state is None
            else dataref.stream(state=state, shard_rank=rank, num_shards=count)
            for rank in range(count)
        ]
        iterators = [iter(part) for part in parts]
        for _ in range(stop):
            seen += [
                int(record) for it in iterators for record in [next(it, None)] if record is not None
            ]
        state = parts[0].state_dict()
    assert seen == order_of_epoch(0)[: len(seen)]
    if len(seen) == COUNT:
        return
    rest = [
        list(map(int, dataref.stream(state=state, shard_rank=rank, num_shards=third)))
        for rank in range(third)
    ]
    assert sorted(seen + flat(rest)) == list(range(COUNT))


@given(count=ranks, offset=st.integers(0, 3 * COUNT), drop=st.booleans())
def test_an_offset_counts_what_all_have_read(
    dataref: LMDBDataRef, count: int, offset: int, drop: bool
) -> None:
    length = COUNT - COUNT % count if drop else COUNT
    epoch, start = divmod(offset, length)
    for rank in range(count):
        part = stream(dataref, rank, count, start_offset=offset, drop_shard_remainder=drop)
        rest = order_of_epoch(epoch)[start:]
        rest = rest[: len(rest) - len(rest) % count] if drop else rest
        assert list(part) == rest[rank::count]
        assert list(part) == order_of_epoch(epoch + 1)[:length][rank::count]


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batches(dataref: LMDBDataRef, batch_size: int) -> None:
    for rank in range(4):
        part = stream(dataref, rank, 4, start_offset=5)
        found = [batch.tolist() for batch in part.batches(batch_size)]
        expected = order_of_epoch(0)[5 + rank :: 4]
        assert flat(found) == expected
        assert {len(batch) for batch in found[:-1]} <= {batch_size}


def test_shards_need_a_seed(dataref: LMDBDataRef) -> None:
    with pytest.raises(InvalidArgumentError, match="would deal out different orders"):
        stream(dataref, 0, 2, shuffle_seed=None, skip_shuffle_at_epoch_end=True)
    alone = stream(dataref, 0, 1, shuffle_seed=None, skip_shuffle_at_epoch_end=True)
    assert sorted(alone) == list(range(COUNT))
