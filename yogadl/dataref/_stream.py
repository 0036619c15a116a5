"""Streams over a cache file: an order, a place in it, and a reader."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.record_reader import RecordReader
from yogadl.closing import Closing
from yogadl.core import Stream
from yogadl.dataref._batches import Batches, copied_rows, records_of
from yogadl.dataref._cursor import Cursor
from yogadl.dataref._read_ahead import DEFAULT_WINDOW, ReadAhead
from yogadl.dataref._state import state_of
from yogadl.errors import ClosedError, InvalidArgumentError
from yogadl.keys import EpochCounter, Order, Permutations
from yogadl.seeding import Transform, transformed_record

if TYPE_CHECKING:
    from yogadl.dataref._indexed import IndexedDataRef

PositionsOf = Callable[[int, int], np.ndarray[Any, Any]]

_CHUNK_BYTES = 1 << 20
_CHUNK_RECORDS = 1024


class Epochs:
    """The epochs of a stream: each call is an iterator over the next one.

    Safe for threads; can be pickled, and goes on in the copy where the original stood.
    """

    def __init__(
        self,
        dataref: IndexedDataRef,
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
        if not len(self.order):
            return
        reader = self.reader()
        cursor, start = self.begin()
        epoch = cursor.epoch
        step = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // reader.record_bytes))
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
        cursor.is_finished = True

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

    def place(self) -> tuple[int, int]:
        """The epoch and the offset in it that come next.

        Raises:
            InvalidArgumentError: the stream is read by who does not tell how far they got.
        """
        epoch, number = self._next_record()
        offset = self.order.offset(epoch, number)
        return (epoch, offset) if offset < self.order.stop_offset(epoch) else (epoch + 1, 0)

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


class IndexedStream(Stream, Closing):
    """A stream that knows its order, as ``IndexedDataRef.stream`` makes it.

    Records of a file are views of up to a megabyte that was read at once, and keep it in memory:
    copy those of which a few are kept for long. Records of ``from_source`` keep only themselves.
    Iterators may be read in turn; each keeps the order of its epoch, 8 bytes a record, if shuffled.

    Safe for threads. Survives a fork; pickled, it opens the same file again and goes on where the
    original stood. A context manager that closes it.

    Attributes:
        epochs: the order and the place in it; also ``iterator_fn``.
    """

    def __init__(self, epochs: Epochs) -> None:
        super().__init__(iterator_fn=epochs, length=len(epochs.order))
        del self.output_types, self.output_shapes
        self.epochs = epochs

    def __getitem__(self, index: Any) -> Any:
        """Refused: ``DataLoader(stream)`` gets here, for example.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(
            f"a stream is read in order and has no item {index!r:.100}: take a record of its "
            "DataRef; for a DataLoader of PyTorch, make a dataset of the stream, "
            "yogadl.torch.IterableDataset(stream, batch_size)"
        )

    def __repr__(self) -> str:
        epochs = self.epochs
        state = ", closed" if epochs.closed else ""
        return f"{type(self).__name__}({epochs.order.in_words()} of {epochs.dataref!r}{state})"

    @property
    def spec(self) -> specs.Structure:
        """The element spec: a nest of ``yogadl.spec`` leaves."""
        return self.epochs.reader().spec

    def __getattr__(self, name: str) -> Any:
        """``output_types`` and ``output_shapes``, for which TensorFlow is imported when asked."""
        if name not in ("output_types", "output_shapes"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        from yogadl import tf_specs

        value = getattr(tf_specs, name)(self.spec)
        setattr(self, name, value)
        return value

    def batches(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        pad: Any = None,
        out: Sequence[Any] | None = None,
        read_ahead: int | None = None,
        transform: Transform | None = None,
    ) -> Batches:
        """Batches of NumPy arrays, read ahead in threads.

        A batch is a nest as of the spec. A leaf of static shape is an array
        ``[batch_size, *shape]``, an ``object`` array of ``bytes`` for strings; any other leaf is a
        list of values. An epoch that begins at an offset has its batches counted from there.

        Args:
            batch_size: records in a batch; the last of an epoch may have fewer.
            drop_remainder: leave out an epoch's last batch if it is smaller.
            pad: a number with which to pad arrays of varying shape at their ends, to the largest of
                their batch, so that they too are stacked; or a nest of numbers as of the spec, with
                ``None`` for leaves to leave alone.
            out: memory to read into, for records of numbers of static shape: one or more nests of
                C-contiguous arrays ``[batch_size, *shape]``, which are filled in turn. A batch is
                overwritten after the next one was asked for, and ``len(out) - 1`` are read ahead.
            read_ahead: reads to have under way beyond the batch in use, of one batch or of as many
                small ones as make a megabyte; 2 without ``out``. With 0, no threads are used.
            transform: called with every batch, in the thread that asks for it; what it returns is
                the batch. May be seeded, ``yogadl.seeded``, with a generator for each record.

        Returns:
            An iterable with a length, of which every iteration is the stream's next epoch.

        Raises:
            InvalidArgumentError: an argument is out of range, or does not fit the spec.
            ClosedError: the stream or its DataRef is closed.
        """
        return Batches(self.epochs, batch_size, drop_remainder, pad, out, read_ahead, transform)

    def map(self, transform: Transform) -> Stream:
        """A stream of what a transform makes of every record. Its epochs are those of this stream.

        Args:
            transform: called with a record; may be seeded, ``yogadl.seeded``.

        Returns:
            A stream without ``output_types``. The place is that of this stream, ``state_dict``.
        """
        return Stream(functools.partial(self.epochs.records, transform), len(self))

    def state_dict(self) -> dict[str, Any]:
        """The place of the stream, for ``DataRef.stream(state=…)``: what comes next.

        Counts what was taken from the iterator that was begun last, be it of records or of batches.
        With ``shuffle_then_shard``, it is the place of all shards together, provided that they have
        all read as many records; save that of rank 0.

        Returns:
            A new dict of numbers, strings and bools, which JSON can hold; its keys are described in
            ``docs/resuming.md``.

        Raises:
            InvalidArgumentError: the stream is read by ``tf.data``, which does not tell how far.
            ClosedError: the stream or its DataRef is closed.
        """
        epochs = self.epochs
        return state_of(epochs.reader(), epochs.order, *epochs.place())

    def close(self) -> None:
        """Ends the stream: reading from it raises ``ClosedError``. Its DataRef stays open."""
        self.epochs.closed = True
