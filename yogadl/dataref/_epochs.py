"""The epochs of a stream: an order, the place in it, and what reads the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from yogadl import chunk_sizes
from yogadl.cache.columns import copied_rows, records_of
from yogadl.cache.record_reader import RecordReader
from yogadl.dataref._cursor import Cursor
from yogadl.dataref._place import Place
from yogadl.dataref._read_ahead import DEFAULT_WINDOW, ReadAhead
from yogadl.errors import ClosedError, InvalidArgumentError
from yogadl.orders import EpochCounter, Order, Permutations
from yogadl.seeding import Transform, transformed_record

PositionsOf = Callable[[int, int], np.ndarray[Any, Any]]


class Readable(Protocol):
    """What has a reader of records: a DataRef."""

    @property
    def reader(self) -> RecordReader:
        """Reads the records."""


class Epochs:
    """The epochs of a stream: each call is an iterator over the next one.

    Safe for threads; can be pickled, and goes on in the copy where the original stood.
    """

    def __init__(
        self,
        dataref: Readable,
        order: Order,
        epoch: int,
        offset: int,
        window: int = DEFAULT_WINDOW,
    ) -> None:
        self.dataref = dataref
        self.order, start = order.beginning_at(epoch, offset)
        self.permutations = Permutations(self.order)
        self.counter = EpochCounter(epoch, start)
        self.window = window
        self.closed = False
        # Of the epoch that was begun last, and perhaps of some before: who stores one late must not
        # hide a later one. `None` if its reader does not tell how far it got.
        self._cursors: dict[int, Cursor | None] = {}

    def reader(self) -> RecordReader:
        """The open file.

        Raises:
            ClosedError: the stream or its DataRef is closed.
        """
        if self.closed:
            raise ClosedError("the stream is closed; make another from its DataRef")
        return self.dataref.reader

    def __call__(self) -> Iterator[Any]:
        return self.records()

    def records(self, transform: Transform | None = None) -> Iterator[Any]:
        """An iterator over the next epoch, of records as a transform makes them."""
        reader = self.reader()
        cursor, start = self.begin()
        epoch = cursor.epoch
        if not len(self.order):
            cursor.end()
            return
        step = chunk_sizes.RECORDS.of(reader.record_bytes)
        positions = self.positions_of(epoch)
        ahead = self.read_ahead(positions, start)
        end = self.order.stop(epoch)
        for at in range(start, end, step):
            stop = min(at + step, end)
            ahead.before(at, stop)
            found = positions(at, stop)
            columns = self.reader().read_columns(found)
            if not reader.lends_rows:
                columns = list(map(copied_rows, columns))
            records = records_of(reader.spec, columns)
            if transform is not None:
                records = (
                    transformed_record(transform, record, epoch, position)
                    for record, position in zip(records, found.tolist(), strict=True)
                )
            yield from cursor.following(records, at, stop, 1)
        cursor.end()

    def begin(self) -> tuple[Cursor, int]:
        """The next epoch, of which the stream's place is that of the cursor, and its start."""
        epoch, start = self.counter.claim()
        cursor = Cursor(epoch, start)
        self._keep_cursor(epoch, cursor)
        return cursor, start

    def begin_elsewhere(self) -> tuple[int, int]:
        """The next epoch and its start, for who does not tell how far they get."""
        epoch, start = self.counter.claim()
        self._keep_cursor(epoch, None)
        return epoch, start

    def _keep_cursor(self, epoch: int, cursor: Cursor | None) -> None:
        self._cursors[epoch] = cursor
        for other in list(self._cursors):
            if other < epoch:
                self._cursors.pop(other, None)

    def place(self) -> Place:
        """What comes next.

        Raises:
            InvalidArgumentError: the stream is read by who does not tell how far they got.
        """
        return Place(self.order, *self._next_record())

    def what_comes(self) -> tuple[int, int]:
        """The epoch and the offset of what is to be read next.

        Raises:
            InvalidArgumentError: likewise.
        """
        place = self.place()
        if not place.order.stop_offset(place.epoch):
            # Of no records there is no end that one could stand at.
            return place.epoch, 0
        return place.what_comes()

    def _next_record(self) -> tuple[int, int]:
        """The epoch and the number in it of the record that comes next."""
        counter = self.counter
        claimed, last = 0, counter.first
        cursor: Cursor | None = Cursor(last, counter.start_of(last))
        while claimed != counter.claimed:
            # Others may begin epochs meanwhile, and this one may be only just begun.
            claimed = counter.claimed
            last = counter.first + claimed - 1
            cursor = self._cursors.get(last, Cursor(last, counter.start_of(last)))
        if cursor is None:
            raise InvalidArgumentError(
                "the stream is read by tf.data, which reads ahead; save the place of its iterator, "
                "with epochs= and tf.train.Checkpoint, or count its batches"
            )
        return (last + 1, 0) if cursor.is_finished else (last, cursor.number)

    def __getstate__(self) -> dict[str, Any]:
        # Iterators stay behind, and their cursors with them.
        return {**vars(self), "_cursors": {}}

    def moved_to(self, order: Order, epoch: int, offset: int) -> Epochs:
        """The epochs of a stream of the same data set, read in the same way, from elsewhere on."""
        return Epochs(self.dataref, order, epoch, offset, self.window)

    def read_by(self, dataref: Readable) -> Epochs:
        """The same epochs, with the same place in them, read by another reference to the data set.

        Each is closed by itself.

        Raises:
            ClosedError: the stream or its DataRef is closed.
        """
        self.reader()
        other = object.__new__(Epochs)
        # The place is in objects that both have.
        vars(other).update(vars(self), dataref=dataref)
        return other

    def read_ahead(self, positions: PositionsOf, start: int) -> ReadAhead:
        """What announces the records of one epoch, of these positions, from ``start`` on."""
        return ReadAhead(self.reader(), self.order, positions, start, self.window)

    def positions_of(self, epoch: int) -> PositionsOf:
        """Positions in the data set of the records ``start … stop-1`` of an epoch, int64.

        A function of ``start`` and ``stop``, which who reads an epoch keeps until its end.
        """
        return self.permutations.positions_of(epoch)

    def positions(self, epoch: int, start: int, stop: int) -> np.ndarray[Any, Any]:
        """The same for one time."""
        return self.positions_of(epoch)(start, stop)
