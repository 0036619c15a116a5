"""Places saved and restored: by torchdata's ``StatefulDataLoader``, and by hand."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")
pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")

from torch_helpers import (  # noqa: E402
    MANY_WORKERS,
    SHUFFLED,
    epoch,
    numbers,
    plain_epochs,
    write_numbered,
)
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from yogadl.dataref import LMDBDataRef  # noqa: E402
from yogadl.errors import InvalidArgumentError, StateMismatchError  # noqa: E402
from yogadl.torch import BatchSampler, IterableDataset, MapDataset, Sampler, collate  # noqa: E402

COUNT = 11
THIRD = {**SHUFFLED, "shard_rank": 1, "num_shards": 3}
pytestmark = [
    MANY_WORKERS,
    # torchdata 0.11 calls it, and torch 2.13 warns of it.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    return write_numbered(tmp_path_factory.mktemp("resuming") / "cache.mdb", COUNT)


def streaming(dataref: LMDBDataRef, batch_size: int | None, **order: Any) -> Any:
    """What makes loaders over streams: each is as new as if it were in another process."""
    return lambda **options: StatefulDataLoader(
        IterableDataset(dataref.stream(**order), batch_size), batch_size=None, **options
    )


def sampling(dataref: LMDBDataRef, batch_size: int | None, **order: Any) -> Any:
    return lambda **options: StatefulDataLoader(
        MapDataset(dataref),
        sampler=Sampler(dataref, **order),
        batch_size=batch_size,
        collate_fn=None if batch_size is None else collate,
        **options,
    )


def check_every_place(make: Any, expected: list[list[Any]], **options: Any) -> None:
    """Saves at every step of two epochs and at their ends, and goes on in a new loader."""
    loader = make(**options)
    states = [(0, 0, loader.state_dict())]
    for number in range(2):
        found = []
        for item in loader:
            found.append(numbers(item))
            states.append((number, len(found), loader.state_dict()))
        assert found == expected[number]
        states.append((number + 1, 0, loader.state_dict()))
    for number, taken, state in states:
        resumed = make(**options)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert epoch(resumed) == expected[number][taken:], (number, taken)
        assert epoch(resumed) == expected[number + 1], (number, taken)


@pytest.mark.parametrize("kind", [streaming, sampling])
@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (3, True)])
def test_every_place(
    dataref: LMDBDataRef, kind: Any, batch_size: int | None, workers: int, persistent: bool
) -> None:
    order = THIRD if batch_size is None else SHUFFLED
    expected = plain_epochs(dataref, batch_size, 4, **order)
    options = {"num_workers": workers, "persistent_workers": persistent}
    check_every_place(kind(dataref, batch_size, **order), expected, **options)


@pytest.mark.parametrize("kind", [streaming, sampling])
def test_batches_that_come_out_even(dataref: LMDBDataRef, kind: Any) -> None:
    even = dataref[:8]
    make = kind(even, 4, **SHUFFLED)
    for workers in (0, 2):
        check_every_place(make, plain_epochs(even, 4, 4, **SHUFFLED), num_workers=workers)


@pytest.mark.parametrize("then_shard", [False, True])
def test_from_an_offset(dataref: LMDBDataRef, then_shard: bool) -> None:
    order = {**THIRD, "start_offset": 2, "shuffle_then_shard": then_shard}
    expected = plain_epochs(dataref, 2, 4, **order)
    for workers in (0, 2):
        check_every_place(streaming(dataref, 2, **order), expected, num_workers=workers)


@given(
    size=st.integers(1, COUNT + 1),
    drop=st.booleans(),
    shards=st.integers(1, 3),
    offset=st.integers(0, COUNT),
    then_shard=st.booleans(),
)
def test_a_place_is_that_of_the_stream(
    dataref: LMDBDataRef, size: int, drop: bool, shards: int, offset: int, then_shard: bool
) -> None:
    """Also behind an epoch's last batch, whatever is left out after it: in the next epoch."""
    order = {
        **SHUFFLED,
        "num_shards": shards,
        "start_offset": offset,
        "shuffle_then_shard": then_shard,
    }
    stream = dataref.stream(**order)
    dataset = IterableDataset(dataref.stream(**order), size, drop_remainder=drop)
    for _ in range(2):
        batches, items = iter(stream.batches(size, drop_remainder=drop)), iter(dataset)
        for batch in batches:
            assert numbers(next(items)) == numbers(batch)
            assert dataset.state_dict() == stream.state_dict()
        assert list(items) == []
        assert dataset.state_dict() == stream.state_dict()


def test_torch_batches_of_single_records(dataref: LMDBDataRef) -> None:
    def make(**options: Any) -> Any:
        return StatefulDataLoader(
            IterableDataset(dataref[:5].stream(**SHUFFLED)), batch_size=2, **options
        )

    for workers in (0, 2):
        loader = make(num_workers=workers)
        check_every_place(make, [epoch(loader) for _ in range(4)], num_workers=workers)


