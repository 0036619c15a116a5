"""Seeded transforms in Keras: the same pixels with any workers, ranks and resumes."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

pytest.importorskip("keras.utils", reason="needs Keras")

import augmented
import keras_rig as rig
from hypothesis import given, settings
from hypothesis import strategies as st

import yogadl
from yogadl.dataref import LMDBDataRef
from yogadl.keras import PyDataset

# Of Keras's own conversions to NumPy.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

SHUFFLED: dict[str, Any] = {"shuffle": True, "shuffle_seed": 3}


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return augmented.write(tmp_path_factory.mktemp("seeded") / "cache.mdb")


def dataset_of(dataref: LMDBDataRef, size: int, **options: Any) -> PyDataset:
    return PyDataset(dataref, size, transform=augmented.of_batches(), **options)


@pytest.mark.parametrize(("workers", "processes"), [(1, False), (3, False), (2, True)])
def test_any_workers(
    dataref: LMDBDataRef, workers: int, processes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_context = multiprocessing.get_context
    monkeypatch.setattr(multiprocessing, "get_context", lambda: get_context("spawn"))
    plain = dataref.stream(**SHUFFLED)
    with dataset_of(
        dataref, 4, **SHUFFLED, workers=workers, use_multiprocessing=processes
    ) as dataset:
        for epoch in range(3):
            dataset.on_epoch_begin()
            assert augmented.check(epoch, dataset) == [int(record["n"]) for record in plain]
            dataset.on_epoch_end()


class _Pixels(rig.keras.layers.Layer):  # type: ignore[misc]
    """Notes the pixels of each record that it has trained on, in a weight ``[COUNT, 3]``."""

    def build(self, shape: Any) -> None:
        self.pixels = self.add_weight(
            shape=(augmented.COUNT, 3), initializer="zeros", trainable=False, name="pixels"
        )
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, batch: Any, training: bool = False) -> Any:
        ops = rig.keras.ops
        if training:
            places = ops.one_hot(ops.cast(batch["n"], "int32"), augmented.COUNT)
            # Not by a product of matrices, of which GPUs round the factors.
            spread = ops.expand_dims(places, 2) * ops.expand_dims(batch["x"], 1)
            self.pixels.assign_add(ops.sum(spread, axis=0))
        return batch["x"] * self.scale


def test_fit(dataref: LMDBDataRef) -> None:
    """What arrives in the model, of an epoch in which training was resumed."""

    def labelled(batch: Any, rngs: Any) -> Any:
        x = augmented.augment_batch(batch, rngs)["x"]
        return {"n": batch["n"].astype("int32"), "x": x}, x

    transform = yogadl.seeded(labelled, augmented.SEED)
    inputs = {
        "n": rig.keras.Input((), dtype="int32", name="n"),
        "x": rig.keras.Input((3,), name="x"),
    }
    layer = _Pixels()
    model = rig.keras.Model(inputs, layer(inputs))
    model.compile("sgd", loss="mse")
    offset = augmented.COUNT + 8
    dataset = PyDataset(dataref, 4, **SHUFFLED, transform=transform, start_offset=offset)
    model.fit(dataset, epochs=1, shuffle=False, verbose=0)
    pixels = rig.keras.ops.convert_to_numpy(layer.pixels.value)
    rest = list(dataref.stream(**SHUFFLED, start_offset=offset))
    positions = [int(record["n"]) for record in rest]
    assert augmented.check(1, [{"n": positions, "x": pixels[positions]}]) == positions
    assert not pixels[[n for n in range(augmented.COUNT) if n not in positions]].any()


@settings(deadline=None)
@given(data=st.data(), size=st.integers(1, 5))
def test_resuming_anywhere_with_other_ranks(
    dataref: LMDBDataRef, data: st.DataObject, size: int
) -> None:
    before, after = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    order = {**SHUFFLED, "shuffle_then_shard": True}
    steps = data.draw(st.integers(0, (augmented.COUNT - 1) // before // size))
    first = [
        dataset_of(dataref, size, **order, shard_rank=r, num_shards=before) for r in range(before)
    ]
    seen = [n for ds in first for n in augmented.check(0, [ds[step] for step in range(steps)])]
    state = first[0].state_dict(steps)
    rest: list[list[int]] = [[], []]
    for rank in range(after):
        dataset = dataset_of(dataref, 3, state=state, shard_rank=rank, num_shards=after)
        # A rank for which nothing is left of the epoch begins with the next.
        for epoch in range(dataset.epoch, 2):
            rest[epoch] += augmented.check(epoch, dataset)
            dataset.on_epoch_end()
    whole = list(range(augmented.COUNT))
    assert sorted(seen + rest[0]) == whole
    assert sorted(rest[1]) == whole
