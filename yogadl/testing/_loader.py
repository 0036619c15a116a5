"""What everything that hands a data set's batches to a framework promises, as tests."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import pathlib
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pytest

from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec

COUNT = 11
"""Records of the data set: ``{"x": [number, number], "n": number}`` for 0 … 10."""

_SPEC = {"x": TensorSpec("float32", (2,)), "n": TensorSpec("int64")}
_PATIENCE = 60.0

_ORDERS: tuple[dict[str, Any], ...] = (
    {},
    {"shuffle": True, "shuffle_seed": 777},
    {"shuffle": True, "shuffle_seed": 777, "skip_shuffle_at_epoch_end": True},
    {"shuffle": True, "shuffle_seed": 777, "shard_rank": 1, "num_shards": 3},
    {"shuffle": True, "shuffle_seed": 777, "num_shards": 2, "drop_shard_remainder": True},
    {"shuffle": True, "shuffle_seed": 777, "num_shards": 3, "shuffle_then_shard": True},
    {"shuffle": True, "shuffle_seed": 777, "start_offset": 4},
    {"shuffle": True, "shuffle_seed": 777, "start_offset": 15},
)

_INTERRUPTED: tuple[dict[str, Any], ...] = (
    {"shuffle": True, "shuffle_seed": 777, "start_offset": 1},
    {"shuffle": True, "shuffle_seed": 777, "shard_rank": 1, "num_shards": 2},
)


class Loader(Protocol):
    """A framework's way to read a data set."""

    def epoch(self) -> Iterator[Any]:
        """The batches of the next epoch: dicts of ``x``, ``[n, 2]``, and ``n``, ``[n]``.

        Of anything that ``numpy.asarray`` takes.
        """

    def state(self) -> Any:
        """The place after the last batch that was handed out, for :meth:`LoaderConformance.open`.

        It is pickled and unpickled in between.
        """

    def close(self) -> None:
        """Ends whatever was started for it."""


