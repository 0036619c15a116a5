"""Data sets that are stored, wherever that is."""

from __future__ import annotations

import abc
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from yogadl.arguments import as_index
from yogadl.cache.file_reader import CacheInfo
from yogadl.dataref._indexed import IndexedDataRef, Reader, ReaderDataRef
from yogadl.errors import CacheReplacedError, InvalidArgumentError

if TYPE_CHECKING:
    # What speaks HTTP; not all programs need it.
    from yogadl.remote._pace import Network
    from yogadl.remote._plan import Plan


class StoredDataRef(IndexedDataRef):
    """A reference to a data set that is stored: in a file of this machine, or far away."""

    @property
    @abc.abstractmethod
    def info(self) -> CacheInfo:
        """What the file says of itself: record count, creation time, versions, metadata."""

    @property
    def metadata(self) -> dict[str, Any]:
        """See ``IndexedDataRef.metadata``; of a cache of 0.1.4, ``{}``."""
        return self.info.metadata

    @abc.abstractmethod
    def verify(self) -> None:
        """Reads all of it and compares it with its checksums.

        Raises:
            CacheFormatError: it is not what was written.
            StoreError: it cannot be fetched.
        """

    def plan(
        self,
        *,
        num_shards: int = 1,
        shards_here: int | None = None,
        batch_size: int = 32,
        local_cache_bytes: int | None = None,
        latency: float = 0.03,
        connection_bytes: float = 85e6,
        machine_bytes: float = 1.25e9,
    ) -> Plan:
        """What shuffled streams of this data set would ask the bucket for, without asking it.

        Of what is on this machine as a whole, that is nothing; or, if it was fetched with
        ``download=False``, what opening it takes.

        The streams are taken to begin together, as those of a job do. Of small data sets, who comes
        when others have fetched most of it asks for less.

        Args:
            num_shards: of the streams, on all machines together.
            shards_here: of them on one machine, in a process each; by default all, at most 8.
            batch_size: records in a batch.
            local_cache_bytes: that are kept on the machine; ``None`` for all.
            latency: seconds from a request to the first byte of its answer.
            connection_bytes: bytes a second over one connection.
            machine_bytes: bytes a second to one machine, over all connections.

        Returns:
            Requests, bytes and seconds of that machine, expected values; nothing of it is here yet.

        Raises:
            InvalidArgumentError: one of them is out of range.
        """
        from yogadl.remote._pace import Network

        num_shards = as_index("num_shards", num_shards, 1)
        here = min(num_shards, 8) if shards_here is None else shards_here
        here = as_index("shards_here", here, 1)
        if here > num_shards:
            raise InvalidArgumentError(
                f"shards_here must be at most num_shards, {num_shards}, not {here}"
            )
        if local_cache_bytes is not None:
            local_cache_bytes = as_index("local_cache_bytes", local_cache_bytes)
        for name, value in (
            ("latency", latency),
            ("connection_bytes", connection_bytes),
            ("machine_bytes", machine_bytes),
        ):
            if not isinstance(value, int | float | np.number) or not 0 < value < math.inf:
                raise InvalidArgumentError(
                    f"{name} must be a finite number above zero, not {value!r}"
                )
        network = Network(float(latency), float(connection_bytes), float(machine_bytes))
        size = as_index("batch_size", batch_size, 1)
        return self._plan(num_shards, here, size, local_cache_bytes, network)

    @abc.abstractmethod
    def _plan(
        self,
        num_shards: int,
        shards_here: int,
        batch_size: int,
        local_cache_bytes: int | None,
        network: Network,
    ) -> Plan:
        """See :meth:`plan`, whose arguments these are, checked."""


class OpenedDataRef(ReaderDataRef[Reader], StoredDataRef):
    """A stored data set that is opened when the reference is made, and when that is unpickled.

    Attributes:
        _name: of what is opened, for people.
    """

    _name: str

    def _insist_on(self, content_id: str) -> None:
        """Closes the reference if what was opened has other records than when it was pickled.

        Raises:
            CacheReplacedError: it has.
        """
        if self.reader.content_id != content_id:
            self.close()
            raise CacheReplacedError(
                f"{self._name} was replaced after this reference was pickled, so positions in it "
                "mean other records; fetch it again. (Processes that are spawned run the script "
                "once more: what it stores, it should store behind if __name__ == '__main__'.)"
            )

    def _told_when_closed(self) -> str:
        return f"the DataRef of {self._name} is closed; fetch it again"

    def _origin(self) -> str:
        return repr(self._name)
