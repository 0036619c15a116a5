"""``BatchSampler``, and what a ``MapDataset`` reads ahead for it."""

from __future__ import annotations

import copy
import itertools
import json
import pathlib
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from torch.utils.data import DataLoader, Subset  # noqa: E402
from torch_helpers import MANY_WORKERS, SHUFFLED, epoch, numbers, write, write_numbered  # noqa: E402

import yogadl  # noqa: E402
from yogadl.dataref import LMDBDataRef  # noqa: E402
from yogadl.errors import ClosedError, InvalidArgumentError, RecordIndexError  # noqa: E402
from yogadl.spec import TensorSpec  # noqa: E402
from yogadl.torch import BatchSampler, MapDataset, Sampler, collate  # noqa: E402

COUNT = 103
pytestmark = MANY_WORKERS


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return write_numbered(tmp_path_factory.mktemp("batches") / "cache.mdb", COUNT)


class Counting(yogadl.dataref.SourceDataRef):
    """A data set that tells which positions were read together."""

    def __init__(self, count: int) -> None:
        source = yogadl.adapters.open_source({"y": np.arange(count)}).by_position()
        super().__init__(source)
        self.reads: list[list[int]] = []

    def read(self, indices: Any) -> Any:
        self.reads.append(np.asarray(indices).tolist())
        return super().read(indices)


def sampler_of(data: Any, batch_size: int, drop_last: bool = False, **order: Any) -> BatchSampler:
    return BatchSampler(Sampler(data, **order), batch_size, drop_last)


def take(dataset: MapDataset, batches: Sequence[Any]) -> list[Any]:
    return [collate(dataset.__getitems__(batch))["y"].tolist() for batch in batches]


@settings(deadline=None)
@given(
    count=st.integers(0, 70),
    size=st.integers(1, 80),
    drop_last=st.booleans(),
    num_shards=st.integers(1, 3),
    shuffle_then_shard=st.booleans(),
    drop_shard_remainder=st.booleans(),
)
def test_batches_are_those_that_torch_makes(
    count: int, size: int, drop_last: bool, num_shards: int, **order: Any
) -> None:
    order = {**SHUFFLED, **order, "shard_rank": num_shards - 1, "num_shards": num_shards}
    ours = sampler_of(count, size, drop_last, **order)
    theirs = torch.utils.data.BatchSampler(Sampler(count, **order), size, drop_last)
    assert len(ours) == len(theirs)
    for _ in range(3):
        assert list(ours) == list(theirs)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 4, 50, 200])
