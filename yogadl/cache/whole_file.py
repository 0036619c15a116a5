"""Files from their beginning to their end: their bytes, and the digest of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


def check_digest(
    file: MappedFile,
    header: headers.Header,
    name: str,
    arrived: Callable[[int], int] | None = None,
) -> None:
    """Compares a whole file of format 1 with its digest.

    Args:
        file: the file.
        header: of the file.
        name: what to call it in errors.
        arrived: waits until some bytes from an offset on are there, and says where those end. What
            was compared then stays in this process's memory.

    Raises:
        ChecksumError: it is another.
    """
    body = pieces(file, headers.BODY_OFFSET) if arrived is None else _arriving(file, arrived)
    if digest_of(file.array[: headers.BODY_OFFSET], body) != header.digest:
        raise ChecksumError(f"{name} is not what was written; {REPAIR}")


def _arriving(file: MappedFile, arrived: Callable[[int], int]) -> Iterator[Array]:
    at = headers.BODY_OFFSET
    while at < len(file.array):
        end = arrived(at)
        yield file.array[at:end]
        at = end


def digest_of(head: Array, body: Iterable[Array | bytes]) -> bytes:
    """The digest of a file of format 1.

    Args:
        head: its bytes up to ``BODY_OFFSET``, uint8.
        body: the others, in their order, in pieces.
    """
    digest = xxhash.xxh3_128()
    for piece in body:
        digest.update(piece)
    digest.update(head[: headers.HEADER_OFFSET])
    digest.update(headers.clear_digest(head[headers.HEADER_OFFSET :].tobytes()))
    return digest.digest()
