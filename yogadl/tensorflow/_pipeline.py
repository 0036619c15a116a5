"""The pipeline behind ``make_tf_dataset``: epochs, then rows of records to read, then records.

A *row* is an int64 vector that says which records to read at once: file offsets where TensorFlow
reads them itself, else positions. Only the rows come out of Python, thousands of records a call.
"""

from __future__ import annotations

import copy
import enum
import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl import chunk_sizes, dtypes, seeding
from yogadl import spec as specs
from yogadl.cache.record_reader import MappedRecords
from yogadl.dataref import IndexedStream, Padding, ReadAhead
from yogadl.dataref._batches import tell_of_no_batches
from yogadl.dataref._epochs import PositionsOf
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.extras import require
from yogadl.tensorflow import _words
from yogadl.tensorflow._calls import Calls
from yogadl.tensorflow._gather import MappedComponent, MappedTables
from yogadl.tensorflow._keras_fit import ShortEpoch, is_only_looked_at
from yogadl.tensorflow._labels import Label
from yogadl.tensorflow._rows import RowReader, as_words, is_empty
from yogadl.tf_specs import to_tf

tf = require("tensorflow", "tensorflow")

Array = np.ndarray[Any, Any]
Plan = Callable[[Any], Any]
"""Makes the data set of one epoch of its number, first record and end, an int64 ``[3]``."""
RowOf = Callable[[Array], Array]
"""Makes a row of the positions of some records."""

# Epochs whose order is kept while they are read: so many at least and at most, in between by bytes.
_FEWEST_READINGS = 2
_MOST_READINGS = 8
_READINGS_BYTES = 64 << 20
_PARALLEL_ROWS = 2
# Two threads in Python would only wait for each other.
_PARALLEL_NUMPY_ROWS = 1


class PerIteration(enum.Enum):
    """The type of :data:`PER_ITERATION`."""

    PER_ITERATION = "per iteration"


PER_ITERATION = PerIteration.PER_ITERATION
"""For ``epochs``: every iteration of the data set is one epoch, the stream's next."""

Epochs = int | PerIteration | None


# Sizes of batches up to this are in element specs, also where there are no such batches.
_MOST_SHOWN = 1 << 24


def largest_batch(records: int) -> int:
    """A size beyond all batches of so many records, for which TensorFlow still finds room.

    It makes room for all of a batch before it has a record, and ends the process if there is none.
    """
    return max(records, _MOST_SHOWN) + 1


def check_epochs(epochs: Epochs, records: int) -> None:
    """Sees that TensorFlow can count the records of so many epochs.

    Raises:
        InvalidArgumentError: it cannot.
    """
    if isinstance(epochs, int) and epochs * records > np.iinfo("i8").max:
        raise InvalidArgumentError(
            f"epochs={epochs:,} have more records than TensorFlow counts; None never ends"
        )


