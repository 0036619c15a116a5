"""Every way to read a version from afar gives what the same version gives from the disk."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from remote_rig import Always, Never, Site, random_faults
from strategies import same

import yogadl
from yogadl import spec as specs
from yogadl.errors import StoreError

SPACES = pytest.mark.parametrize("space", [Always, Never])


def fixed(count: int = 70) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(count)
    for number in range(count):
        yield {"x": rng.random((40, 30), "f4"), "number": np.int64(number)}


def ragged(count: int = 70) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(count)
    for number in range(count):
        yield {
            "x": rng.random(int(rng.integers(0, 900))),
            "name": b"n" * (number % 50),
            "names": np.array([b"a", b"bc" * number], object),
            "number": np.int64(number),
        }


RAGGED = {
    "x": specs.TensorSpec("float64", (None,)),
    "name": specs.TensorSpec("string", ()),
    "names": specs.TensorSpec("string", (2,)),
    "number": specs.TensorSpec("int64", ()),
}
ORDERS: list[dict[str, Any]] = [
    {},
    {"shuffle": True, "shuffle_seed": 3},
    {"shuffle": True, "shuffle_seed": 3, "num_shards": 3, "shard_rank": 2, "start_offset": 4},
]


def kinds(site: Site, kind: str) -> Any:
    if kind == "fixed":
        return site.store(fixed(), part_bytes=100_000)
    if kind == "empty":
        return site.store([], spec=RAGGED)
    return site.store(ragged(), spec=RAGGED)


KINDS = pytest.mark.parametrize("kind", ["fixed", "ragged", "empty"])


def alike(found: Any, known: Any) -> None:
    """Sees that two streams, or what iterates over them, give the same."""
    for mine, theirs in itertools.zip_longest(found, known):
        assert same(mine, theirs)


@KINDS
@SPACES
def test_records_and_batches(site: Site, space: type, kind: str) -> None:
    near = kinds(site, kind)
    with site.ref(space()) as ref:
        assert (len(ref), ref.spec) == (len(near), near.spec)
        for order in ORDERS:
            mine, theirs = ref.stream(**order), near.stream(**order)
            alike(mine, theirs)
            assert mine.state_dict() == theirs.state_dict()
            alike(ref.stream(**order).batches(7), near.stream(**order).batches(7))
        ref.verify()
        assert ref.info.digest == near.info.digest
        assert ref.reader.content_id == near.reader.content_id


@SPACES
def test_into_arrays(site: Site, space: type) -> None:
    near = kinds(site, "fixed")
    with site.ref(space()) as ref:
        out = [{"x": np.zeros((7, 40, 30), "f4"), "number": np.zeros(7, "i8")}]
        batches = ref.stream(**ORDERS[1]).batches(7, drop_remainder=True, out=out)
        for found, known in zip(batches, near.stream(**ORDERS[1]).batches(7), strict=True):
            assert np.shares_memory(found["x"], out[0]["x"])
            assert same(found, known)


@SPACES
def test_compositions(site: Site, space: type) -> None:
    near = kinds(site, "ragged")
    with site.ref(space()) as ref:
        makes: list[Callable[[Any], Any]] = [
            lambda it: it[60:5:-3],
            lambda it: yogadl.concat([it[10:20], it[:3]]),
            lambda it: yogadl.zip({"a": it[:5], "b": it[20:25]}),
            lambda it: yogadl.mix([it[:30], it[30:]], [1, 2]),
            lambda it: it.split({"a": 0.5, "b": 0.5}, seed=1)["b"],
        ]
        for make in makes:
            for order in ORDERS:
                alike(make(ref).stream(**order), make(near).stream(**order))


def test_states_go_on_elsewhere(site: Site) -> None:
    near = kinds(site, "ragged")
    order = ORDERS[1]
    with site.ref() as ref:
        stream = ref.stream(**order)
        records = iter(stream)
        for _ in range(20):
            next(records)
        alike(records, near.stream(**order, state=stream.state_dict()))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 1990, 2000, 2001, 4096, 70_000]), max_size=12),
    part_bytes=st.sampled_from([1 << 30, 20_000]),
    never=st.booleans(),
    seed=st.integers(0, 1000),
    number=st.integers(0, 1 << 30),
)
def test_any_records(
    site: Site, sizes: list[int], part_bytes: int, never: bool, seed: int, number: int
) -> None:
    site.folder = site.folder.with_name(f"kept {number} {len(site.web.asked)}")
    made = [np.full(size, at, "u1") for at, size in enumerate(sizes)]
    near = site.store(made, spec=specs.TensorSpec("uint8", (None,)), part_bytes=part_bytes)
    with site.twisting(random_faults(seed, 0.05)):
        # The first answer has to be of a server that knows ranges.
        order = {"shuffle": True, "shuffle_seed": seed}
        with contextlib.suppress(StoreError), site.ref(Never() if never else Always()) as ref:
            alike(ref.stream(**order), near.stream(**order))


@KINDS
def test_tensorflow(site: Site, kind: str) -> None:
    pytest.importorskip("tensorflow", reason="needs TensorFlow")
    from yogadl.tensorflow import make_tf_dataset

    near = kinds(site, kind)
    for space in (Always, Never):
        with site.ref(space()) as ref:
            for order in ORDERS:
                for batch_size in (None, 8) if kind == "fixed" else (None,):
                    mine, theirs = (
                        make_tf_dataset(it.stream(**order), batch_size=batch_size)
                        for it in (ref, near)
                    )
                    assert mine.element_spec == theirs.element_spec
                    alike(mine.as_numpy_iterator(), theirs.as_numpy_iterator())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_torch(site: Site, method: str) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from torch.utils.data import DataLoader

    import yogadl.torch as adapter

    near = kinds(site, "fixed")
    with site.ref() as ref:
        sampled = adapter.MapDataset(ref)
        # Other processes take long to start, and import all anew.
        for number, order in enumerate(ORDERS[:2] if method == "fork" else ORDERS[1:2]):
            site.folder = site.folder.with_name(f"kept {number}")
            for make in (
                lambda it, order=order: {
                    "dataset": adapter.MapDataset(it),
                    "sampler": adapter.Sampler(it, **order),
                },
                lambda it, order=order: {"dataset": adapter.IterableDataset(it.stream(**order))},
            ):
                # However the workers are started, they give the same.
                options = {"batch_size": 8, "num_workers": 2}
                loader = DataLoader(**make(ref), **options, multiprocessing_context=method)
                known = DataLoader(**make(near), **options, multiprocessing_context="fork")
                alike(*([batch["number"].numpy() for batch in it] for it in (loader, known)))
        assert torch.equal(torch.as_tensor(sampled[5]["x"]), torch.as_tensor(near[5]["x"]))


def test_keras(site: Site) -> None:
    pytest.importorskip("keras.utils", reason="needs Keras")
    from yogadl.keras import PyDataset

    near = kinds(site, "fixed")
    with site.ref(Never()) as ref:
        order = ORDERS[1]
        mine, theirs = (PyDataset(it, 8, **order) for it in (ref, near))
        assert len(mine) == len(theirs)
        alike([mine[at] for at in range(len(mine))], [theirs[at] for at in range(len(theirs))])


def test_jax(site: Site) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    from yogadl.jax import Batches

    near = kinds(site, "fixed")
    with site.ref() as ref:
        order = ORDERS[1]
        found, known = (list(Batches(it.stream(**order), 8)) for it in (ref, near))
        assert len(found) == len(known)
        for mine, theirs in zip(found, known, strict=True):
            assert (np.asarray(mine["x"]) == np.asarray(theirs["x"])).all()
