"""Reading from afar the records of a version whose leaves are in column groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from yogadl.cache.columns import Column
from yogadl.cache.grouped import LeafMap, joined_tokens
from yogadl.cache.mapping import Extents
from yogadl.cache.traffic import Traffic
from yogadl.errors import CacheFormatError
from yogadl.format.codec import RecordCodec
from yogadl.remote._files import RemoteFiles
from yogadl.remote._near import Near
from yogadl.remote._reader import RemoteReader
from yogadl.remote._records import RemoteRecords, Version

Array = np.ndarray[Any, Any]


class RemoteGroups(RemoteRecords):
    """The records of a version of which the leaves are in several kinds of parts.

    Args:
        version: what it has.
        leaves: which leaves of the groups these are.
        readers: of the groups.
        near: see ``RemoteRecords``.
    """

    def __init__(
        self, version: Version, leaves: LeafMap, readers: Sequence[RemoteReader], near: Near
    ) -> None:
        super().__init__(version, near)
        self._leaf_map = leaves
        self._open_readers: tuple[RemoteReader, ...] | None = tuple(readers)

    @property
    def _readers(self) -> tuple[RemoteReader, ...]:
        if self._open_readers is None:
            raise self._closed()
        return self._open_readers

    @property
    def kinds(self) -> Sequence[tuple[RemoteFiles, RecordCodec]]:
        return [kind for reader in self._readers for kind in reader.kinds]

    def _far_tokens(self, positions: Array) -> Array:
        return joined_tokens(self, self.version.codec, positions)

    def _far_columns(
        self, positions: Array, out: Sequence[Array] | None, spans: bool
    ) -> list[Column]:
        return self._leaf_map.columns(self._readers, positions, out, spans)

    def read_leaves(self, positions: Array, wanted: Collection[int]) -> list[Column]:
        whole = self._whole()
        if whole is not None:
            try:
                return whole.read_leaves(positions, wanted)
            except CacheFormatError as error:
                self._give_up_near(error)
        return self._leaf_map.columns(self._readers, positions, None, False, wanted)

    def _far_record(self, position: int) -> Any:
        return self._leaf_map.record(self._readers, position)

    def traffic(self) -> list[Traffic]:
        return [each for reader in self._readers for each in reader.traffic()]

    def _is_wanted_whole(self, num_shards: int, rank: int) -> bool | None:
        # All are asked, since each remembers how many share it.
        are_wanted = [reader.is_read_whole(num_shards, rank) for reader in self._readers]
        return False if False in are_wanted else None if None in are_wanted else True

    def _far_extents(self, positions: Array | range) -> list[Extents]:
        return [each for reader in self._readers for each in reader.extents(positions)]

    def close(self) -> None:
        # Copies read on.
        self._open_readers = None
        self._near = None
