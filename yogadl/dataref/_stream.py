"""Streams of the records of a DataRef."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from yogadl import spec as specs
from yogadl.closing import Closing
from yogadl.completion import without
from yogadl.core import Stream
from yogadl.dataref._batches import StreamBatches
from yogadl.dataref._epochs import Epochs
from yogadl.dataref._state import state_of
from yogadl.errors import InvalidArgumentError
from yogadl.seeding import Transform, check_transform


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

    def __dir__(self) -> list[str]:
        return without(super().__dir__(), ("epochs", "iterator_fn"))

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
    ) -> StreamBatches:
        """Batches of NumPy arrays, read ahead in threads.

        A batch is a nest as of the spec. A leaf of static shape is an array
        ``[batch_size, *shape]``, an ``object`` array of ``bytes`` for strings; any other leaf is a
        list of values. An epoch that begins at an offset has its batches counted from there.

        Args:
            batch_size: records in a batch; the last of an epoch may have fewer.
            drop_remainder: leave out an epoch's last batch if it is smaller.
            pad: a number with which to pad arrays of varying shape at their ends, to the largest of
                their batch, so that they too are stacked; or a nest of numbers as of the spec, with
                ``None`` for leaves to leave alone. Arrays of strings are always left alone.
            out: memory to read into, for records of numbers of static shape: one or more nests of
                C-contiguous arrays ``[batch_size, *shape]``, which are filled in turn and share no
                memory. A batch is overwritten after the next one was asked for, and ``len(out) -
                1`` are read ahead.
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
        return StreamBatches(
            self.epochs, batch_size, drop_remainder, pad, out, read_ahead, transform
        )

    def map(self, transform: Transform) -> Stream:
        """A stream of what a transform makes of every record. Its epochs are those of this stream.

        Args:
            transform: called with a record; may be seeded, ``yogadl.seeded``.

        Returns:
            A stream without ``output_types``. The place is that of this stream, ``state_dict``.

        Raises:
            InvalidArgumentError: the transform cannot be called.
        """
        checked = check_transform(transform)
        if checked is None:
            raise InvalidArgumentError("map takes a function of a record, not None")
        return MappedStream(self, checked)

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
        return state_of(epochs.reader(), epochs.order, *epochs.what_comes())

    def close(self) -> None:
        """Ends the stream: reading from it raises ``ClosedError``. Its DataRef stays open."""
        self.epochs.closed = True


class MappedStream(Stream):
    """What a transform makes of the records of a stream, as ``IndexedStream.map`` returns it."""

    def __init__(self, stream: IndexedStream, transform: Transform) -> None:
        super().__init__(functools.partial(stream.epochs.records, transform), len(stream))
        self._stream = stream
        self._transform = transform

    def __repr__(self) -> str:
        return f"{self._stream!r}.map({self._transform!r:.100})"
