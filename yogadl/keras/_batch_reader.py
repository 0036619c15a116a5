"""Batches as Keras takes them, by the positions of their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import chunk_sizes
from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.memory import MemoryPool
from yogadl.dataref import IndexedDataRef, Padding
from yogadl.errors import UnsupportedTypeError
from yogadl.format.layout import FixedArray, RecordLayout
from yogadl.seeding import Transform, check_transform, transformed_batch

Array = np.ndarray[Any, Any]


class BatchReader:
    """Reads batches of a data set, pads and transforms them.

    Safe for threads and forks if ``transform`` is; can be pickled if it can.

    Args:
        dataref: the data set.
        pad: as in ``IndexedStream.batches``.
        transform: makes of a batch what the model takes.

    Raises:
        UnsupportedTypeError: without ``transform``, records that Keras does not take.
        InvalidArgumentError: ``pad`` does not fit the spec.
    """

    def __init__(self, dataref: IndexedDataRef, pad: Any, transform: Transform | None) -> None:
        self._dataref = dataref
        self._padding = None if pad is None else Padding(dataref.spec, pad)
        self._transform = check_transform(transform)
        self._pool = MemoryPool()
        # Only what is numbers of static shape can be read into given memory.
        layout = RecordLayout(dataref.spec)
        plain = all(isinstance(leaf, specs.TensorSpec) for leaf in specs.leaves(dataref.spec))
        self._record_bytes = (layout.content_size or 0) if plain else 0
        self._arrays = [
            (place.shape, place.dtype, place.nbytes)
            for component in layout.components
            for place in component.arrays
            if isinstance(place, FixedArray)
        ]
        if transform is None:
            self._check_spec()

    @property
    def is_padding(self) -> bool:
        """Whether the arrays of a batch are as large as its records need."""
        return self._padding is not None

    def read(self, epoch: int, positions: Array) -> Any:
        """The batch of the records at some positions, int64 ``[n]``, in an epoch."""
        if self._padding is not None:
            return self._nest(self._padded(positions), epoch, positions)
        reader = self._dataref.reader
        self._dataref.announcer.before(reader, positions)
        columns = reader.read_columns(positions, self._memory(len(positions)))
        return self._nest(columns, epoch, positions)

    def _memory(self, count: int) -> list[Array] | None:
        """Where to read a batch to, if it is so large that memory of earlier ones pays."""
        if count * self._record_bytes < chunk_sizes.KERAS_LARGE:
            return None
        return [
            (self._pool.empty if count * nbytes >= chunk_sizes.KERAS_LARGE else np.empty)(
                (count, *shape), dtype
            )
            for shape, dtype, nbytes in self._arrays
        ]

    def read_unlike(self, epoch: int, positions: Array, others: Array) -> Any:
        """A batch whose padded arrays differ in shape from those of another batch.

        Where both are equally large, that of this batch is padded by one more: who infers from two
        batches which dimensions vary must not take one of these for fixed.
        """
        columns = self._padded(positions)
        others_columns = self._padded(others)
        assert self._padding is not None
        for number, leaf in enumerate(specs.leaves(self._dataref.spec)):
            value = self._padding.values[number]
            if value is None:
                continue
            assert isinstance(leaf, specs.TensorSpec)
            assert leaf.shape is not None
            column = np.asarray(columns[number])
            other = np.asarray(others_columns[number])
            widths = [(0, 0)]
            for axis, dim in enumerate(leaf.shape, 1):
                is_alike = dim is None and column.shape[axis] == other.shape[axis]
                widths.append((0, int(is_alike)))
            columns[number] = np.pad(column, widths, constant_values=value)
        return self._nest(columns, epoch, positions)

    def _padded(self, positions: Array) -> list[Column]:
        assert self._padding is not None
        reader = self._dataref.reader
        self._dataref.announcer.before(reader, positions)
        return self._padding.apply(reader.read_columns(positions, spans=True))

    def _nest(self, columns: Sequence[Column], epoch: int, positions: Array) -> Any:
        batch = specs.unflatten(self._dataref.spec, columns)
        if self._transform is None:
            return batch
        return transformed_batch(self._transform, batch, epoch, positions)

    def _check_spec(self) -> None:
        spec = self._dataref.spec
        if isinstance(spec, tuple) and not 1 <= len(spec) <= 3:
            raise UnsupportedTypeError(
                "Keras takes records of the form (x,), (x, y), (x, y, sample_weight) or a dict, "
                f"and these are tuples of {len(spec)}; give transform=, which makes such a tuple "
                "of a batch"
            )
        padded = [None] if self._padding is None else self._padding.values
        for number, leaf in enumerate(specs.leaves(spec)):
            is_padded = self._padding is not None and padded[number] is not None
            if not isinstance(leaf, specs.TensorSpec) or leaf.is_string:
                raise UnsupportedTypeError(
                    f"Keras takes arrays of numbers only, not {leaf}; give transform=, which makes "
                    "such arrays of a batch"
                )
            if leaf.static_shape is None and not is_padded:
                raise UnsupportedTypeError(
                    f"records of varying shape, {leaf}, are not one array; give pad= to fill them "
                    "up, or transform= to make an array of a list of them"
                )
