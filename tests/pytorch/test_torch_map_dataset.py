"""``MapDataset``, its batches, and ``collate``."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Subset,
    default_collate,
)
from torch_helpers import (  # noqa: E402
    MANY_WORKERS,
    SHUFFLED,
    children,
    epoch,
    numbers,
    plain_epochs,
    write_numbered,
)

from yogadl.dataref import LMDBDataRef  # noqa: E402
from yogadl.errors import ClosedError, InvalidArgumentError, RecordIndexError  # noqa: E402
from yogadl.torch import Batch, MapDataset, Sampler, collate  # noqa: E402

COUNT = 11
pytestmark = MANY_WORKERS


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return write_numbered(tmp_path_factory.mktemp("map") / "cache.mdb", COUNT)


def negated(record: Any) -> Any:
    return {"x": -record["x"], "y": -record["y"]}


def test_single_records(dataref: LMDBDataRef) -> None:
    dataset = MapDataset(dataref)
    assert len(dataset) == COUNT
    assert epoch(dataset) == list(range(COUNT))
    for index in (3, np.int64(3), torch.tensor(3), np.array(3), -8):
        assert numbers(dataset[index]) == 3
    for index in (COUNT, -COUNT - 1):
        with pytest.raises(RecordIndexError):
            dataset[index]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_batches_of_positions(dataref: LMDBDataRef, kind: Any) -> None:
    batch = MapDataset(dataref)[kind([4, -1, 4])]
    assert numbers(batch) == [4, 10, 4]
    assert batch["x"].shape == (3, 3)


@pytest.mark.parametrize("index", [slice(2), "a", 1.5, None, (1, 2)])
def test_what_is_no_position(dataref: LMDBDataRef, index: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="takes an integer, or a list"):
        MapDataset(dataref)[index]
    with pytest.raises(InvalidArgumentError, match="takes a DataRef"):
        MapDataset([1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [True, [0.5], np.zeros((2, 2), int)])
def test_positions_that_are_no_integers(dataref: LMDBDataRef, index: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"integer"):
        MapDataset(dataref)[index]


def test_a_batch_is_one_piece_of_memory(dataref: LMDBDataRef) -> None:
    batch = MapDataset(dataref).__getitems__([2, 0, 7])
    assert isinstance(batch, Batch)
    whole = collate(batch)
    assert epoch(batch) == [2, 0, 7]
    whole["x"][1, 0] = 99
    assert batch[1]["x"][0] == 99
    assert len({record["x"].untyped_storage().data_ptr() for record in batch}) == 1


def test_default_collate_gives_the_same(dataref: LMDBDataRef) -> None:
    batch = MapDataset(dataref).__getitems__([2, 0, 7])
    one, two = collate(batch), default_collate(batch)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_changed_batches_are_plain_lists(dataref: LMDBDataRef) -> None:
    batch = MapDataset(dataref).__getitems__([2, 0, 7])
    for part in (batch[:2], batch + batch, list(batch), [negated(record) for record in batch]):
        assert type(part) is list
    assert numbers(collate(batch[:2])) == [2, 0]


def test_pickled_batches_are_views_again(dataref: LMDBDataRef) -> None:
    batch = pickle.loads(pickle.dumps(MapDataset(dataref).__getitems__([2, 0])))
    collate(batch)["x"][1, 0] = 99
    assert batch[1]["x"][0] == 99


def test_transforms(dataref: LMDBDataRef) -> None:
    dataset = MapDataset(dataref, negated)
    assert numbers(dataset[3]) == -3
    records = dataset.__getitems__([1, 2])
    assert type(records) is list
    assert numbers(collate(records)) == numbers(dataset[[1, 2]]) == [-1, -2]


def test_empty_batches(dataref: LMDBDataRef) -> None:
    dataset = MapDataset(dataref)
    assert dataset[[]]["x"].shape == (0, 3)
    assert list(dataset.__getitems__([])) == []


def test_a_closed_data_set(tmp_path: pathlib.Path) -> None:
    dataref = write_numbered(tmp_path / "cache.mdb", 3)
    dataset = MapDataset(dataref)
    dataref.close()
    with pytest.raises(ClosedError):
        dataset[0]


def test_with_torchs_own_datasets(dataref: LMDBDataRef) -> None:
    dataset = MapDataset(dataref)
    both = ConcatDataset([Subset(dataset, [5, 6]), MapDataset(dataref[:2])])
    assert epoch(both) == [5, 6, 0, 1]
    loader = DataLoader(Subset(dataset, [5, 6, 1]), batch_size=2, collate_fn=collate)
    assert epoch(loader) == [[5, 6], [1]]


def stop(_: Any) -> Any:
    raise StopIteration


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_cannot_end_an_epoch(dataref: LMDBDataRef, workers: int) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(MapDataset(dataref, stop), 4, num_workers=workers))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("transform", [None, negated])
def test_loaders(dataref: LMDBDataRef, workers: int, transform: Any) -> None:
    sign = 1 if transform is None else -1
    epochs = plain_epochs(dataref, 4, 2, **SHUFFLED)
    expected = [[[sign * n for n in batch] for batch in one] for one in epochs]
    dataset = MapDataset(dataref, transform)
    for collate_fn in (collate, None):
        loader = DataLoader(
            dataset,
            batch_size=4,
            sampler=Sampler(dataref, **SHUFFLED),
            collate_fn=collate_fn,
            num_workers=workers,
            persistent_workers=workers == 3,
        )
        assert [epoch(loader), epoch(loader)] == expected
    loader = DataLoader(
        dataset,
        sampler=BatchSampler(Sampler(dataref, **SHUFFLED), 4, drop_last=False),
        batch_size=None,
        num_workers=workers,
    )
    assert [epoch(loader), epoch(loader)] == expected


@pytest.mark.timeout(120)
def test_spawned_workers(dataref: LMDBDataRef) -> None:
    loader = DataLoader(
        MapDataset(dataref, negated),
        batch_size=4,
        num_workers=1,
        collate_fn=collate,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    expected = [[-n for n in batch] for batch in plain_epochs(dataref, 4, 1)[0]]
    assert epoch(loader) == expected
    assert epoch(loader) == expected


def test_pickling(dataref: LMDBDataRef) -> None:
    copy = pickle.loads(pickle.dumps(MapDataset(dataref, negated)))
    assert numbers(copy[2]) == -2


def test_leaving_early_leaves_no_process(dataref: LMDBDataRef) -> None:
    before = children()
    loader = DataLoader(MapDataset(dataref), batch_size=1, collate_fn=collate, num_workers=2)
    for batch in loader:
        assert numbers(batch) == [0]
        break
    assert epoch(loader)[-1] == [COUNT - 1]
    assert children() == before


# Without an accelerator, torch warns and pins nothing.
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
@pytest.mark.parametrize("workers", [0, 1])
def test_pin_memory_in_a_loader(dataref: LMDBDataRef, workers: int) -> None:
    loader = DataLoader(
        MapDataset(dataref),
        batch_size=4,
        collate_fn=collate,
        pin_memory=True,
        num_workers=workers,
    )
    assert epoch(loader) == plain_epochs(dataref, 4, 1)[0]


def test_pinning_reaches_every_tensor_once(
    dataref: LMDBDataRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[Any] = []

    def pin(self: Any, *_: Any) -> Any:
        pinned.append(self.clone())
        return pinned[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    batch = MapDataset(dataref).__getitems__([2, 0])
    pin_memory = torch.utils.data._utils.pin_memory.pin_memory
    whole = pin_memory(collate(batch))
    assert [whole["x"], whole["y"]] == pinned
    copies = pin_memory(batch)
    assert type(copies) is list
    assert [value for record in copies for value in record.values()] == pinned[2:]
