"""What new users of PyTorch tried first: the message says what to do."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from torch.utils.data import DataLoader, IterableDataset

import yogadl.torch
from yogadl.errors import InvalidArgumentError
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> Any:
    storage = LFSStorage(tmp_path_factory.mktemp("first"))
    records = [{"x": np.arange(length), "n": length} for length in range(1, 9)]
    spec = {"x": TensorSpec("int64", (None,)), "n": TensorSpec("int64", ())}
    storage.submit(records, "a", "1", spec=spec)
    return storage.fetch("a", "1")


def test_a_loader_of_a_stream(dataref: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"yogadl.torch.IterableDataset\(stream, batch"):
        next(iter(DataLoader(dataref.stream())))


def test_a_loader_of_batches(dataref: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"IterableDataset\(stream, batch_size\), batch"):
        next(iter(DataLoader(dataref.stream().batches(4), batch_size=None)))


def as_it_is(record: Any) -> Any:
    return record


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda ref: ref, r"DataLoader\(yogadl.torch.MapDataset\(dataref, pad=0\)"),
        (
            yogadl.torch.MapDataset,
            r"collate_fn=yogadl.torch.collate.* MapDataset\(dataref, pad=0\)",
        ),
        (lambda ref: yogadl.torch.MapDataset(ref, as_it_is), "that the transform .* collate_fn of"),
        (
            lambda ref: yogadl.torch.IterableDataset(ref.stream()),
            r"DataLoader\(IterableDataset\(stream, batch_size, pad=0\), batch_size=None\)",
        ),
    ],
    ids=["a DataRef", "a MapDataset", "a transform", "an IterableDataset"],
)
def test_records_that_torch_cannot_stack(
    dataref: Any, make: Any, advice: str, workers: int
) -> None:
    with pytest.raises(RuntimeError, match=f"equal size, but got .*{advice}"):
        next(iter(DataLoader(make(dataref), batch_size=4, num_workers=workers)))


def test_strings_that_torch_cannot_stack(tmp_path: pathlib.Path) -> None:
    """They are not told to be padded, which they cannot be."""
    storage = LFSStorage(tmp_path)
    records = [{"words": np.array(["a"] * length)} for length in (1, 2)]
    storage.submit(records, "a", "1", spec={"words": TensorSpec("string", (None,))})
    dataset = yogadl.torch.MapDataset(storage.fetch("a", "1"), pad=0)
    with pytest.raises(RuntimeError, match="makes lists of them; pad= has left them alone, as it"):
        next(iter(DataLoader(dataset, batch_size=2)))
    (batch,) = DataLoader(dataset, batch_size=2, collate_fn=yogadl.torch.collate)
    assert batch == {"words": [[b"a"], [b"a", b"a"]]}


def test_other_datasets_get_no_advice(dataref: Any) -> None:
    others = [dict(dataref[at]) for at in range(8)]
    with pytest.raises(RuntimeError, match=r"at entry 1$"):
        next(iter(DataLoader(others, batch_size=4)))  # type: ignore[arg-type] # torch takes lists


def test_transforms_that_are_none(dataref: Any) -> None:
    makers = (
        lambda function: yogadl.torch.MapDataset(dataref, function),
        lambda function: yogadl.torch.IterableDataset(dataref.stream(), transform=function),
    )
    for make in makers:
        with pytest.raises(InvalidArgumentError, match=r"takes a function.* not 'x'"):
            make("x")
    dataset = yogadl.torch.IterableDataset(dataref.stream(), 4, pad=0, transform=lambda batch: None)
    with pytest.raises(InvalidArgumentError, match="None of a batch; does it lack its return"):
        next(iter(dataset))
    # A collate_fn may leave them out.
    records = yogadl.torch.IterableDataset(dataref.stream(), transform=lambda record: None)
    assert list(records) == [None] * 8


def test_fewer_records_than_a_batch(dataref: Any, caplog: pytest.LogCaptureFixture) -> None:
    for size, drop, said in ((9, True, 1), (9, False, 0), (8, True, 0)):
        caplog.clear()
        yogadl.torch.IterableDataset(dataref.stream(), size, drop_remainder=drop)
        assert caplog.text.count("no batches: an epoch has 8 records, fewer than a batch") == said


def test_what_is_shown(dataref: Any) -> None:
    dataset = yogadl.torch.MapDataset(dataref, pad=0)
    assert repr(dataset) == f"MapDataset({dataref!r}, pad=0)"
    sampler = yogadl.torch.Sampler(dataset, shuffle=False)
    assert repr(yogadl.torch.BatchSampler(sampler, 4)) == f"BatchSampler({sampler!r}, batch_size=4)"


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_batches(dataref: Any, batch_size: int, workers: int) -> None:
    dataset = yogadl.torch.IterableDataset(dataref.stream(), batch_size=4, pad=0)
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=workers)
    with pytest.raises(InvalidArgumentError, match=r"DataLoader\(dataset, batch_size=None\)"):
        next(iter(loader))


def test_batches_of_records_are_what_a_loader_is_for(dataref: Any) -> None:
    records = yogadl.torch.IterableDataset(dataref.stream(), transform=lambda record: record["n"])
    assert [batch.tolist() for batch in DataLoader(records, batch_size=4)] == [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
    ]


def test_batches_of_somebody_elses(dataref: Any) -> None:
    """What a dataset around ours does with its batches is its business."""

    class Sums(IterableDataset[Any]):
        def __iter__(self) -> Any:
            for batch in yogadl.torch.IterableDataset(dataref.stream(), batch_size=4, pad=0):
                yield int(batch["n"].sum())

    assert [batch.tolist() for batch in DataLoader(Sums(), batch_size=2)] == [[10, 26]]


def test_records_of_varying_shape(dataref: Any) -> None:
    dataset = yogadl.torch.MapDataset(dataref)
    with pytest.raises(RuntimeError, match=r"equal size.*collate_fn=yogadl.torch.collate"):
        next(iter(DataLoader(dataset, batch_size=4)))
    (batch, _) = DataLoader(dataset, batch_size=4, collate_fn=yogadl.torch.collate)
    assert [len(x) for x in batch["x"]] == [1, 2, 3, 4]


def test_what_datasets_and_samplers_look_like(dataref: Any) -> None:
    assert repr(yogadl.torch.MapDataset(dataref)) == f"MapDataset({dataref!r})"
    sampler = yogadl.torch.Sampler(dataref, shuffle=True, shuffle_seed=3)
    assert repr(sampler) == "Sampler(8 records an epoch, shuffled by seed 3)"
    stream = dataref.stream()
    expected = f"IterableDataset({stream!r}, batch_size=4)"
    assert repr(yogadl.torch.IterableDataset(stream, 4, pad=0)) == expected