class Pipeline:
    """One data set in the making; the arguments are those of ``make_tf_dataset``, checked."""

    def __init__(
        self,
        stream: IndexedStream,
        batch_size: int | None,
        drop_remainder: bool,
        epochs: Epochs,
        pad: Any = None,
        ragged: bool = False,
        seed: int | None = None,
    ) -> None:
        self._order = stream.epochs.order
        self._permutations = stream.epochs.permutations
        self._claim_epoch = stream.epochs.begin_elsewhere
        self._next_epoch = stream.epochs.counter.peek
        self._window = stream.epochs.window
        # Epochs that are being read: their positions, and what announces them.
        self._readings: dict[int, tuple[PositionsOf, ReadAhead]] = {}
        # A reader of its own, for the data set may outlive the stream's.
        self._reader = copy.copy(stream.epochs.reader())
        self._spec = self._reader.spec
        self._drop_remainder = drop_remainder
        self._count = epochs
        length = self._order.epoch_length
        check_epochs(epochs, length)
        if batch_size is not None:
            tell_of_no_batches(len(stream), batch_size, drop_remainder)
            # What TensorFlow says of shapes stays, but of sizes that nobody means.
            most = largest_batch(length) if drop_remainder else max(length, 1)
            batch_size = min(batch_size, most)
        self._batch_size = batch_size
        self._padding = None if pad is None else _whole_padding(self._spec, pad)
        self._ragged = ragged
        self._seed = seed
        self._first, self._start = stream.epochs.counter.peek()
        to_tf(self._spec)  # raises where TensorFlow lacks a dtype
        leaves = list(specs.leaves(self._spec))
        if all(isinstance(leaf, specs.NoneSpec) for leaf in leaves):
            raise UnsupportedTypeError("records of nothing but None cannot be a tf.data.Dataset")
        if batch_size is not None and any(isinstance(x, specs.OptionalSpec) for x in leaves):
            raise UnsupportedTypeError("TensorFlow cannot batch optional components")

    def dataset(self) -> Any:
        calls = Calls()
        # They refer to this object, and are to go as soon as TensorFlow lets go of them.
        self._calls: Calls = weakref.proxy(calls)
        mapped = self._reader.mapped_records()
        components = [] if mapped is None else self._mapped_components(mapped)
        if mapped is not None and components:
            plan = self._by_gather(mapped.offsets, components)
        else:
            plan = self._by_rows()
        if self._seed is not None:
            plan = self._with_seeds(plan, self._seed)
        handle = calls.handle()

        def kept(start: Any) -> Any:
            if handle is not None:
                tf.identity(handle)  # captures it
            return plan(start)

        if self._count is PER_ITERATION:
            dataset = self._claimed().flat_map(kept)
        else:
            label = self._label(is_mapped=bool(components))
            dataset = label.flat_map(self._starts(), kept, self._calls)
        cardinality = self._cardinality()
        if cardinality is not None:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(cardinality))
        if self._order.num_shards > 1:
            options = tf.data.Options()
            policy = tf.data.experimental.AutoShardPolicy.OFF
            options.experimental_distribute.auto_shard_policy = policy
            dataset = dataset.with_options(options)
        self._made = weakref.ref(dataset)
        return dataset

    # Epochs

    def _starts(self) -> Any:
        """The epochs that were asked for: int64 ``[3]``, number, first record and end of each."""
        assert not isinstance(self._count, PerIteration)
        first = self._first
        end = np.iinfo("i8").max if self._count is None else first + self._count
        if not self._steps(len(self._order)):
            # TensorFlow would look for an element in all of them. The first one may have some, if
            # it was begun by another number of shards.
            end = min(end, first + 1)
        # All epochs but the first are alike.
        begun = tf.constant([self._start, self._order.stop(first)], "int64")
        whole = tf.constant([0, self._order.stop(first + 1)], "int64")
        return tf.data.Dataset.range(first, end if len(self._order) else first).map(
            lambda epoch: tf.concat([[epoch], tf.where(epoch == first, begun, whole)], axis=0)
        )

    def _label(self, is_mapped: bool) -> Label:
        pads = [] if self._padding is None else self._padding.values
        arguments = [
            *[self._batch_size, self._drop_remainder, self._ragged, self._seed, is_mapped],
            *[None if value is None else value.tolist() for value in pads],
        ]
        return Label(self._reader, self._order, self._first, self._start, arguments)

    def _claimed(self) -> Any:
        """The epoch to read, which is the stream's next, if it has any records: int64 ``[3]``."""
        return tf.data.Dataset.range(min(1, len(self._order))).map(self._claim)

    def _claim(self, _one: Any) -> Any:
        claim, look, order = self._claim_epoch, self._next_epoch, self._order
        first, whole = self._first_steps(), self._steps(len(order))
        short = ShortEpoch(first, whole) if first < whole else None

        def next_epoch() -> Array:
            made = self._made()
            if is_only_looked_at(made):
                # Keras reads it again, and counts anew.
                epoch, start = look()
            else:
                if short is not None:
                    short.check(made)
                epoch, start = claim()
                if short is not None and epoch == self._first:
                    short.begins(made)
            return np.array([epoch, start, order.stop(epoch)], "i8")

        found = self._calls.numpy_function(next_epoch, [], tf.int64, stateful=True)
        found.set_shape([3])
        return found

    def _cardinality(self) -> int | None:
        """Elements of every iteration, ``None`` where iterations differ."""
        length = len(self._order)
        if length == 0 or self._count == 0:
            return 0
        first, whole = self._first_steps(), self._steps(length)
        if self._count is None:
            return int(tf.data.INFINITE_CARDINALITY) if whole else first
        if isinstance(self._count, int):
            return first + whole * (self._count - 1)
        return whole if first == whole else None

    def _first_steps(self) -> int:
        return self._steps(self._order.stop(self._first) - self._start)

    def _steps(self, records: int) -> int:
        if self._batch_size is None:
            return records
        return (records if self._drop_remainder else records + self._batch_size - 1) // (
            self._batch_size
        )

    # Seeds

    def _with_seeds(self, plan: Plan, seed: int) -> Plan:
        """A plan of pairs: an element, and the seeds of its record or records."""
        size = self._batch_size or self._row_size
        chunk = chunk_sizes.TF_LOOKUP.of(1, size)

        def find(epoch: Array, at: Array, end: Array) -> Array:
            stop = min(int(at) + chunk, int(end))
            positions = self._permutations.positions_of(int(epoch))(int(at), stop)
            return seeding.seeds(seed, int(epoch), positions)

        def seeds(start: Any) -> Any:
            end = self._end(start)

            def row(at: Any) -> Any:
                found = self._calls.numpy_function(find, [start[0], at, end], tf.int64)
                found.set_shape([None, 2])
                return found

            rows = tf.data.Dataset.range(start[1], end, chunk).map(row)
            if self._batch_size is None:
                return rows.unbatch()
            return rows.rebatch(self._batch_size, self._drop_remainder)

        return lambda start: tf.data.Dataset.zip((plan(start), seeds(start)))

    # Rows

    def _end(self, start: Any) -> Any:
        """The end of the records of an epoch that are read."""
        return start[2] - (start[2] - start[1]) % self._whole

    def _rows(self, start: Any, size: int, row_of: RowOf | None = None, whole: int = 1) -> Any:
        """The rows of one epoch, each of ``size`` records but for the last.

        They are positions, or what ``row_of`` makes of these. What is left of the epoch after
        multiples of ``whole`` records is left out.
        """
        chunk = chunk_sizes.TF_LOOKUP.of(self._reader.record_bytes, size)
        end = start[2] - (start[2] - start[1]) % whole
        are_full = self._drop_remainder and whole % size == 0

        def look_up(epoch: Array, at: Array, end: Array) -> Array:
            stop = min(int(at) + chunk, int(end))
            positions = self._positions(int(epoch), int(at), stop, int(end))
            return positions if row_of is None else row_of(positions)

        def row(at: Any) -> Any:
            found = self._calls.numpy_function(look_up, [start[0], at, end], tf.int64)
            found.set_shape([chunk if are_full and chunk == size else None])
            return found

        rows = tf.data.Dataset.range(start[1], end, chunk).map(row)
        return rows if chunk == size else rows.rebatch(size, drop_remainder=are_full)

    def _positions(self, epoch: int, at: int, stop: int, end: int) -> Array:
        """The positions of some records of an epoch; tells the system of them and what comes soon.

        Several iterators may be in different epochs, and TensorFlow does not tell which one asks.
        Two in one epoch undo each other's work, which costs time only.
        """
        found = self._readings.pop(epoch, None)
        if found is None or at < found[1].at:
            positions = self._permutations.positions_of(epoch)
            ahead = ReadAhead(self._reader, self._order, positions, at, self._window)
            found = (positions, ahead)
        positions, ahead = found
        ahead.before(at, stop)
        if stop < end:
            # Iterators that were left before their end cannot be told from others.
            most = max(_FEWEST_READINGS, _READINGS_BYTES // (8 * max(1, len(self._order))))
            for oldest in list(self._readings)[: 1 - min(most, _MOST_READINGS)]:
                self._readings.pop(oldest, None)
            self._readings[epoch] = found
        return positions(at, stop)

    @property
    def _row_size(self) -> int:
        """Records in a row that suits reading single records."""
        return chunk_sizes.TF_ROW.of(self._reader.record_bytes)

    @property
    def _batches_per_row(self) -> int:
        """How many batches to read at once and then take apart."""
        assert self._batch_size is not None
        batch_bytes = self._batch_size * self._reader.record_bytes
        most = min(chunk_sizes.TF_ROW_BATCHES, chunk_sizes.TF_LARGE // 2 // batch_bytes)
        return max(1, most) if self._can_unbatch else 1

    def _batch_rows(self, start: Any) -> Any:
        """The rows of one epoch that are its batches."""
        assert self._batch_size is not None
        return self._rows(start, self._batch_size, whole=self._whole)

    @property
    def _whole(self) -> int:
        """The records that an epoch is to be a multiple of."""
        return self._batch_size if self._batch_size and self._drop_remainder else 1

    def _map(self, rows: Any, read: Callable[[Any], Any], size: int, parallel: int) -> Any:
        """Rows of ``size`` records as what they read; large ones ahead of time, in order."""
        if size * self._reader.record_bytes < chunk_sizes.TF_LARGE:
            return rows.map(read)
        return rows.map(read, num_parallel_calls=parallel, deterministic=True)

    # Records, by TensorFlow out of the mapped file

    def _mapped_components(self, mapped: MappedRecords) -> list[MappedComponent]:
        """One per component, none where TensorFlow cannot read the file itself."""
        components = mapped.layout.components
        plain = (specs.TensorSpec, specs.NoneSpec)
        if not all(isinstance(leaf, plain) for leaf in specs.leaves(self._spec)) or any(
            is_empty(component.spec) for component in components
        ):
            return []
        return [MappedComponent(mapped, component) for component in components]

    def _by_gather(self, offsets_of: RowOf, components: list[MappedComponent]) -> Plan:
        tables = MappedTables(components, self._calls)

        def plan(start: Any) -> Any:
            shared = tables.tensors(start)
            pairs = list(zip(components, shared, strict=True))

            def gather(offsets: Any) -> Any:
                return tuple(component.read(table, offsets) for component, table in pairs)

            def read(row: Any) -> Any:
                return self._nest(*gather(row))

            parallel = _PARALLEL_ROWS
            if self._batch_size is not None:
                size = self._batch_size * self._batches_per_row
                rows = self._rows(start, size, offsets_of, self._whole)
                batches = self._map(rows, read, size, parallel)
                if size == self._batch_size:
                    return batches
                return batches.rebatch(self._batch_size, self._drop_remainder)
            size = self._row_size
            rows = self._rows(start, size, offsets_of)
            if self._can_unbatch:
                return self._map(rows, read, size, parallel).unbatch()
            return self._map(rows, gather, size, parallel).unbatch().map(self._nest)

        return plan

    @property
    def _can_unbatch(self) -> bool:
        """Whether batches can be taken apart as they are: no ``None``, no stand-in dtypes."""
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

    def _by_rows(self) -> Plan:
        reader = RowReader(self._reader, self._calls)
        stacks = all(
            isinstance(leaf, specs.NoneSpec)
            or (
                isinstance(leaf, specs.TensorSpec)
                and leaf.static_shape is not None
                and not is_empty(leaf)
            )
            for leaf in specs.leaves(self._spec)
        )
        if self._padding is not None and not stacks:
            for leaf in specs.leaves(self._spec):
                if not isinstance(leaf, specs.TensorSpec):
                    raise UnsupportedTypeError(
                        f"TensorFlow cannot pad batches of records with components as {leaf}; read "
                        "single records and map them to some without, then padded_batch"
                    )

        def plan(start: Any) -> Any:
            size, parallel = self._batch_size, _PARALLEL_NUMPY_ROWS
            row_size = chunk_sizes.TF_NUMPY_ROW.of(self._reader.record_bytes)
            if size is not None and stacks:
                rows = self._batch_rows(start)
                return self._map(
                    rows, lambda row: self._nest(*reader.read(row)[1:]), size, parallel
                )
            if size is not None and self._ragged and reader.is_plain:
                row_size = chunk_sizes.TF_NUMPY_ROW.of(self._reader.record_bytes, size)
                rows = self._rows(start, row_size, whole=self._whole)
                parts = self._map(rows, reader.read, row_size, parallel)
                batches = functools.partial(reader.ragged_batches, size, self._drop_remainder)
                return parts.flat_map(batches)
            rows = self._rows(start, row_size)
            records = self._map(rows, reader.read, row_size, parallel).flat_map(reader.records)
            if size is not None and self._padding is not None and reader.is_plain:
                return reader.finished(self._padded(records, self._padding, words=True))
            elements = reader.finished(records)
            return elements if size is None else self._batched(elements)

        return plan

    def _batched(self, elements: Any) -> Any:
        size, drop = self._batch_size, self._drop_remainder
        if self._ragged:
            return elements.ragged_batch(size, drop)
        if self._padding is None:
            # Of a map and a batch right behind it, TensorFlow makes one step, which takes arrays of
            # as many items for arrays of the same shape.
            return elements.take(np.iinfo("i8").max).batch(size, drop)
        return self._padded(elements, self._padding, words=False)

    def _padded(self, elements: Any, padding: Padding, words: bool) -> Any:
        """Padded batches of records, which may still be words (see ``_words``)."""

        def constant(leaf: Any, value: Array | None) -> Any:
            if value is None:
                return None
            if not words:
                return tf.constant(value.tolist(), to_tf(leaf).dtype)
            word = dtypes.to_numpy(_words.carrier(leaf.dtype))
            return tf.constant(as_words(value.reshape(1), word)[0])

        pairs = zip(specs.leaves(self._spec), padding.values, strict=True)
        values = specs.unflatten(self._spec, [constant(*pair) for pair in pairs])
        size, drop = self._batch_size, self._drop_remainder
        return elements.padded_batch(size, padding_values=values, drop_remainder=drop)


def _whole_padding(spec: specs.Structure, pad: Any) -> Padding:
    """How to pad all leaves whose shape varies.

    Raises:
        InvalidArgumentError: one is left alone, which TensorFlow would pad with its own default.
    """
    padding = Padding(spec, pad)
    for leaf, value in zip(specs.leaves(spec), padding.values, strict=True):
        if value is None and isinstance(leaf, specs.TensorSpec) and leaf.static_shape is None:
            raise InvalidArgumentError(
                f"pad={pad!r} leaves {leaf} alone, whose shape varies; give a number, or "
                "use padded_batch on single records"
            )
    return padding
