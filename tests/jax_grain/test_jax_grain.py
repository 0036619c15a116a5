"""Data sets as Grain sources, and Grain loaders in yogadl's order."""

from __future__ import annotations

import itertools
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from yogadl import errors
from yogadl import spec as specs
from yogadl.dataref import IndexedDataRef
from yogadl.jax import FrozenSampler, GrainSource
from yogadl.storage import LFSConfigurations, LFSStorage

grain = pytest.importorskip("grain")


@pytest.fixture
def dataref(storage_dir: pathlib.Path) -> IndexedDataRef:
    storage = LFSStorage(LFSConfigurations(str(storage_dir)))
    storage.submit([{"x": np.full(3, i), "y": np.int32(i)} for i in range(13)], "data", "1.0")
    return storage.fetch("data", "1.0")


def ys(elements: Any) -> list[Any]:
    return [np.asarray(element["y"]).tolist() for element in elements]


def flat(lists: Any) -> list[Any]:
    return list(itertools.chain(*lists))


def test_a_source(dataref: IndexedDataRef) -> None:
    source = GrainSource(dataref)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert len(source) == 13
    assert source[4]["x"].tolist() == [4, 4, 4]
    assert [(r["x"].tolist(), r["y"], type(r["y"])) for r in source._getitems([5, 0, 5])] == [
        ([i] * 3, i, np.int32) for i in (5, 0, 5)
    ]
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy) == repr(source)
    assert ys(copy[i] for i in range(13)) == list(range(13))
    assert ys(grain.MapDataset.source(source)._getitems([3, 15])) == [3, 2]


def test_the_repr_tells_data_sets_apart(dataref: IndexedDataRef) -> None:
    assert repr(GrainSource(dataref)) != repr(GrainSource(dataref[1:]))
    assert repr(GrainSource(dataref[1:])) == repr(GrainSource(dataref[1:]))


def test_what_is_no_source(storage_dir: pathlib.Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="not a list"):
        GrainSource([1, 2])  # type: ignore[arg-type]
    storage = LFSStorage(LFSConfigurations(str(storage_dir)))
    storage.submit([None], "none", "1.0", spec=specs.NoneSpec())
    with pytest.raises(errors.UnsupportedTypeError, match="may be None"):
        GrainSource(storage.fetch("none", "1.0"))


def pipeline(dataref: IndexedDataRef) -> Any:
    return grain.MapDataset.source(GrainSource(dataref)).seed(1).shuffle().batch(4)


def test_a_pipeline(dataref: IndexedDataRef) -> None:
    batches = list(pipeline(dataref).to_iter_dataset())
    assert [len(batch["y"]) for batch in batches] == [4, 4, 4, 1]
    assert sorted(flat(ys(batches))) == list(range(13))
    iterator = iter(pipeline(dataref).to_iter_dataset())
    next(iterator)
    state = iterator.get_state()
    resumed = iter(pipeline(dataref).to_iter_dataset())
    resumed.set_state(state)
    assert ys(resumed) == ys(batches[1:])


def loader(dataref: IndexedDataRef, sampler: Any, workers: int = 0) -> Any:
    return grain.DataLoader(
        data_source=GrainSource(dataref),
        sampler=sampler,
        operations=[grain.transforms.Batch(3)],
        worker_count=workers,
        shard_options=grain.sharding.NoSharding(),
    )


def test_a_loader(dataref: IndexedDataRef) -> None:
    sampler = grain.samplers.IndexSampler(
        13, grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=7
    )
    batches = ys(loader(dataref, sampler))
    assert sorted(flat(batches)) == list(range(13))
    iterator = iter(loader(dataref, sampler))
    next(iterator)
    state = iterator.get_state()
    resumed = iter(loader(dataref, sampler))
    resumed.set_state(state)
    assert ys(resumed) == batches[1:]
    other = grain.samplers.IndexSampler(
        12, grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=7
    )
    with pytest.raises(ValueError, match="does not match"):
        iter(loader(dataref[1:], other)).set_state(state)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("offset", [0, 3, 10])
