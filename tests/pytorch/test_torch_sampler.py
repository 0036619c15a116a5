"""``Sampler`` and ``DistributedSampler``: the order of the stream, as positions."""

from __future__ import annotations

import datetime
import json
import pathlib
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from torch_helpers import MANY_WORKERS, SHUFFLED, epoch, plain_epochs, write_numbered  # noqa: E402

from yogadl.dataref import LMDBDataRef  # noqa: E402
from yogadl.errors import InvalidArgumentError, StateMismatchError  # noqa: E402
from yogadl.torch import DistributedSampler, MapDataset, Sampler  # noqa: E402

COUNT = 11
ORDERS: list[dict[str, Any]] = [
    {},
    SHUFFLED,
    {**SHUFFLED, "skip_shuffle_at_epoch_end": True},
    {"shard_rank": 1, "num_shards": 3},
    {**SHUFFLED, "shard_rank": 2, "num_shards": 3},
    {**SHUFFLED, "shard_rank": 2, "num_shards": 3, "drop_shard_remainder": True},
    {**SHUFFLED, "shard_rank": 1, "num_shards": 3, "shuffle_then_shard": True},
]
pytestmark = MANY_WORKERS


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return write_numbered(tmp_path_factory.mktemp("sampler") / "cache.mdb", COUNT)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_positions_are_those_of_the_stream(dataref: LMDBDataRef, order: dict[str, Any]) -> None:
    expected = plain_epochs(dataref, None, 3, **order)
    for data in (dataref, COUNT):
        sampler = Sampler(data, **order)
        assert len(sampler) == len(expected[0])
        assert [list(sampler) for _ in range(3)] == expected


def test_more_positions_than_are_drawn_at_once() -> None:
    assert list(Sampler(20_000)) == list(range(20_000))


def test_unused_iterators_use_up_nothing(dataref: LMDBDataRef) -> None:
    sampler = Sampler(dataref, **SHUFFLED)
    iter(sampler)
    unused = iter(sampler)
    expected = plain_epochs(dataref, None, 2, **SHUFFLED)
    assert [list(sampler), list(unused)] == expected


def test_set_epoch(dataref: LMDBDataRef) -> None:
    expected = plain_epochs(dataref, None, 5, **SHUFFLED)
    sampler = Sampler(dataref, **SHUFFLED)
    for number in (4, 1):
        sampler.set_epoch(number)
        assert list(sampler) == expected[number]
    assert list(sampler) == expected[2]
    with pytest.raises(InvalidArgumentError, match="epoch must be at least 0"):
        sampler.set_epoch(-1)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_resuming_at_every_position(dataref: LMDBDataRef, order: dict[str, Any]) -> None:
    expected = plain_epochs(dataref, None, 3, **order)
    shard = {name: order[name] for name in ("shard_rank", "num_shards") if name in order}
    for number in range(2):
        for taken in range(len(expected[0])):
            original = Sampler(dataref, **order)
            original.set_epoch(number)
            positions = iter(original)
            assert [next(positions) for _ in range(taken)] == expected[number][:taken]
            state = json.loads(json.dumps(original.state_dict()))
            resumed = Sampler(dataref, **order)
            resumed.load_state_dict(state)
            copy = pickle.loads(pickle.dumps(resumed))
            for sampler in (resumed, copy):
                assert list(sampler) == expected[number][taken:]
                assert list(sampler) == expected[number + 1]
            # It is a stream's state, too.
            stream = dataref.stream(state=state, **shard)
            assert epoch(stream) == expected[number][taken:]
        assert list(positions) == expected[number][-1:]
        resumed.load_state_dict(original.state_dict())
        assert list(resumed) == expected[number + 1]


