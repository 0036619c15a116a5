"""``make_tf_dataset(…, seeds=)``: seeds for augmentation that depend on record and epoch only."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import yogadl
from yogadl import seeding
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.spec import TensorSpec
from yogadl.tensorflow import make_tf_dataset

COUNT = 23
SEED = 2**63 + 5
KINDS: dict[str, Any] = {
    "fixed": (TensorSpec("float32", (3,)), lambda n: np.full(3, n, "f4")),
    "string": (TensorSpec("string"), lambda n: b"x" * n),
    "varying": (TensorSpec("int64", (None,)), lambda n: np.arange(n % 5)),
    "none": (yogadl.spec.OptionalSpec(TensorSpec("int64")), lambda n: n if n % 2 else None),
}
BATCHES: dict[str, list[dict[str, Any]]] = {
    "fixed": [{"batch_size": 4}, {"batch_size": 5, "drop_remainder": True}],
    "string": [{"batch_size": 4}, {"batch_size": 5, "drop_remainder": True}],
    "varying": [
        {"batch_size": 4, "pad": 0},
        {"batch_size": 5, "ragged": True, "drop_remainder": True},
    ],
    "none": [],
}


@pytest.fixture(scope="module")
def datarefs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LMDBDataRef]:
    folder = tmp_path_factory.mktemp("seeds")
    found = {}
    for kind, (spec, make) in KINDS.items():
        with CacheWriter(folder / f"{kind}.mdb", {"n": TensorSpec("int64"), "v": spec}) as writer:
            for number in range(COUNT):
                writer.append({"n": np.int64(number), "v": make(number)})
            writer.commit()
        found[kind] = LMDBDataRef(folder / f"{kind}.mdb")
    return found


def numbers_and_seeds(dataset: Any) -> tuple[list[int], list[list[int]]]:
    numbers: list[int] = []
    seeds: list[list[int]] = []
    for element, seed in dataset:
        assert seed.shape[:-1] == element["n"].shape
        numbers += np.atleast_1d(element["n"].numpy()).tolist()
        seeds += seed.numpy().reshape(-1, 2).tolist()
    return numbers, seeds


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_are_those_of_numpy(datarefs: dict[str, LMDBDataRef], kind: str) -> None:
    views = [datarefs[kind], yogadl.concat([datarefs[kind][15:], datarefs[kind][:15]])]
    orders: list[dict[str, Any]] = [
        {},
        {"shuffle": True, "shuffle_seed": 3, "start_offset": 30},
        {"shuffle": True, "shuffle_seed": 3, "shard_rank": 1, "num_shards": 3},
    ]
    for view in views:
        positions = {int(record["n"]): place for place, record in enumerate(view.stream())}
        for arguments in [{}, *BATCHES[kind]][: None if view is views[0] else 1]:
            for order in orders:
                stream = view.stream(**order)
                dataset = make_tf_dataset(stream, **arguments, seeds=SEED)
                plain = make_tf_dataset(view.stream(**order), **arguments)
                assert dataset.element_spec[0] == plain.element_spec
                assert dataset.element_spec[1].dtype == tf.int64
                first = order.get("start_offset", 0) // COUNT
                for epoch in (first, first + 1):
                    numbers, seeds = numbers_and_seeds(dataset)
                    places = [positions[number] for number in numbers]
                    assert seeds == seeding.seeds(SEED, epoch, places).tolist()
                    assert numbers == [
                        n for e in plain for n in np.atleast_1d(e["n"].numpy()).tolist()
                    ]


@settings(deadline=None, max_examples=8)
@given(data=st.data(), seed=st.integers(0, 2**64 - 1), size=st.integers(1, 5))
def test_pixels_with_other_ranks(
    datarefs: dict[str, LMDBDataRef], data: st.DataObject, seed: int, size: int
) -> None:
    """Of whatever is left of an epoch, dealt out to any number of ranks."""
    offset = data.draw(st.integers(0, COUNT - 1))
    ranks = data.draw(st.integers(1, 3))
    order = {"shuffle": True, "shuffle_seed": 3, "shuffle_then_shard": True}

    def noise(element: Any, seeds: Any) -> Any:
        return element["n"], tf.map_fn(
            lambda one: tf.random.stateless_uniform([2], one), seeds, fn_output_signature=tf.float32
        )

    seen: list[int] = []
    for rank in range(ranks):
        stream = datarefs["fixed"].stream(
            **order, start_offset=offset, shard_rank=rank, num_shards=ranks
        )
        dataset = make_tf_dataset(stream, batch_size=size, epochs=1, seeds=seed).map(noise)
        for numbers, found in dataset.as_numpy_iterator():
            for one, pixels in zip(seeding.seeds(seed, 0, numbers), found, strict=True):
                wanted = tf.random.stateless_uniform([2], one)
                np.testing.assert_array_equal(pixels, wanted)
            seen += numbers.tolist()
    assert len(set(seen)) == len(seen) == COUNT - offset


def test_a_saved_iterator_goes_on_with_the_same_seeds(
    datarefs: dict[str, LMDBDataRef], tmp_path: pathlib.Path
) -> None:
    def iterator(batch_size: int | None) -> Any:
        stream = datarefs["fixed"].stream(shuffle=True, shuffle_seed=3)
        return iter(make_tf_dataset(stream, batch_size=batch_size, epochs=3, seeds=SEED))

    for size, steps in ((None, 30), (4, 8), (4, 6)):
        first = iterator(size)
        for _ in range(steps):
            next(first)
        saved = tf.train.Checkpoint(iterator=first).save(tmp_path / "saved")
        second = iterator(size)
        tf.train.Checkpoint(iterator=second).restore(saved).expect_partial()
        assert numbers_and_seeds(first) == numbers_and_seeds(second)


def test_wrong_arguments(datarefs: dict[str, LMDBDataRef]) -> None:
    stream = datarefs["fixed"].stream()
    for seed in (-1, 2**64, "7"):
        with pytest.raises(InvalidArgumentError, match="seed"):
            make_tf_dataset(stream, seeds=seed)  # type: ignore[arg-type]
    plain = yogadl.Stream(lambda: iter([1]), 1, tf.int64, tf.TensorShape([]))
    with pytest.raises(InvalidArgumentError, match="positions"):
        make_tf_dataset(plain, seeds=7)
