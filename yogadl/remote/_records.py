"""What all readers of versions that are far away have in common."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.cache.columns import Column
from yogadl.cache.content_id import TokenSums
from yogadl.cache.file_reader import CacheInfo, FileReader
from yogadl.cache.mapping import Extents
from yogadl.cache.record_reader import MappedRecords, RecordReader
from yogadl.errors import CacheFormatError, ClosedError
from yogadl.format.codec import RecordCodec
from yogadl.remote._files import RemoteFiles
from yogadl.remote._near import Near

Array = np.ndarray[Any, Any]

# What a request costs in bytes that could have been transferred meanwhile: 30 ms at some MB/s.
REQUEST_BYTES = 64 << 10


@dataclass(frozen=True)
class Version:
    """What is known of the records of a version before any of them is read.

    Attributes:
        name: what to call it in errors.
        info: what its file says of itself.
        codec: of its records.
        alignment: of their contents.
        sums: of their tokens.
    """

    name: str
    info: CacheInfo
    codec: RecordCodec
    alignment: int
    sums: TokenSums


def is_whole_cheaper(record_bytes: int, num_shards: int, shards_here: int = 1) -> bool:
    """Whether all is wanted on this machine, or requests for what is would cost as much as all.

    Args:
        record_bytes: of one, on average.
        num_shards: into which the records are divided.
        shards_here: how many of them are read on this machine.
    """
    return num_shards <= shards_here or record_bytes * num_shards <= REQUEST_BYTES * shards_here


class RemoteRecords(RecordReader):
    """The records of a version, fetched; and read from its files once all of these are here.

    Args:
        version: what it has.
        near: reads them itself, when all of them are here.
    """

    def __init__(self, version: Version, near: Near | None) -> None:
        self.version = version
        self.spec = version.codec.spec
        self._near = near

    def __len__(self) -> int:
        return self.version.info.record_count

    @property
    @abc.abstractmethod
    def kinds(self) -> Sequence[tuple[RemoteFiles, RecordCodec]]:
        """Of each column group, the files that have it, and what reads its records.

        Raises:
            ClosedError: this is closed.
        """

    def _closed(self) -> ClosedError:
        return ClosedError(f"the reader of {self.version.name} is closed; fetch it again")

    @property
    def content_id(self) -> str:
        return self.version.sums.content_id(self.spec)

    @property
    def is_here(self) -> bool:
        """Whether all of it is on this machine, and was compared with its digests.

        Raises:
            ClosedError: this is closed.
        """
        return self._whole() is not None

    def _whole(self) -> FileReader | None:
        """What reads the files themselves, once all of them are here."""
        self.kinds  # noqa: B018 # raises if it is closed
        near = self._near
        return None if near is None else near.reader()

    def _give_up_near(self, error: Exception) -> None:
        """What was here was damaged or removed since; of that, what is wrong is fetched again."""
        near = self._near
        if near is not None:
            near.give_up(error)

    def tokens(self, positions: Array) -> Array:
        whole = self._whole()
        if whole is not None:
            try:
                return whole.tokens(positions)
            except CacheFormatError as error:
                self._give_up_near(error)
        return self._far_tokens(positions)

    @abc.abstractmethod
    def _far_tokens(self, positions: Array) -> Array:
        """See :meth:`tokens`."""

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        whole = self._whole()
        if whole is not None:
            try:
                return whole.read_columns(positions, out, spans)
            except CacheFormatError as error:
                self._give_up_near(error)
        return self._far_columns(positions, out, spans)

    @abc.abstractmethod
    def _far_columns(
        self, positions: Array, out: Sequence[Array] | None, spans: bool
    ) -> list[Column]:
        """See :meth:`read_columns`."""

    def _record(self, position: int) -> Any:
        whole = self._whole()
        if whole is not None:
            try:
                return whole.read_record(position)
            except CacheFormatError as error:
                self._give_up_near(error)
        return self._far_record(position)

    @abc.abstractmethod
    def _far_record(self, position: int) -> Any:
        """See :meth:`read_record`."""

    def _mapped_records(self) -> MappedRecords | None:
        whole = self._whole()
        return None if whole is None else whole.mapped_records()

    @property
    def record_bytes(self) -> int:
        whole = self._whole()
        if whole is not None:
            return whole.record_bytes
        return max(self._bytes_of_each(), REQUEST_BYTES)

    @property
    def bytes_in_order(self) -> int:
        whole = self._whole()
        return max(1, self._bytes_of_each()) if whole is None else whole.bytes_in_order

    def _bytes_of_each(self) -> int:
        """Bytes of a record in the files."""
        return sum(files.nbytes for files, _ in self.kinds) // max(len(self), 1)

    @property
    def is_far(self) -> bool:
        return True

    def is_read_whole(self, num_shards: int, rank: int) -> bool | None:
        """Whether all is wanted on this machine, or requests for a share would cost as much.

        Of processes that begin together, none is the first to be there; so that others read the
        rest can be said for a while only if they do.
        """
        whole = self._whole()
        if whole is not None:
            return whole.is_read_whole(num_shards, rank)
        return self._is_wanted_whole(num_shards, rank)

    @abc.abstractmethod
    def _is_wanted_whole(self, num_shards: int, rank: int) -> bool | None:
        """See :meth:`is_read_whole`."""

    def extents(self, positions: Array | range) -> list[Extents]:
        whole = self._whole()
        if whole is not None:
            try:
                return whole.extents(positions)
            except CacheFormatError as error:
                self._give_up_near(error)
        return self._far_extents(positions) if len(positions) else []

    @abc.abstractmethod
    def _far_extents(self, positions: Array | range) -> list[Extents]:
        """See :meth:`extents`; of at least one."""
