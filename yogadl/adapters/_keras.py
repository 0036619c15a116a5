"""Keras: a ``PyDataset`` (also called ``Sequence``) gives batches. Keras is not imported here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from yogadl.adapters._base import Source
from yogadl.adapters._batches import BatchedSource, SplitBatch
from yogadl.adapters._convert import type_name
from yogadl.adapters._items import ItemsSource
from yogadl.errors import InfiniteDatasetError, InvalidArgumentError


def open_sequence(sequence: Any, spec: Any) -> Source:
    """The records of a ``PyDataset``: its batches ``x``, ``(x, y)`` or ``(x, y, weight)`` apart.

    Batches are made one after the other in this process, whatever its ``workers``. The last may
    be smaller. ``on_epoch_begin`` and ``on_epoch_end`` are not called.

    Raises:
        InfiniteDatasetError: it has no number of batches.
    """
    count = batch_count(sequence)
    return BatchedSource(
        _batches(sequence, count), spec, map_source=lambda: SequenceSource(sequence, spec)
    )


def batch_count(sequence: Any) -> int:
    """Its number of batches.

    Raises:
        InfiniteDatasetError: it never ends.
    """
    count = sequence.num_batches
    if count is None:
        raise InfiniteDatasetError(
            f"the num_batches of a {type_name(sequence)} is None: it is infinite and cannot be "
            "stored; give it a number of batches"
        )
    return int(count)


def _batches(sequence: Any, count: int) -> Iterator[Any]:
    for number in range(count):
        yield sequence[number]


class SequenceSource(ItemsSource):
    """The records of a ``PyDataset`` by position. Each thread keeps the batch it used last.

    Raises:
        InvalidArgumentError: its batches are not all of the size of the first, but for the last.
    """

    def __init__(self, sequence: Any, spec: Any = None) -> None:
        self._kept = threading.local()
        self._batches = batch_count(sequence)
        self._size = self._last_size = 0
        if self._batches:
            self._size = SplitBatch(sequence[0]).count
            self._last_size = SplitBatch(sequence[self._batches - 1]).count
        super().__init__(sequence, spec)

    def _count(self) -> int:
        return (self._batches - 1) * self._size + self._last_size if self._batches else 0

    def items(self, positions: list[int]) -> list[Any]:
        """The records at some positions; every batch is made once for all that are of it."""
        found: list[Any] = [None] * len(positions)
        places: dict[int, list[int]] = {}
        for place, position in enumerate(positions):
            places.setdefault(position // self._size, []).append(place)
        for number, wanted in places.items():
            batch = self._batch(number)
            for place in wanted:
                found[place] = batch.row(positions[place] % self._size)
        return found

    def _batch(self, number: int) -> SplitBatch:
        kept = getattr(self._kept, "batch", None)
        if kept is not None and kept[0] == number:
            batch: SplitBatch = kept[1]
            return batch
        batch = SplitBatch(self._data[number])
        wanted = self._size if number < self._batches - 1 else self._last_size
        if batch.count != wanted:
            raise InvalidArgumentError(
                f"batch {number} of {self._batches} has {batch.count} records, and should have "
                f"{wanted}; to be read by position, all but the last must be of one size"
            )
        self._kept.batch = (number, batch)
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._kept = threading.local()
