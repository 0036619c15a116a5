"""Seeded transforms in PyTorch: the same pixels with any workers, ranks and resumes."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

import augmented
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, Subset

from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.torch import BatchSampler, IterableDataset, MapDataset, Position, Sampler

# On a machine with fewer processors than workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SHUFFLED: dict[str, Any] = {"shuffle": True, "shuffle_seed": 3}
WAYS = ["sampler", "batch sampler", "iterable", "iterable batches"]


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return augmented.write(tmp_path_factory.mktemp("seeded") / "cache.mdb")


def loader_of(
    dataref: LMDBDataRef,
    way: str,
    seed: int = augmented.SEED,
    state: Any = None,
    order: dict[str, Any] = SHUFFLED,
    kind: Any = DataLoader,
    **options: Any,
) -> Any:
    if way.startswith("iterable"):
        stream = dataref.stream(**order) if state is None else dataref.stream(state=state)
        if way == "iterable":
            dataset = IterableDataset(stream, transform=augmented.of_records(seed))
            return kind(dataset, batch_size=None, **options)
        dataset = IterableDataset(stream, 4, transform=augmented.of_batches(seed))
        return kind(dataset, batch_size=None, **options)
    records = MapDataset(dataref, augmented.of_records(seed))
    if way == "sampler":
        sampler = Sampler(records, **order)
        loader = kind(records, batch_size=4, sampler=sampler, **options)
    else:
        sampler = Sampler(dataref, **order)
        loader = kind(records, batch_sampler=BatchSampler(sampler, 4), **options)
    if state is not None:
        sampler.load_state_dict(state)
    return loader


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("workers", "method", "persistent"),
    [(0, None, False), (1, "fork", False), (3, "fork", True), (2, "spawn", True)],
)
def test_any_workers(
    dataref: LMDBDataRef, way: str, workers: int, method: str | None, persistent: bool
) -> None:
    loader = loader_of(
        dataref,
        way,
        num_workers=workers,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )
    plain = dataref.stream(**SHUFFLED)
    assert augmented.check(0, loader) == [int(record["n"]) for record in plain]
    # An epoch that is broken off has been prefetched from.
    augmented.check(1, itertools.islice(loader, 2))
    plain = dataref.stream(**SHUFFLED, start_offset=2 * augmented.COUNT)
    assert augmented.check(2, loader) == [int(record["n"]) for record in plain]


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**64 - 1))
def test_resuming_anywhere_with_other_ranks(
    dataref: LMDBDataRef, way: str, data: st.DataObject, seed: int
) -> None:
    before, after = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))

    def order(ranks: int, rank: int) -> dict[str, Any]:
        return {**SHUFFLED, "shuffle_then_shard": True, "num_shards": ranks, "shard_rank": rank}

    records = data.draw(st.integers(0, augmented.COUNT // before // 4)) * 4 * before
    loaders = [loader_of(dataref, way, seed, order=order(before, rank)) for rank in range(before)]
    taken = records // before // (1 if way == "iterable" else 4)
    seen = [
        n for loader in loaders for n in augmented.check(0, itertools.islice(loader, taken), seed)
    ]
    state = dataref.stream(**order(after, 0), start_offset=records).state_dict()
    rest: list[list[int]] = [[], []]
    for rank in range(after):
        shard = dataref.stream(state=state, num_shards=after, shard_rank=rank).state_dict()
        loader = loader_of(dataref, way, seed, shard, order(after, rank))
        if way.startswith("iterable"):
            loader.dataset.stream.close()
            loader = loader_of(dataref, way, seed, None, order(after, rank))
            loader.dataset.load_state_dict(state)
        for epoch, found in enumerate(rest):
            found.extend(augmented.check(epoch, loader, seed))
    whole = list(range(augmented.COUNT))
    assert sorted(seen + rest[0]) == whole
    assert sorted(rest[1]) == whole


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_a_loader_that_keeps_its_place(dataref: LMDBDataRef, way: str) -> None:
    data = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")

    def loader() -> Any:
        return loader_of(dataref, way, kind=data.StatefulDataLoader, num_workers=2)

    first = loader()
    taken = 3 if way != "iterable" else 12
    items = iter(first)
    seen = augmented.check(0, itertools.islice(items, taken))
    second = loader()
    second.load_state_dict(first.state_dict())
    whole = [int(record["n"]) for record in dataref.stream(**SHUFFLED)]
    assert seen + augmented.check(0, second) == whole
    augmented.check(1, second)


class _Shuffled:
    """A sampler of somebody's own that says which epoch it is."""

    def __iter__(self) -> Iterator[int]:
        return (Position(number, epoch=5) for number in range(augmented.COUNT)[::-1])

    def __len__(self) -> int:
        return augmented.COUNT


def test_a_position_says_the_epoch(dataref: LMDBDataRef) -> None:
    dataset = MapDataset(dataref, augmented.of_records())
    assert augmented.check(2, [dataset[Position(7, epoch=2)]]) == [7]
    assert augmented.check(2, [dataset[Position(-1, epoch=2)]]) == [augmented.COUNT - 1]
    assert augmented.check(3, [dataset[[Position(3, 3), Position(1, 3)]]]) == [3, 1]
    loader = DataLoader(dataset, 4, sampler=_Shuffled(), num_workers=2)
    assert augmented.check(5, loader) == list(range(augmented.COUNT))[::-1]
    position = pickle.loads(pickle.dumps(Position(7, 2)))
    assert (position, position.epoch) == (7, 2)
    with pytest.raises(InvalidArgumentError, match="epoch"):
        Position(7, epoch=-1)


class _Around(Dataset):  # type: ignore[type-arg]
    """A dataset of somebody's own, which asks another for one record at a time."""

    def __init__(self, inner: MapDataset) -> None:
        self._inner = inner

    def __getitem__(self, index: int) -> Any:
        return self._inner[index]


def test_a_dataset_around_one(dataref: LMDBDataRef) -> None:
    records = MapDataset(dataref, augmented.of_records())
    sampler = Sampler(records, **SHUFFLED)
    one_by_one = DataLoader(_Around(records), 4, sampler=sampler, num_workers=2)
    batches = DataLoader(_Around(records), batch_sampler=BatchSampler(sampler, 4), num_workers=2)
    plain = dataref.stream(**SHUFFLED)
    for epoch, loader in enumerate([one_by_one, batches]):
        assert augmented.check(epoch, loader) == [int(record["n"]) for record in plain]


def test_no_epoch_is_known(dataref: LMDBDataRef) -> None:
    dataset = MapDataset(dataref, augmented.of_records())
    loaders = [
        DataLoader(dataset, 4, shuffle=True),
        DataLoader(dataset, 4, sampler=Sampler(dataref, **SHUFFLED)),
        DataLoader(Subset(dataset, range(5)), sampler=Sampler(dataset)),
    ]
    for loader in loaders:
        with pytest.raises(InvalidArgumentError, match="the epoch is not known"):
            next(iter(loader))
    for index in (5, [5, 6]):
        with pytest.raises(InvalidArgumentError, match="the epoch is not known"):
            dataset[index]
