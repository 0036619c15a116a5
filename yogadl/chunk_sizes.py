"""How many records are read, or handed on, at once, where that is this library's to choose.

Few at once cost a call for each few; many leave the processor's cache, or keep the first waiting.
``benchmarks/chunk_sizes.py`` measures what a quarter and four times of each does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkSize:
    """How many records make a chunk.

    Attributes:
        nbytes: of all of them together; one is never too large.
        records: at most.
    """

    nbytes: int
    records: int

    def of(self, record_bytes: int, multiple: int = 1) -> int:
        """The number of records, a multiple of some number.

        Args:
            record_bytes: of a record, at least 1.
            multiple: at least 1.
        """
        return max(1, min(self.records, self.nbytes // record_bytes) // multiple) * multiple


RECORDS = ChunkSize(1 << 20, 1024)
"""Read from a stream to be handed out one by one."""

BATCHES = ChunkSize(1 << 20, 8192)
"""Read from a stream to be handed out in batches, which are views of them."""

TORCH_RUN = ChunkSize(2 << 20, 1 << 20)
"""Read for a ``DataLoader`` that will ask for them, batch by batch."""

TF_LOOKUP = ChunkSize(32 << 20, 4096)
"""Looked up by one call of TensorFlow into Python, which takes about 50 µs. They are announced as
they are looked up, so not too many."""

TF_ROW = ChunkSize(2 << 20, 1024)
"""Read by TensorFlow at once, to be taken apart."""

TF_NUMPY_ROW = ChunkSize(8 << 20, 2048)
"""The same read by NumPy, where every row is a data set that has to be made."""

TF_ROW_BATCHES = 4
"""Batches that TensorFlow reads at once, to be taken apart."""

TF_LARGE = 1 << 20
"""Bytes from which on TensorFlow reads rows in other threads; copying less takes less time than
handing it over."""

KERAS_LARGE = 256 << 10
"""Bytes from which on a batch is read into memory that is used again; less is read faster into
fresh memory."""

SUBMITTED = ChunkSize(4 << 20, 1024)
"""Taken from a source at once, to be stored."""

SUBMITTED_BLINDLY = 64
"""The same where the size of a record is not known before it is read; or how many there are, as of
a generator, which may be slow, so that they are seen to come."""

SUBMITTED_ITEMS = 32
"""The same by ``__getitems__``."""
