"""Files from their beginning to their end: their bytes, and the digest of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash

from yogadl.cache.mapping import MappedFile
from yogadl.errors import REPAIR, ChecksumError
from yogadl.format import header as headers

Array = np.ndarray[Any, Any]

PIECE_BYTES = 16 << 20


def pieces(file: MappedFile, start: int = 0) -> Iterator[Array]:
    """The bytes of a file, uint8, from an offset on, in pieces of some megabytes.

    Each is taken out of this process's memory when the next is asked for.
    """
    for at in range(start, len(file.array), PIECE_BYTES):
        yield file.array[at : at + PIECE_BYTES]
        file.forget(at, at + PIECE_BYTES)


def check_digest(file: MappedFile, header: headers.Header, name: str) -> None:
    """Compares a whole file of format 1 with its digest.

    Raises:
        ChecksumError: it is another.
    """
    digest = xxhash.xxh3_128()
    for piece in pieces(file, headers.BODY_OFFSET):
        digest.update(piece)
    digest.update(file.array[: headers.HEADER_OFFSET])
    page = file.array[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
    digest.update(headers.clear_digest(page))
    if digest.digest() != header.digest:
        raise ChecksumError(f"{name} is not what was written; {REPAIR}")
