"""Keras: the batches of a ``PyDataset`` are taken apart."""

from __future__ import annotations

import importlib
import pathlib
import threading
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored
from hypothesis import given
from hypothesis import strategies as st

from yogadl.adapters import open_source
from yogadl.dataref._sources import from_keras, from_source
from yogadl.errors import InfiniteDatasetError, InvalidArgumentError, UnsupportedTypeError

pytest.importorskip("keras.utils")
keras: Any = importlib.import_module("keras")

BASE: Any = keras.utils.PyDataset


class Sequence(BASE):  # type: ignore[misc]
    """Batches of ``size`` of ``count`` records; ``make`` makes a batch of positions."""

    def __init__(self, count: int, size: int, make: Any) -> None:
        super().__init__()
        self.count, self.size, self.make = count, size, make
        self.made: list[int] = []

    def __len__(self) -> int:
        return (self.count + self.size - 1) // self.size

    def __getitem__(self, index: int) -> Any:
        self.made.append(index)
        positions = np.arange(index * self.size, min((index + 1) * self.size, self.count))
        return self.make(positions)


def plain(positions: Any) -> Any:
    return positions


def x_only(positions: Any) -> Any:
    return np.stack([positions, positions], axis=1).astype("f4")


def x_y(positions: Any) -> Any:
    return x_only(positions), positions


def x_y_weight(positions: Any) -> Any:
    x = {"image": x_only(positions), "text": [f"t{position}" for position in positions]}
    return x, [positions, positions % 2 == 0], positions / 2


def x_none(positions: Any) -> Any:
    return x_only(positions), None, positions / 2


def one(position: int) -> Any:
    return np.full(2, position, "f4")


KINDS: list[tuple[Any, Any]] = [
    (x_only, one),
    (x_y, lambda p: (one(p), np.int64(p))),
    (
        x_y_weight,
        lambda p: (
            {"image": one(p), "text": f"t{p}".encode()},
            (np.int64(p), np.bool_(p % 2 == 0)),
            np.float64(p / 2),
        ),
    ),
    (x_none, lambda p: (one(p), None, np.float64(p / 2))),
]


@pytest.mark.parametrize(("make", "expected"), KINDS)
@pytest.mark.parametrize("size", [3, 5, 20])
def test_sequences(make: Any, expected: Any, size: int, tmp_path: pathlib.Path) -> None:
    records = [expected(position) for position in range(10)]
    assert_same(stored(tmp_path, Sequence(10, size, make)).stream(), records)
    check(from_keras(Sequence(10, size, make)), records)


@given(count=st.integers(1, 40), size=st.integers(1, 9))
def test_every_record_once(tmp_path_factory: pytest.TempPathFactory, count: int, size: int) -> None:
    dataref = stored(tmp_path_factory.mktemp("keras"), Sequence(count, size, plain))
    assert [int(record) for record in dataref.stream()] == list(range(count))
    dataref.close()
    check(from_keras(Sequence(count, size, plain)), list(map(np.int64, range(count))))


def test_the_old_name() -> None:
    class Old(keras.utils.Sequence):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return np.full(3, index)

    assert open_source(Old()).spec.dtype == "int64"
    check(from_source(Old()), [np.int64(i) for i in (0, 0, 0, 1, 1, 1)], pickles=False)


def test_in_order_every_batch_is_made_once() -> None:
    sequence = Sequence(12, 3, x_y)
    dataref = from_keras(sequence)
    sequence.made.clear()
    for position in range(12):
        dataref[position]
    assert sorted(sequence.made) in ([0, 1, 2, 3], [1, 2, 3])


def test_threads_keep_batches_of_their_own() -> None:
    dataref = from_keras(Sequence(40, 4, plain))
    wrong: list[int] = []

    def read(seed: int) -> None:
        for position in np.random.RandomState(seed).permutation(40).tolist():
            if int(dataref[position]) != position:
                wrong.append(position)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_infinite() -> None:
    class Endless(BASE):  # type: ignore[misc]
        @property
        def num_batches(self) -> None:
            return None

        def __getitem__(self, index: int) -> Any:
            return np.zeros(3)

    with pytest.raises(InfiniteDatasetError, match="num_batches"):
        open_source(Endless())
    with pytest.raises(InfiniteDatasetError, match="num_batches"):
        from_keras(Endless())


def test_batches_of_different_sizes(tmp_path: pathlib.Path) -> None:
    class Uneven(Sequence):
        def __getitem__(self, index: int) -> Any:
            return np.full(index + 1, index)

    uneven = Uneven(9, 3, None)
    assert [int(n) for n in stored(tmp_path, uneven).stream()] == [0, 1, 1, 2, 2, 2]
    with pytest.raises(InvalidArgumentError, match="batch 1 of 3 has 2 records"):
        list(from_keras(uneven).stream())


def test_what_is_no_sequence() -> None:
    with pytest.raises(UnsupportedTypeError, match=r"keras.utils.PyDataset"):
        from_keras([1])
    with pytest.raises(InvalidArgumentError, match="give spec="):
        open_source(Sequence(0, 3, x_y))
