"""Data sets as sources of Grain, and yogadl's orders as its samplers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import seeding
from yogadl import spec as specs
from yogadl.arguments import as_index
from yogadl.cache.columns import records_of
from yogadl.dataref import IndexedDataRef
from yogadl.dataref._stream import IndexedStream
from yogadl.errors import InvalidArgumentError, RecordIndexError, UnsupportedTypeError
from yogadl.extras import require
from yogadl.orders import Permutations


class GrainSource:
    """A data set as a Grain ``RandomAccessDataSource``, for ``MapDataset.source`` and
    ``DataLoader``.

    Element ``i`` is ``dataref[i]``; Grain's transformations decide the order. Where Grain asks for
    many elements at once, they are read as one batch. Safe for threads and forks; can be pickled
    for worker processes if the DataRef can. Its ``repr`` names the contents, so that a position
    that Grain saved is refused on another data set. Needs neither Grain nor JAX itself.

    Args:
        dataref: the data set.

    Raises:
        UnsupportedTypeError: whole records may be ``None``, which Grain takes for filtered out.
    """

    def __init__(self, dataref: IndexedDataRef) -> None:
        if not isinstance(dataref, IndexedDataRef):
            raise InvalidArgumentError(
                f"GrainSource takes a DataRef with random access, not a {type(dataref).__name__}"
            )
        if isinstance(dataref.spec, specs.NoneSpec | specs.OptionalSpec):
            raise UnsupportedTypeError(
                "records that may be None cannot be read by Grain, which leaves them out; store "
                "them as one component of a dict or tuple"
            )
        self.dataref = dataref

    def __len__(self) -> int:
        return len(self.dataref)

    def __getitem__(self, index: int) -> Any:
        """The record at a position, with NumPy arrays.

        Raises:
            RecordIndexError: there is no such record.
        """
        return self.dataref[index]

    def _getitems(self, indices: Sequence[int]) -> list[Any]:
        """The records at some positions; Grain's name for it."""
        spec = self.dataref.spec
        columns = specs.flatten(spec, self.dataref.read(np.asarray(indices, np.int64)))
        return list(records_of(spec, columns))

    def __repr__(self) -> str:
        reader = self.dataref.reader
        return f"GrainSource({len(reader):,} records, {reader.content_id})"


class FrozenSampler:
    """A Grain sampler that follows the order of a stream, for ``grain.DataLoader``.

    Index ``i`` is the ``i``-th record from where the stream stands; the stream itself is not moved.
    The shard is the stream's, so give the loader ``shard_options=grain.sharding.NoSharding()``.
    Safe for threads; can be pickled. Its ``repr`` names the order, so that a position that Grain
    saved is refused in another one.

    Args:
        stream: of the data set that the loader reads.
        epochs: how many, the first of which may be partly over.
        seed: for the random generators that Grain hands to its random transformations, in
            ``[0, 2**64)``: those of ``yogadl.seeded``, of the epoch and position of each record.
            ``None`` for none.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """

    def __init__(self, stream: IndexedStream, epochs: int = 1, seed: int | None = None) -> None:
        if not isinstance(stream, IndexedStream):
            raise InvalidArgumentError(
                f"FrozenSampler takes a stream of a data set with random access, not a "
                f"{type(stream).__name__}"
            )
        self._metadata = require("grain", "grain").RecordMetadata
        self._order = stream.epochs.order
        self._epoch, self._start = stream.epochs.counter.peek()
        self._epochs = as_index("epochs", epochs, 1)
        self._seed = None if seed is None else seeding.check_seed(seed)
        # Those who read ahead go to and fro between one epoch and the next: a permutation for each.
        self._permutations = (Permutations(self._order), Permutations(self._order))

    def __len__(self) -> int:
        return self._left + (self._epochs - 1) * len(self._order)

    @property
    def _left(self) -> int:
        """Records left of the first epoch."""
        return self._order.stop(self._epoch) - self._start

    def __getitem__(self, index: int) -> Any:
        """The ``grain.RecordMetadata`` of a place, whose ``record_key`` is the record's position.

        Raises:
            RecordIndexError: it is not in ``[0, len(self))``.
        """
        if not 0 <= index < len(self):
            raise RecordIndexError(f"there is no place {index}: the sampler has {len(self)}")
        epoch, number = self._epoch, self._start + index
        if index >= self._left:
            later, number = divmod(index - self._left, len(self._order))
            epoch += 1 + later
        permutation = self._permutations[epoch % 2].of_epoch(epoch)
        (position,) = self._order.positions(permutation, epoch, number, number + 1).tolist()
        generator = None
        if self._seed is not None:
            generator = seeding.generator(self._seed, epoch, position)
        return self._metadata(index=index, record_key=position, rng=generator)

    def __repr__(self) -> str:
        return (
            f"FrozenSampler({self._order}, epoch={self._epoch}, start={self._start}, "
            f"epochs={self._epochs}, seed={self._seed})"
        )