@pytest.mark.parametrize("kind", [streaming, sampling])
def test_states_that_are_not_saved_in_every_step(dataref: LMDBDataRef, kind: Any) -> None:
    expected = plain_epochs(dataref, 3, 4, **SHUFFLED)
    make = kind(dataref, 3, **SHUFFLED)
    check_every_place(make, expected, num_workers=2, snapshot_every_n_steps=3)


@pytest.mark.parametrize("kind", [streaming, sampling])
@pytest.mark.parametrize("workers", [0, 2])
def test_going_back_in_the_same_loader(dataref: LMDBDataRef, kind: Any, workers: int) -> None:
    expected = plain_epochs(dataref, 2, 4, **SHUFFLED)
    loader = kind(dataref, 2, **SHUFFLED)(num_workers=workers)
    items = iter(loader)
    for _ in range(2):
        next(items)
    state = loader.state_dict()
    assert epoch(items) == expected[0][2:]
    assert [epoch(loader), epoch(loader)] == expected[1:3]
    loader.load_state_dict(state)
    assert epoch(loader) == expected[0][2:]
    assert [epoch(loader), epoch(loader)] == expected[1:3]


PROGRAM = """
import json, sys
import yogadl.dataref, yogadl.torch
from torchdata.stateful_dataloader import StatefulDataLoader

if __name__ == "__main__":
    path, state = sys.argv[1], json.loads(sys.argv[2])
    stream = yogadl.dataref.LMDBDataRef(path).stream(shuffle=True, shuffle_seed=5)
    dataset = yogadl.torch.IterableDataset(stream, batch_size=2)
    loader = StatefulDataLoader(
        dataset,
        batch_size=None,
        num_workers=1,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    loader.load_state_dict(state)
    print([[batch["y"].tolist() for batch in loader] for _ in range(2)])
"""


@pytest.mark.timeout(180)
def test_in_a_new_process_with_a_spawned_worker(
    dataref: LMDBDataRef, tmp_path: pathlib.Path
) -> None:
    loader = streaming(dataref, 2, **SHUFFLED)(num_workers=1)
    items = iter(loader)
    for _ in range(3):
        next(items)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    path = dataref.__getstate__()[0]
    done = subprocess.run(
        [sys.executable, str(script), str(path), json.dumps(loader.state_dict())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = plain_epochs(dataref, 2, 2, **SHUFFLED)
    assert json.loads(done.stdout) == [first[3:], second]


# By hand


@pytest.mark.parametrize("order", [SHUFFLED, THIRD, {**THIRD, "shuffle_then_shard": True}], ids=str)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_datasets_by_hand(
    dataref: LMDBDataRef, order: dict[str, Any], batch_size: int | None
) -> None:
    expected = plain_epochs(dataref, batch_size, 3, **order)
    for number in range(2):
        for taken in range(len(expected[0])):
            original = IterableDataset(dataref.stream(**order), batch_size)
            original.set_epoch(number)
            items = iter(original)
            for _ in range(taken):
                next(items)
            state = json.loads(json.dumps(original.state_dict()))
            resumed = IterableDataset(dataref.stream(**order), batch_size)
            resumed.load_state_dict(state)
            assert epoch(resumed) == expected[number][taken:]
            assert epoch(resumed) == expected[number + 1]
            shard = {key: order[key] for key in ("shard_rank", "num_shards") if key in order}
            stream = dataref.stream(state=state, **shard)
            plain = stream if batch_size is None else stream.batches(batch_size)
            assert epoch(plain) == expected[number][taken:]
        assert epoch(items) == expected[number][-1:]
        resumed.load_state_dict(original.state_dict())
        assert epoch(resumed) == expected[number + 1]


def test_a_place_loaded_by_hand_holds_for_workers(dataref: LMDBDataRef) -> None:
    expected = plain_epochs(dataref, 2, 2, **SHUFFLED)
    original = IterableDataset(dataref.stream(**SHUFFLED), 2)
    items = iter(original)
    next(items)
    resumed = IterableDataset(dataref.stream(**SHUFFLED), 2)
    resumed.load_state_dict(original.state_dict())
    loader = torch.utils.data.DataLoader(resumed, batch_size=None, num_workers=2)
    assert [epoch(loader), epoch(loader)] == [expected[0][1:], expected[1]]


def test_with_workers_the_dataset_does_not_know_its_place(dataref: LMDBDataRef) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)
    state = dataset.state_dict()
    epoch(loader)
    with pytest.raises(InvalidArgumentError, match="StatefulDataLoader"):
        dataset.state_dict()
    dataset.load_state_dict(state)
    assert dataset.state_dict() == state


@pytest.mark.parametrize("by_batches", [False, True])
def test_with_workers_the_sampler_does_not_know_its_place(
    dataref: LMDBDataRef, by_batches: bool
) -> None:
    def load(workers: int) -> tuple[Sampler, Any]:
        sampler = Sampler(dataref, **SHUFFLED)
        how: dict[str, Any] = {"sampler": sampler, "batch_size": 2}
        if by_batches:
            how = {"batch_sampler": BatchSampler(sampler, 2)}
        dataset = MapDataset(dataref)
        return sampler, torch.utils.data.DataLoader(
            dataset, **how, collate_fn=collate, num_workers=workers
        )

    expected = plain_epochs(dataref, 2, 3, **SHUFFLED)
    sampler, loader = load(1)
    batches = iter(loader)
    assert numbers(next(batches)) == expected[0][0]
    with pytest.raises(InvalidArgumentError, match="StatefulDataLoader"):
        sampler.state_dict()
    found = []
    for batch in batches:
        found.append(numbers(batch))
        if len(found) < len(expected[0]) - 1:
            with pytest.raises(InvalidArgumentError, match="StatefulDataLoader"):
                sampler.state_dict()
    assert found == expected[0][1:]
    # Between epochs, and without workers, it does.
    other, plain = load(0)
    other.load_state_dict(sampler.state_dict())
    batches = iter(plain)
    assert numbers(next(batches)) == expected[1][0]
    sampler.load_state_dict(other.state_dict())
    assert [epoch(loader), epoch(loader)] == [expected[1][1:], expected[2]]


def test_states_of_something_else_are_refused(dataref: LMDBDataRef) -> None:
    dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
    state = iter(dataset).state_dict()
    for other in (
        IterableDataset(dataref[:3].stream(**SHUFFLED), 2),
        IterableDataset(dataref.stream(shuffle=True, shuffle_seed=6), 2),
        IterableDataset(dataref.stream(**THIRD), 2),
    ):
        for target in (other, iter(other)):
            with pytest.raises(StateMismatchError):
                target.load_state_dict(state)
    with pytest.raises(StateMismatchError, match="batch_size was 2 and is now 3"):
        iter(IterableDataset(dataref.stream(**SHUFFLED), 3)).load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match="lacks 'batch_size'"):
        iter(dataset).load_state_dict(dataset.state_dict())
    with pytest.raises(StateMismatchError, match="worker was 1 and is now None"):
        iter(dataset).load_state_dict({**state, "worker": 1, "num_workers": 2})


