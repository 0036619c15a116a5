"""Runs of batches that are known before they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.dataref import IndexedDataRef
from yogadl.torch import _tensors

Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 2 << 20


class BatchPositions(list[int]):
    """The positions of a batch, and the run of batches that it is part of.

    Pickled, it is a plain list: a worker gets other batches than the next ones.

    Args:
        run: the batches.
        start: where this one begins in it.
    """

    def __init__(self, run: Run, start: int) -> None:
        super().__init__(run.numbers[start : start + run.batch_size])
        self.run = run
        self.start = start

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


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
        most = max(1, _BLOCK_BYTES // dataref.reader.record_bytes // size)
        self._count = min(2 * self._count, most) if is_next else 1
        stop = start + self._count * size
        whole = _tensors.batch_tensors(dataref.spec, dataref.read(self.positions[start:stop]))
        parts = [whole] if self._count == 1 else _tensors.parts(dataref.spec, whole, size)
        return _Block(dataref, stop, dict(zip(range(start, stop, size), parts, strict=False)))
