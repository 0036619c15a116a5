"""The ways to shuffle that take no memory. Their orders are frozen: runs are resumed by them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import yogadl
from yogadl import BlockShuffle, KeyedShuffle
from yogadl.errors import InvalidArgumentError, StateMismatchError
from yogadl.orders import Order
from yogadl.shuffles import FullShuffle, Shuffle, shuffle_of

seeds = st.integers(0, 2**32 - 1)
shuffles: st.SearchStrategy[Shuffle] = st.just(KeyedShuffle()) | st.builds(
    BlockShuffle, st.integers(1, 40), st.integers(1, 5)
)


@given(count=st.integers(0, 400), seed=seeds, shuffle=shuffles, data=st.data())
def test_every_record_once_however_it_is_asked_for(
    count: int, seed: int, shuffle: Shuffle, data: st.DataObject
) -> None:
    permutation = shuffle.permutation(count, seed)
    whole = permutation[0:count]
    assert whole.dtype == np.int64
    assert sorted(whole.tolist()) == list(range(count))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, count), st.integers(0, count))))
    step = data.draw(st.integers(1, 5))
    assert permutation[start:stop].tolist() == whole[start:stop].tolist()
    assert permutation[np.arange(start, stop, step)].tolist() == whole[start:stop:step].tolist()
    assert shuffle.permutation(count, seed)[start:stop:step].tolist() == (
        whole[start:stop:step].tolist()
    )


def test_slices_across_chunks() -> None:
    permutation = KeyedShuffle().permutation(30_000, 1)
    whole = permutation[0:30_000].tolist()
    for start, stop in ((8000, 8500), (8191, 8193), (16_384, 16_390), (29_990, 30_000), (5, 5)):
        assert permutation[start:stop].tolist() == whole[start:stop]
        assert permutation[start : stop + 50_000].tolist() == whole[start : stop + 50_000]


def test_the_orders_are_frozen() -> None:
    assert KeyedShuffle().permutation(20, 7)[0:20].tolist() == KEYED_20
    assert KeyedShuffle().permutation(10**12, 7)[10**11 : 10**11 + 4].tolist() == KEYED_HUGE
    assert BlockShuffle(4, 2).permutation(22, 7)[0:22].tolist() == BLOCKS_22


KEYED_20 = [13, 7, 1, 6, 18, 0, 12, 3, 10, 16, 2, 8, 19, 11, 4, 14, 17, 15, 5, 9]
KEYED_HUGE = [499604164106, 480679981855, 536229570431, 169839599426]
BLOCKS_22 = [16, 5, 7, 6, 4, 17, 19, 18, 15, 1, 0, 13, 12, 2, 3, 14, 10, 20, 11, 8, 21, 9]


@pytest.mark.once
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_all_orders_of_few_records_come(count: int) -> None:
    orders = {tuple(KeyedShuffle().permutation(count, seed)[0:count]) for seed in range(3000)}
    assert len(orders) == [2, 6, 24, 120][count - 2]


def test_mixing() -> None:
    """A uniform shuffle moves records by a third of the length on average."""
    count = 100_000
    places = np.arange(count)

    def moved(shuffle: Shuffle) -> float:
        return float(np.abs(shuffle.permutation(count, 3)[0:count] - places).mean()) / count

    assert abs(moved(KeyedShuffle()) - 1 / 3) < 0.01
    assert abs(moved(BlockShuffle(100, 5)) - 1 / 3) < 0.03
    one, two = (KeyedShuffle().permutation(count, seed)[0:count] for seed in (1, 2))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.02
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 0.02


@given(count=st.integers(1, 500), seed=seeds, block=st.integers(1, 30), window=st.integers(1, 4))
def test_records_of_a_block_stay_together(count: int, seed: int, block: int, window: int) -> None:
    order = BlockShuffle(block, window).permutation(count, seed)[0:count]
    places = np.empty(count, "i8")
    places[order] = np.arange(count)
    for start in range(0, count, block):
        found = places[start : start + block]
        # A block may begin in one window and end in the next.
        assert found.max() // (block * window) - found.min() // (block * window) <= 1


@given(
    count=st.integers(0, 60),
    shuffle=shuffles,
    ranks=st.integers(1, 4),
    then_shard=st.booleans(),
    seed=seeds,
)
def test_streams(count: int, shuffle: Shuffle, ranks: int, then_shard: bool, seed: int) -> None:
    dataref = yogadl.from_arrays(np.arange(count))

    def make(rank: int, **more: Any) -> Any:
        return dataref.stream(
            shuffle=shuffle,
            shuffle_seed=seed,
            shard_rank=rank,
            num_shards=ranks,
            shuffle_then_shard=then_shard,
            **more,
        )

    parts = [[int(record) for record in make(rank)] for rank in range(ranks)]
    assert sorted(record for part in parts for record in part) == list(range(count))
    for rank, part in enumerate(parts):
        stream = make(rank)
        batched = [int(record) for batch in make(rank).batches(7) for record in batch]
        assert batched == part
        reading = iter(stream)
        for _ in range(len(part) // 2):
            next(reading)
        state = json.loads(json.dumps(stream.state_dict()))
        shard = {} if then_shard else {"shard_rank": rank, "num_shards": ranks}
        resumed = dataref.stream(state=state, **shard)
        if not then_shard and len(part) > 1:
            assert [int(record) for record in resumed] == part[len(part) // 2 :]
        again = pickle.loads(pickle.dumps(make(rank)))
        assert [int(record) for record in again] == part


def test_huge_orders_cost_nothing() -> None:
    order = Order.of_stream(10**12, KeyedShuffle(), False, 5, 3, 64, False)
    permutation = order.permutation(2)
    positions = order.positions(permutation, 2, 10**9, 10**9 + 5)
    assert len(set(positions.tolist())) == 5
    assert set((positions % 64).tolist()) == {3}


def test_states_tell_the_ways_apart() -> None:
    dataref = yogadl.from_arrays(np.arange(50))
    state = dataref.stream(shuffle=KeyedShuffle(), shuffle_seed=1).state_dict()
    assert "shuffle_how" not in dataref.stream(shuffle=True, shuffle_seed=1).state_dict()
    with pytest.raises(StateMismatchError, match="shuffle="):
        dataref.stream(state=state, shuffle=True, shuffle_seed=1)
    with pytest.raises(StateMismatchError, match="shuffle="):
        dataref.stream(state=state, shuffle=BlockShuffle(), shuffle_seed=1)
    dataref.stream(state=state, shuffle=KeyedShuffle())
    many_digits = f"blocks {'9' * 5000} 1"
    for wrong in ("", "other", "blocks 1", "blocks x 1", "blocks 0 1", many_digits, 5, None):
        with pytest.raises(InvalidArgumentError):
            dataref.stream(state={**state, "shuffle_how": wrong})
    for shuffle in (FullShuffle(), KeyedShuffle(), BlockShuffle(3, 4)):
        assert shuffle_of(shuffle.name) == shuffle
    assert "keyed" in repr(dataref.stream(shuffle=KeyedShuffle(), shuffle_seed=1))


def test_numbers_of_blocks_are_checked() -> None:
    for wrong in (0, -1, 1.5, "1"):
        with pytest.raises(InvalidArgumentError, match="block_records"):
            BlockShuffle(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="window_blocks"):
            BlockShuffle(window_blocks=wrong)  # type: ignore[arg-type]


def test_numbers_of_blocks_of_numpy_are_as_any() -> None:
    """Their products would wrap around."""
    for block, window in ((np.uint8(200), np.uint8(2)), (np.int32(65_536), np.uint64(65_536))):
        found, usual = BlockShuffle(block, window), BlockShuffle(int(block), int(window))
        assert repr(found) == repr(usual)
        assert (
            found.permutation(999, 1)[0:999].tolist() == usual.permutation(999, 1)[0:999].tolist()
        )


@given(
    count=st.integers(0, 50),
    seed=seeds,
    block=st.integers(1, 60) | st.sampled_from([2**31, 2**62, 2**64, 10**30]),
    window=st.integers(1, 60) | st.sampled_from([2**31, 2**62, 2**64, 10**30]),
)
def test_blocks_and_windows_may_be_larger_than_any_data_set(
    count: int, seed: int, block: int, window: int
) -> None:
    shuffle = BlockShuffle(block, window)
    found = shuffle.permutation(count, seed)[0:count].tolist()
    assert sorted(found) == list(range(count))
    # As with any others that hold all records.
    usual = BlockShuffle(min(block, count + 1), min(window, count + 1))
    assert usual.permutation(count, seed)[0:count].tolist() == found
    assert shuffle_of(shuffle.name) == shuffle
