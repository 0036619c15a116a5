"""A data set that is read from a bucket, or a web server, without downloading it first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from yogadl.cache.file_reader import CacheInfo
from yogadl.dataref._indexed import StoredDataRef
from yogadl.errors import CacheReplacedError, ClosedError
from yogadl.remote._reader import RemoteReader

_VERIFIED_AT_ONCE = 256


class RemoteDataRef(StoredDataRef):
    """A reference to a stored data set of which this machine has as much as was read of it.

    What is needed is fetched, in the order of the stream that is read, and kept on the local disk,
    where all processes of the machine find it. Every record is compared with its checksum whenever
    it is read. Nothing but records that were written is ever given out: what cannot be had is an
    error, after some time of trying.

    Safe for threads. Survives a fork; pickled, it opens the same version where it is unpickled, and
    insists on the same contents. A context manager that closes it. ``storage.fetch`` and
    ``yogadl.from_url`` make it.

    Args:
        open_reader: opens it; to be pickled, it must be so that it can.
    """

    def __init__(self, open_reader: Callable[[], RemoteReader]) -> None:
        self._open_reader = open_reader
        self._reader: RemoteReader | None = open_reader()
        self._name = self._reader.version.name

    @property
    def reader(self) -> RemoteReader:
        """What reads the records.

        Raises:
            ClosedError: the reference is closed.
        """
        if self._reader is None:
            raise ClosedError(f"the DataRef of {self._name} is closed; fetch it again")
        return self._reader

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

    def close(self) -> None:
        """Lets go of the data set, for this reference and its streams. May be called twice."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __getstate__(self) -> tuple[Callable[[], RemoteReader], str]:
        return self._open_reader, self.info.digest

    def __setstate__(self, state: tuple[Callable[[], RemoteReader], str]) -> None:
        self._open_reader, digest = state
        self._reader = self._open_reader()
        self._name = self._reader.version.name
        if self.info.digest != digest:
            self.close()
            raise CacheReplacedError(
                f"{self._name} was replaced after this reference was pickled, so positions in it "
                "mean other records; fetch it again"
            )

    def _origin(self) -> str:
        return repr(self._name)

    @property
    def _is_closed(self) -> bool:
        return self._reader is None
