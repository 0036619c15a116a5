"""Random numbers by seed, epoch and position: what they are, and that nothing else matters."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import augmented
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import yogadl
from yogadl import seeding
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return augmented.write(tmp_path_factory.mktemp("seeding") / "cache.mdb")


# What they are

GOLDEN = [
    [6875110694074790513, -9135777283548977636],
    [1922885564889143652, 3029364806872756514],
    [-4242956755389433140, -2662098365425604328],
]
GOLDEN_BITS = [8710730906389656317, 2439578680066513648, 11368112569674885055]
GOLDEN_LARGE = [[-1664854412666320837, 2962649741249975246]]


def test_golden() -> None:
    """Frozen: training runs are resumed by it."""
    assert seeding.seeds(7, 3, [0, 11, 2**62]).tolist() == GOLDEN
    rng = seeding.generator(7, 3, 11)
    assert rng.bit_generator.random_raw(3).tolist() == GOLDEN_BITS
    assert seeding.seeds(2**64 - 1, 2**40, [5]).tolist() == GOLDEN_LARGE


words = st.integers(0, 2**64 - 1)
positions = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5)


def splitmix64(state: int) -> Iterator[int]:
    """As its authors have it, in C."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        yield mixed ^ (mixed >> 31)


@given(words, st.integers(0, 40), st.lists(st.integers(0, 40), min_size=1))
def test_seeds_are_outputs_of_splitmix64(seed: int, epoch: int, places: list[int]) -> None:
    def output(state: int, number: int) -> int:
        return next(itertools.islice(splitmix64(state), number, None))

    found = seeding.seeds(seed, epoch, places)
    assert found.dtype == np.int64
    assert found.view(np.uint64).tolist() == [
        [output(output(output(seed, word), epoch), place) for word in range(2)] for place in places
    ]


@given(words, st.integers(0, 2**63), positions)
def test_a_generator_is_philox_keyed_by_the_seeds(seed: int, epoch: int, places: list[int]) -> None:
    for place, key in zip(places, seeding.seeds(seed, epoch, places).view(np.uint64), strict=True):
        found = seeding.generator(seed, epoch, place).bit_generator.random_raw(5)
        assert found.tolist() == np.random.Philox(key=key).random_raw(5).tolist()


def test_integers_of_numpy_are_as_good() -> None:
    transform = yogadl.seeded(lambda _, rng: int(rng.bit_generator.random_raw()), 7)
    found = transform.of_record(None, np.int64(3), np.uint8(11))  # type: ignore[arg-type]
    assert found == transform.of_record(None, 3, 11) == GOLDEN_BITS[0]


def test_seeds_differ() -> None:
    found = [seeding.seeds(seed, epoch, range(500)) for seed in (0, 1) for epoch in range(20)]
    assert len(np.unique(np.concatenate(found), axis=0)) == 2 * 20 * 500
    # Of each bit, about half are set.
    bits = np.unpackbits(np.concatenate(found).view("u1"), axis=1)
    assert abs(bits.mean(axis=0) - 0.5).max() < 0.03


def test_generators_cannot_be_spawned_from() -> None:
    """Or the children would be seeded by the system, and other ones in every run."""
    with pytest.raises(TypeError, match="spawn"):
        seeding.generator(1, 2, 3).spawn(1)


# Plain streams

SHUFFLED = {"shuffle": True, "shuffle_seed": 3}


