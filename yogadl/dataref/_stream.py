"""Streams over a cache file: an order, a place in it, and a reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.reader import RecordReader
from yogadl.closing import Closing
from yogadl.core import Stream
from yogadl.errors import ClosedError
from yogadl.keys import EpochCounter, Order, Permutations

if TYPE_CHECKING:
    from yogadl.dataref._lmdb import LMDBDataRef

_CHUNK_BYTES = 1 << 20
_CHUNK_RECORDS = 1024


def records_of(spec: specs.Structure, columns: Sequence[Column]) -> Iterator[Any]:
    """The records whose leaves are the rows of ``columns``."""
    if isinstance(spec, specs.LEAVES):
        return iter(columns[0])
    rows = zip(*columns, strict=True)
    children = list(spec.values()) if isinstance(spec, dict) else list(spec)
    if all(isinstance(child, specs.LEAVES) for child in children):
        if isinstance(spec, dict):
            keys = tuple(spec)
            return (dict(zip(keys, row, strict=True)) for row in rows)
        if not specs.is_namedtuple(spec):
            return rows
    return (specs.unflatten(spec, row) for row in rows)


class Epochs:
    """The epochs of a stream: each call is an iterator over the next one.

    Safe for threads; can be pickled, and goes on in the copy where the original stood.
    """

    def __init__(self, dataref: LMDBDataRef, order: Order, start_offset: int) -> None:
        self.dataref = dataref
        self.order = order
        self.permutations = Permutations(order)
        self.counter = EpochCounter(len(order), start_offset)
        self.closed = False

    def reader(self) -> RecordReader:
        """The open file.

        Raises:
            ClosedError: the stream or its DataRef is closed.
        """
        if self.closed:
            raise ClosedError("the stream is closed; make another from its DataRef")
        return self.dataref.reader

    def __call__(self) -> Iterator[Any]:
        if not len(self.order):
            return
        reader = self.reader()
        epoch, start = self.counter.claim()
        step = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // reader.record_bytes))
        for at in range(start, len(self.order), step):
            columns = self.reader().read_columns(self.positions(epoch, at, at + step))
            yield from records_of(reader.spec, columns)

    def positions(self, epoch: int, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Positions in the data set of the records ``start … stop-1`` of an epoch, int64."""
        return self.order.positions(self.permutations.of_epoch(epoch), start, stop)


class IndexedStream(Stream, Closing):
    """A stream that knows its order, as ``LMDBDataRef.stream`` makes it.

    Safe for threads. Survives a fork; pickled, it opens the same file again and goes on where the
    original stood. A context manager that closes it.

    Attributes:
        epochs: the order and the place in it; also ``iterator_fn``.
    """

    def __init__(self, epochs: Epochs) -> None:
        super().__init__(iterator_fn=epochs, length=len(epochs.order))
        del self.output_types, self.output_shapes
        self.epochs = epochs

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

    def close(self) -> None:
        """Ends the stream: reading from it raises ``ClosedError``. Its DataRef stays open."""
        self.epochs.closed = True