class LoaderConformance:
    """Derive from it, and supply :meth:`open`.

    Attributes:
        worker_counts: how many workers to try; 0 for none.
        start_methods: how to start them, as ``multiprocessing`` names it; ``None`` for threads, or
            if the framework has one way only. The first is tried with every count of workers, the
            others with the largest.
        ends_when_dropped: a loader ends its workers also if nobody closes it.
    """

    worker_counts: Sequence[int] = (0,)
    start_methods: Sequence[str | None] = (None,)
    ends_when_dropped: bool = True

    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> Loader:
        """A loader of batches, the last of an epoch smaller.

        Args:
            dataref: what to read.
            batch_size: records in a batch.
            workers, start_method: of those the class names.
            state: of an earlier loader of the same order; where to go on.
            order: arguments of ``DataRef.stream``.
        """
        raise NotImplementedError(f"{type(self).__name__} has to supply 'open'")

    def passed(self, source: Any) -> Any:
        """An object for a loader: data set, stream, sampler, as the loader is to be given it.

        :meth:`open` calls it with each that can be pickled, just before it is used. One of the
        tests has it return what came out of a pickle.
        """
        return source

    def _ways(self) -> list[tuple[int, str | None]]:
        """Counts of workers and how they are started: any other way than the first, many only."""
        first, *others = self.start_methods
        most = max(self.worker_counts)
        return [(count, first) for count in self.worker_counts] + [
            (most, other) for other in others if most
        ]

    @pytest.fixture
    def dataref(self, tmp_path: pathlib.Path) -> Iterator[LMDBDataRef]:
        """The data set."""
        path = tmp_path / "cache.mdb"
        with CacheWriter(path, _SPEC) as writer:
            for number in range(COUNT):
                writer.append({"x": np.full(2, number, "float32"), "n": number})
            writer.commit()
        with LMDBDataRef(path) as opened:
            yield opened

    @pytest.mark.parametrize("batch_size", [1, 3, 20])
    @pytest.mark.parametrize("order", _ORDERS, ids=str)
    def test_the_order_is_that_of_the_stream(
        self, dataref: LMDBDataRef, order: dict[str, Any], batch_size: int
    ) -> None:
        """Three epochs: also from an offset, of a shard, and in the global order."""
        loader = self.open(dataref, batch_size, **order)
        stream = dataref.stream(**order)
        for _ in range(3):
            assert _numbers(loader.epoch()) == _numbers(stream.batches(batch_size))
        loader.close()

    @pytest.mark.parametrize("order", _ORDERS, ids=str)
    def test_what_was_pickled_reads_the_same(
        self, dataref: LMDBDataRef, order: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever a loader is made of, and wherever it stands."""
        pickled = []

        def through_pickle(source: Any) -> Any:
            pickled.append(pickle.dumps(source))
            return pickle.loads(pickled[-1])  # noqa: S301 # our own

        monkeypatch.setattr(self, "passed", through_pickle)
        loader = self.open(dataref, 3, **order)
        stream = dataref.stream(**order)
        for _ in range(2):
            assert _numbers(loader.epoch()) == _numbers(stream.batches(3))
        loader.close()
        assert pickled, "'open' never called 'passed'"

    def test_workers_change_nothing(self, dataref: LMDBDataRef) -> None:
        """However many there are, and however they are started."""
        order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 777}
        for workers, method in self._ways():
            before = _running()
            loader = self.open(dataref, 2, workers, method, **order)
            stream = dataref.stream(**order)
            for _ in range(2):
                assert _numbers(loader.epoch()) == _numbers(stream.batches(2)), (workers, method)
            loader.close()
            _check_ended(before)

    def test_every_shard_together_is_the_data_set(self, dataref: LMDBDataRef) -> None:
        """With shards that do not divide it, and with workers, of which some have nothing to do."""
        for shards, workers in ((3, 0), (7, 0), (3, max(self.worker_counts))):
            found = []
            for rank in range(shards):
                loader = self.open(
                    dataref, 2, workers, self.start_methods[0], shard_rank=rank, num_shards=shards
                )
                found += _numbers(loader.epoch())
                loader.close()
            assert sorted(itertools.chain.from_iterable(found)) == list(range(COUNT))

    @pytest.mark.parametrize("batch_size", [1, 2])
    @pytest.mark.parametrize("order", _INTERRUPTED, ids=str)
    def test_resuming_after_every_batch(
        self, dataref: LMDBDataRef, order: dict[str, Any], batch_size: int
    ) -> None:
        """The rest of the epoch, and the next one, are those of a run that was not interrupted."""
        stream = dataref.stream(**order)
        epochs = [_numbers(stream.batches(batch_size)) for _ in range(3)]
        for epoch, taken in itertools.product(range(2), range(1, len(epochs[0]) + 1)):
            loader = self.open(dataref, batch_size, **order)
            for _ in range(epoch):
                assert len(_numbers(loader.epoch())) > 0
            batches = loader.epoch()
            begun = _numbers(itertools.islice(batches, taken))
            state = pickle.loads(pickle.dumps(loader.state()))  # noqa: S301 # our own
            loader.close()
            rest = [*epochs[epoch][len(begun) :], *epochs[epoch + 1]]
            resumed = self.open(dataref, batch_size, state=state, **order)
            found: list[Any] = []
            while len(found) < len(rest):
                found += _numbers(resumed.epoch())
            resumed.close()
            assert begun + found[: len(rest)] == [*epochs[epoch], *epochs[epoch + 1]], taken

    def test_resuming_with_workers(self, dataref: LMDBDataRef) -> None:
        """They are ahead of what was handed out, which must not count."""
        order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 777}
        expected = _numbers(dataref.stream(**order).batches(2))
        for workers, method in self._ways():
            loader = self.open(dataref, 2, workers, method, **order)
            begun = _numbers(itertools.islice(loader.epoch(), 2))
            state = pickle.loads(pickle.dumps(loader.state()))  # noqa: S301 # our own
            loader.close()
            resumed = self.open(dataref, 2, workers, method, state=state, **order)
            assert begun + _numbers(resumed.epoch()) == expected, (workers, method)
            resumed.close()

    @pytest.mark.parametrize("is_closed", [True, False])
    def test_leaving_early(self, dataref: LMDBDataRef, is_closed: bool) -> None:
        """An epoch that is not read to its end leaves nothing running."""
        if not is_closed and not self.ends_when_dropped:
            pytest.skip("the framework's workers have to be ended")
        for workers, method in self._ways():
            before = _running()
            loader = self.open(dataref, 1, workers, method)
            batches = loader.epoch()
            next(batches)
            del batches
            if is_closed:
                loader.close()
            del loader
            # Some frameworks' objects are in cycles.
            gc.collect()
            _check_ended(before)


def _numbers(batches: Iterator[Any] | Any) -> list[list[int]]:
    """The numbers of the records of each batch, whose other values are checked."""
    found = []
    for batch in batches:
        numbers, values = np.asarray(batch["n"]), np.asarray(batch["x"])
        assert values.shape == (len(numbers), 2)
        assert (values == numbers[:, None]).all()
        found.append(numbers.tolist())
    return found


def _running() -> set[Any]:
    """The worker processes there are, and the threads of yogadl."""
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("yogadl")}
    return {*multiprocessing.active_children(), *threads}


def _check_ended(before: set[Any]) -> None:
    """Waits until nothing runs but what did before."""
    end = time.monotonic() + _PATIENCE
    while left := _running() - before:
        assert time.monotonic() < end, left
        time.sleep(0.01)
