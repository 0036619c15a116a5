"""Reading the records of a cache file by position."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.content_id import TokenSums
from yogadl.cache.file_reader import CacheInfo, FileReader
from yogadl.cache.files import shown
from yogadl.cache.mapped_reader import MappedReader
from yogadl.cache.mapping import Descriptor, MappedFile
from yogadl.cache.sections import load_codec, load_metadata, section
from yogadl.cache.whole_file import check_digest, pieces
from yogadl.errors import ChecksumError
from yogadl.format import header as headers
from yogadl.format import index as indexes
from yogadl.format.entries import ENTRY, salt_of

Array = np.ndarray[Any, Any]


class CacheFile(MappedReader, FileReader):
    """A cache file of format version 1, mapped into memory.

    With ``check_records``, every record is compared with its checksum whenever it is looked up. A
    ``lock`` is kept until it is closed.
    """

    def __init__(
        self,
        path: pathlib.Path,
        file: MappedFile,
        check_records: bool = False,
        lock: Descriptor | None = None,
    ) -> None:
        self.path = path
        self._lock = lock
        name, buffer = shown(path), file.array
        page = buffer[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
        self.header = header = headers.unpack(page, len(buffer), name)
        codec = load_codec(buffer, header.spec, header.value_size, name)
        metadata, provenance = load_metadata(buffer, header.metadata, name)
        self.info = CacheInfo.of_header(header, metadata, provenance)
        count = header.record_count
        if (
            header.index_checksums.length != 8 * indexes.block_counts(count)
            or header.index.length < count * ENTRY.itemsize
        ):
            raise ChecksumError(f"{name} has an index of the wrong size; rebuild it")
        checksums = section(buffer, header.index_checksums, "index", name).view("<u8")
        files = indexes.IndexedFiles(
            counts=np.array([count]),
            bases=np.array([0]),
            sizes=np.array([header.file_size]),
            entries=np.array([header.index.offset]),
            salts=salt_of([header.token_sums[0]]),
        )
        index = indexes.Index(
            buffer,
            files,
            checksums,
            layout=codec.layout,
            alignment=header.alignment,
            where=lambda _file, position: (name, position),
            touch=lambda _file, start, stop: file.will_need(np.array([start]), np.array([stop])),
        )
        sums = TokenSums(count, header.token_sums)
        super().__init__(file, codec, index, header.alignment, name, sums, check_records)

    def close(self) -> None:
        super().close()
        self._lock = None

    def verify(self) -> None:
        step = 1 << 16
        checking = copy.copy(self)
        checking._check_records = True
        for start in range(0, len(self), step):
            positions = np.arange(start, min(start + step, len(self)))
            checking.announce(positions)
            checking.lookup(positions)
            self.forget(start, int(positions[-1]) + 1)
        check_digest(self.file, self.header, self._name)

    def pieces(self) -> Iterator[Array]:
        return pieces(self.file)

    @property
    def file(self) -> MappedFile:
        """All of it.

        Raises:
            ClosedError: it is closed.
        """
        memory = self._memory
        assert isinstance(memory, MappedFile)
        return memory
