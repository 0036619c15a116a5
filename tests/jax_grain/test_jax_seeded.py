"""Seeded transforms in JAX and Grain: the same pixels after any resume."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

pytest.importorskip("jax", reason="needs JAX")

import augmented
import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import yogadl
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.jax import Batches, FrozenSampler, GrainSource
from yogadl.seeding import generator

SHUFFLED: dict[str, Any] = {"shuffle": True, "shuffle_seed": 3}


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return augmented.write(tmp_path_factory.mktemp("seeded") / "cache.mdb")


def batches_of(dataref: LMDBDataRef, size: int, **order: Any) -> Batches:
    stream = dataref.stream(**SHUFFLED, **order)
    return Batches(stream, size, drop_remainder=False, transform=augmented.of_batches())


@settings(deadline=None)
@given(size=st.integers(1, 7), taken=st.integers(0, 30))
def test_resuming_anywhere(dataref: LMDBDataRef, size: int, taken: int) -> None:
    first = batches_of(dataref, size)
    seen = augmented.check(0, itertools.islice(first, taken))
    resumed = batches_of(dataref, size)
    resumed.load_state_dict(first.state_dict())
    epoch = 0 if len(seen) < augmented.COUNT else 1
    rest = augmented.check(epoch, resumed)
    assert sorted(rest if epoch else seen + rest) == list(range(augmented.COUNT))
    assert sorted(augmented.check(epoch + 1, resumed)) == list(range(augmented.COUNT))


def test_with_other_ranks(dataref: LMDBDataRef) -> None:
    order = {"shuffle_then_shard": True, "start_offset": 9}
    for ranks in (1, 2, 3):
        found: list[int] = []
        for rank in range(ranks):
            found += augmented.check(
                0, batches_of(dataref, 4, **order, num_shards=ranks, shard_rank=rank)
            )
        assert len(set(found)) == augmented.COUNT - 9


def test_what_a_transform_makes(dataref: LMDBDataRef) -> None:
    """Arrays of any nesting, on a device, such as keys for random numbers there."""

    def keys(batch: Any, rngs: Any) -> Any:
        words = np.stack([rng.integers(0, 2**32, 2, np.uint32) for rng in rngs])
        return [batch["n"], (words, {"twice": batch["x"] * 2})]

    stream = dataref.stream()
    batches = Batches(stream, 4, transform=yogadl.seeded(keys, 1))
    numbers, (words, rest) = next(iter(batches))
    assert isinstance(words, jax.Array)
    assert words.dtype == np.uint32
    wanted = [generator(1, 0, n).integers(0, 2**32, 2, np.uint32).tolist() for n in range(4)]
    assert words.tolist() == wanted
    assert rest["twice"].tolist() == [[2.0 * n] * 3 for n in numbers.tolist()]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), "data")
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    batches = Batches(dataref.stream(), 4, sharding=sharding, transform=lambda batch: batch["x"])
    assert next(iter(batches)).sharding == sharding
    large = Batches(dataref.stream(), 4, transform=lambda batch: {"n": batch["n"] + 2**40})
    with pytest.raises(InvalidArgumentError, match=r"batch\['n'\]"):
        next(iter(large))


@pytest.mark.parametrize(
    "wrong",
    [["a"] * 4, np.array([b"a"] * 4, object), np.zeros(4, "M8[s]"), np.zeros(4, "V4")],
    ids=str,
)
def test_what_a_transform_makes_that_jax_has_not(dataref: LMDBDataRef, wrong: Any) -> None:
    batches = Batches(dataref.stream(), 4, transform=lambda _: {"made": wrong})
    with pytest.raises(UnsupportedTypeError, match=r"batch\['made'\].*JAX does not have"):
        next(iter(batches))


@pytest.mark.parametrize("offset", [0, 9, 30])
def test_grain(dataref: LMDBDataRef, offset: int) -> None:
    grain = pytest.importorskip("grain", reason="needs Grain")

    class Augment(grain.transforms.RandomMap):  # type: ignore[misc,name-defined]
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            return augmented.augment(element, rng)

    stream = dataref.stream(**SHUFFLED, start_offset=offset)
    loader = grain.DataLoader(
        data_source=GrainSource(dataref),
        sampler=FrozenSampler(stream, epochs=2, seed=augmented.SEED),
        shard_options=grain.sharding.NoSharding(),
        operations=[Augment()],
    )
    elements = list(loader)
    for epoch in range(offset // augmented.COUNT, offset // augmented.COUNT + 2):
        numbers = [int(record["n"]) for record in stream]
        found, elements = elements[: len(numbers)], elements[len(numbers) :]
        assert augmented.check(epoch, found) == numbers
    assert not elements
    with pytest.raises(InvalidArgumentError, match="seed"):
        FrozenSampler(stream, seed=2**64)
