"""Tables of parts: which files have the records of a version, and what a reader needs of each.

A table is a cache file without records of its own. Its index has an entry for each part, and its
checksums are those of the blocks of their indexes, one part behind the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.errors import ChecksumError
from yogadl.format import index as indexes
from yogadl.format.entries import ENTRY
from yogadl.format.header import BODY_OFFSET, Header
from yogadl.format.pages import PAGE_SIZE
from yogadl.format.record_keys import MOST_RECORDS

Array = np.ndarray[Any, Any]

PART = np.dtype(
    [
        ("digest", "V16"),
        ("size", "<u8"),
        ("count", "<u8"),
        ("entries", "<u8"),
        ("token_sums", "<u8", (2,)),
        ("reserved", "<u8"),
    ]
)
"""Of a part: its digest, bytes, and records; where its index begins; its token sums; zero."""

MOST_BYTES = 2**60
"""Of all parts together: sums of them do not wrap around."""


def part_of(header: Header) -> Array:
    """The entry of a part with this header, of ``PART`` ``[1]``."""
    part = np.zeros(1, PART)
    part["digest"] = np.frombuffer(header.digest, "V16")
    part["size"] = header.file_size
    part["count"] = header.record_count
    part["entries"] = header.index.offset
    part["token_sums"] = header.token_sums
    return part


def is_part(header: Header, part: Array, table: Header) -> bool:
    """Whether a file is what a table says of a part.

    Args:
        header: of the file.
        part: what the table says, of ``PART`` ``[1]``.
        table: the table's header.
    """
    return bool(
        part_of(header) == part
        and header.spec.checksum == table.spec.checksum
        # The index of a table is none of records.
        and not header.part_count
    )


def check_parts(parts: Array, header: Header, name: str) -> None:
    """Checks what readers of the parts rely on.

    Args:
        parts: of ``PART``, from the file.
        header: of the table.
        name: of the table, for errors.

    Raises:
        ChecksumError: there can be no such parts.
    """
    counts, sizes, entries = parts["count"], parts["size"], parts["entries"]
    if not len(parts):
        raise ChecksumError(f"{name} is a table without parts; rebuild it")
    # In this order: sums could wrap around where a number is far too large.
    if (
        (counts < 1).any()
        or (counts > MOST_RECORDS).any()
        or (sizes > MOST_BYTES).any()
        or (sizes % PAGE_SIZE != 0).any()
        or (entries < BODY_OFFSET).any()
        or (entries > sizes).any()
        or (entries % np.uint64(ENTRY.itemsize) != 0).any()
        or (entries + counts * np.uint64(ENTRY.itemsize) > sizes).any()
        or float(sizes.sum(dtype="f8")) > MOST_BYTES
        or int(counts.sum()) != header.record_count
    ):
        raise ChecksumError(f"{name} is a table of impossible parts; rebuild it")


def block_total(parts: Array) -> int:
    """Blocks of the indexes of all parts."""
    return int(indexes.block_counts(parts["count"].astype("i8")).sum())
