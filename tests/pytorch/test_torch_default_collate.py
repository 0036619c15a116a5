"""``default_collate`` takes batches whole, and makes of them what it makes of their records."""

from __future__ import annotations

import collections
import copy
import pathlib
import pickle
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from strategies import data_sets, structures, tensor_specs  # noqa: E402
from torch.utils.data import DataLoader, Subset, default_collate  # noqa: E402
from torch_helpers import MANY_WORKERS, write, write_numbered  # noqa: E402

from yogadl.spec import TensorSpec  # noqa: E402
from yogadl.torch import Batch, MapDataset  # noqa: E402

pytestmark = MANY_WORKERS

# torch stacks no others. Those that only ml_dtypes has are where it is installed.
DTYPES = ["bool", "int8", "int64", "uint8", "float16", "float32", "float64", "complex64", "string"]
SPECS = structures(tensor_specs(st.sampled_from(DTYPES)))
Pair = collections.namedtuple("Pair", ["left", "right"])


def same(one: Any, two: Any) -> bool:
    """Whether two batches are equal, in their classes, too."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, torch.Tensor):
        alike = one.dtype == two.dtype and one.shape == two.shape
        return alike and one.numpy().tobytes() == two.numpy().tobytes()
    return bool(one == two)


NESTED = {
    "a": (TensorSpec("int64"), {"b": TensorSpec("string")}),
    "p": Pair(*[TensorSpec("int8")] * 2),
}
RECORD = {"a": (np.int64(1), {"b": b"x"}), "p": Pair(np.int8(2), np.int8(3))}


@given(data_sets(SPECS))
@example((NESTED, [RECORD] * 2))
@example(((TensorSpec("string"), (TensorSpec("string"),)), [(b"x", (b"y",))] * 2))
@example((Pair(TensorSpec("int64"), TensorSpec("string")), [Pair(np.int64(1), b"")]))
def test_it_makes_the_same_of_a_batch_as_of_its_records(data_set: tuple[Any, list[Any]]) -> None:
    spec, records = data_set
    with tempfile.TemporaryDirectory() as directory:
        dataset = MapDataset(write(pathlib.Path(directory) / "cache.mdb", records, spec))
        positions = [*range(len(records)), *range(len(records))]
        plain = [dataset[position] for position in positions]
        try:
            expected = default_collate(plain)
        except (RuntimeError, IndexError, TypeError) as error:
            # Not of one shape, or no records.
            with pytest.raises(type(error)):
                default_collate(dataset.__getitems__(positions))
        else:
            assert same(default_collate(dataset.__getitems__(positions)), expected)
        dataset.dataref.close()


@pytest.mark.parametrize("nest", [dict, tuple])
def test_it_copies_nothing(tmp_path: pathlib.Path, nest: Any) -> None:
    record = {"x": np.ones(3, "f4"), "y": np.int64(1)}
    records = [record if nest is dict else tuple(record.values())] * 4
    dataset = MapDataset(write(tmp_path / "cache.mdb", records))
    batch: Any = dataset.__getitems__([1, 2])
    made = default_collate(batch)
    assert type(made) is {dict: dict, tuple: list}[nest]
    whole = batch.whole["x" if nest is dict else 0]
    assert made["x" if nest is dict else 0].data_ptr() == whole.data_ptr()
    # The first record is like any other, but for its class.
    for first in (batch[0], pickle.loads(pickle.dumps(batch[0])), copy.deepcopy(batch[0])):
        assert isinstance(first, nest)
        assert same(nest(first), dataset[1])
        assert same(nest(first), batch[-2])


def test_the_first_record_keeps_a_type_of_its_own(tmp_path: pathlib.Path) -> None:
    records = [Pair(np.int64(n), np.ones(2, "f4")) for n in range(3)]
    dataset = MapDataset(write(tmp_path / "cache.mdb", records))
    batch = dataset.__getitems__([2, 0])
    assert same(batch[0], dataset[2])
    assert batch[0].left.item() == 2


def test_lists_that_begin_with_a_batchs_first_record(tmp_path: pathlib.Path) -> None:
    dataset = MapDataset(write_numbered(tmp_path / "cache.mdb", 4))
    batch = dataset.__getitems__([3, 1, 2])
    expected = default_collate([dataset[3], dataset[2]])
    assert same(default_collate([batch[0], batch[2]]), expected)
    assert same(default_collate((batch[0], batch[2])), expected)
    pairs = [(batch[0], 1), (batch[2], 2)]
    assert same(default_collate(pairs), [expected, torch.tensor([1, 2])])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_knows_nothing_of_it(tmp_path: pathlib.Path, workers: int) -> None:
    dataset = MapDataset(write_numbered(tmp_path / "cache.mdb", 7))
    assert isinstance(dataset.__getitems__([0]), Batch)
    for part in (dataset, Subset(dataset, range(7))):
        found = list(DataLoader(part, batch_size=3, num_workers=workers))
        assert [batch["y"].tolist() for batch in found] == [[0, 1, 2], [3, 4, 5], [6]]
        assert [tuple(batch["x"].shape) for batch in found] == [(3, 3), (3, 3), (1, 3)]
