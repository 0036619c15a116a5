"""The conformance suite of loaders, over the plain stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yogadl.dataref import IndexedStream, LMDBDataRef
from yogadl.testing import LoaderConformance


class PlainLoader:
    """Batches of NumPy arrays straight from a stream."""

    def __init__(self, stream: IndexedStream, batch_size: int) -> None:
        self._stream = stream
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
        if state is not None:
            shard = {name: order[name] for name in ("shard_rank", "num_shards") if name in order}
            order = {**shard, "state": state}
        return PlainLoader(self.passed(dataref.stream(**order)), batch_size)
