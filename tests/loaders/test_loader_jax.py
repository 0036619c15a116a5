"""The conformance suite of loaders, over ``yogadl.jax``."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jax.numpy")

from stateful_loader import StatefulLoader

import yogadl.jax
from yogadl.dataref import LMDBDataRef
from yogadl.testing import LoaderConformance


class TestJaxBatches(LoaderConformance):
    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> StatefulLoader:
        assert (workers, start_method) == (0, None)
        stream = self.passed(dataref.stream(**order))
        return StatefulLoader(yogadl.jax.Batches(stream, batch_size, drop_remainder=False), state)
