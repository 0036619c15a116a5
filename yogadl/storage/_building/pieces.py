"""Where the pieces of a build are stored until it is committed.

A piece is some parts, and a receipt beside them that says which: so a build that is begun again
finds what was done. Receipts are written after their parts, and removed when the build has been
committed. Of a build that never is, they go with the parts that nobody refers to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from yogadl.cache.partial import PartialFile
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._receipt import receipt_name


class Pieces(Protocol):
    """The pieces of one build. Can be pickled; safe for threads and processes of any machine."""

    def store(self, file: PartialFile, digest: bytes) -> bool:
        """See ``Parts.store``."""

    def has(self, sizes: Mapping[bytes, int]) -> bool:
        """Whether parts of these digests and sizes are stored, and may be referred to."""

    def read(self, number: int) -> bytes | None:
        """The receipt of a piece; ``None`` if there is none."""

    def write(self, number: int, receipt: bytes) -> None:
        """Stores the receipt of a piece, in place of any other."""

    def forget(self) -> None:
        """Removes all receipts of the build."""


class BucketPieces:
    """Those of a build in a bucket; see ``Pieces``.

    Args:
        parts: of the id.
        build: its name.
        removed: digests of parts that may not be stored.
    """

    def __init__(self, parts: BucketParts, build: str, removed: frozenset[bytes]) -> None:
        self._parts = parts
        self._build = build
        self._removed = removed

    def store(self, file: PartialFile, digest: bytes) -> bool:
        if digest in self._removed:
            return False
        self._parts.store(file, digest)
        return True

    def has(self, sizes: Mapping[bytes, int]) -> bool:
        return not self._removed.intersection(sizes) and self._parts.have(sizes)

    def read(self, number: int) -> bytes | None:
        return self._parts.read_receipt(receipt_name(self._build, number))

    def write(self, number: int, receipt: bytes) -> None:
        self._parts.write_receipt(receipt_name(self._build, number), receipt)

    def forget(self) -> None:
        self._parts.remove_receipts(self._build)
