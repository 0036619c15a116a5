"""A data set that is read from a bucket, or a web server, without downloading it first."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from yogadl.arguments import as_index
from yogadl.cache.file_reader import CacheInfo
from yogadl.dataref._read_ahead import announced_together
from yogadl.dataref._stored import OpenedDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.remote._plan import Network, Plan, plan
from yogadl.remote._records import RemoteRecords

_VERIFIED_AT_ONCE = 256


class RemoteDataRef(OpenedDataRef[RemoteRecords]):
    """A reference to a stored data set of which this machine has as much as was read of it.

    What is needed is fetched, in the order of the stream that is read, and kept on the local disk,
    where all processes of the machine find it. Every record is compared with its checksum whenever
    it is read, until all of them are here and the files were compared with their digests. Nothing
    but records that were written is given out: what cannot be had is an error, after some time of
    trying.

    Safe for threads. Survives a fork; pickled, it opens the same version where it is unpickled, and
    insists on the same contents. A context manager that closes it. ``storage.fetch`` and
    ``yogadl.from_url`` make it.

    Args:
        open_reader: opens it; to be pickled, it must be so that it can.
    """

    def __init__(self, open_reader: Callable[[], RemoteRecords]) -> None:
        self._open_reader = open_reader
        self._open()

    @property
    def info(self) -> CacheInfo:
        """What the stored version says of itself: record count, creation time, metadata."""
        return self.reader.version.info

    def verify(self) -> None:
        """Reads every record, fetching those that are not here, and compares it with its checksum.

        Raises:
            ChecksumError: one is not what was written.
            StoreError: one cannot be fetched.
        """
        reader = self.reader
        for start in range(0, len(reader), _VERIFIED_AT_ONCE):
            stop = min(start + _VERIFIED_AT_ONCE, len(reader))
            reader.announce(np.arange(stop, min(stop + 4 * _VERIFIED_AT_ONCE, len(reader))))
            reader.read_columns(np.arange(start, stop))

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
        network = Network(latency, connection_bytes, machine_bytes)
        size = as_index("batch_size", batch_size, 1)
        window = announced_together(self.reader)
        return plan(self.reader, num_shards, here, size, local_cache_bytes, network, window)

    def __getstate__(self) -> tuple[Callable[[], RemoteRecords], str]:
        return self._open_reader, self.info.digest

    def __setstate__(self, state: tuple[Callable[[], RemoteRecords], str]) -> None:
        self._open_reader, digest = state
        self._open()
        self._insist_on(digest)

    def _open(self) -> None:
        self._reader = self._open_reader()
        self._name = self._reader.version.name
