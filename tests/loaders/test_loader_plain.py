"""The conformance suite of loaders, over the plain stream."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from yogadl.dataref import LMDBDataRef
from yogadl.testing import LoaderConformance


class PlainLoader:
    """Batches of NumPy arrays straight from a stream."""

    def __init__(self, dataref: LMDBDataRef, batch_size: int, state: Any, order: Any) -> None:
        shard = {name: order[name] for name in ("shard_rank", "num_shards") if name in order}
        order = order if state is None else {**shard, "state": state}
        # Pickled, it reads the same.
        self._stream = pickle.loads(pickle.dumps(dataref.stream(**order)))
        self._batch_size = batch_size

    def epoch(self) -> Iterator[Any]:
        return iter(self._stream.batches(self._batch_size))

    def state(self) -> Any:
        return self._stream.state_dict()

    def close(self) -> None:
        self._stream.close()


class TestPlainLoader(LoaderConformance):
    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> PlainLoader:
        assert (workers, start_method) == (0, None)
        return PlainLoader(dataref, batch_size, state, order)
