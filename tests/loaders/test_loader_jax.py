"""The conformance suite of loaders, over ``yogadl.jax``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("jax.numpy")

import yogadl.jax
from yogadl.dataref import LMDBDataRef
from yogadl.testing import LoaderConformance


class JaxLoader:
    """Batches of ``jax.Array``."""

    def __init__(self, batches: Any, state: Any) -> None:
        self._batches = batches
        if state is not None:
            batches.load_state_dict(state)

    def epoch(self) -> Iterator[Any]:
        return iter(self._batches)

    def state(self) -> Any:
        return self._batches.state_dict()

    def close(self) -> None:
        del self._batches


class TestJaxBatches(LoaderConformance):
    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> JaxLoader:
        assert (workers, start_method) == (0, None)
        stream = self.passed(dataref.stream(**order))
        return JaxLoader(yogadl.jax.Batches(stream, batch_size, drop_remainder=False), state)
