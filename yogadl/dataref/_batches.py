"""Batches of NumPy arrays straight from a stream, read ahead in threads."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from yogadl import chunk_sizes, dtypes
from yogadl import spec as specs
from yogadl.arguments import as_flag, as_index
from yogadl.cache.columns import Column, records_of
from yogadl.dataref._epochs import Epochs
from yogadl.dataref._padding import Padding
from yogadl.errors import InvalidArgumentError, SpecMismatchError
from yogadl.seeding import Transform, check_transform, transformed_batch

Array = np.ndarray[Any, Any]
_Batched: TypeAlias = list[list[Column]]
"""Some batches, each a column per leaf."""

_log = logging.getLogger(__name__)

_READ_AHEAD = 2
# A consumer that takes this share of the time of reading is worth reading ahead for.
_BUSY = 0.25


def tell_of_no_batches(records: int, batch_size: int, drop_remainder: bool) -> None:
    """Warns in the log where all records of an epoch are the remainder that is dropped."""
    if drop_remainder and 0 < records < batch_size:
        _log.warning(
            "There will be no batches: an epoch has %s records, fewer than a batch of %s, and "
            "drop_remainder=True leaves them out.",
            f"{records:,}",
            f"{batch_size:,}",
        )


class _Chunk(NamedTuple):
    """Some batches that are read at once: the records ``start … stop-1`` of the epoch."""

    start: int
    stop: int
    number: int


class StreamBatches:
    """The batches of a stream: every iteration is the stream's next epoch.

    Made by ``IndexedStream.batches``, which says what they are. Iterators are to be used by one
    thread each; they survive a fork.
    """

    def __init__(
        self,
        epochs: Epochs,
        batch_size: int,
        drop_remainder: bool,
        pad: Any,
        out: Sequence[Any] | None,
        read_ahead: int | None,
        transform: Transform | None = None,
    ) -> None:
        self._epochs = epochs
        self._spec = epochs.reader().spec
        self._size = as_index("batch_size", batch_size, 1)
        self._drop_remainder = as_flag("drop_remainder", drop_remainder)
        self._padding = None if pad is None else Padding(self._spec, pad)
        self._out = None if out is None else self._checked_memory(out)
        if self._out is not None:
            if read_ahead is not None:
                raise InvalidArgumentError("with out=, its length says how much is read ahead")
            read_ahead = len(self._out) - 1
        self._ahead = _READ_AHEAD if read_ahead is None else as_index("read_ahead", read_ahead)
        self._transform = check_transform(transform)

    def __len__(self) -> int:
        """Batches per epoch; an offset does not make them fewer."""
        count = len(self._epochs.order)
        return count // self._size if self._drop_remainder else -(-count // self._size)

    def __repr__(self) -> str:
        order = self._epochs.order.in_words()
        return f"{type(self).__name__}({len(self):,} batches of {self._size:,}; {order})"

    def __getitem__(self, index: Any) -> Any:
        """Refused: ``DataLoader(stream.batches(4))`` gets here, for example.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(
            f"batches are read in order and have no item {index!r:.100}: iterate over them; for a "
            "DataLoader of PyTorch, make a dataset of the stream, "
            "DataLoader(yogadl.torch.IterableDataset(stream, batch_size), batch_size=None)"
        )

    def __iter__(self) -> Iterator[Any]:
        self._epochs.reader()
        cursor, start = self._epochs.begin()
        epoch = cursor.epoch
        if not len(self._epochs.order):
            cursor.end()
            return
        positions = self._epochs.positions_of(epoch)
        announcer = self._epochs.read_ahead(positions, start)
        size = self._size
        if self._drop_remainder:
            end = self._epochs.order.stop(epoch)
            # Unless all is left out, when there is no batch behind which that is.
            if end - start >= size:
                cursor.end_at(end - (end - start) % size)

        def read(chunk: _Chunk) -> _Batched:
            announcer.before(chunk.start, chunk.stop)
            return self._read(chunk, positions(chunk.start, chunk.stop))

        at = start
        for batches in self._through_pool(self._chunks(epoch, start), read):
            nests = records_of(self._spec, list(zip(*batches, strict=True)))
            stop = min(at + len(batches) * size, self._epochs.order.stop(epoch))
            if self._transform is not None:
                starts = range(at, stop, size)
                nests = (
                    transformed_batch(self._transform, nest, epoch, positions(first, first + size))
                    for nest, first in zip(nests, starts, strict=True)
                )
            yield from cursor.following(nests, at, stop, size)
            at = stop
        cursor.end()

    def _chunks(self, epoch: int, start: int) -> Iterator[_Chunk]:
        end = self._epochs.order.stop(epoch)
        if self._drop_remainder:
            end -= (end - start) % self._size
        at = start
        for number in itertools.count():
            if at >= end:
                return
            size = self._size
            if self._out is None:
                # Asked for each time: what is fetched is read faster once all of it is here.
                size = chunk_sizes.BATCHES.of(self._epochs.reader().record_bytes, size)
            yield _Chunk(at, min(at + size, end), number)
            at += size

    # Reading

    def _through_pool(
        self, chunks: Iterator[_Chunk], read: Callable[[_Chunk], _Batched]
    ) -> Iterator[_Batched]:
        """What is read of each chunk, in order, some of it before it is wanted."""
        pool = _Pool(read)
        is_busy = False
        try:
            while True:
                started = time.perf_counter()
                if len(pool):
                    taken = pool.take()
                else:
                    chunk = next(chunks, None)
                    if chunk is None:
                        return
                    taken = read(chunk)
                if is_busy:
                    for chunk in itertools.islice(chunks, max(0, self._ahead - len(pool))):
                        pool.submit(chunk)
                finished = time.perf_counter()
                yield taken
                # Handing chunks over costs more than it gains while the consumer wants the next
                # at once.
                is_busy = time.perf_counter() - finished > _BUSY * (finished - started)
        finally:
            pool.close(wait=self._out is not None)

    def _read(self, chunk: _Chunk, positions: Array) -> _Batched:
        reader = self._epochs.reader()
        if self._out is not None:
            arrays = self._out[chunk.number % len(self._out)]
            return [reader.read_columns(positions, [array[: len(positions)] for array in arrays])]
        columns = reader.read_columns(positions, spans=self._padding is not None)
        batches = [
            [column[start : start + self._size] for column in columns]
            for start in range(0, len(positions), self._size)
        ]
        return batches if self._padding is None else list(map(self._padding.apply, batches))

    def _checked_memory(self, out: Any) -> list[list[Array]]:
        """The arrays of ``out``.

        Raises:
            InvalidArgumentError: they are not such that batches can be read into them.
        """
        if not isinstance(out, Iterable):
            raise InvalidArgumentError(f"out= takes a list of batches of arrays, not {out!r:.100}")
        found = [self._checked_out(nest) for nest in out]
        if not found:
            raise InvalidArgumentError("out= needs one batch of arrays at least")
        # Contiguous, so those that overlap follow on one another.
        places = sorted(
            (array.ctypes.data, array.nbytes) for arrays in found for array in arrays if array.size
        )
        if any(start + size > after for (start, size), (after, _) in itertools.pairwise(places)):
            raise InvalidArgumentError(
                "out= has arrays that share memory, so that one would be overwritten while it is "
                "in use; make each by itself, [np.empty(…) for _ in range(2)]; [np.empty(…)] * 2 "
                "has one array twice"
            )
        return found

    def _checked_out(self, nest: Any) -> list[Array]:
        """The arrays of one element of ``out``.

        Raises:
            InvalidArgumentError: they are not such that batches can be read into them.
        """
        try:
            arrays = specs.flatten(self._spec, nest)
        except SpecMismatchError as error:
            raise InvalidArgumentError(f"out= is not nested as the spec: {error}") from error
        for leaf, array in zip(specs.leaves(self._spec), arrays, strict=True):
            if not isinstance(leaf, specs.TensorSpec) or leaf.static_shape is None:
                raise InvalidArgumentError(f"out= needs records of static shape, not {leaf}")
            if leaf.is_string:
                raise InvalidArgumentError("out= cannot hold strings, which Python allocates")
            dtype, shape = dtypes.to_numpy(leaf.dtype), (self._size, *leaf.static_shape)
            if (
                not isinstance(array, np.ndarray)
                or array.dtype != dtype
                or array.shape != shape
                or not (array.flags.c_contiguous and array.flags.writeable)
            ):
                raise InvalidArgumentError(
                    f"out= needs writable C-contiguous arrays, here of {dtype}{list(shape)}, "
                    f"not {_described(array)}"
                )
        return arrays


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        flags = [
            *(() if value.flags.c_contiguous else ("not contiguous",)),
            *(() if value.flags.writeable else ("not writable",)),
        ]
        return ", ".join([f"{value.dtype}{list(value.shape)}", *flags])
    return f"a {type(value).__name__}"


class _Pool:
    """Chunks that a thread reads in the order of their submission. For one thread's use.

    Who takes a chunk that the thread has not come to yet reads it itself: a consumer that does
    nothing else loses no time to the thread. A forked child has not got its parent's thread, and
    reads again what was under way.
    """

    def __init__(self, read: Callable[[_Chunk], _Batched]) -> None:
        self._read = read
        self._pending: deque[tuple[_Chunk, Future[_Batched]]] = deque()
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(1, "yogadl-read-ahead")

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, chunk: _Chunk) -> None:
        self._renew()
        self._pending.append((chunk, self._executor.submit(self._read, chunk)))

    def take(self) -> _Batched:
        """What is read of the oldest chunk."""
        self._renew()
        chunk, future = self._pending.popleft()
        return self._read(chunk) if future.cancel() else future.result()

    def _renew(self) -> None:
        """Starts anew in a forked child."""
        if os.getpid() == self._process:
            return
        self._start()
        self._pending = deque(
            (chunk, self._executor.submit(self._read, chunk)) for chunk, _ in self._pending
        )

    def close(self, wait: bool) -> None:
        # A forked child has no thread to wait for.
        self._executor.shutdown(wait and os.getpid() == self._process, cancel_futures=True)
