"""What is made of a data set goes on when the data set is gone, as TensorFlow's own does; and
when that is gone too, so is the file."""

from __future__ import annotations

import gc
import pathlib
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from test_round_trip import make_storage

from yogadl.cache.mapping import MappedFile
from yogadl.tensorflow import make_tf_dataset

RECORDS: dict[str, Any] = {
    "by gather": [np.int64(number) for number in range(10)],
    "by rows": [np.arange(number, dtype="i8") for number in range(10)],
}
Opened = Callable[..., Any]


@pytest.fixture(params=RECORDS)
def opened(
    request: pytest.FixtureRequest, storage_dir: pathlib.Path
) -> Iterator[Callable[..., Any]]:
    """Makes data sets of which nothing else is kept; in the end, no file of them is left."""
    storage = make_storage(storage_dir)
    spec = tf.TensorSpec([None] if request.param == "by rows" else [], tf.int64)
    storage.submit(RECORDS[request.param], "a", "1", spec=spec)
    files: list[weakref.ref[MappedFile]] = []

    def make(**arguments: Any) -> Any:
        ref = storage.fetch("a", "1")
        files.append(weakref.ref(ref.reader._memory))
        return make_tf_dataset(ref.stream(), **arguments)

    yield make
    assert files
    deadline = time.monotonic() + 60
    # TensorFlow's threads may let go a little later.
    while any(file() for file in files) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert [file() for file in files] == [None] * len(files)


def total(data: Any) -> Any:
    return data.reduce(
        tf.constant(0, tf.int64), lambda so_far, record: so_far + tf.size(record, tf.int64)
    )


@pytest.mark.parametrize("derive", [False, True])
@pytest.mark.parametrize("concrete", [False, True])
def test_a_function_that_captured_it(opened: Opened, derive: bool, concrete: bool) -> None:
    data = opened(epochs=2)
    if derive:
        data = data.map(lambda record: record + 1).prefetch(2)
    count = int(total(data))
    held = [data]

    @tf.function  # type: ignore[untyped-decorator]
    def counted() -> Any:
        return total(held[0])

    call = counted.get_concrete_function() if concrete else counted
    call()
    if concrete:
        del counted
    held.clear()
    del data
    gc.collect()
    assert [int(call()) for _ in range(3)] == [count] * 3


def test_an_iterator(opened: Opened) -> None:
    iterator = iter(opened(epochs=1).map(tf.size))
    gc.collect()
    assert len(list(iterator)) == 10


def test_other_data_sets(opened: Opened) -> None:
    both = opened(epochs=1).concatenate(opened(epochs=1)).batch(1)
    variant = tf.data.experimental.to_variant(both)
    structure = both.element_spec
    del both
    gc.collect()
    again = tf.data.experimental.from_variant(variant, structure)
    assert len(list(again)) == 20


def test_made_in_a_function(opened: Opened) -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def outer() -> Any:
        @tf.function  # type: ignore[untyped-decorator]
        def inner() -> Any:
            return total(opened(epochs=1))

        return inner()

    call = outer.get_concrete_function()
    del outer
    gc.collect()
    assert int(call()) == int(call()) > 0


def test_made_in_a_graph(opened: Opened) -> None:
    with tf.Graph().as_default() as graph:
        found = total(opened(epochs=1))
        gc.collect()
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run(found) == session.run(found) > 0


def test_shuffled_by_strategies(opened: Opened) -> None:
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    distributed = strategy.experimental_distribute_dataset(opened(epochs=2))
    gc.collect()
    assert len(list(distributed)) == len(list(distributed)) == 20
