"""``make_tf_dataset``: a stream as a ``tf.data.Dataset``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.arguments import as_flag, as_index
from yogadl.core import Stream
from yogadl.dataref import IndexedStream
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.seeding import check_seed
from yogadl.tensorflow._pipeline import (
    PER_ITERATION,
    Epochs,
    Pipeline,
    check_epochs,
    largest_batch,
)

tf = require("tensorflow", "tensorflow")


def make_tf_dataset(
    stream: Stream,
    *,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    epochs: Epochs = PER_ITERATION,
    pad: Any = None,
    ragged: bool = False,
    seeds: int | None = None,
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
            ``tf.train.Checkpoint``, to the exact next element; restoring it over other data,
            another order or other batches is an error that says so. Keras's ``fit`` takes the
            length of its first epoch for all, so fit what is left of an interrupted epoch by
            itself.
        pad: with ``batch_size``, pad arrays of varying shape to the largest of their batch with
            this number, as ``padded_batch`` does; or a nest of numbers, ``None`` for leaves to
            leave alone.
        ragged: with ``batch_size``, make ragged tensors of arrays of varying shape, as
            ``ragged_batch`` does.
        seeds: make pairs, of an element and of seeds for augmentation: int64 ``[2]`` for a record,
            ``[n, 2]`` for a batch, as ``tf.random.stateless_uniform`` takes them. They are derived
            from this number, in ``[0, 2**64)``, and from the epoch and the position of each record,
            as :func:`yogadl.seeding.seeds` does, so they do not depend on ranks, batches or
            resuming.

    Returns:
        A ``tf.data.Dataset``. Its cardinality is known where it is the same for every iteration.
        It is not sharded again by ``tf.distribute`` if the stream has shards of its own.

    Raises:
        InvalidArgumentError: an argument is out of range.
        UnsupportedTypeError: TensorFlow has no such dtype, or cannot batch such components.
        ClosedError: the stream or its DataRef is closed.
    """
    drop_remainder, ragged = as_flag("drop_remainder", drop_remainder), as_flag("ragged", ragged)
    if batch_size is not None:
        batch_size = as_index("batch_size", batch_size, 1)
    elif drop_remainder:
        raise InvalidArgumentError("drop_remainder=True needs a batch_size")
    elif pad is not None or ragged:
        raise InvalidArgumentError("pad= and ragged=True need a batch_size")
    if pad is not None and ragged:
        raise InvalidArgumentError("pad= and ragged=True exclude each other")
    seeds = None if seeds is None else check_seed(seeds)
    if epochs is not None and epochs is not PER_ITERATION:
        epochs = as_index("epochs", epochs)
    if not isinstance(stream, Stream):
        raise InvalidArgumentError(
            f"make_tf_dataset takes a Stream, as dataref.stream() makes it, not a "
            f"{type(stream).__name__}: {stream!r:.100}"
        )
    if isinstance(stream, IndexedStream):
        # The pipeline's functions are TensorFlow code as they stand.
        build = tf.autograph.experimental.do_not_convert(Pipeline.dataset)
        pipeline = Pipeline(stream, batch_size, drop_remainder, epochs, pad, ragged, seeds)
        return build(pipeline)
    if seeds is not None:
        raise InvalidArgumentError(
            "seeds= needs a stream of DataRef.stream, which knows the positions of its records"
        )
    if pad is not None or ragged:
        raise InvalidArgumentError(
            "pad= and ragged=True need a stream of DataRef.stream; for others, use padded_batch or "
            "ragged_batch"
        )
    return _from_generator(stream, batch_size, drop_remainder, epochs)


def _from_generator(
    stream: Stream, batch_size: int | None, drop_remainder: bool, epochs: Epochs
) -> Any:
    """Any stream, record by record through Python."""
    if stream.output_types is None:
        raise InvalidArgumentError(
            "the stream has no output_types, without which TensorFlow cannot read it; give "
            "Stream(..., output_types=..., output_shapes=...)"
        )
    types, shapes = stream.output_types, stream.output_shapes
    check_epochs(epochs, 1)

    def records() -> Iterator[Any]:
        for record in stream.iterator_fn():
            yield specs.map_nest(_as_of, types, record)

    dataset = tf.data.Dataset.from_generator(records, output_signature=_signature(types, shapes))
    if batch_size is not None:
        # The length is what its author says, and may be none.
        is_known = drop_remainder and isinstance(stream.length, int)
        most = largest_batch(stream.length) if is_known else np.iinfo("i8").max
        dataset = dataset.batch(min(batch_size, most), drop_remainder)
    return dataset if epochs is PER_ITERATION else dataset.repeat(epochs)


def _signature(types: Any, shapes: Any) -> Any:
    """The element spec of a nest of dtypes, and of one of shapes, which may end sooner."""
    if isinstance(types, dict):
        return {key: _signature(types[key], _child(shapes, key)) for key in types}
    if isinstance(types, tuple | list):
        parts = [_signature(part, _child(shapes, at)) for at, part in enumerate(types)]
        return specs.tuple_like(types, parts)
    return tf.TensorSpec(tf.TensorShape(shapes), types)


def _child(shapes: Any, key: Any) -> Any:
    return None if shapes is None else shapes[key]


def _as_of(dtype: Any, value: Any) -> Any:
    """A number as of a dtype, as ``output_types`` had it cast."""
    if tf.is_tensor(value) or dtype == tf.string:
        return value
    return np.asarray(value, tf.as_dtype(dtype).as_numpy_dtype)
