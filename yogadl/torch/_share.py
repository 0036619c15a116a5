"""What one of several workers reads of an epoch."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from yogadl.cache.record_reader import RecordReader
from yogadl.dataref import ReadAhead
from yogadl.dataref._epochs import Epochs, PositionsOf
from yogadl.dataref._place import Place
from yogadl.orders import Order
from yogadl.shuffles import Permutation


class Share(Epochs):
    """The items ``w, w+W, w+2W, …`` of an epoch, as a single epoch of its own.

    An item is a batch or a record. Numbers of records are those of the share from here on: ``w``
    and ``W`` are known to no one else.

    Args:
        source: the epochs of the stream.
        begun: where the epoch was begun.
        item_size: records in an item.
        drop_remainder: leave out the last item if it has fewer.
        worker, workers: ``w`` and ``W``.
        skip: how many items of the share not to read again.
    """

    def __init__(
        self,
        source: Epochs,
        begun: Place,
        item_size: int,
        drop_remainder: bool,
        worker: int,
        workers: int,
        skip: int,
    ) -> None:
        self._source = source
        self._begun = begun
        self._item_size = item_size
        self._worker, self._workers = worker, workers
        count = begun.left
        if drop_remainder:
            count -= count % item_size
        items = range(worker, -(-count // item_size), workers)
        self.items = len(items)
        records = self.items * item_size
        if items and (items[-1] + 1) * item_size > count:
            records -= (items[-1] + 1) * item_size - count
        skipped = min(skip * item_size, records)
        super().__init__(source.dataref, Order(records), begun.epoch, skipped, source.window)

    def reader(self) -> RecordReader:
        """See ``Epochs.reader``."""
        return self._source.reader()

    def read_ahead(self, positions: PositionsOf, start: int) -> ReadAhead:
        """See ``Epochs.read_ahead``."""
        return ReadAhead(self.reader(), self._begun.order, positions, start, self.window)

    def positions_of(self, epoch: int) -> PositionsOf:
        """See ``Epochs.positions_of``; a share is of one epoch."""
        permutation = self._source.permutations.of_epoch(self._begun.epoch)
        return functools.partial(self._positions, permutation, self.order.stop(epoch))

    def _positions(
        self,
        permutation: np.ndarray[Any, Any] | Permutation | None,
        end: int,
        start: int,
        stop: int,
    ) -> np.ndarray[Any, Any]:
        numbers = np.arange(start, min(stop, end), dtype=np.int64)
        if not len(numbers):
            return numbers
        # Between two items of this share lie those of the other workers.
        numbers += numbers // self._item_size * ((self._workers - 1) * self._item_size)
        numbers += self._begun.number + self._worker * self._item_size
        first, last = int(numbers[0]), int(numbers[-1])
        begun = self._begun
        found = begun.order.positions(permutation, begun.epoch, first, last + 1)
        return found if self._workers == 1 else found[numbers - first]
