"""Samplers that give the positions of a stream's records, in its order."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from yogadl.arguments import as_index
from yogadl.cache.record_reader import RecordReader
from yogadl.dataref import IndexedDataRef, state_of
from yogadl.dataref._place import Place
from yogadl.dataref._state import resume
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.orders import Order, Permutations
from yogadl.seeding import SeededTransform
from yogadl.shuffles import Shuffle
from yogadl.torch import _callers
from yogadl.torch._map import MapDataset
from yogadl.torch._runs import Position

torch = require("torch", "torch")

_CHUNK = 8192
_Sampler: Any = torch.utils.data.Sampler


class _Records:
    """As much of a reader as a state needs. The content id is found when it is first asked for."""

    def __init__(self, count: int, dataref: IndexedDataRef | None, content_id: str = "") -> None:
        self.count = count
        self._dataref = dataref
        self._content_id = content_id

    def __len__(self) -> int:
        return self.count

    @property
    def content_id(self) -> str:
        dataref = self._dataref
        if dataref is not None:
            self._content_id = dataref.reader.content_id
            self._dataref = None
        return self._content_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.count, None, self.content_id)


class Sampler(_Sampler):  # type: ignore[misc] # known at run time only
    """The positions of a data set's records, in the order of ``dataref.stream`` of these arguments.

    For the ``sampler`` of a ``DataLoader``. Every iteration is the next epoch, which is used up
    when its first position is asked for. For one thread at a time; can be pickled, without
    iterators.

    Args:
        data: a data set, a ``MapDataset`` of it, or the number of its records. Given a
            ``MapDataset`` with a seeded transform, positions are of the class ``Position``, which
            say the epoch. Given a number, states cannot tell data sets of the same length apart.
            The other arguments are those of ``IndexedDataRef.stream`` of the same names; where to
            begin is told by :meth:`load_state_dict`.

    Raises:
        InvalidArgumentError: an argument is out of range, or the seed is missing.
    """

    def __init__(
        self,
        data: IndexedDataRef | MapDataset | int,
        *,
        shuffle: bool | Shuffle = False,
        shuffle_seed: int | None = None,
        skip_shuffle_at_epoch_end: bool = False,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
        shuffle_then_shard: bool = False,
    ) -> None:
        self._with_epochs = False
        if isinstance(data, MapDataset):
            self._with_epochs = isinstance(data.transform, SeededTransform)
            data = data.dataref
        if isinstance(data, IndexedDataRef):
            self._records = _Records(len(data), data)
        else:
            self._records = _Records(as_index("data, if it is not a DataRef,", data), None)
        self._order = Order.of_stream(
            record_count=self._records.count,
            shuffle=shuffle,
            skip_shuffle_at_epoch_end=skip_shuffle_at_epoch_end,
            shuffle_seed=shuffle_seed,
            shard_rank=shard_rank,
            num_shards=num_shards,
            drop_shard_remainder=drop_shard_remainder,
            shuffle_then_shard=shuffle_then_shard,
        )
        self._permutations = Permutations(self._order)
        self._next = (0, 0)
        self._last: EpochPositions | None = None

    def __len__(self) -> int:
        """Positions per epoch; an offset does not make them fewer."""
        return len(self._order)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._order.in_words()})"

    def __iter__(self) -> EpochPositions:
        return EpochPositions(self)

    def set_epoch(self, epoch: int) -> None:
        """Makes an epoch, counted from 0, the next one."""
        self._next, self._last = (as_index("epoch", epoch), 0), None

    def state_dict(self) -> dict[str, Any]:
        """The place: what comes next after what was taken from the iterator begun last.

        A ``DataLoader`` with workers takes positions ahead of the batches that it gives out; save
        the state of torchdata's ``StatefulDataLoader`` instead, which takes that into account.

        Returns:
            A state as of ``IndexedStream.state_dict``, which ``DataRef.stream(state=…)`` takes.

        Raises:
            ClosedError: the DataRef was closed before its first state was taken.
            InvalidArgumentError: a ``DataLoader`` takes positions for its workers.
        """
        epoch, offset = self._next
        if self._last is not None:
            if self._last.is_ahead:
                raise InvalidArgumentError(
                    "a DataLoader takes positions for its workers, ahead of the batches that it "
                    "gives out, so the sampler does not know which you have had; save the "
                    "state_dict() of torchdata's StatefulDataLoader, or use num_workers=0"
                )
            if not self._last.is_finished:
                epoch, offset = self._last.next_place()
        return self._state(epoch, offset)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on at a place that :meth:`state_dict` gave: the next iterator begins there.

        Raises:
            StateMismatchError: it is of another data set or order; or, but for
                ``shuffle_then_shard``, of another shard.
            InvalidArgumentError: it is no state.
        """
        self._next, self._last = self._resume(state), None

    def _state(self, epoch: int, offset: int) -> dict[str, Any]:
        return state_of(cast("RecordReader", self._records), self._order, epoch, offset)

    def _resume(self, state: Mapping[str, Any]) -> tuple[int, int]:
        reader = cast("RecordReader", self._records)
        return resume(state, reader, self._order, self._order)[1:]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_last": None}


