"""Writing the table of the parts that a version's records are in."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from yogadl.cache.container import Container
from yogadl.cache.content_id import NO_TOKENS, TokenSums
from yogadl.cache.partial import PartialFile
from yogadl.format import table as tables
from yogadl.format.header import Header

Array = np.ndarray[Any, Any]


class PartList:
    """The parts that were written so far, in order."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._checksums: list[Array] = []
        self._alignments: list[int] = []
        self._value_size = 0
        self._sums = NO_TOKENS

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def record_count(self) -> int:
        """Records of all parts."""
        return self._sums.count

    def add(self, header: Header, checksums: Array) -> None:
        """Adds a part.

        Args:
            header: of the part.
            checksums: of the blocks of its index, uint64.
        """
        self._parts.append(tables.part_of(header))
        self._checksums.append(checksums)
        self._alignments.append(header.alignment)
        self._value_size = header.value_size
        self._sums = self._sums.then(TokenSums(header.record_count, header.token_sums))

    def write(
        self, path: pathlib.Path, spec: bytes, metadata: bytes, created_ns: int
    ) -> PartialFile:
        """The whole table, under a partial name beside its path.

        Args:
            path: of the table to be.
            spec: the element spec of all parts, as JSON.
            metadata: JSON.
            created_ns: when it was made, nanoseconds since 1970.
        """
        container = Container(path)
        sections = {
            "checksums": np.concatenate(self._checksums).tobytes(),
            "metadata": metadata,
            "spec": spec,
            "index": np.concatenate(self._parts).tobytes(),
        }
        fields = {
            "record_count": self.record_count,
            "alignment": min(self._alignments),
            "value_size": self._value_size,
            "created_ns": created_ns,
            "part_count": len(self._parts),
            "token_sums": self._sums.sums,
        }
        try:
            container.finish(sections, 0, fields)
        except BaseException:
            container.file.close()
            raise
        return container.file
