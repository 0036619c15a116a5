"""Streams as TensorPack ``DataFlow``. Importing this module imports TensorPack."""

from __future__ import annotations

# At exit, TensorPack's runners end their processes, for which multiprocessing waits. Who registered
# last comes first, and multiprocessing may do so only when it starts the processes: the program
# would wait for ever. Imported here, it is before them.
import multiprocessing.util  # noqa: F401 # for what it registers
from collections.abc import Iterator
from typing import Any

from yogadl import spec as specs
from yogadl.core import Stream
from yogadl.dataref._stream import IndexedStream
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require

DataFlow: Any = require("tensorpack.dataflow", "tensorpack").DataFlow


class StreamDataFlow(DataFlow):  # type: ignore[misc] # TensorPack has no types
    """A stream as a ``DataFlow``: every iteration is the stream's next epoch.

    The datapoint of a dict is the dict. That of a tuple is the list of its components, those of
    inner tuples among them, in order. That of any other record is a list of the one. Values are as
    in the stream: NumPy arrays and scalars, ``bytes``, :class:`yogadl.spec.Ragged` and so on.

    Each process that TensorPack forks goes on from where the stream stood, so with several, as of
    ``MultiProcessRunner(df, 8, 2)``, each yields all records; give each its own shard instead. Safe
    for threads, forks and pickling as its stream is.

    Args:
        stream: of any DataRef.

    Raises:
        InvalidArgumentError: it is no stream.
    """

    def __init__(self, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise InvalidArgumentError(
                f"StreamDataFlow takes a stream, as of dataref.stream(), not a "
                f"{type(stream).__name__}"
            )
        self.stream = stream

    def reset_state(self) -> None:
        """Checks that the stream can be read. The next epoch stays the next.

        There is nothing else to reset: the order comes from the stream's seed alone, and a file
        that was open before a fork is good after it.

        Raises:
            ClosedError: the stream or its DataRef is closed.
        """
        if isinstance(self.stream, IndexedStream):
            self.stream.epochs.reader()

    def __len__(self) -> int:
        """Datapoints per epoch; only the first may have fewer, if the stream began at an offset."""
        return len(self.stream)

    def __iter__(self) -> Iterator[list[Any] | dict[Any, Any]]:
        """The datapoints of the next epoch, which begins when the first of them is asked for."""
        return map(_datapoint, self.stream)


def _datapoint(record: Any) -> list[Any] | dict[Any, Any]:
    if isinstance(record, dict):
        return record
    return list(_components(record))


def _components(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple) and not isinstance(value, specs.Ragged | specs.Sparse):
        for child in value:
            yield from _components(child)
    else:
        yield value
