"""Data sets that are read where they are, in other processes."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest

import yogadl

# Python 3.12 and newer, of threads that another test left behind.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

COUNT = 12
SHUFFLED = {"shuffle": True, "shuffle_seed": 5}


class Doubles:
    """Items by position."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return {"x": np.full(2, 2 * index), "n": index}


def datarefs() -> list[yogadl.dataref.IndexedDataRef]:
    arrays = {"x": 2 * np.arange(COUNT)[:, None].repeat(2, 1), "n": np.arange(COUNT)}
    return [yogadl.from_source(Doubles()), yogadl.from_arrays(arrays)]


def numbers(batches: Any) -> list[list[int]]:
    found = []
    for batch in batches:
        assert (batch["x"] == 2 * batch["n"][:, None]).all()
        found.append(batch["n"].tolist())
    return found


def read(stream: Any, pipe: Any) -> None:
    """In the child: the batches of the rest of the epoch."""
    pipe.send(numbers(stream.batches(3)))
    pipe.close()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_streams_go_on_in_other_processes(method: str) -> None:
    """Each from the place where the stream stood, and the parent's stays where it is."""
    context = multiprocessing.get_context(method)
    for dataref in datarefs():
        expected = numbers(dataref.stream(**SHUFFLED).batches(3))
        stream = dataref.stream(**SHUFFLED)
        begun = numbers([next(iter(stream.batches(3)))])
        stream = dataref.stream(state=stream.state_dict())
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=read, args=(stream, sender))
        child.start()
        sender.close()
        assert begun + receiver.recv() == expected
        child.join()
        assert child.exitcode == 0
        assert begun + numbers(stream.batches(3)) == expected


def test_threads_share_a_data_set() -> None:
    for dataref in datarefs():
        expected = numbers(dataref.stream(**SHUFFLED).batches(3))
        found: list[Any] = []

        def work(dataref: Any = dataref, found: list[Any] = found) -> None:
            for _ in range(20):
                found.append(numbers(dataref.stream(**SHUFFLED).batches(3)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [expected] * 80


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_torch(method: str) -> None:
    pytest.importorskip("torch.utils.data")
    from torch.utils.data import DataLoader

    import yogadl.torch

    for dataref in datarefs():
        loader = DataLoader(
            yogadl.torch.MapDataset(dataref),
            batch_size=3,
            sampler=yogadl.torch.Sampler(dataref, **SHUFFLED),
            collate_fn=yogadl.torch.collate,
            num_workers=2,
            multiprocessing_context=method,
        )
        assert numbers(loader) == numbers(dataref.stream(**SHUFFLED).batches(3))


def test_the_way_into_tensorflow() -> None:
    pytest.importorskip("tensorflow")
    import yogadl.tensorflow

    for dataref in datarefs():
        dataset = yogadl.tensorflow.make_tf_dataset(dataref.stream(**SHUFFLED), batch_size=3)
        found = [{key: value.numpy() for key, value in batch.items()} for batch in dataset]
        assert numbers(found) == numbers(dataref.stream(**SHUFFLED).batches(3))
