"""Positions with their epoch, and runs of batches that are known before they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import chunk_sizes
from yogadl.arguments import as_index
from yogadl.dataref import IndexedDataRef
from yogadl.torch import _tensors

Array = np.ndarray[Any, Any]


class Position(int):
    """The position of a record, and the epoch in which it is read: ``Position(5, epoch=0)``.

    A sampler that yields these, or ``dataset[Position(5, epoch=0)]``, tells a ``MapDataset`` with a
    seeded transform what it has to know.

    Args:
        position: in the data set; a negative one counts from the end.
        epoch: at least 0.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """

    epoch: int

    def __new__(cls, position: int, epoch: int) -> Position:
        made = super().__new__(cls, position)
        made.epoch = as_index("epoch", epoch)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (int(self), self.epoch)


class BatchPositions(list[int]):
    """The positions of a batch of an epoch, and the run of batches that it is part of.

    Pickled, it is part of none: a worker gets other batches than the next ones.

    Args:
        positions: of the records.
        epoch: in which they are read.
        run: the batches.
        start: where this one begins in it.
    """

    def __init__(
        self, positions: list[int], epoch: int, run: Run | None = None, start: int = 0
    ) -> None:
        super().__init__(positions)
        self.epoch = epoch
        self.run = run
        self.start = start

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), self.epoch)


@dataclass(frozen=True)
class _Block:
    """Batches that were read at once, and that nobody has got yet, by where they begin."""

    dataref: IndexedDataRef
    stop: int
    batches: dict[int, Any]


class Run:
    """Batches that come one after the other, of which several can be read at a time.

    As long as they are asked for in turn, twice as many are read each time, up to some number of
    bytes. So who takes every n-th batch only, as one process of several, reads no others.

    Safe for threads; two may read the same batch for it.

    Args:
        positions: int64 ``[n]``.
        batch_size: of all batches, but the last may be smaller.
    """

    def __init__(self, positions: Array, batch_size: int) -> None:
        self.positions = positions
        self.numbers: list[int] = positions.tolist()
        self.batch_size = batch_size
        self._block: _Block | None = None
        self._count = 1

    def read(self, dataref: IndexedDataRef, wanted: BatchPositions) -> Any:
        """The batch at some positions, as ``_tensors.batch_tensors`` returns it.

        Nobody else gets its memory, though other batches may lie in the same block of it.

        Raises:
            ClosedError: the data set is closed.
        """
        _ = dataref.reader  # Raises if it is closed.
        start, block = wanted.start, self._block
        # Whoever got the list may have changed it.
        if wanted == self.numbers[start : start + self.batch_size]:
            if block is None or block.dataref is not dataref or start >= block.stop:
                block = self._block = self._read(dataref, start, block)
            found = block.batches.pop(start, None)
            if found is not None:
                return found
        return _tensors.batch_tensors(dataref.spec, dataref.read(wanted))

    def _read(self, dataref: IndexedDataRef, start: int, last: _Block | None) -> _Block:
        size = self.batch_size
        is_next = last is not None and last.stop == start and not last.batches
        most = chunk_sizes.TORCH_RUN.of(dataref.reader.record_bytes, size) // size
        self._count = min(2 * self._count, most) if is_next else 1
        stop = start + self._count * size
        whole = _tensors.batch_tensors(dataref.spec, dataref.read(self.positions[start:stop]))
        parts = [whole] if self._count == 1 else _tensors.parts(dataref.spec, whole, size)
        return _Block(dataref, stop, dict(zip(range(start, stop, size), parts, strict=False)))
