"""``make_tf_dataset``: a stream as a ``tf.data.Dataset``."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.reader import CacheFile
from yogadl.core import Stream
from yogadl.dataref import IndexedStream
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.keys import as_index
from yogadl.tensorflow import _words
from yogadl.tensorflow._gather import MappedComponent
from yogadl.tensorflow._rows import RowReader

tf = require("tensorflow", "tensorflow")

# Positions looked up by one call into Python, which costs about 50 µs.
_LOOKUP_RECORDS = 4096
# Bytes of records that are gathered at once and then taken apart.
_ROW_BYTES = 512 << 10
_ROW_RECORDS = 1024
# Bytes of records that Python reads at once where TensorFlow cannot.
_READ_BYTES = 4 << 20
# Larger records are sliced out one by one: that costs 20 µs, and taking apart a row costs a copy.
_SLICE_BYTES = 48 << 10


_PLAIN_LEAVES = (specs.TensorSpec, specs.NoneSpec)

Array = np.ndarray[Any, Any]


class PerIteration(enum.Enum):
    """The type of :data:`PER_ITERATION`."""

    PER_ITERATION = "per iteration"


PER_ITERATION = PerIteration.PER_ITERATION
"""For ``epochs``: every iteration of the data set is one epoch, the stream's next."""


def make_tf_dataset(
    stream: Stream,
    *,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    epochs: int | PerIteration | None = PER_ITERATION,
) -> Any:
    """A stream as a ``tf.data.Dataset`` with the stream's full element spec.

    Works eagerly, in ``tf.function`` and in graph mode. The data set keeps the file open, also when
    the stream's DataRef is closed later.

    Args:
        stream: of ``DataRef.stream``, or any ``Stream`` with ``output_types``.
        batch_size: read whole batches of this many records, which is faster than ``.batch`` after
            the fact and gives the same batches.
        drop_remainder: leave out an epoch's last batch if it is smaller.
        epochs: by default every iteration of the data set is the next epoch of the stream, as
            ``for record in stream`` would have it. With a number, one iteration has so many epochs,
            beginning where the stream stands now; with ``None``, it never ends. Every iteration
            then begins at the same place, and its iterator can be saved and restored with
            ``tf.train.Checkpoint``, to the exact next element.

    Returns:
        A ``tf.data.Dataset``. Its cardinality is known where it is the same for every iteration.
        It is not sharded again by ``tf.distribute`` if the stream has shards of its own.

    Raises:
        InvalidArgumentError: an argument is out of range.
        ClosedError: the stream or its DataRef is closed.
    """
    if batch_size is not None:
        batch_size = as_index("batch_size", batch_size, 1)
    elif drop_remainder:
        raise InvalidArgumentError("drop_remainder=True needs a batch_size")
    if epochs is not None and epochs is not PER_ITERATION:
        epochs = as_index("epochs", epochs)
    if isinstance(stream, IndexedStream):
        return _Pipeline(stream, batch_size, drop_remainder, epochs).dataset()
    return _from_generator(stream, batch_size, drop_remainder, epochs)


def _from_generator(
    stream: Stream, batch_size: int | None, drop_remainder: bool, epochs: Any
) -> Any:
    """Any stream, record by record through Python."""
    if stream.output_types is None:
        raise InvalidArgumentError(
            "the stream has no output_types, without which TensorFlow cannot read it; give "
            "Stream(..., output_types=..., output_shapes=...)"
        )
    dataset = tf.data.Dataset.from_generator(
        stream.iterator_fn, output_types=stream.output_types, output_shapes=stream.output_shapes
    )
    if batch_size is not None:
        dataset = dataset.batch(batch_size, drop_remainder)
    return dataset if epochs is PER_ITERATION else dataset.repeat(epochs)


