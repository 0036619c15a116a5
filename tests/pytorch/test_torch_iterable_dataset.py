"""``IterableDataset`` in loaders: order, epochs, and how workers divide them."""

from __future__ import annotations

import functools
import gc
import itertools
import multiprocessing
import os
import pathlib
import pickle
import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch_helpers import (  # noqa: E402
    MANY_WORKERS,
    SHUFFLED,
    children,
    epoch,
    plain_epochs,
    rank_epochs,
    write_numbered,
)

import yogadl  # noqa: E402
from yogadl.dataref import LMDBDataRef  # noqa: E402
from yogadl.dataref._place import Place  # noqa: E402
from yogadl.errors import ClosedError, InvalidArgumentError  # noqa: E402
from yogadl.torch import IterableDataset  # noqa: E402
from yogadl.torch._share import Share  # noqa: E402
from yogadl.torch._shared_epochs import EpochOffset, SharedEpochs, Worker  # noqa: E402

COUNT = 11
ORDERS: list[dict[str, Any]] = [
    {},
    SHUFFLED,
    {**SHUFFLED, "skip_shuffle_at_epoch_end": True},
    {**SHUFFLED, "start_offset": 15},
    {"shard_rank": 1, "num_shards": 3},
    {**SHUFFLED, "shard_rank": 2, "num_shards": 3, "start_offset": 2},
    {**SHUFFLED, "shard_rank": 2, "num_shards": 3, "drop_shard_remainder": True},
    {
        **SHUFFLED,
        "shard_rank": 1,
        "num_shards": 3,
        "shuffle_then_shard": True,
        "start_offset": 4,
    },
]
pytestmark = MANY_WORKERS


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return write_numbered(tmp_path_factory.mktemp("iterable") / "cache.mdb", COUNT)


def load(dataset: Any, workers: int, **options: Any) -> Any:
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("batch_size", "drop"), [(None, False), (3, False), (3, True)])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_order_is_that_of_the_stream(
    dataref: LMDBDataRef, order: dict[str, Any], batch_size: int | None, drop: bool, workers: int
) -> None:
    dataset = IterableDataset(dataref.stream(**order), batch_size, drop)
    loader = load(dataset, workers, persistent_workers=workers == 3)
    expected = plain_epochs(dataref, batch_size, 3, drop, **order)
    assert [epoch(loader) for _ in range(3)] == expected


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_epochs_go_on_in_new_loaders(dataref: LMDBDataRef, workers: int, persistent: bool) -> None:
    expected = plain_epochs(dataref, 2, 5, **SHUFFLED)
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    loader = load(dataset, workers, persistent_workers=persistent)
    found = [epoch(loader), epoch(loader), epoch(dataset)]
    found += [epoch(load(dataset, 2)), epoch(load(dataset, 0))]
    assert found == expected


@pytest.mark.parametrize("workers", [0, 3])
def test_equal_seeds_of_torch_do_not_repeat_an_epoch(dataref: LMDBDataRef, workers: int) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    found = []
    for _ in range(3):
        generator = torch.Generator().manual_seed(1)
        found.append(epoch(load(dataset, workers, generator=generator)))
    assert found == plain_epochs(dataref, 2, 3, **SHUFFLED)


def test_iterators_side_by_side(dataref: LMDBDataRef) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    pairs = zip(load(dataset, 2), load(dataset, 2), strict=True)
    one, two = zip(*[(a["y"].tolist(), b["y"].tolist()) for a, b in pairs], strict=True)
    # Which iterator's workers come first is open.
    assert sorted([list(one), list(two)]) == sorted(plain_epochs(dataref, 2, 2, **SHUFFLED))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(dataref: LMDBDataRef, method: str) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    persistent = method == "spawn"
    workers = 2 if persistent else 1  # each is started anew for every epoch
    loader = load(dataset, workers, multiprocessing_context=method, persistent_workers=persistent)
    found = [epoch(loader), epoch(loader)]
    del loader
    assert [*found, epoch(dataset)] == plain_epochs(dataref, 2, 3, **SHUFFLED)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_torch_may_batch_single_records(dataref: LMDBDataRef, workers: int) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED))
    loader = DataLoader(dataset, batch_size=4, num_workers=workers)
    found = epoch(loader)
    assert sorted(itertools.chain(*found)) == list(range(COUNT))
    if workers < 2:
        assert found == plain_epochs(dataref, 4, 1, **SHUFFLED)[0]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(("batch_size", "drop"), [(None, False), (3, False), (3, True), (20, True)])
