"""PyTorch data sets and loaders, stored or read where they are."""

from __future__ import annotations

import collections
import importlib
import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored
from hypothesis import given
from hypothesis import strategies as st

from yogadl.adapters import open_source
from yogadl.dataref._sources import from_arrays, from_source, from_torch
from yogadl.errors import (
    InvalidArgumentError,
    SpecMismatchError,
    UnsupportedTypeError,
)
from yogadl.spec import TensorSpec

pytest.importorskip("torch.utils.data")
torch: Any = importlib.import_module("torch")

Pair = collections.namedtuple("Pair", ["image", "label"])
BASE: Any = torch.utils.data.Dataset
ITERABLE: Any = torch.utils.data.IterableDataset


class Items(BASE):  # type: ignore[misc]
    """Map-style; the item of a position is what ``make`` makes of it."""

    def __init__(self, count: int, make: Any) -> None:
        self.count, self.make = count, make
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.make(index)


class Many(Items):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert isinstance(indices, list)
        assert all(type(index) is int for index in indices)
        return [self.make(index) for index in indices]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("there is __getitems__")


class Flow(ITERABLE):  # type: ignore[misc]
    """Each worker has its share."""

    def __init__(self, count: int, make: Any) -> None:
        self.count, self.make = count, make

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return map(self.make, range(first, self.count, step))


def as_pair(index: int) -> Any:
    return torch.full((2,), index, dtype=torch.float32), index


def as_list(index: int) -> Any:
    return list(as_pair(index))


def as_dict(index: int) -> Any:
    return {"x": torch.tensor(index), "name": f"n{index}", "y": {"z": (index / 2, True)}}


def as_named(index: int) -> Any:
    return Pair(torch.full((1, 2), index, dtype=torch.uint8), index)


def pair(index: int) -> Any:
    return np.full(2, index, "f4"), np.int64(index)


def a_dict(index: int) -> Any:
    x, name = np.int64(index), f"n{index}".encode()
    return {"x": x, "name": name, "y": {"z": (np.float64(index / 2), np.True_)}}


def named(index: int) -> Any:
    return Pair(np.full((1, 2), index, "u1"), np.int64(index))


KINDS = [(as_pair, pair), (as_list, pair), (as_dict, a_dict), (as_named, named)]


@pytest.mark.parametrize("kind", [Items, Many])
@pytest.mark.parametrize(("make", "expected"), KINDS)
def test_map_style(kind: Any, make: Any, expected: Any, tmp_path: pathlib.Path) -> None:
    records = [expected(index) for index in range(70)]
    assert_same(stored(tmp_path, kind(70, make)).stream(), records)
    check(from_torch(kind(10, make)), records[:10])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [None, 1, 4, 10, 16])
@pytest.mark.parametrize(("make", "expected"), KINDS)
def test_loaders(
    workers: int, size: int | None, make: Any, expected: Any, tmp_path: pathlib.Path
) -> None:
    if workers and size not in (None, 4):
        pytest.skip("one size and none are enough with workers")
    loader = torch.utils.data.DataLoader(Items(10, make), batch_size=size, num_workers=workers)
    assert open_source(loader).count == 10
    assert_same(stored(tmp_path, loader).stream(), [expected(index) for index in range(10)])
    if workers:
        assert loader.dataset.asked == [], "the workers did the work"


def test_loaders_of_iterables(tmp_path: pathlib.Path) -> None:
    loader = torch.utils.data.DataLoader(Flow(10, as_pair), batch_size=3, num_workers=2)
    assert open_source(loader).count is None
    found = stored(tmp_path, loader).stream()
    assert sorted(int(label) for _, label in found) == list(range(10))


def test_other_loaders(tmp_path: pathlib.Path) -> None:
    items = Items(10, as_pair)
    loader = torch.utils.data.DataLoader(items, batch_size=4, drop_last=True)
    assert open_source(loader).count == 8
    assert_same(stored(tmp_path, loader).stream(), [pair(index) for index in range(8)])
    sampler = [[0, 1], [2], [5, 4, 3]]
    loader = torch.utils.data.DataLoader(items, batch_sampler=sampler)
    assert open_source(loader).count is None
    assert_same(stored(tmp_path, loader).stream(), [pair(i) for i in (0, 1, 2, 5, 4, 3)])
    loader = torch.utils.data.DataLoader(items, batch_size=4, shuffle=True)
    labels = [int(label) for _, label in stored(tmp_path, loader).stream()]
    assert sorted(labels) == list(range(10))


