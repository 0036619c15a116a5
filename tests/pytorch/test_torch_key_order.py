"""Data sets made of others, in PyTorch: the order of the keys of a dict changes nothing."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from composed import composed, row  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from strategies import is_named, structures  # noqa: E402
from torch.utils.data import DataLoader, default_collate  # noqa: E402

import yogadl  # noqa: E402
from yogadl import spec as specs  # noqa: E402
from yogadl.spec import TensorSpec  # noqa: E402
from yogadl.torch import IterableDataset, MapDataset, collate  # noqa: E402

LEAVES = st.sampled_from(
    [
        TensorSpec("int64"),
        TensorSpec("float32", (2,)),
        TensorSpec("string"),
        TensorSpec("int16", (None,)),
    ]
)
NUMBERS = st.sampled_from([TensorSpec("int64"), TensorSpec("float32", (2,))])


def plain(value: Any) -> Any:
    """A record as something that ``==`` compares; NaN is equal to itself."""
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, tuple | list):
        return [plain(child) for child in value]
    if isinstance(value, bytes):
        return value
    array = np.asarray(value)
    return array.shape, array.tobytes()


def rows(spec: Any, batches: list[Any], count: int, size: int) -> list[Any]:
    return [plain(row(spec, batches[at // size], at % size)) for at in range(count)]


@settings(max_examples=40)
@given(spec=structures(LEAVES), data=st.data())
def test_records_and_batches(spec: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), spec))
        expected = [plain(record) for record in made.records]
        spec = made.dataref.spec
        dataset = MapDataset(made.dataref)
        count = len(expected)
        assert [plain(dataset[at]) for at in range(count)] == expected
        assert [plain(record) for record in dataset.__getitems__(list(range(count)))] == expected
        batches = list(DataLoader(dataset, 3, collate_fn=collate))
        assert rows(spec, batches, count, 3) == expected
        assert [plain(record) for record in IterableDataset(made.dataref.stream())] == expected
        batches = list(IterableDataset(made.dataref.stream(), batch_size=3))
        assert rows(spec, batches, count, 3) == expected


@settings(max_examples=40)
@given(spec=structures(NUMBERS), data=st.data())
def test_torchs_own_batches(spec: Any, data: st.DataObject) -> None:
    """Of records one by one, or in whole batches."""

    def listed(nest: Any) -> Any:
        """Torch makes lists of tuples."""
        if isinstance(nest, dict):
            return {key: listed(child) for key, child in nest.items()}
        if isinstance(nest, specs.LEAVES):
            return nest
        children = [listed(child) for child in nest]
        return type(nest)(*children) if is_named(nest) else tuple(children)

    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), spec))
        expected = [plain(record) for record in made.records]
        dataset = MapDataset(made.dataref)
        batches = list(DataLoader(dataset, 3))
        shape = listed(made.dataref.spec)
        assert rows(shape, batches, len(expected), 3) == expected
        if expected:
            batch = default_collate([dataset[at] for at in range(len(expected))])
            assert rows(shape, [batch], len(expected), 100) == expected


@settings(max_examples=20)
@given(spec=structures(NUMBERS), data=st.data())
def test_records_of_a_torch_data_set(spec: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), spec))
        dataset = MapDataset(made.dataref)
        again = yogadl.from_torch(dataset, spec=spec)
        assert [plain(record) for record in again.stream()] == [plain(r) for r in made.records]
