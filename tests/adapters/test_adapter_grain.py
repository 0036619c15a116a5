"""Grain data sets and random access sources."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored

from yogadl.adapters import open_source
from yogadl.dataref._sources import from_grain, from_source
from yogadl.errors import InfiniteDatasetError, InvalidArgumentError, UnsupportedTypeError

grain = pytest.importorskip("grain")


def made(count: int = 8) -> Any:
    return grain.MapDataset.source(list(range(count))).map(lambda n: {"n": n, "x": np.full(2, n)})


def expected(numbers: Any) -> list[Any]:
    return [{"n": np.int64(n), "x": np.full(2, n)} for n in numbers]


class Squares:
    """What Grain calls a RandomAccessDataSource."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        return index * index


def test_map_data_sets(tmp_path: pathlib.Path) -> None:
    assert_same(stored(tmp_path, made()).stream(), expected(range(8)))
    assert open_source(made()).count == 8
    for dataref in (from_grain(made()), from_source(made())):
        check(dataref, expected(range(8)), pickles=False)
    shuffled = made().seed(3).shuffle()
    check(
        from_grain(shuffled),
        [shuffled[i] | expected([shuffled[i]["n"]])[0] for i in range(8)],
        pickles=False,
    )


def test_sources(tmp_path: pathlib.Path) -> None:
    squares = [np.int64(i * i) for i in range(5)]
    assert_same(stored(tmp_path, Squares()).stream(), squares)
    check(from_grain(Squares()), squares)
    check(from_grain(grain.MapDataset.source(Squares())), squares)


def test_filters_leave_holes(tmp_path: pathlib.Path) -> None:
    even = made().filter(lambda record: record["n"] % 2 == 0)
    assert open_source(even).count is None
    assert_same(stored(tmp_path, even).stream(), expected(range(0, 8, 2)))
    with pytest.raises(InvalidArgumentError, match="element 1 was left out by a filter"):
        list(from_grain(even).stream())


def test_iter_data_sets(tmp_path: pathlib.Path) -> None:
    assert_same(stored(tmp_path, made().to_iter_dataset()).stream(), expected(range(8)))
    for wrong in (made().to_iter_dataset(), 3, "abc", {"a": 1}):
        with pytest.raises(UnsupportedTypeError, match="from_grain takes"):
            from_grain(wrong)


def test_infinite(tmp_path: pathlib.Path) -> None:
    endless = made().repeat()
    for data in (endless, endless.map(lambda r: r), endless.to_iter_dataset()):
        with pytest.raises(InfiniteDatasetError, match="for ever"):
            open_source(data)
    with pytest.raises(InfiniteDatasetError, match="for ever"):
        from_grain(endless)
    with pytest.raises(InfiniteDatasetError, match="for ever"):
        from_source(endless)
    assert_same(stored(tmp_path, made(2).repeat(2)).stream(), expected([0, 1, 0, 1]))