def test_batches_that_cannot_be_taken_apart() -> None:
    items = Items(4, as_pair)

    def total(batch: Any) -> Any:
        return {"x": torch.zeros(2, 3), "n": torch.tensor(2)}

    loader = torch.utils.data.DataLoader(items, batch_size=2, collate_fn=total)
    with pytest.raises(UnsupportedTypeError, match=r"batch\['n'\] is a torch.Tensor"):
        open_source(loader)

    def uneven(batch: Any) -> Any:
        return torch.zeros(2, 3), torch.zeros(3)

    loader = torch.utils.data.DataLoader(items, batch_size=2, collate_fn=uneven)
    with pytest.raises(InvalidArgumentError, match=r"one length, not of \[2, 3\]"):
        open_source(loader)


def test_batches_that_differ(tmp_path: pathlib.Path) -> None:
    """Such as those padded to the longest of a batch."""

    def padded(batch: Any) -> Any:
        return torch.ones(len(batch), max(batch), dtype=torch.int64)

    loader: Any = torch.utils.data.DataLoader(Items(6, int), batch_size=2, collate_fn=padded)
    with pytest.raises(SpecMismatchError, match="inferred from the first batch"):
        stored(tmp_path, loader)
    dataref = stored(tmp_path, loader, TensorSpec("int64", (None,)))
    assert [len(record) for record in dataref.stream()] == [1, 1, 3, 3, 5, 5]


def test_errors_of_workers_pass_through(tmp_path: pathlib.Path) -> None:
    def failing(index: int) -> Any:
        if index == 3:
            raise ZeroDivisionError("mine")
        return index

    loader = torch.utils.data.DataLoader(Items(6, failing), batch_size=2, num_workers=1)
    with pytest.raises(ZeroDivisionError, match="mine"):
        stored(tmp_path, loader)


def test_iterable_data_sets(tmp_path: pathlib.Path) -> None:
    flow = Flow(5, as_list)
    assert_same(stored(tmp_path, flow).stream(), [pair(index) for index in range(5)])
    with pytest.raises(UnsupportedTypeError, match="one after the other"):
        from_source(flow)
    with pytest.raises(UnsupportedTypeError, match="map-style"):
        from_torch(flow)


def test_tensors_as_columns(tmp_path: pathlib.Path) -> None:
    tensors = torch.arange(12.0).reshape(6, 2), torch.arange(6)
    records = [(np.array([2 * i, 2 * i + 1], "f4"), np.int64(i)) for i in range(6)]
    for data in (torch.utils.data.TensorDataset(*tensors), tensors):
        assert_same(stored(tmp_path, data).stream(), records)
        check(from_source(data), records)
    check(from_arrays({"a": tensors[1]}), [{"a": np.int64(i)} for i in range(6)])
    assert_same(stored(tmp_path, torch.arange(3)).stream(), list(map(np.int64, range(3))))
    subset = torch.utils.data.Subset(torch.utils.data.TensorDataset(*tensors), [4, 1])
    check(from_torch(subset), [records[4], records[1]])


def test_bfloat16(tmp_path: pathlib.Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = torch.arange(6, dtype=torch.bfloat16).reshape(3, 2)
    expected = list(np.arange(6).astype(ml_dtypes.bfloat16).reshape(3, 2))
    assert_same(stored(tmp_path, values).stream(), expected)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(values), batch_size=2)
    assert_same(stored(tmp_path, loader).stream(), [(row,) for row in expected])
    check(from_arrays(values), expected)


def test_what_is_no_data_set() -> None:
    with pytest.raises(UnsupportedTypeError, match=r"not a builtins.list"):
        from_torch([1])

    class NoLength(BASE):  # type: ignore[misc]
        def __getitem__(self, index: int) -> int:
            return index

    with pytest.raises(UnsupportedTypeError, match="has no length"):
        open_source(NoLength())


@given(count=st.integers(1, 20), size=st.integers(1, 7), shape=st.lists(st.integers(0, 3)))
def test_loaders_round_trip(
    tmp_path_factory: pytest.TempPathFactory, count: int, size: int, shape: list[int]
) -> None:
    shape = shape[:3]
    values = np.random.RandomState(count).rand(count, *shape)
    data = torch.utils.data.TensorDataset(torch.from_numpy(values))
    loader = torch.utils.data.DataLoader(data, batch_size=size)
    dataref = stored(tmp_path_factory.mktemp("loader"), loader)
    assert_same(dataref.stream(), [(row if shape else row[()],) for row in values])
    dataref.close()
