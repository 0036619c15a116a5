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
from yogadl.format.layout import WIDE_ALIGNMENT

Array = np.ndarray[Any, Any]


class PartList:
    """Some parts, in order.

    Attributes:
        entries: what a table says of each, ``PART`` ``[1]`` each.
        checksums: of the blocks of their indexes, uint64, for each.
        alignment: of the contents of all of them.
        value_size: of all their records; 0 if these differ.
    """

    def __init__(self) -> None:
        self.entries: list[Array] = []
        self.checksums: list[Array] = []
        self.alignment = WIDE_ALIGNMENT
        self.value_size = 0
        self._sums = NO_TOKENS

    def __len__(self) -> int:
        return len(self.entries)

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
        self.alignment = min(self.alignment, header.alignment)
        self.value_size = header.value_size
        self.append(tables.part_of(header), checksums)

    def append(self, entry: Array, checksums: Array) -> None:
        """Adds a part by what a table says of it; its alignment is known."""
        self.entries.append(entry)
        self.checksums.append(checksums)
        ((count, sums),) = entry[["count", "token_sums"]].tolist()
        self._sums = self._sums.then(TokenSums(count, (int(sums[0]), int(sums[1]))))

    def extend(self, others: PartList) -> None:
        """Adds others' parts behind these."""
        self.alignment = min(self.alignment, others.alignment)
        self.value_size = others.value_size if others else self.value_size
        for entry, checksums in zip(others.entries, others.checksums, strict=True):
            self.append(entry, checksums)

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
            "checksums": np.concatenate(self.checksums).tobytes(),
            "metadata": metadata,
            "spec": spec,
            "index": np.concatenate(self.entries).tobytes(),
        }
        fields = {
            "record_count": self.record_count,
            "alignment": self.alignment,
            "value_size": self.value_size,
            "created_ns": created_ns,
            "part_count": len(self.entries),
            "token_sums": self._sums.sums,
        }
        try:
            container.finish(sections, 0, fields)
        except BaseException:
            container.file.close()
            raise
        return container.file
