"""Data sets that are stored, wherever that is."""

from __future__ import annotations

import abc
from typing import Any

from yogadl.cache.file_reader import CacheInfo
from yogadl.dataref._indexed import IndexedDataRef, Reader, ReaderDataRef
from yogadl.errors import CacheReplacedError


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


class OpenedDataRef(ReaderDataRef[Reader], StoredDataRef):
    """A stored data set that is opened when the reference is made, and when that is unpickled.

    Attributes:
        _name: of what is opened, for people.
    """

    _name: str

    def _insist_on(self, digest: str) -> None:
        """Closes the reference if what was opened has other contents than when it was pickled.

        Raises:
            CacheReplacedError: it has.
        """
        if self.info.digest != digest:
            self.close()
            raise CacheReplacedError(
                f"{self._name} was replaced after this reference was pickled, so positions in it "
                "mean other records; fetch it again"
            )

    def _told_when_closed(self) -> str:
        return f"the DataRef of {self._name} is closed; fetch it again"

    def _origin(self) -> str:
        return repr(self._name)