class EpochPositions(Iterator[int]):
    """An iterator over the positions of one epoch, the sampler's next when it is begun.

    ``StatefulDataLoader`` saves and restores it.

    Attributes:
        is_finished: whether it has ended.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.is_finished = False
        # Who takes them ahead of its batches, if that is so, and is not over.
        self._taker: Callable[[], Any] | None = None
        # A DataLoader makes iterators that it never uses, so nothing is begun yet.
        self._positions: Iterator[Any] | None = None

    def _begin(self, epoch: int, offset: int) -> None:
        self._epoch = epoch
        self._order, self._number = self._sampler._order.beginning_at(epoch, offset)
        self._positions = self._items()
        self._sampler._next, self._sampler._last = (epoch + 1, 0), self

    def _items(self) -> Iterator[Any]:
        numbers = map(np.ndarray.tolist, self._chunks(1))
        return itertools.chain.from_iterable(map(self._with_epoch, numbers))

    def _with_epoch(self, numbers: list[int]) -> list[int]:
        """Positions that say the epoch, if the data set needs it."""
        if not self._sampler._with_epochs:
            return numbers
        return [Position(number, self._epoch) for number in numbers]

    def _chunks(self, batch_size: int) -> Iterator[np.ndarray[Any, Any]]:
        """The positions that are left of the epoch, in pieces of many whole batches."""
        order, epoch = self._order, self._epoch
        permutation = self._sampler._permutations.of_epoch(epoch)
        size = max(1, _CHUNK // batch_size) * batch_size
        for start in range(self._number, order.stop(epoch), size):
            yield order.positions(permutation, epoch, start, start + size)

    def _next(self) -> Any:
        """The next of the items."""
        if self._positions is None:
            self._begin(*self._sampler._next)
            taker = _callers.taker_ahead()
            self._taker = None if taker is None else weakref.ref(taker)
            assert self._positions is not None
        try:
            return next(self._positions)
        except StopIteration:
            self.is_finished = True
            raise

    def __next__(self) -> int:
        position: int = self._next()
        self._number += 1
        return position

    @property
    def is_ahead(self) -> bool:
        """Whether there may be no batches yet of the last that were taken."""
        if self._taker is None:
            return False
        taker = self._taker()
        return not self.is_finished or (taker is not None and _callers.has_taken_ahead(taker))

    def next_place(self) -> tuple[int, int]:
        """The epoch and the offset that come next, in the next epoch if this one is over."""
        return self._place().what_comes()

    def _place(self) -> Place:
        if self._positions is None:
            return Place.at(self._sampler._order, *self._sampler._next)
        return Place(self._order, self._epoch, self._number)

    def state_dict(self) -> dict[str, Any]:
        """The place, which is the end of the epoch after its last position."""
        place = self._place()
        return self._sampler._state(place.epoch, place.offset)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where an iterator stood; the sampler goes on with the epoch after.

        Raises:
            StateMismatchError, InvalidArgumentError: see ``Sampler.load_state_dict``.
        """
        epoch, offset = self._sampler._resume(state)
        if epoch == state["epoch"]:
            self._begin(epoch, offset)
            return
        # There was nothing left of the epoch.
        self._positions = iter(())
        self._epoch, self._order = epoch - 1, self._sampler._order
        self._number = self._order.stop(epoch - 1)
        self._sampler._next, self._sampler._last = (epoch, 0), self


class DistributedSampler(Sampler):
    """A ``Sampler`` for this rank of ``torch.distributed``, which must be initialized.

    With ``drop_shard_remainder=True``, all ranks have the same number of records, as
    ``DistributedDataParallel`` needs it.

    The arguments are those of ``Sampler``.

    Raises:
        InvalidArgumentError: ``torch.distributed`` is not initialized, an argument is out of range,
            or the seed is missing.
    """

    def __init__(
        self,
        data: IndexedDataRef | MapDataset | int,
        *,
        shuffle: bool | Shuffle = False,
        shuffle_seed: int | None = None,
        skip_shuffle_at_epoch_end: bool = False,
        drop_shard_remainder: bool = False,
        shuffle_then_shard: bool = False,
    ) -> None:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            raise InvalidArgumentError(
                "DistributedSampler takes the rank from torch.distributed, which is not "
                "initialized; call torch.distributed.init_process_group() first, or give Sampler "
                "shard_rank= and num_shards="
            )
        super().__init__(
            data,
            shuffle=shuffle,
            shuffle_seed=shuffle_seed,
            skip_shuffle_at_epoch_end=skip_shuffle_at_epoch_end,
            shard_rank=distributed.get_rank(),
            num_shards=distributed.get_world_size(),
            drop_shard_remainder=drop_shard_remainder,
            shuffle_then_shard=shuffle_then_shard,
        )