@settings(deadline=None)
@given(data=st.data(), seed=words, size=st.integers(1, 9))
def test_resuming_anywhere_with_other_ranks(
    dataref: LMDBDataRef, data: st.DataObject, seed: int, size: int
) -> None:
    """What is read of two epochs, by some ranks first and by others later, in other batches."""
    before, after = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    order: dict[str, Any] = {**SHUFFLED, "shuffle_then_shard": True}
    first = [dataref.stream(**order, shard_rank=r, num_shards=before) for r in range(before)]
    steps = data.draw(st.integers(0, augmented.COUNT // before))
    seen: list[int] = []
    for stream in first:
        records = iter(stream.map(augmented.of_records(seed)))
        seen += augmented.check(0, itertools.islice(records, steps), seed)
    state = first[0].state_dict()
    later = [dataref.stream(state=state, shard_rank=r, num_shards=after) for r in range(after)]
    rest = [stream.batches(size, transform=augmented.of_batches(seed)) for stream in later]
    begun = 1 if len(seen) == augmented.COUNT else 0
    both = [
        [n for batches in rest for n in augmented.check(e, batches, seed)]
        for e in (begun, 1 + begun)
    ]
    whole = list(range(augmented.COUNT))
    if not begun:
        assert sorted(seen + both[0]) == whole
    assert sorted(both[1]) == whole


@pytest.mark.parametrize("size", [1, 4, 100])
def test_batches(dataref: LMDBDataRef, size: int) -> None:
    order = {**SHUFFLED, "start_offset": 30}
    batches = dataref.stream(**order).batches(size, transform=augmented.of_batches())
    plain = dataref.stream(**order)
    for epoch in (1, 2):
        assert augmented.check(epoch, batches) == [int(record["n"]) for record in plain]
    out = [{"n": np.empty(size, "i8"), "x": np.empty((size, 3), "f4")} for _ in range(3)]
    batches = dataref.stream().batches(size, out=out, transform=augmented.of_batches())
    assert augmented.check(0, batches) == list(range(augmented.COUNT))


def test_positions_are_those_in_what_is_streamed(dataref: LMDBDataRef) -> None:
    """So the parts of a split are numbered anew, and a concatenation from end to end."""
    places = yogadl.seeded(
        lambda record, rng: (int(record["n"]), rng.bit_generator.random_raw()), 1
    )

    def found(view: Any) -> dict[int, int]:
        return dict(view.stream(**SHUFFLED).map(places))

    def raw(position: int) -> int:
        return int(seeding.generator(1, 0, position).bit_generator.random_raw())

    assert found(dataref[5:9]) == {5 + place: raw(place) for place in range(4)}
    joined = yogadl.concat([dataref[20:], dataref[:5]])
    assert found(joined) == {n: raw(p) for p, n in enumerate([20, 21, 22, 0, 1, 2, 3, 4])}
    both = yogadl.zip({"a": dataref, "b": dataref[::-1]})
    pairs = both.stream().map(yogadl.seeded(lambda r, g: int(g.bit_generator.random_raw()), 1))
    assert list(pairs) == [raw(place) for place in range(augmented.COUNT)]


def test_the_place_of_a_mapped_stream(dataref: LMDBDataRef) -> None:
    stream = dataref.stream(**SHUFFLED)
    mapped = stream.map(augmented.of_records())
    assert len(mapped) == augmented.COUNT
    first = augmented.check(0, itertools.islice(mapped, 9))
    rest = dataref.stream(state=stream.state_dict()).map(augmented.of_records())
    assert sorted(first + augmented.check(0, rest)) == list(range(augmented.COUNT))
    copied = pickle.loads(pickle.dumps(rest))
    assert augmented.check(1, copied) == augmented.check(1, rest)


def stop(*_: Any) -> Any:
    raise StopIteration


@pytest.mark.parametrize("transform", [stop, yogadl.seeded(stop, 1)], ids=["plain", "seeded"])
def test_a_transform_cannot_end_an_epoch(dataref: LMDBDataRef, transform: Any) -> None:
    for items in (
        dataref.stream().map(transform),
        dataref.stream().batches(4, transform=transform),
    ):
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(items)


# Errors


def test_a_seeded_transform_is_not_called_by_who_knows_no_position() -> None:
    with pytest.raises(InvalidArgumentError, match="epoch and the position"):
        augmented.of_records()({"n": 1})


def test_wrong_arguments() -> None:
    for seed in (-1, 2**64, 1.5, True):
        with pytest.raises(InvalidArgumentError, match="seed"):
            yogadl.seeded(augmented.augment, seed)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="function"):
        yogadl.seeded(7, 7)  # type: ignore[arg-type]
    for places in ([-1], [[1]], [[1], []], [1.5], 3):
        with pytest.raises(InvalidArgumentError, match="positions"):
            seeding.seeds(1, 0, places)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="epoch"):
        seeding.generator(1, -1, 0)
    with pytest.raises(InvalidArgumentError, match="position"):
        augmented.of_records().of_record({"n": 1}, 0, -1)
    assert seeding.seeds(1, 0, []).shape == (0, 2)
