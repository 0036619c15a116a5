"""Several workers write what other libraries have."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same

from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

COUNT = 100


def pandas_frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"n": np.arange(COUNT), "text": [f"row {n}" for n in range(COUNT)]})


def arrow_table() -> Any:
    pa = pytest.importorskip("pyarrow")
    lists = [list(range(n % 7)) for n in range(COUNT)]
    return pa.table({"n": np.arange(COUNT), "list": lists, "text": list(map(str, range(COUNT)))})


def arrow_array() -> Any:
    return arrow_table()["list"]


def polars_frame() -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"n": np.arange(COUNT), "text": list(map(str, range(COUNT)))})


def huggingface() -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict(
        {"n": list(range(COUNT)), "text": list(map(str, range(COUNT)))}
    )


def torch_dataset() -> Any:
    torch = pytest.importorskip("torch")

    class Map(torch.utils.data.Dataset[Any]):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, position: int) -> Any:
            return torch.full((3,), position), position

    return Map()


def torch_subset() -> Any:
    data = torch_dataset()
    return pytest.importorskip("torch").utils.data.Subset(data, range(90, 10, -2))


def torch_tensors() -> Any:
    torch = pytest.importorskip("torch")
    rows = torch.arange(6 * COUNT).reshape(COUNT, 2, 3)
    return torch.utils.data.TensorDataset(rows, torch.arange(COUNT))


def grain_dataset() -> Any:
    grain = pytest.importorskip("grain")
    return grain.MapDataset.range(COUNT).map(lambda item: {"squared": item**2})


def keras_sequence() -> Any:
    keras = pytest.importorskip("keras")

    class Batches(keras.utils.PyDataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return COUNT // 5

        def __getitem__(self, batch: int) -> Any:
            return np.arange(5 * batch, 5 * batch + 5, dtype="f4"), np.full(5, batch)

    return Batches()


MADE = [
    pandas_frame,
    arrow_table,
    arrow_array,
    polars_frame,
    huggingface,
    torch_dataset,
    torch_subset,
    torch_tensors,
    grain_dataset,
    keras_sequence,
]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("make", MADE)
def test_workers_write_the_same(make: Any, tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path / "stored")
    storage.submit(make(), "a", "1", workers=3)
    storage.submit(make(), "a", "2")
    with storage.fetch("a", "1") as one, storage.fetch("a", "2") as other:
        assert one.spec == other.spec
        assert len(one) == len(other)
        assert one.reader.content_id == other.reader.content_id
        assert one.metadata == other.metadata
        if make is not keras_sequence:
            # Batches cannot be told from records.
            assert storage.fetch("a", "1").info.record_count == len(make())


def test_datarefs(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path / "stored")
    spec = {"x": TensorSpec("float64", (None,)), "n": TensorSpec("int64", ())}
    storage.submit(({"x": np.zeros(n), "n": n} for n in range(COUNT)), "a", "1", spec=spec)
    with storage.fetch("a", "1") as data:
        storage.submit(data[10:90:3], "a", "2", workers=2)
        with storage.fetch("a", "2") as found:
            assert_same(found.stream(), list(data[10:90:3].stream()))
