"""The interface of a source of records."""

from __future__ import annotations

import abc

from yogadl import spec as specs
from yogadl.cache.writer import CacheWriter


class Source(abc.ABC):
    """Records that can be written once. Not thread-safe.

    Attributes:
        spec: the element spec.
        count: number of records, ``None`` where it is not known.
    """

    spec: specs.Structure
    count: int | None

    @abc.abstractmethod
    def feed(self, writer: CacheWriter) -> None:
        """Appends every record, in order, to a writer of this spec."""