def test_restoring_an_iterator_alone(dataref: LMDBDataRef) -> None:
    expected = plain_epochs(dataref, 2, 2, **SHUFFLED)
    original = iter(IterableDataset(dataref.stream(**SHUFFLED), 2))
    for taken in range(len(expected[0]) + 1):
        dataset = IterableDataset(dataref.stream(**SHUFFLED), 2)
        dataset.set_epoch(7)
        items = iter(dataset)
        items.load_state_dict(original.state_dict())
        assert epoch(items) == expected[0][taken:]
        assert epoch(dataset) == expected[1]
        next(original, None)


RANKS = [(1, 2), (2, 1), (2, 3), (3, 2), (4, 4)]


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    ("kind", "workers", "before", "now"),
    [
        *((kind, 0, *ranks) for kind in (streaming, sampling) for ranks in RANKS),
        # Workers of so many ranks take long to start.
        (sampling, 2, 2, 3),
        (sampling, 2, 3, 2),
    ],
)
def test_another_number_of_ranks(
    dataref: LMDBDataRef,
    kind: Any,
    workers: int,
    batch_size: int | None,
    before: int,
    now: int,
) -> None:
    """Every record comes once, from every place on; and the epoch after is a whole one."""

    def ranks(count: int) -> list[Any]:
        order = {**SHUFFLED, "num_shards": count, "shuffle_then_shard": True}
        makes = [kind(dataref, batch_size, **order, shard_rank=rank) for rank in range(count)]
        return [make(num_workers=workers) for make in makes]

    def taken(items: list[Any]) -> list[int]:
        return items if batch_size is None else [number for item in items for number in item]

    whole = list(range(COUNT))
    epochs = [[taken(epoch(loader)) for _ in range(2)] for loader in ranks(before)]
    first = ranks(before)[0]
    size = batch_size or 1
    for at in range(2):
        states = [first.state_dict()]
        states += [first.state_dict() for _ in first]
        for steps, state in enumerate(states):
            seen = [number for own in epochs for number in own[at][: steps * size]]
            resumed = ranks(now)
            for loader in resumed:
                loader.load_state_dict(json.loads(json.dumps(state)))
            rest = [number for loader in resumed for number in taken(epoch(loader))]
            if rest or len(seen) < COUNT:
                assert sorted(seen + rest) == whole, (at, steps)
            after = [number for loader in resumed for number in taken(epoch(loader))]
            assert sorted(after) == whole, (at, steps)


def test_workers_of_another_number_of_ranks_are_refused(dataref: LMDBDataRef) -> None:
    def make(count: int) -> Any:
        order = {**SHUFFLED, "num_shards": count, "shuffle_then_shard": True}
        return streaming(dataref, 2, **order)(num_workers=2)

    loader = make(2)
    next(iter(loader))
    resumed = make(3)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(StateMismatchError, match="2 ranks with workers, and there are now 3"):
        list(resumed)
