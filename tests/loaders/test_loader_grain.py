"""The conformance suite of loaders, over Grain's ``DataLoader`` and yogadl's source and sampler."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grain")

import grain
from absl import flags

from yogadl.dataref import IndexedStream, LMDBDataRef
from yogadl.jax import FrozenSampler, GrainSource
from yogadl.testing import LoaderConformance

EPOCHS = 4
"""As many as the suite reads at most, and one."""


class GrainLoader:
    """A loader of records, of which batches are made afterwards.

    With ``grain.transforms.Batch`` among the loader's operations, each worker would make batches of
    its own records, every n-th of the order, and batches would go on from one epoch into the next.
    """

    def __init__(self, loader: Any, sizes: list[int], batch_size: int, state: Any) -> None:
        self._records = iter(loader)
        self._sizes = sizes
        self._batch_size = batch_size
        self._taken = 0
        if state is not None:
            self._taken, place = state
            self._records.set_state(place)

    def epoch(self) -> Iterator[Any]:
        # The ends of epochs are not to be seen in what a loader gives.
        end = next(end for end in itertools.accumulate(self._sizes) if self._taken < end)
        while self._taken < end:
            size = min(self._batch_size, end - self._taken)
            records = list(itertools.islice(self._records, size))
            assert len(records) == size
            self._taken += size
            yield {name: np.stack([record[name] for record in records]) for name in ("x", "n")}

    def state(self) -> Any:
        return self._taken, self._records.get_state()

    def close(self) -> None:
        # Its workers end with it.
        del self._records


class TestGrain(LoaderConformance):
    worker_counts = (0, 1, 3)
    # Grain spawns its workers, and takes no other way.
    start_methods = (None,)

    @pytest.fixture(autouse=True)
    def flags_that_grain_reads(self) -> None:
        """Before it starts workers; as ``absl.app.run`` would."""
        if not flags.FLAGS.is_parsed():
            flags.FLAGS(["pytest"])

    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> GrainLoader:
        assert start_method is None
        stream: IndexedStream = dataref.stream(**order)
        first = len(FrozenSampler(stream))
        loader = grain.DataLoader(
            data_source=self.passed(GrainSource(dataref)),
            sampler=self.passed(FrozenSampler(stream, EPOCHS)),
            worker_count=workers,
            shard_options=grain.sharding.NoSharding(),
        )
        sizes = [first, *[len(stream)] * (EPOCHS - 1)]
        return GrainLoader(loader, sizes, batch_size, state)
