"""Reading the records of a version that lies in many parts as those of one file."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.file_reader import FileReader
from yogadl.cache.files import shown
from yogadl.cache.mapped_reader import MappedReader
from yogadl.cache.open_table import OpenTable

Array = np.ndarray[Any, Any]


class PartsReader(MappedReader, FileReader):
    """The parts that a table names, of which all have the spec of the version.

    Args:
        path: of the table.
        table: the table, which has no ``leaves``.
        check_records: compare every record with its checksum whenever it is looked up.
    """

    def __init__(self, path: pathlib.Path, table: OpenTable, check_records: bool) -> None:
        self.path = path
        self.info = table.info
        self.header = table.header
        self._table = table
        self._parts = table.parts
        space, index = table.map_group(0, table.codec)
        alignment, name = table.header.alignment, shown(path)
        super().__init__(space, table.codec, index, alignment, name, table.sums, check_records)

    def parts_by_digest(self) -> dict[bytes, pathlib.Path]:
        return self._table.parts_by_digest()

    def verify(self) -> None:
        self._table.verify()
        self._table.check_sums(self)

    def pieces(self) -> Iterator[Array]:
        return self._table.pieces()
