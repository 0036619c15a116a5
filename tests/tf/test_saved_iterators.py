"""A saved iterator is restored over what it was saved of, and over nothing else."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import yogadl
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec
from yogadl.tensorflow import make_tf_dataset

COUNT = 23
SHUFFLED: dict[str, Any] = {"shuffle": True, "shuffle_seed": 3}


def write(path: pathlib.Path, spec: Any, make: Callable[[int], Any]) -> LMDBDataRef:
    with CacheWriter(path, spec) as writer:
        for number in range(COUNT):
            writer.append(make(number))
        writer.commit()
    return LMDBDataRef(path)


def fixed(path: pathlib.Path, add: int) -> Any:
    return write(path, TensorSpec("int64", (3,)), lambda n: np.full(3, n + add))


def varying(path: pathlib.Path, add: int) -> Any:
    return write(path, TensorSpec("int64", (None,)), lambda n: np.full(n % 4, n + add))


def joined(path: pathlib.Path, add: int) -> Any:
    return yogadl.concat([fixed(path, add)[::2], fixed(path.with_suffix(".other"), add)[1::2]])


def arrays(path: pathlib.Path, add: int) -> Any:
    return yogadl.from_arrays(np.arange(COUNT)[:, None] + add)


BATCHED = {"batch_size": 4}
# In-graph and by NumPy, single records and batches of all kinds, views.
CASES: list[tuple[Callable[[pathlib.Path, int], Any], dict[str, Any], Any]] = [
    (fixed, {}, lambda dataset: dataset),
    (fixed, BATCHED, lambda dataset: dataset),
    (fixed, {}, lambda dataset: dataset.batch(3).map(lambda x: x * 2).prefetch(2)),
    (varying, {}, lambda dataset: dataset),
    (varying, {**BATCHED, "ragged": True}, lambda dataset: dataset),
    (varying, {**BATCHED, "pad": 0}, lambda dataset: dataset),
    (joined, BATCHED, lambda dataset: dataset),
    (arrays, {**BATCHED, "seeds": 7}, lambda dataset: dataset),
]
IDS = ["records", "batches", "batch", "varying", "ragged", "padded", "joined", "arrays"]


def values(elements: Any) -> Any:
    def value(tensor: Any) -> Any:
        return tensor.to_list() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy().tolist()

    return [tf.nest.map_structure(value, element) for element in elements]


def take(iterator: Any, count: int) -> Any:
    return values(next(iterator) for _ in range(count))


def restored(iterator: Any, saved: Any) -> Any:
    """The iterator after a step: it may complain at once, or with what comes next."""
    tf.train.Checkpoint(iterator=iterator).restore(saved).expect_partial()
    next(iterator)
    return iterator


@pytest.mark.parametrize(("make", "arguments", "after"), CASES, ids=IDS)
def test_restored_over_the_same_only(
    tmp_path: pathlib.Path, make: Any, arguments: dict[str, Any], after: Any
) -> None:
    same, other = make(tmp_path / "same.mdb", 0), make(tmp_path / "other.mdb", 100)

    def iterator(data: Any = same, order: Any = SHUFFLED, **changed: Any) -> Any:
        stream = data.stream(**order)
        dataset = make_tf_dataset(stream, **{"epochs": 3, **arguments, **changed})
        return iter(after(dataset))

    per_epoch = len(values(iterator(epochs=1)))
    wrong = {
        "data": [functools.partial(iterator, other)],
        "order": [
            functools.partial(iterator, order={**SHUFFLED, "shuffle_seed": 4}),
            functools.partial(iterator, order={}),
            functools.partial(iterator, order={**SHUFFLED, "num_shards": 2}),
            functools.partial(iterator, order={**SHUFFLED, "start_offset": 3}),
        ],
    }
    if "batch_size" in arguments:
        wrong["order"].append(functools.partial(iterator, batch_size=5))
    for taken in (0, per_epoch + 2, *((1, per_epoch) if make is fixed else ())):
        first = iterator()
        take(first, taken)
        saved = tf.train.Checkpoint(iterator=first).save(tmp_path / "saved")
        second = iterator()
        tf.train.Checkpoint(iterator=second).restore(saved).expect_partial()
        assert values(second) == values(first)
        if taken in (1, per_epoch):
            # What is another is refused by what was saved, whatever was taken.
            continue
        for kind, iterators in wrong.items():
            for begin in iterators:
                with pytest.raises(
                    tf.errors.InvalidArgumentError,
                    match="StateMismatchError: the saved iterator is of another " + kind,
                ):
                    restored(begin(), saved)


def test_restored_over_the_same_data_built_again(tmp_path: pathlib.Path) -> None:
    def iterator(name: str) -> Any:
        stream = fixed(tmp_path / name, 0).stream(**SHUFFLED)
        return iter(make_tf_dataset(stream, epochs=None))

    first, second = iterator("first.mdb"), iterator("second.mdb")
    take(first, 30)
    saved = tf.train.Checkpoint(iterator=first).save(tmp_path / "saved")
    tf.train.Checkpoint(iterator=second).restore(saved).expect_partial()
    assert take(second, 50) == take(first, 50)
