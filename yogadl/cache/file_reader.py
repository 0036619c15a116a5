"""What readers of files have in common, whatever the format."""

from __future__ import annotations

import abc
import datetime
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.cache.record_reader import RecordReader
from yogadl.format import header as headers
from yogadl.format.provenance import Provenance

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CacheInfo:
    """What a cache file says of itself.

    Attributes:
        record_count: number of records.
        format_version: 1, or 0 for a file written by yogadl 0.1.4.
        library_version: the release that wrote the file.
        created: creation time in UTC, ``None`` where it is not recorded.
        metadata: what the user gave with it.
        provenance: by whom, where and from what it was made.
        file_size: bytes.
        digest: differs between any two files that were ever written under one path.
    """

    record_count: int
    format_version: int
    library_version: str
    created: datetime.datetime | None
    metadata: dict[str, Any]
    file_size: int
    digest: str
    provenance: Provenance

    @classmethod
    def of_header(
        cls,
        header: headers.Header,
        metadata: dict[str, Any],
        provenance: Provenance,
        parts_bytes: int = 0,
    ) -> CacheInfo:
        """Of a file of format 1.

        Args:
            header: of the file.
            metadata: as the file has it.
            provenance: likewise.
            parts_bytes: of the parts, if the file is a table.
        """
        return cls(
            record_count=header.record_count,
            format_version=headers.FORMAT_VERSION,
            library_version=header.library_version,
            created=datetime.datetime.fromtimestamp(header.created_ns / 1e9, datetime.timezone.utc),
            metadata=metadata,
            file_size=header.file_size + parts_bytes,
            digest=header.digest.hex(),
            provenance=provenance,
        )


class FileReader(RecordReader):
    """Random access to the records of an open cache file."""

    path: pathlib.Path
    info: CacheInfo

    def __len__(self) -> int:
        return self.info.record_count

    @property
    def content_id(self) -> str:
        return self.info.digest

    def parts_by_digest(self) -> dict[bytes, pathlib.Path]:
        """The files of the parts that the records are in, if this is a table of them."""
        return {}

    @abc.abstractmethod
    def pieces(self) -> Iterator[Array]:
        """The bytes of the file, uint8, from beginning to end, in pieces of some megabytes.

        Raises:
            ClosedError: the file is closed.
        """

    @abc.abstractmethod
    def verify(self) -> None:
        """Reads the whole file and checks everything that can be checked.

        Raises:
            CacheFormatError: something is not as it was written.
        """