def test_the_frozen_order(dataref: IndexedDataRef, together: bool, offset: int) -> None:
    def stream() -> Any:
        return dataref.stream(
            offset,
            shuffle=True,
            shuffle_seed=2,
            shard_rank=1,
            num_shards=2,
            shuffle_then_shard=together,
        )

    plain = stream()
    expected = [y for _ in range(3) for y in ys(plain)]
    sampler = FrozenSampler(stream(), epochs=3)
    assert len(sampler) == len(expected)
    assert [sampler[i].record_key for i in range(len(sampler))] == expected
    assert [sampler[i].index for i in range(len(sampler))] == list(range(len(sampler)))
    assert [sampler[i].record_key for i in reversed(range(len(sampler)))] == expected[::-1]
    assert flat(ys(loader(dataref, sampler))) == expected
    copy = pickle.loads(pickle.dumps(sampler))
    assert repr(copy) == repr(sampler)
    assert copy[2].record_key == expected[2]


def test_resumes_in_the_frozen_order(dataref: IndexedDataRef) -> None:
    def begin(seed: int = 2) -> Any:
        stream = dataref.stream(shuffle=True, shuffle_seed=seed)
        return iter(loader(dataref, FrozenSampler(stream, epochs=2)))

    whole = ys(begin())
    iterator = begin()
    for _ in range(5):
        next(iterator)
    resumed = begin()
    resumed.set_state(iterator.get_state())
    assert ys(resumed) == whole[5:]
    with pytest.raises(ValueError, match="Sampler in checkpoint does not match"):
        begin(seed=3).set_state(iterator.get_state())


def test_generators_of_the_sampler(dataref: IndexedDataRef) -> None:
    first, again = (FrozenSampler(dataref.stream(), seed=6) for _ in range(2))
    assert first[3].rng.random() == again[3].rng.random() != first[4].rng.random()
    assert FrozenSampler(dataref.stream())[0].rng is None


def test_bad_places_and_arguments(dataref: IndexedDataRef) -> None:
    sampler = FrozenSampler(dataref.stream())
    for index in (-1, 13):
        with pytest.raises(IndexError, match="the sampler has 13"):
            sampler[index]
    for arguments in ({"epochs": 0}, {"seed": -1}):
        with pytest.raises(errors.InvalidArgumentError):
            FrozenSampler(dataref.stream(), **arguments)
    with pytest.raises(errors.InvalidArgumentError, match="not a list"):
        FrozenSampler([])  # type: ignore[arg-type]


# Grain's workers are spawned and import the main module: a program of its own, not pytest.
WORKERS = """
import sys
import grain
from absl import flags
import yogadl.storage
from yogadl.jax import FrozenSampler, GrainSource


def main():
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(sys.argv[1]))
    dataref = storage.fetch("data", "1.0")
    source = GrainSource(dataref)
    data = grain.MapDataset.source(source).seed(1).shuffle().to_iter_dataset().batch(2)
    options = grain.MultiprocessingOptions(num_workers=2)
    found = [y for b in data.mp_prefetch(options) for y in b["y"].tolist()]
    assert sorted(found) == list(range(13)), found
    sampler = FrozenSampler(dataref.stream(shuffle=True, shuffle_seed=2), epochs=2)
    loader = grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[],
        worker_count=1,
        shard_options=grain.sharding.NoSharding(),
    )
    stream = dataref.stream(shuffle=True, shuffle_seed=2)
    expected = [int(r["y"]) for _ in range(2) for r in stream]
    found = [int(r["y"]) for r in loader]
    assert found == expected, (found, expected)
    print("done")


if __name__ == "__main__":
    # Grain reads its flags before it starts workers.
    flags.FLAGS(sys.argv[:1])
    main()
"""


def test_workers(
    dataref: IndexedDataRef, storage_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    done = subprocess.run(
        [sys.executable, str(program), str(storage_dir)],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"


def test_needs_no_jax_and_batches_no_grain() -> None:
    code = """
import sys
sys.modules["{missing}"] = None
import yogadl.jax
yogadl.jax.{name}
assert "{missing}" not in [m for m in sys.modules if sys.modules[m] is not None]
"""
    for missing, name in (("jax", "GrainSource"), ("grain", "Batches")):
        if name == "Batches":
            pytest.importorskip("jax")
        subprocess.run(
            [sys.executable, "-c", code.format(missing=missing, name=name)],
            check=True,
            timeout=120,
            cwd=pathlib.Path(__file__).parents[2],
        )