def test_loaders_give_the_same(dataref: LMDBDataRef, size: int, drop_last: bool) -> None:
    """Also of many chunks of positions, and with a transform."""
    dataset = MapDataset(dataref)
    plain = DataLoader(
        dataset, size, sampler=Sampler(dataref, **SHUFFLED), collate_fn=collate, drop_last=drop_last
    )
    sampler = sampler_of(dataref, size, drop_last, **SHUFFLED)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    whole = DataLoader(
        dataset, batch_size=None, sampler=sampler_of(dataref, size, drop_last, **SHUFFLED)
    )
    doubling = MapDataset(dataref, lambda record: {"x": record["x"], "y": 2 * record["y"]})
    doubled = DataLoader(doubling, batch_sampler=sampler_of(dataref, size, drop_last, **SHUFFLED))
    for _ in range(3):
        expected = [numbers(batch) for batch in plain]
        for found in (loader, whole):
            batches = list(found)
            assert [numbers(batch) for batch in batches] == expected
            assert all((batch["x"] == batch["y"][:, None]).all() for batch in batches)
        assert [(batch["y"] // 2).tolist() for batch in doubled] == expected


def test_more_batches_than_are_drawn_at_once() -> None:
    data = yogadl.from_arrays({"y": np.arange(30_000)})
    for size in (1000, 10_000):
        batches = take(MapDataset(data), list(sampler_of(data, size)))
        assert list(itertools.chain(*batches)) == list(range(30_000))
        assert {len(batch) for batch in batches} == {size}


def test_values_of_any_kind(tmp_path: pathlib.Path) -> None:
    spec = ({"s": TensorSpec("string"), "v": TensorSpec("int64", (None,))}, TensorSpec("bfloat16"))
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    values = [({"s": b"%d" % n, "v": np.arange(n)}, bfloat16(n)) for n in range(20)]
    data = write(tmp_path / "cache.mdb", values, spec)
    dataset = MapDataset(data)
    for batch in sampler_of(data, 3, **SHUFFLED):
        found, expected = collate(dataset.__getitems__(batch)), dataset[list(batch)]
        assert found[0]["s"] == expected[0]["s"]
        assert [v.tolist() for v in found[0]["v"]] == [v.tolist() for v in expected[0]["v"]]
        assert found[1].dtype == torch.bfloat16
        assert torch.equal(found[1], expected[1])


def test_several_are_read_at_once_as_long_as_they_are_taken_in_turn() -> None:
    data = Counting(40)
    batches = list(sampler_of(data, 2))
    assert take(MapDataset(data), batches) == batches
    assert [len(read) for read in data.reads] == [2, 4, 8, 16, 10]
    assert list(itertools.chain(*data.reads)) == list(range(40))


def test_large_records_are_read_batch_by_batch() -> None:
    data = yogadl.from_arrays({"y": np.zeros((8, 1 << 19), "u1")})
    found = [MapDataset(data).__getitems__(batch).whole["y"] for batch in sampler_of(data, 4)]
    assert [batch.untyped_storage().nbytes() for batch in found] == [4 << 19] * 2


def test_who_takes_every_other_batch_reads_no_more() -> None:
    """As processes do that share a sampler's batches."""
    data = Counting(40)
    batches = list(sampler_of(data, 2))[1::2]
    assert take(MapDataset(data), batches) == batches
    assert data.reads == batches


def test_batches_in_any_order_and_twice(dataref: LMDBDataRef) -> None:
    batches = list(sampler_of(dataref, 4, **SHUFFLED))
    order = [0, 1, 2, 3, 1, 0, 9, 8, 10, 11, 12, 12, 25, 5, 6]
    dataset = MapDataset(dataref)
    assert take(dataset, [batches[at] for at in order]) == [batches[at] for at in order]


def test_nobody_else_gets_the_memory_of_a_batch(dataref: LMDBDataRef) -> None:
    dataset = MapDataset(dataref)
    batches = list(sampler_of(dataref, 4))
    for batch in (*batches[:8], *batches[:8]):
        found = collate(dataset.__getitems__(batch))
        assert numbers(found) == batch
        assert (found["x"] == found["y"][:, None]).all()
        for tensor in found.values():
            assert tensor.is_contiguous()
            tensor.zero_()


def test_changed_lists_count(dataref: LMDBDataRef) -> None:
    """Who sorts the positions of a batch gets the records in that order."""
    batches = list(sampler_of(dataref, 4, **SHUFFLED))
    dataset = MapDataset(dataref)
    batches[1].sort()
    batches[2].append(0)
    del batches[3][1:]
    assert take(dataset, batches) == batches
    assert [len(batch) for batch in batches[:4]] == [4, 4, 5, 1]


def test_two_data_sets_of_one_sampler(dataref: LMDBDataRef) -> None:
    one, two = MapDataset(dataref), MapDataset(dataref.select(range(COUNT - 1, -1, -1)))
    for batch in sampler_of(dataref, 4, **SHUFFLED):
        assert take(one, [batch]) == [batch]
        assert take(two, [batch]) == [[COUNT - 1 - position for position in batch]]


def test_subsets(dataref: LMDBDataRef) -> None:
    subset = Subset(MapDataset(dataref), list(range(COUNT))[::-1])
    loader = DataLoader(subset, batch_sampler=sampler_of(COUNT, 4), collate_fn=collate)
    assert epoch(loader) == [list(range(COUNT))[::-1][at : at + 4] for at in range(0, COUNT, 4)]


def test_copies_belong_to_no_run(dataref: LMDBDataRef) -> None:
    batch = next(iter(sampler_of(dataref, 4, **SHUFFLED)))
    for made in (pickle.loads(pickle.dumps(batch)), copy.copy(batch), batch[:], batch + []):
        assert getattr(made, "run", None) is None
        assert made == batch


def test_errors(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    with pytest.raises(RecordIndexError):
        take(MapDataset(dataref), list(sampler_of(COUNT + 1, 10)))
    data = write_numbered(tmp_path / "cache.mdb", 20)
    dataset, batches = MapDataset(data), list(sampler_of(data, 2))
    assert take(dataset, batches[:2]) == batches[:2]
    data.close()
    with pytest.raises(ClosedError):
        take(dataset, batches[2:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((range(3), 2), "takes a yogadl.torch.Sampler"),
        ((Sampler(3), 0), "batch_size must be at least 1"),
        ((Sampler(3), "2"), "batch_size must be an integer"),
    ],
)
def test_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        BatchSampler(*arguments)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 3, 11, 20])
def test_resuming_after_every_batch(size: int, drop_last: bool) -> None:
    reference = sampler_of(11, size, drop_last, **SHUFFLED)
    expected = [list(reference) for _ in range(4)]
    for number in range(2):
        for taken in range(1, len(expected[0]) + 1):
            original = sampler_of(11, size, drop_last, **SHUFFLED)
            original.sampler.set_epoch(number)
            batches = iter(original)
            assert [next(batches) for _ in range(taken)] == expected[number][:taken]
            state = json.loads(json.dumps(original.state_dict()))
            resumed = sampler_of(11, size, drop_last, **SHUFFLED)
            resumed.load_state_dict(state)
            rest = expected[number][taken:]
            assert not rest or list(resumed) == rest
            assert list(resumed) == expected[number + 1]
            # So do the iterators alone, as torchdata has it.
            alone = sampler_of(11, size, drop_last, **SHUFFLED)
            iterator = iter(alone)
            iterator.load_state_dict(batches.state_dict())
            assert list(iterator) == rest
            assert list(alone) == expected[number + 1]