def test_lengths(dataref: LMDBDataRef, workers: int, batch_size: Any, drop: bool) -> None:
    loader = load(IterableDataset(dataref.stream(), batch_size, drop), workers)
    # Torch warns where more items come than the length says.
    assert len(loader) == len(epoch(loader)) == len(plain_epochs(dataref, batch_size, 1, drop)[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_have_every_record_once(dataref: LMDBDataRef, workers: int) -> None:
    records: list[int] = []
    for rank in range(3):
        stream = dataref.stream(**SHUFFLED, shard_rank=rank, num_shards=3)
        records += itertools.chain(*epoch(load(IterableDataset(stream, 2), workers)))
    assert sorted(records) == list(range(COUNT))


def test_an_empty_data_set_and_idle_workers(tmp_path: pathlib.Path) -> None:
    empty = IterableDataset(write_numbered(tmp_path / "0.mdb", 0).stream(), 2)
    assert epoch(load(empty, 0)) == epoch(load(empty, 2)) == []
    few = IterableDataset(write_numbered(tmp_path / "2.mdb", 2).stream(), 2)
    assert epoch(load(few, 3)) == epoch(load(few, 3)) == [[0, 1]]


def test_epochs_without_records_count(tmp_path: pathlib.Path) -> None:
    stream = write_numbered(tmp_path / "2.mdb", 2).stream(shard_rank=2, num_shards=3)
    dataset = IterableDataset(stream, 2)
    for number in range(3):
        state = dataset.state_dict()
        assert (state["epoch"], state["offset"]) == (number, 0)
        dataset.load_state_dict(state)
        assert dataset.state_dict() == state
        assert epoch(dataset) == []


@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_early(dataref: LMDBDataRef, persistent: bool) -> None:
    before = children()
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 1)
    loader = load(dataset, 2, persistent_workers=persistent)
    expected = plain_epochs(dataref, 1, 3, **SHUFFLED)
    for one in expected[:2]:
        for batch in loader:
            assert batch["y"].tolist() == one[0]
            break
    del batch
    assert epoch(loader) == expected[2]
    del loader
    gc.collect()
    assert children() == before


def test_an_iterator_that_is_never_used_uses_up_an_epoch(dataref: LMDBDataRef) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    iter(dataset)
    assert epoch(dataset) == plain_epochs(dataref, 2, 2, **SHUFFLED)[1]


def test_set_epoch(dataref: LMDBDataRef) -> None:
    expected = plain_epochs(dataref, 2, 5, **SHUFFLED)
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    for number in (4, 1):
        dataset.set_epoch(number)
        assert epoch(load(dataset, 2)) == expected[number]
    assert epoch(dataset) == expected[2]


def test_the_stream_stays_where_it_is(dataref: LMDBDataRef) -> None:
    stream = dataref.stream(**SHUFFLED)
    first = iter(stream)
    next(first)
    dataset = IterableDataset(stream, 20)
    expected = plain_epochs(dataref, 20, 2, start_offset=1, **SHUFFLED)
    assert [epoch(dataset), epoch(dataset)] == expected
    assert [int(record["y"]) for record in first] == expected[0][0]


def test_pickled_copies_go_their_own_way(dataref: LMDBDataRef) -> None:
    expected = plain_epochs(dataref, 2, 3, **SHUFFLED)
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    assert epoch(dataset) == expected[0]
    copy = pickle.loads(pickle.dumps(dataset))
    assert [epoch(copy), epoch(copy)] == expected[1:]
    assert [epoch(dataset), epoch(dataset)] == expected[1:]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.long_for("spawn")
def test_other_processes_have_epochs_of_their_own(dataref: LMDBDataRef, method: str) -> None:
    expected = plain_epochs(dataref, 2, 3, **SHUFFLED)
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    assert epoch(load(dataset, 1)) == expected[0]
    context: Any = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    count = 2 if method == "fork" else 1  # to spawn takes long
    ranks = [context.Process(target=rank_epochs, args=(dataset, results)) for _ in range(count)]
    for rank in ranks:
        rank.start()
    assert [results.get() for _ in ranks] == [expected[1:]] * count
    for rank in ranks:
        rank.join()
        rank.close()
    assert epoch(load(dataset, 1)) == expected[1]


def test_threads_get_an_epoch_each(dataref: LMDBDataRef) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(epoch(dataset))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(plain_epochs(dataref, 2, 4, **SHUFFLED))


def test_arguments(dataref: LMDBDataRef) -> None:
    stream = dataref.stream()
    for arguments in ({"batch_size": 0}, {"batch_size": 1.5}, {"batch_size": 2, "pad": {"x": 0}}):
        with pytest.raises(InvalidArgumentError):
            IterableDataset(stream, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="need a batch_size"):
        IterableDataset(stream, drop_remainder=True)
    with pytest.raises(InvalidArgumentError, match="takes a Stream"):
        IterableDataset([1, 2])  # type: ignore[arg-type]
    dataset = IterableDataset(stream)
    with pytest.raises(InvalidArgumentError, match="epoch must be at least 0"):
        dataset.set_epoch(-1)
    stream.close()
    with pytest.raises(ClosedError):
        iter(dataset)


# Without an accelerator, torch warns and pins nothing.
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
@pytest.mark.parametrize("workers", [0, 1])
def test_pin_memory(dataref: LMDBDataRef, workers: int) -> None:
    loader = load(IterableDataset(dataref.stream(), 4), workers, pin_memory=True)
    assert epoch(loader) == plain_epochs(dataref, 4, 1)[0]


@given(
    start=st.integers(0, 11),
    size=st.integers(1, 5),
    workers=st.integers(1, 4),
    skip=st.integers(0, 4),
    drop=st.booleans(),
    order=st.sampled_from(ORDERS),
)
def test_shares_deal_out_an_epoch(
    dataref: LMDBDataRef,
    start: int,
    size: int,
    workers: int,
    skip: int,
    drop: bool,
    order: dict[str, Any],
) -> None:
    epochs = dataref.stream(**order).epochs
    stop = epochs.order.stop(7)
    start = min(start, stop)
    expected = epochs.positions(7, start, stop).tolist()
    items = [expected[at : at + size] for at in range(0, len(expected), size)]
    if drop:
        items = [item for item in items if len(item) == size]
    for worker in range(workers):
        begun = Place(epochs.order, 7, start)
        share = Share(epochs, begun, size, drop, worker, workers, skip)
        (_, first), end = share.begin_elsewhere(), share.order.stop(0)
        found = [share.positions(0, at, at + size).tolist() for at in range(first, end, size)]
        assert found == items[worker::workers][skip:]
        # Pieces that cut items in two are pieces of the same.
        assert share.positions(0, 1, 4).tolist() == share.positions(0, 0, end).tolist()[1:4]


def test_claims_of_workers_that_were_ended_do_not_pile_up() -> None:
    epochs = SharedEpochs(EpochOffset(0, 0))

    def claim(worker: int, seed: int) -> int:
        epochs._turn = 0  # as in a process that has just been started
        return epochs.claim(Worker(worker, 2, seed), lambda place: place.epoch)

    for number in range(100):
        assert claim(0, number) == number
    with epochs._changing(None) as owner:
        assert len(owner["claims"]) <= 33
    # The same seed again, after one worker of the earlier iterator came and the other did not.
    assert claim(0, 99) == 100
    assert claim(1, 99) == 100


def test_a_persistent_worker_may_be_an_iteration_ahead() -> None:
    epochs = SharedEpochs(EpochOffset(0, 0))
    found = []
    for worker in range(2):
        epochs._turn = 0  # as in a process that has just been started
        one = Worker(worker, 2, seed=1)
        found.append([epochs.claim(one, lambda place: place.epoch) for _ in range(2)])
    assert found == [[0, 1], [0, 1]]


def test_a_worker_may_be_killed_while_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it writes is shorter than what was there, once the last has claimed."""
    epochs = SharedEpochs(EpochOffset(0, 0))
    claim = functools.partial(epochs.claim, begin=lambda place: place.epoch)
    assert claim(Worker(0, 2, seed=1)) == 0
    write = os.pwrite

    def write_and_die(*arguments: Any) -> None:
        write(*arguments)
        os._exit(0)

    def die() -> None:
        monkeypatch.setattr(os, "pwrite", write_and_die)
        claim(Worker(1, 2, seed=1))

    worker = multiprocessing.get_context("fork").Process(target=die)
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    assert claim(None) == 1


def test_a_record_of_a_source_keeps_no_others() -> None:
    dataset = IterableDataset(yogadl.from_source({"x": np.ones((50, 28), "f4")}).stream())
    for item in dataset:
        assert item["x"].untyped_storage().nbytes() == 28 * 4
