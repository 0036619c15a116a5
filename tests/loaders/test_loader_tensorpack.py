"""The conformance suite of loaders, over ``yogadl.tensorpack``."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("tensorpack.dataflow")

import tensorpack.dataflow as flows

from yogadl.dataref import IndexedStream, LMDBDataRef
from yogadl.tensorpack import StreamDataFlow
from yogadl.testing import LoaderConformance


class TensorPackLoader:
    """Batches of datapoints, in this process or from TensorPack's ``MultiProcessRunner``."""

    def __init__(
        self, flow: StreamDataFlow, batch_size: int, workers: int, order: dict[str, Any]
    ) -> None:
        self._stream: IndexedStream = flow.stream
        self._order = order
        self._taken = 0
        first = self._stream.epochs
        epoch, start = first.counter.peek()
        # A runner gives as many batches in each iteration as there are in a whole epoch, and knows
        # no shorter first one.
        self._left = -(-(first.order.stop(epoch) - start) // batch_size)
        self._batches: Any = flows.BatchData(flow, batch_size, remainder=True)
        self._runner = None
        if workers:
            self._batches = self._runner = flows.MultiProcessRunner(self._batches, 4, workers)
        self._batches.reset_state()

    def epoch(self) -> Iterator[Any]:
        stop, self._left = self._left, len(self._batches)
        for batch in itertools.islice(self._batches, stop):
            self._taken += len(batch["n"])
            yield batch

    def state(self) -> Any:
        """Arguments for the stream of the loader that goes on."""
        if self._runner is None:
            shard = ("shard_rank", "num_shards")
            kept = {name: self._order[name] for name in shard if name in self._order}
            return {**kept, "state": self._stream.state_dict()}
        # The stream of the other process is ahead, so the records are counted.
        return {**self._order, "start_offset": self._order.get("start_offset", 0) + self._taken}

    def close(self) -> None:
        if self._runner is not None:
            for process in self._runner.procs:
                process.terminate()
                process.join()


class TestTensorPack(LoaderConformance):
    # Of several processes that TensorPack runs a flow in, each yields all of it: it promises the
    # flow's order, and each record once, for one process only.
    worker_counts = (0, 1)
    start_methods = ("fork", "spawn")
    # A runner ends its processes when the program ends, not before.
    ends_when_dropped = False

    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> TensorPackLoader:
        if start_method is not None:
            multiprocessing.set_start_method(start_method, force=True)
        order = order if state is None else state
        flow = self.passed(StreamDataFlow(dataref.stream(**order)))
        return TensorPackLoader(flow, batch_size, workers, order)
