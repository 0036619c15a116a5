"""A data set that is read from a bucket, or a web server, without downloading it first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from yogadl.cache.file_reader import CacheInfo
from yogadl.dataref._read_ahead import announced_together
from yogadl.dataref._stored import OpenedDataRef
from yogadl.remote._pace import Network
from yogadl.remote._plan import Plan, plan
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

    def _plan(
        self,
        num_shards: int,
        shards_here: int,
        batch_size: int,
        local_cache_bytes: int | None,
        network: Network,
    ) -> Plan:
        window = announced_together(self.reader)
        return plan(
            self.reader, num_shards, shards_here, batch_size, local_cache_bytes, network, window
        )

    def __getstate__(self) -> tuple[Callable[[], RemoteRecords], str]:
        return self._open_reader, self.reader.content_id

    def __setstate__(self, state: tuple[Callable[[], RemoteRecords], str]) -> None:
        self._open_reader, content_id = state
        self._open()
        self._insist_on(content_id)

    def _open(self) -> None:
        self._reader = self._open_reader()
        self._name = self._reader.version.name
