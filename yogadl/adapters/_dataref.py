"""What a DataRef has, to be stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yogadl.adapters._base import Array, MapSource
from yogadl.cache.columns import Column


class DataRefSource(MapSource):
    """The records of a ``yogadl.dataref.IndexedDataRef``.

    Args:
        dataref: the data set.
        spec: its spec, dict keys perhaps in another order.
    """

    prefers_threads = True

    def __init__(self, dataref: Any, spec: Any) -> None:
        self._dataref = dataref
        self.spec = spec
        self.count = len(dataref)
        self.metadata = dataref.metadata

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        columns: list[Column] = self._dataref.reader.read_columns(positions, out)
        return columns

    @property
    def fingerprint(self) -> str:
        """The content id of the data set."""
        found: str = self._dataref.reader.content_id
        return found