def test_going_on_with_another_number_of_ranks(dataref: LMDBDataRef) -> None:
    order = {**SHUFFLED, "shuffle_then_shard": True}
    (whole,) = plain_epochs(dataref, None, 1, **SHUFFLED)
    three = [Sampler(dataref, shard_rank=rank, num_shards=3, **order) for rank in range(3)]
    iterators = [iter(sampler) for sampler in three]
    seen = [next(iterator) for _ in range(2) for iterator in iterators]
    two = [Sampler(dataref, shard_rank=rank, num_shards=2, **order) for rank in range(2)]
    for sampler in two:
        sampler.load_state_dict(three[0].state_dict())
    assert seen == whole[:6]
    assert [list(sampler) for sampler in two] == [whole[6::2], whole[7::2]]


def test_states_of_something_else_are_refused(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    state = Sampler(dataref, **SHUFFLED).state_dict()
    other = write_numbered(tmp_path / "cache.mdb", COUNT + 1)
    for sampler in (
        Sampler(other, **SHUFFLED),
        Sampler(COUNT, **SHUFFLED),
        Sampler(dataref, shuffle=True, shuffle_seed=6),
        Sampler(dataref, **SHUFFLED, num_shards=2),
    ):
        for target in (sampler, iter(sampler)):
            with pytest.raises(StateMismatchError):
                target.load_state_dict(state)
    with pytest.raises(InvalidArgumentError):
        Sampler(dataref).load_state_dict({})


def test_arguments(dataref: LMDBDataRef) -> None:
    for wrong in ({"shuffle": True}, {"shard_rank": 2, "num_shards": 2}):
        with pytest.raises(InvalidArgumentError):
            Sampler(dataref, **wrong)
    for data in (-1, "a", None):
        with pytest.raises(InvalidArgumentError, match="data, if it is not a DataRef"):
            Sampler(data)  # type: ignore[arg-type]


def test_without_torch_distributed(dataref: LMDBDataRef) -> None:
    with pytest.raises(InvalidArgumentError, match="init_process_group"):
        DistributedSampler(dataref)


def sample_rank(rank: int, store: str, dataref: LMDBDataRef, results: Any) -> None:
    try:
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=3,
            timeout=datetime.timedelta(seconds=30),
        )
    except RuntimeError as error:
        results.put((rank, -1, str(error)))
        return
    sampler = DistributedSampler(dataref, drop_shard_remainder=True, **SHUFFLED)
    loader = torch.utils.data.DataLoader(MapDataset(dataref), sampler=sampler, batch_size=2)
    results.put((rank, len(sampler), [epoch(loader), epoch(loader)]))
    torch.distributed.destroy_process_group()


def sample_ranks(dataref: LMDBDataRef, store: pathlib.Path) -> list[Any]:
    context: Any = torch.multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    ranks = [
        context.Process(target=sample_rank, args=(rank, store, dataref, results))
        for rank in range(3)
    ]
    for process in ranks:
        process.start()
    found = sorted(results.get() for _ in ranks)
    for process in ranks:
        process.join()
        process.close()
    return found


def test_ranks_of_torch_distributed(dataref: LMDBDataRef, tmp_path: pathlib.Path) -> None:
    for attempt in range(3):
        found = sample_ranks(dataref, tmp_path / f"store {attempt}")
        # Beside many other tests, Gloo has found its peers' ports taken.
        if all(length >= 0 for _, length, _ in found):
            break
    for rank, (number, length, epochs) in enumerate(found):
        shard = {"shard_rank": rank, "num_shards": 3, "drop_shard_remainder": True}
        assert (number, length) == (rank, 3), epochs
        assert epochs == plain_epochs(dataref, 2, 2, **SHUFFLED, **shard)


def test_restoring_an_iterator_alone(dataref: LMDBDataRef) -> None:
    expected = plain_epochs(dataref, None, 2, **SHUFFLED)
    original = iter(Sampler(dataref, **SHUFFLED))
    for taken in range(COUNT + 1):
        sampler = Sampler(dataref, **SHUFFLED)
        positions = iter(sampler)
        positions.load_state_dict(original.state_dict())
        assert list(positions) == expected[0][taken:]
        assert list(sampler) == expected[1]
        next(original, None)
