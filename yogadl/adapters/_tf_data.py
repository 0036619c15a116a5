"""``tf.data.Dataset``: rows are pulled out of TensorFlow many at a time where the spec allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from yogadl import chunk_sizes
from yogadl import spec as specs
from yogadl.adapters._base import Source
from yogadl.cache.writer import CacheWriter
from yogadl.errors import InfiniteDatasetError, UnsupportedTypeError
from yogadl.extras import require
from yogadl.format.contents import Packed
from yogadl.format.layout import Kind, RecordLayout
from yogadl.format.rows import are_simple
from yogadl.tf_specs import BATCHABLE, from_tf

tf = require("tensorflow", "tensorflow")


class TfDatasetSource(Source):
    """The elements of a ``tf.data.Dataset``, in eager or graph mode.

    Raises:
        InfiniteDatasetError: its cardinality says that it never ends.
        UnsupportedTypeError: it has components that a cache cannot hold.
    """

    def __init__(self, dataset: Any, tensorflow_config: Any = None) -> None:
        self._dataset = dataset
        self.tensorflow_config = tensorflow_config
        self.spec = from_tf(tf.data.experimental.get_structure(dataset))
        eager = tf.executing_eagerly()
        if not eager and any(isinstance(x, specs.OptionalSpec) for x in specs.leaves(self.spec)):
            raise UnsupportedTypeError("optional components can be stored in eager mode only")
        self.count = _cardinality(dataset) if eager else None

    def feed(self, writer: CacheWriter) -> None:
        if not tf.executing_eagerly():
            for element in graph_mode_elements(self._dataset, self.tensorflow_config):
                writer.append(to_record(self.spec, element))
            return
        layout = RecordLayout(self.spec)
        plain = all(
            isinstance(leaf, specs.TensorSpec) and leaf.dtype in BATCHABLE
            for leaf in specs.leaves(self.spec)
        )
        if plain and layout.content_size is not None and layout.components:
            rows = chunk_sizes.SUBMITTED.of(layout.content_size)
            if self.count is None:
                rows = min(rows, chunk_sizes.SUBMITTED_BLINDLY)
            for columns, count in self._batches(self._dataset.batch(rows)):
                writer.append_columns(columns, count)
        elif plain and layout.components and all(_can_split(part) for part in layout.components):
            for columns, count in self._batches(
                self._dataset.ragged_batch(chunk_sizes.SUBMITTED_BLINDLY)
            ):
                if are_simple(layout):
                    writer.append_columns([_packed(column) for column in columns], count)
                    continue
                split = [_split(column, count) for column in columns]
                for row in zip(*split, strict=True):
                    writer.append(specs.unflatten(self.spec, row))
        else:
            for element in self._dataset:
                writer.append(to_record(self.spec, element))

    def _batches(self, batched: Any) -> Iterator[tuple[list[Any], int]]:
        """Columns of some records and their number, the next being made meanwhile."""
        for batch in batched.prefetch(1):
            columns = specs.flatten(self.spec, batch)
            arrays = [
                column if isinstance(column, tf.RaggedTensor) else column.numpy()
                for column in columns
            ]
            yield arrays, int(columns[0].shape[0])


def _cardinality(dataset: Any) -> int | None:
    cardinality = int(dataset.cardinality().numpy())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise InfiniteDatasetError(
            "the data set is infinite and cannot be stored; submit it before repeat(), or end it "
            "with take(n). To read a stored one for ever, use make_tf_dataset(stream, epochs=None)"
        )
    return None if cardinality < 0 else cardinality


def _can_split(component: Any) -> bool:
    """Whether rows of a component can be told apart again after ``ragged_batch``.

    With an unknown dimension other than the first, an empty row would lose those behind it.
    """
    if component.spec.static_shape is not None:
        return True
    return component.kind is Kind.FLAT and component.unknown_axis == 0


def _packed(column: Any) -> Any:
    """A column to be written; one that varies in length is not taken apart."""
    if not isinstance(column, tf.RaggedTensor):
        return column
    values, splits = np.ascontiguousarray(column.values.numpy()), column.row_splits.numpy()
    size = values[:1].nbytes
    return Packed.between(values.reshape(-1).view("u1"), splits.astype("i8") * size)


def _split(column: Any, count: int) -> Sequence[Any]:
    if isinstance(column, tf.RaggedTensor):
        splits = column.row_splits.numpy()
        return np.split(column.values.numpy(), splits[1:-1]) if count else []
    return column  # type: ignore[no-any-return] # an array, whose rows are the values


def to_record(spec: specs.Structure, element: Any) -> Any:
    """An element of a data set (tensors, or the values a session gives for them) as a record."""
    values = [
        _to_value(leaf, value)
        for leaf, value in zip(specs.leaves(spec), specs.flatten(spec, element), strict=True)
    ]
    return specs.unflatten(spec, values)


def _to_value(leaf: specs.Leaf, value: Any) -> Any:
    if isinstance(leaf, specs.RaggedSpec):
        splits = tuple(_numpy(part) for part in value.nested_row_splits)
        return specs.Ragged(_numpy(value.flat_values), splits)
    if isinstance(leaf, specs.SparseSpec):
        parts = (value.indices, value.values, value.dense_shape)
        return specs.Sparse(*[_numpy(part) for part in parts])
    if isinstance(leaf, specs.OptionalSpec):
        return to_record(leaf.value, value.get_value()) if value.has_value() else None
    return None if isinstance(leaf, specs.NoneSpec) else _numpy(value)


def _numpy(value: Any) -> Any:
    return value.numpy() if isinstance(value, tf.Tensor) else value


def graph_mode_elements(dataset: Any, config: Any) -> Iterator[Any]:
    """The elements of a data set of graph mode, through a session of its own.

    Args:
        config: a ``tf.compat.v1.ConfigProto`` or ``None``.
    """
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    following = iterator.get_next()
    wanted = [part for part in tf.nest.flatten(following) if part is not None]
    with tf.compat.v1.Session(graph=iterator.initializer.graph, config=config) as session:
        session.run([iterator.initializer, tf.compat.v1.tables_initializer()])
        while True:
            try:
                values = session.run(wanted)
            except tf.errors.OutOfRangeError:
                return
            yield _with_values(following, iter(values))


def _with_values(structure: Any, values: Iterator[Any]) -> Any:
    return tf.nest.map_structure(lambda part: None if part is None else next(values), structure)
