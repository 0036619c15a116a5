"""What a worker hands back for a piece of a data set that it has stored."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.cache.table_writer import PartList
from yogadl.errors import CacheFormatError
from yogadl.format import table as tables
from yogadl.format.index import block_counts

FORMAT = 1
LARGEST = 64 << 20
"""Bytes of a stored receipt: of half a million parts."""

RECEIPT_NAME = re.compile(r"[0-9a-f]{32}\.[0-9]+\.piece")
"""Of the file of a receipt, beside the parts of the id."""
UNFINISHED_RECEIPT = re.compile(rf"({RECEIPT_NAME.pattern})\.[0-9a-f]{{32}}\.partial")
"""Of one that is being written, on a file system; the first group is its name to be."""


def receipt_name(build: str, number: int) -> str:
    """The name of the file of a piece's receipt."""
    return f"{build}.{number}.piece"


@dataclass(frozen=True)
class Receipt:
    """That a piece of a data set is stored, for ``Build.commit``. Can be pickled.

    Attributes:
        number: of the piece.
        record_count: in it.
        nbytes: of its files.
    """

    number: int
    record_count: int
    nbytes: int
    _build: str
    _entries: bytes
    _checksums: bytes
    _alignment: int
    _value_size: int

    @classmethod
    def of(cls, build: str, number: int, parts: PartList) -> Receipt:
        """That of some parts, of the build of this name."""
        entries = np.concatenate([np.empty(0, tables.PART), *parts.entries])
        checksums = np.concatenate([np.empty(0, "<u8"), *parts.checksums])
        return cls(
            number,
            parts.record_count,
            int(entries["size"].sum()),
            build,
            entries.tobytes(),
            checksums.tobytes(),
            parts.alignment,
            parts.value_size,
        )

    def is_of(self, build: str) -> bool:
        """Whether it was given by the build of this name."""
        return self._build == build

    def sizes(self) -> dict[bytes, int]:
        """The digests of the parts, and their bytes."""
        entries = np.frombuffer(self._entries, tables.PART)
        digests = entries["digest"].tobytes()
        names = [digests[at : at + 16] for at in range(0, len(digests), 16)]
        return dict(zip(names, entries["size"].tolist(), strict=True))

    def parts(self) -> PartList:
        """What a table says of them."""
        entries = np.frombuffer(self._entries, tables.PART)
        blocks = block_counts(entries["count"].astype("i8"))
        checksums = np.frombuffer(self._checksums, "<u8")
        each = np.split(checksums, np.cumsum(blocks)[:-1]) if len(entries) else []
        found = PartList()
        found.alignment, found.value_size = self._alignment, self._value_size
        for at, of_part in enumerate(each):
            found.append(entries[at : at + 1], of_part)
        return found

    def to_json(self) -> bytes:
        found = {
            "format": FORMAT,
            "number": self.number,
            "build": self._build,
            "entries": base64.b64encode(self._entries).decode(),
            "checksums": base64.b64encode(self._checksums).decode(),
            "alignment": self._alignment,
            "value_size": self._value_size,
        }
        return json.dumps(found).encode()

    @classmethod
    def parse(cls, data: bytes) -> Receipt:
        """What was stored, whatever is in it.

        Raises:
            CacheFormatError: it is no receipt that this yogadl understands.
        """
        try:
            found: dict[str, Any] = json.loads(data)
            if found["format"] != FORMAT:
                raise CacheFormatError(f"a receipt of format {found['format']!r:.20} is not known")
            raw = base64.b64decode(found["entries"], validate=True)
            checksums = base64.b64decode(found["checksums"], validate=True)
            entries = np.frombuffer(raw, tables.PART)
            counts = entries["count"].astype("i8")
            if len(checksums) != 8 * int(block_counts(counts).sum()):
                raise CacheFormatError("a receipt has checksums of the wrong size")
            return cls(
                int(found["number"]),
                int(counts.sum()),
                int(entries["size"].sum()),
                str(found["build"]),
                raw,
                checksums,
                int(found["alignment"]),
                int(found["value_size"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if isinstance(error, CacheFormatError):
                raise
            raise CacheFormatError(f"a receipt is damaged: {error!r:.200}") from error
