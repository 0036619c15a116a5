"""How many records are read, or handed on, at once, where that is this library's to choose.

Few at once cost a call for each few; many leave the processor's cache, or keep the first waiting.
``benchmarks/chunk_sizes.py`` measures what a quarter and four times of each does. Where a
docstring has two ranges, these are the rates it gave with both, as shares of the rate as it is, on
two cores, for scalars, images of 3 and 150 KB, tokens and features as far as they are read so;
single values differ from themselves by some 5 %.
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
"""Read from a stream to be handed out one by one.

0.48-0.97, 1.00-1.19; but a record that is kept keeps all of them in memory.
"""

BATCHES = ChunkSize(1 << 20, 8192)
"""Read from a stream to be handed out in batches, which are views of them.

0.41-1.00, 1.00-1.37; but a batch that is kept keeps all of them in memory.
"""

TORCH_RUN = ChunkSize(2 << 20, 1 << 20)
"""Read for a ``DataLoader`` that will ask for them, batch by batch."""

TF_LOOKUP = ChunkSize(32 << 20, 4096)
"""Looked up by one call of TensorFlow into Python, which takes about 50 µs. They are announced as
they are looked up, so not too many.

0.80-1.03, 0.90-1.05.
"""

TF_ROW = ChunkSize(2 << 20, 1024)
"""Read by TensorFlow at once, to be taken apart.

0.91-1.08, 0.80-1.07.
"""

TF_NUMPY_ROW = ChunkSize(8 << 20, 2048)
"""The same read by NumPy, where every row is a data set that has to be made.

0.96-1.01, 0.98-1.00.
"""

TF_ROW_BATCHES = 4
"""Batches that TensorFlow reads at once, to be taken apart.

0.99-1.03, 1.00-1.06.
"""

TF_LARGE = 1 << 20
"""Bytes from which on TensorFlow reads rows in other threads; copying less takes less time than
handing it over.

0.83-1.07, 1.01-1.04.
"""

KERAS_LARGE = 256 << 10
"""Bytes from which on a batch is read into memory that is used again; less is read faster into
fresh memory."""

SUBMITTED = ChunkSize(4 << 20, 1024)
"""Taken from a source at once, to be stored.

0.55-1.09, 0.92-1.34, the most for scalars.
"""

SUBMITTED_BLINDLY = 64
"""The same where the size of a record is not known before it is read; or how many there are, as of
a generator, which may be slow, so that they are seen to come.

0.85-1.92, 0.85-1.02.
"""

SUBMITTED_ITEMS = 32
"""The same by ``__getitems__``."""
