"""Loaders of a framework that have ``state_dict`` and ``load_state_dict``."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any


class StatefulLoader:
    """Such a loader as the conformance suite wants it, at a place that it gave before."""

    def __init__(self, loader: Any, state: Any) -> None:
        self._loader = loader
        if state is not None:
            loader.load_state_dict(state)

    def epoch(self) -> Iterator[Any]:
        return iter(self._loader)

    def state(self) -> Any:
        return self._loader.state_dict()

    def close(self) -> None:
        del self._loader
        # Workers of torch end with its last iterator, which is in a cycle.
        gc.collect()