class _Pipeline:
    """Epochs, then rows of records to read in each, then the records.

    A row is an int64 vector: file offsets where TensorFlow reads the records itself, else positions.
    """

    def __init__(
        self, stream: IndexedStream, batch_size: int | None, drop_remainder: bool, epochs: Any
    ) -> None:
        self._order = stream.epochs.order
        self._permutations = stream.epochs.permutations
        self._counter = stream.epochs.counter
        # A reader of its own, for the data set may outlive the stream's.
        self._reader = copy.copy(stream.epochs.reader())
        self._spec = self._reader.spec
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder
        self._count = epochs
        self._first, self._start = self._counter.peek()

    def dataset(self) -> Any:
        mapped = self._mapped_components()
        plan = self._by_rows() if mapped is None else self._by_gather(mapped)
        dataset = self._starts().flat_map(lambda start: plan(start[0], start[1]))
        cardinality = self._cardinality()
        if cardinality is not None:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(cardinality))
        if self._order.num_shards > 1:
            options = tf.data.Options()
            options.experimental_distribute.auto_shard_policy = (
                tf.data.experimental.AutoShardPolicy.OFF
            )
            dataset = dataset.with_options(options)
        return dataset

    # Epochs

    def _starts(self) -> Any:
        """The epochs to read: int64 ``[2]``, number and first record of each."""
        signature = tf.TensorSpec([2], tf.int64)
        if self._count is PER_ITERATION:
            claim = self._counter.claim if len(self._order) else None

            def next_epoch() -> Iterator[Array]:
                if claim is not None:
                    yield np.array(claim(), "i8")

            return tf.data.Dataset.from_generator(next_epoch, output_signature=signature)
        first, start = self._first, self._start
        end = np.iinfo("i8").max if self._count is None else first + self._count
        numbers = tf.data.Dataset.range(first, end if len(self._order) else first)
        return numbers.map(
            lambda epoch: tf.stack(
                [epoch, tf.where(epoch == first, tf.constant(start, "int64"), 0)]
            )
        )

    def _cardinality(self) -> int | None:
        """Elements of every iteration, ``None`` where iterations differ."""
        length = len(self._order)
        if length == 0:
            return 0
        whole = self._steps(length)
        if self._count is PER_ITERATION:
            return None if self._start else whole
        if self._count is None:
            return int(tf.data.INFINITE_CARDINALITY)
        if self._count == 0:
            return 0
        return self._steps(length - self._start) + whole * (self._count - 1)

    def _steps(self, records: int) -> int:
        if self._batch_size is None:
            return records
        return (
            records // self._batch_size if self._drop_remainder else -(-records // self._batch_size)
        )

    # Rows

    def _rows(self, epoch: Any, start: Any, size: int, offsets: bool) -> Any:
        """The rows of one epoch, each of ``size`` records but for the last."""
        chunk = size * max(1, _LOOKUP_RECORDS // size)
        order, permutations, lookup = self._order, self._permutations, self._reader_lookup

        def look_up(epoch: Array, at: Array) -> Array:
            permutation = permutations.of_epoch(int(epoch))
            positions = order.positions(permutation, int(at), int(at) + chunk)
            return lookup(positions) if offsets else positions

        def row(at: Any) -> Any:
            found = tf.numpy_function(look_up, [epoch, at], tf.int64, stateful=False)
            found.set_shape([None])
            return found

        rows = tf.data.Dataset.range(start, len(order), chunk).map(row)
        return rows if chunk == size else rows.rebatch(size)

    @property
    def _reader_lookup(self) -> Callable[[Array], Array]:
        reader = self._reader

        def lookup(positions: Array) -> Array:
            assert isinstance(reader, CacheFile)
            return reader.lookup(positions)["offset"].astype("i8")

        return lookup

    def _row_size(self, row_bytes: int) -> int:
        if self._batch_size is not None:
            return self._batch_size
        return max(1, min(_ROW_RECORDS, row_bytes // self._reader.record_bytes))

    def _full(self, row: Any) -> Any:
        return tf.shape(row)[0] == self._batch_size

    def _batched_rows(self, rows: Any) -> Any:
        return rows.filter(self._full) if self._drop_remainder else rows

    # Records, by TensorFlow out of the mapped file

    def _mapped_components(self) -> list[MappedComponent] | None:
        """One reader per component, or ``None`` where TensorFlow cannot read the file itself."""
        reader = self._reader
        # A graph would hold the file as a constant.
        eager = tf.compat.v1.executing_eagerly_outside_functions()
        if not eager or not isinstance(reader, CacheFile) or not len(reader):
            return None
        plain = all(isinstance(leaf, _PLAIN_LEAVES) for leaf in specs.leaves(self._spec))
        if not plain or reader.codec.layout.content_size is None:
            return None
        if any(0 in (component.spec.shape or ()) for component in reader.codec.layout.components):
            return None
        components = reader.codec.layout.components
        return [MappedComponent(reader, component) for component in components] or None

    def _by_gather(self, components: list[MappedComponent]) -> Callable[[Any, Any], Any]:
        def gather(offsets: Any) -> Any:
            return tuple(component.batch(offsets) for component in components)

        def cut(offset: Any) -> Any:
            return tuple(component.one(offset) for component in components)

        def plan(epoch: Any, start: Any) -> Any:
            rows = self._rows(epoch, start, self._row_size(_ROW_BYTES), offsets=True)
            if self._batch_size is not None:
                return self._batched_rows(rows).map(lambda row: self._nest(*gather(row)))
            if self._reader.record_bytes > _SLICE_BYTES:
                return rows.unbatch().map(lambda offset: self._nest(*cut(offset)))
            if self._is_flat:
                return rows.map(lambda row: self._nest(*gather(row))).unbatch()
            return rows.map(gather).unbatch().map(self._nest)

        return plan

    @property
    def _is_flat(self) -> bool:
        """Whether elements can be unbatched as they are: no ``None``, no stand-in dtypes."""
        return all(
            isinstance(leaf, specs.TensorSpec) and _words.carrier(leaf.dtype) == leaf.dtype
            for leaf in specs.leaves(self._spec)
        )

    def _nest(self, *parts: Any) -> Any:
        """The element or batch of some component tensors."""
        tensors = [leaf for leaf in specs.leaves(self._spec) if isinstance(leaf, specs.TensorSpec)]
        values = iter(
            [_words.from_words(part, leaf.dtype) for part, leaf in zip(parts, tensors, strict=True)]
        )
        return specs.map_leaves(
            lambda leaf: next(values) if isinstance(leaf, specs.TensorSpec) else None, self._spec
        )

    # Records, by NumPy

    def _by_rows(self) -> Callable[[Any, Any], Any]:
        reader = RowReader(self._spec, self._reader.read_columns)
        stacks = all(
            isinstance(leaf, specs.NoneSpec)
            or (isinstance(leaf, specs.TensorSpec) and leaf.static_shape is not None)
            for leaf in specs.leaves(self._spec)
        )

        def plan(epoch: Any, start: Any) -> Any:
            rows = self._rows(epoch, start, self._row_size(_READ_BYTES), offsets=False)
            if self._batch_size is not None and stacks:
                parts = self._batched_rows(rows).map(reader.read)
                return parts.map(lambda _positions, *parts: self._nest(*parts))
            elements = rows.map(reader.read).unbatch().map(reader.element)
            if self._batch_size is None:
                return elements
            return elements.batch(self._batch_size, self._drop_remainder)

        return plan
