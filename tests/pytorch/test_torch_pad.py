"""``MapDataset(pad=…)``: batches of records whose arrays vary in shape."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")
data: Any = pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from torch_helpers import write  # noqa: E402

import yogadl.torch  # noqa: E402
from yogadl.dataref import LMDBDataRef  # noqa: E402
from yogadl.errors import InvalidArgumentError  # noqa: E402
from yogadl.spec import TensorSpec  # noqa: E402

COUNT = 11
SPEC = {
    "x": TensorSpec("float32", (None, 2)),
    "y": TensorSpec("int64"),
    "s": TensorSpec("string"),
}


def array(number: int) -> Any:
    return np.full((number * number % 5, 2), number + 1, "f4")


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    records = [{"x": array(n), "y": np.int64(n), "s": b"%d" % n} for n in range(COUNT)]
    return write(tmp_path_factory.mktemp("pad") / "cache.mdb", records, SPEC)


def expected(positions: list[int], pad: float) -> Any:
    arrays = [array(position) for position in positions]
    whole = np.full((len(arrays), max(map(len, arrays)), 2), pad, "f4")
    for row, values in zip(whole, arrays, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(whole)


@pytest.mark.parametrize("collate", [None, yogadl.torch.collate], ids=["torch's", "yogadl's"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pad", [-1, {"x": -1, "y": None, "s": None}], ids=["a number", "a nest"])
def test_batches_are_padded_to_their_largest(
    dataref: LMDBDataRef, collate: Any, workers: int, pad: Any
) -> None:
    dataset = yogadl.torch.MapDataset(dataref, pad=pad)
    loader = data.DataLoader(dataset, 4, collate_fn=collate, num_workers=workers)
    batches = list(loader)
    assert [batch["y"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    for batch in batches:
        positions = batch["y"].tolist()
        assert torch.equal(batch["x"], expected(positions, -1))
        assert batch["s"] == [b"%d" % position for position in positions]


def test_batches_of_a_batch_sampler_too(dataref: LMDBDataRef) -> None:
    """Which has many batches read at once; each is padded by itself."""
    dataset = yogadl.torch.MapDataset(dataref, pad=0)
    order = yogadl.torch.Sampler(dataset, shuffle=True, shuffle_seed=3)
    sampler = yogadl.torch.BatchSampler(order, 2, drop_last=False)
    for batch in data.DataLoader(dataset, sampler=sampler, batch_size=None):
        assert torch.equal(batch["x"], expected(batch["y"].tolist(), 0))


def test_records_by_themselves_are_as_they_are(dataref: LMDBDataRef) -> None:
    dataset = yogadl.torch.MapDataset(dataref, pad=0)
    assert dataset[3]["x"].shape == (4, 2)
    assert dataset[[3, 1]]["x"].shape == (2, 4, 2)
    assert dataset[[]]["x"].shape[0] == 0


def test_what_is_done_to_records_is_in_the_batch(dataref: LMDBDataRef) -> None:
    dataset = yogadl.torch.MapDataset(dataref, pad=0)

    def changed(records: Any) -> Any:
        for record in records:
            record["x"] = record["x"] * 10
            record["n"] = record["y"] + 1
        return yogadl.torch.collate(records)

    for batch in data.DataLoader(dataset, 3, collate_fn=changed):
        positions = batch["y"].tolist()
        assert torch.equal(batch["x"], expected(positions, 0) * 10)
        assert batch["n"].tolist() == [position + 1 for position in positions]


def test_single_arrays(tmp_path: pathlib.Path) -> None:
    records = [np.arange(n, dtype="i4") for n in (3, 0, 5)]
    ref = write(tmp_path / "cache.mdb", records, TensorSpec("int32", (None,)))
    (batch,) = data.DataLoader(yogadl.torch.MapDataset(ref, pad=9), 3)
    assert batch.tolist() == [[0, 1, 2, 9, 9], [9] * 5, [0, 1, 2, 3, 4]]


def test_what_cannot_be_padded(dataref: LMDBDataRef) -> None:
    for pad in ("0", {"x": 0}, {"x": 0, "y": 0, "s": None}):
        with pytest.raises(InvalidArgumentError, match="pad"):
            yogadl.torch.MapDataset(dataref, pad=pad)
    with pytest.raises(InvalidArgumentError, match="transform whole batches"):
        yogadl.torch.MapDataset(dataref, lambda record: record, pad=0)


def test_the_hint_of_the_error_without(dataref: LMDBDataRef) -> None:
    with pytest.raises(RuntimeError, match=r"MapDataset\(dataref, pad=0\)"):
        list(data.DataLoader(yogadl.torch.MapDataset(dataref), 4))
