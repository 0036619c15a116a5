"""Shards, shuffles, offsets and epochs. The orders here are frozen: runs are resumed by them."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleaving import in_between

import yogadl
from yogadl.errors import InvalidArgumentError
from yogadl.orders import EpochCounter, Order, Permutations

lengths = st.integers(0, 60)
shards = st.integers(1, 9)
seeds = st.integers(0, 2**32 - 1)
makers: st.SearchStrategy[Callable[[int], Any]] = st.sampled_from(
    [lambda n: list(range(n)), lambda n: tuple(b"%08d" % i for i in range(n)), np.arange]
)


# Shards


@given(count=lengths, num_shards=shards, make=makers)
def test_sequential_shards_are_the_keys_cut_up(
    count: int, num_shards: int, make: Callable[[int], Any]
) -> None:
    keys = make(count)
    parts = [yogadl.sequential_shard(keys, rank, num_shards) for rank in range(num_shards)]
    assert [key for part in parts for key in part] == list(keys)
    longer = count % num_shards
    size = count // num_shards
    assert [len(part) for part in parts] == [size + 1] * longer + [size] * (num_shards - longer)
    assert all(type(part) is type(keys) for part in parts)


@given(count=lengths, num_shards=shards, make=makers)
def test_non_sequential_shards_take_turns(
    count: int, num_shards: int, make: Callable[[int], Any]
) -> None:
    keys = make(count)
    for rank in range(num_shards):
        part = yogadl.non_sequential_shard(keys, rank, num_shards)
        assert list(part) == [keys[at] for at in range(rank, count, num_shards)]
        assert type(part) is type(keys)


@given(count=lengths, num_shards=shards, make=makers, sequential=st.booleans())
def test_shards_partition_the_keys(
    count: int, num_shards: int, make: Callable[[int], Any], sequential: bool
) -> None:
    keys = make(count)
    one_by_one = yogadl.sequential_shard if sequential else yogadl.non_sequential_shard
    whole: list[Any] = []
    even: list[Any] = []
    for rank in range(num_shards):
        part = yogadl.shard_keys(keys, rank, num_shards, sequential)
        assert list(part) == list(one_by_one(keys, rank, num_shards))
        whole.extend(part)
        dropped = yogadl.shard_keys(keys, rank, num_shards, sequential, drop_shard_remainder=True)
        assert len(dropped) == count // num_shards
        even.extend(dropped)
    assert sorted(whole) == list(keys)
    assert sorted(even) == list(keys[: count // num_shards * num_shards])


def test_what_0_1_4_got_wrong() -> None:
    keys = list(range(11))
    assert yogadl.sequential_shard(keys, 0, 3) == [0, 1, 2, 3]
    assert yogadl.sequential_shard(keys, 1, 3) == [4, 5, 6, 7]
    assert yogadl.sequential_shard(keys, 2, 3) == [8, 9, 10]


SHARDERS: list[Callable[..., Any]] = [
    yogadl.sequential_shard,
    yogadl.non_sequential_shard,
    yogadl.shard_keys,
]


@pytest.mark.parametrize(
    ("index", "count", "message"),
    [
        (0, 0, "num_shards must be at least 1, not 0"),
        (0, -2, "num_shards must be at least 1, not -2"),
        (-1, 3, "shard_index must be at least 0, not -1"),
        (3, 3, "shard_index must be less than num_shards, and 3 is not less than 3"),
        (1.0, 3, "shard_index must be an integer, not 1.0"),
        (True, 3, "shard_index must be an integer, not True"),
        (0, "3", "num_shards must be an integer, not '3'"),
        (None, 3, "shard_index must be an integer, not None"),
    ],
)
@pytest.mark.parametrize("shard", SHARDERS)
def test_impossible_shards(shard: Callable[..., Any], index: Any, count: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        shard([1, 2, 3], index, count)
    assert message in str(caught.value)


@pytest.mark.parametrize("shard", SHARDERS)
def test_shard_numbers_may_be_numpys(shard: Callable[..., Any]) -> None:
    assert shard([7, 8, 9], np.int64(1), np.uint8(3)) == [8]


# Shuffles


@given(count=lengths, seed=seeds)
def test_shuffle_keys_is_in_place_and_numpys(count: int, seed: int) -> None:
    keys = [b"%08d" % number for number in range(count)]
    expected = keys.copy()
    np.random.RandomState(seed).shuffle(expected)
    assert yogadl.shuffle_keys(keys, seed) is keys
    assert keys == expected


def test_shuffle_keys_without_a_seed_is_a_permutation() -> None:
    keys = np.arange(500)
    assert yogadl.shuffle_keys(keys) is keys
    assert sorted(keys.tolist()) == list(range(500))
    assert keys.tolist() != list(range(500))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "1", True])
def test_impossible_seeds(seed: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"shuffle_seed .*{seed}"):
        yogadl.shuffle_keys([1, 2], seed)


# What yogadl 0.1.4 returned; it shuffled the list of keys.
GOLDEN = {
    (3, 0): [2, 1, 0],
    (3, 777): [0, 1, 2],
    (3, 778): [2, 0, 1],
    (3, 2**32 - 1): [1, 0, 2],
    (10, 0): [2, 8, 4, 9, 1, 6, 7, 3, 0, 5],
    (10, 777): [2, 0, 8, 3, 4, 5, 1, 9, 6, 7],
    (10, 778): [1, 7, 3, 9, 8, 2, 6, 0, 4, 5],
    (10, 779): [9, 5, 3, 0, 8, 6, 7, 4, 1, 2],
    (10, 2**32 - 1): [6, 9, 5, 1, 8, 0, 7, 4, 2, 3],
    (17, 0): [1, 6, 8, 9, 13, 4, 2, 14, 10, 7, 16, 11, 3, 0, 5, 15, 12],
    (17, 777): [9, 8, 5, 3, 0, 2, 13, 14, 10, 4, 12, 1, 16, 6, 11, 15, 7],
    (17, 778): [16, 3, 1, 0, 7, 14, 6, 11, 2, 8, 4, 10, 9, 13, 12, 5, 15],
    (17, 779): [14, 16, 7, 6, 2, 11, 0, 5, 3, 10, 8, 15, 13, 4, 12, 1, 9],
}
# Of 20 records over 3 shards: by seed and rank.
GOLDEN_SHARDS = {
    (5, 0): [18, 6, 12, 3, 0, 15, 9],
    (5, 1): [19, 7, 13, 4, 1, 16, 10],
    (5, 2): [17, 8, 14, 5, 2, 11],
    (778, 0): [9, 18, 6, 0, 3, 12, 15],
    (778, 1): [10, 19, 7, 1, 4, 13, 16],
    (778, 2): [8, 2, 11, 5, 14, 17],
}


def positions(order: Order, epoch: int) -> list[int]:
    found: list[int] = order.positions(order.permutation(epoch), epoch, 0, len(order)).tolist()
    return found


def order_of(count: int, seed: int | None, **other: Any) -> Order:
    arguments: dict[str, Any] = {
        "shuffle": True,
        "skip_shuffle_at_epoch_end": False,
        "shard_rank": 0,
        "num_shards": 1,
        "drop_shard_remainder": False,
    }
    return Order.of_stream(record_count=count, shuffle_seed=seed, **{**arguments, **other})


@pytest.mark.parametrize(("count", "seed"), GOLDEN)
def test_orders_are_those_of_0_1_4(count: int, seed: int) -> None:
    assert positions(order_of(count, seed), 0) == GOLDEN[count, seed]
    assert yogadl.shuffle_keys(list(range(count)), seed) == GOLDEN[count, seed]


@pytest.mark.parametrize(("seed", "rank"), GOLDEN_SHARDS)
def test_orders_of_shards_are_those_of_0_1_4(seed: int, rank: int) -> None:
    order = order_of(20, seed, shard_rank=rank, num_shards=3)
    assert positions(order, 0) == GOLDEN_SHARDS[seed, rank]


def test_each_epoch_has_the_next_seed() -> None:
    order = order_of(10, 777)
    for epoch in range(3):
        assert positions(order, epoch) == GOLDEN[10, 777 + epoch]


def test_seeds_wrap_around() -> None:
    order = order_of(10, 2**32 - 1)
    assert positions(order, 0) == GOLDEN[10, 2**32 - 1]
    assert positions(order, 1) == GOLDEN[10, 0]
    assert positions(order, 778) == GOLDEN[10, 777]


def test_no_reshuffle_keeps_the_seed() -> None:
    order = order_of(10, 777, skip_shuffle_at_epoch_end=True)
    assert [positions(order, epoch) for epoch in range(3)] == [GOLDEN[10, 777]] * 3


@given(
    count=lengths, num_shards=shards, seed=seeds, epoch=st.integers(0, 2**33), drop=st.booleans()
)
def test_an_order_is_a_list_of_keys_sharded_then_shuffled(
    count: int, num_shards: int, seed: int, epoch: int, drop: bool
) -> None:
    for rank in range(num_shards):
        keys = list(range(count))[: count - count % num_shards if drop else count][rank::num_shards]
        options: dict[str, Any] = {
            "shard_rank": rank,
            "num_shards": num_shards,
            "drop_shard_remainder": drop,
        }
        plain = order_of(count, None, shuffle=False, **options)
        assert len(plain) == len(keys)
        assert positions(plain, epoch) == keys
        np.random.RandomState((seed + epoch) % 2**32).shuffle(keys)
        order = order_of(count, seed, **options)
        assert positions(order, epoch) == keys
        start = len(keys) // 2
        part = order.positions(order.permutation(epoch), epoch, start, start + 5).tolist()
        assert part == keys[start : start + 5]


def test_permutations_keeps_to_the_order() -> None:
    for reshuffle in (True, False):
        order = order_of(10, 777, skip_shuffle_at_epoch_end=not reshuffle)
        permutations = Permutations(order)
        for epoch in (0, 2, 2, 1, 0):
            found = permutations.of_epoch(epoch)
            assert found is not None
            assert found.tolist() == GOLDEN[10, 777 + epoch if reshuffle else 777]
        again = pickle.loads(pickle.dumps(permutations))
        assert again.of_epoch(0).tolist() == GOLDEN[10, 777]


# Epochs


@given(length=lengths, offset=st.integers(0, 300), epochs=st.integers(1, 4))
def test_epoch_counter(length: int, offset: int, epochs: int) -> None:
    first, start = divmod(offset, length) if length else (0, 0)
    counter = EpochCounter(first, start)
    for epoch in range(first, first + epochs):
        expected = (epoch, start if epoch == first else 0)
        assert counter.peek() == expected
        assert counter.peek() == expected
        assert pickle.loads(pickle.dumps(counter)).claim() == expected
        assert counter.claim() == expected


def test_pickled_counters_go_on_alone() -> None:
    counter = EpochCounter(2, 5)
    assert counter.claim() == (2, 5)
    copy = pickle.loads(pickle.dumps(counter))
    assert [copy.claim() for _ in range(3)] == [(3, 0), (4, 0), (5, 0)]
    assert counter.peek() == (3, 0)


def test_threads_claim_each_epoch_once() -> None:
    counter = EpochCounter(1, 3)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: [counter.claim() for _ in range(500)], range(8)))
    claimed = sorted(itertools.chain.from_iterable(parts))
    assert claimed == [(1, 3), *[(epoch, 0) for epoch in range(2, 4001)]]
    assert all(part == sorted(part) for part in parts)
    assert counter.peek() == (4001, 0)


def test_another_claim_at_any_moment_of_a_claim() -> None:
    moments = 0
    claim = EpochCounter.claim
    for counter, run in in_between(claim, lambda: EpochCounter(0, 5), claim):
        others: list[Any] = []
        mine = run(lambda counter=counter, others=others: others.append(claim(counter)))
        assert sorted([mine, *others]) == [(0, 5), (1, 0)]
        assert counter.peek() == (2, 0)
        moments += 1
    assert moments > 5


@pytest.mark.parametrize("first", [0, 2**62, 2**63 - 1, 2**70])
def test_epochs_are_any_integers(first: int) -> None:
    counter = EpochCounter(first, 5)
    assert [counter.peek(), counter.claim(), counter.claim(), counter.peek()] == [
        (first, 5),
        (first, 5),
        (first + 1, 0),
        (first + 2, 0),
    ]


# Permutations


SHUFFLED = Order(50, shuffle=True, reshuffle=True, seed=3)


def test_a_permutation_is_made_once_for_all_who_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = Order.permutation
    monkeypatch.setattr(
        Order, "permutation", lambda order, epoch: (made.append(epoch), make(order, epoch))[1]
    )
    permutations = Permutations(SHUFFLED)
    readers = {epoch: permutations.positions_of(epoch) for epoch in range(8)}
    for start in range(0, 50, 5):
        for epoch, positions in readers.items():
            expected = make(SHUFFLED, epoch)
            assert expected is not None
            assert positions(start, start + 5).tolist() == expected[start : start + 5].tolist()
            permutations.of_epoch(epoch)
    assert made == list(range(8))
    # What nobody has any more is gone, but for the last.
    kept = weakref.ref(permutations.of_epoch(6)), weakref.ref(permutations.of_epoch(7))
    readers.clear()
    gc.collect()
    assert [reference() is None for reference in kept] == [True, False]


# GeneratorFromKeys


def plainly(
    keys: Sequence[Any], offset: int, at_start: bool, after_epoch: bool, seed: int | None
) -> Iterator[list[Any]]:
    """The contract in its plainest form: the epochs, one after another."""
    if not keys:
        while True:
            yield []
    first, start = divmod(offset, len(keys))
    for epoch in itertools.count(first):
        order = list(keys)
        if at_start:
            assert seed is not None
            order = yogadl.shuffle_keys(order, (seed + epoch if after_epoch else seed) % 2**32)
        yield order[start:] if epoch == first else order


@given(
    count=st.integers(0, 20),
    offset=st.integers(0, 70),
    shuffles=st.sampled_from([(False, False), (True, False), (True, True)]),
    seed=seeds,
)
def test_generators_follow_the_contract(
    count: int, offset: int, shuffles: tuple[bool, bool], seed: int
) -> None:
    keys = tuple(b"%08d" % number for number in range(count))
    made = yogadl.GeneratorFromKeys(keys, offset, int, *shuffles, seed)
    for expected in itertools.islice(plainly(keys, offset, *shuffles, seed), 4):
        assert list(made.instantiate_generator()) == [int(key) for key in expected]


def test_golden_case() -> None:
    made = yogadl.GeneratorFromKeys(list(range(10)), 5, lambda key: key, True, True, 777)
    read = [*made.instantiate_generator(), *made.instantiate_generator()]
    read.extend(made.instantiate_generator())
    assert [read[at : at + 5] for at in range(0, 25, 5)] == [
        [5, 1, 9, 6, 7],
        [1, 7, 3, 9, 8],
        [2, 6, 0, 4, 5],
        [9, 5, 3, 0, 8],
        [6, 7, 4, 1, 2],
    ]


def test_without_a_seed_one_order_is_drawn_and_kept() -> None:
    made = yogadl.GeneratorFromKeys(list(range(200)), 0, lambda key: key, True, False, None)
    first = list(made.instantiate_generator())
    assert first != sorted(first)
    assert sorted(first) == list(range(200))
    assert list(made.instantiate_generator()) == first


def test_generators_leave_the_keys_alone() -> None:
    keys = list(range(30))
    made = yogadl.GeneratorFromKeys(keys, 0, lambda key: key, True, True, 1)
    list(made.instantiate_generator())
    assert keys == list(range(30))


def test_an_epoch_begins_with_its_first_record() -> None:
    made = yogadl.GeneratorFromKeys([0, 1, 2], 1, lambda key: key, False, False, None)
    unread = made.instantiate_generator()
    assert list(made.instantiate_generator()) == [1, 2]
    assert list(unread) == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, True, True, 1), "initial_offset must be at least 0, not -1"),
        ((1.5, True, True, 1), "initial_offset must be an integer, not 1.5"),
        ((None, True, True, 1), "initial_offset must be an integer, not None"),
        ((0, False, True, 1), "shuffle_after_epoch=True needs shuffle_at_start=True"),
        ((0, True, True, None), "shuffle_after_epoch=True needs a shuffle_seed"),
        ((0, True, True, -1), "shuffle_seed must be at least 0, not -1"),
        ((0, True, True, 2**32), f"shuffle_seed must be below 2**32, and {2**32} is not"),
        ((0, True, False, "x"), "shuffle_seed must be an integer, not 'x'"),
    ],
)
def test_impossible_generators(arguments: tuple[Any, ...], message: str) -> None:
    offset, at_start, after_epoch, seed = arguments
    with pytest.raises(InvalidArgumentError) as caught:
        yogadl.GeneratorFromKeys([1], offset, lambda key: key, at_start, after_epoch, seed)
    assert message in str(caught.value)
