"""Batches of positions that let a ``MapDataset`` read several batches at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yogadl.arguments import as_flag, as_index
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.torch._runs import BatchPositions, Run
from yogadl.torch._sampler import EpochPositions, Sampler

torch = require("torch", "torch")

_BatchSampler: Any = torch.utils.data.BatchSampler


class BatchSampler(_BatchSampler):  # type: ignore[misc] # known at run time only
    """The batches of a sampler's positions, for the ``batch_sampler`` of a ``DataLoader``.

    The batches are those of ``DataLoader(sampler=sampler, batch_size=…)``. Without workers, a
    ``MapDataset`` reads up to 2 MiB of them at once, which is faster where records are small; a
    tensor of a batch then keeps that much memory. Workers read each batch by itself.

    For one thread at a time; can be pickled, without iterators.

    Args:
        sampler: gives the positions.
        batch_size: positions in a batch, at least 1; the last of an epoch may have fewer.
        drop_last: leave out an epoch's last batch if it has fewer.

    Raises:
        InvalidArgumentError: the sampler is another one, or the size is no positive integer.
    """

    def __init__(self, sampler: Sampler, batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(sampler, Sampler):
            raise InvalidArgumentError(
                f"BatchSampler takes a yogadl.torch.Sampler or DistributedSampler, not "
                f"{sampler!r:.100}; for others, there is torch.utils.data.BatchSampler"
            )
        size = as_index("batch_size", batch_size, minimum=1)
        super().__init__(sampler, size, as_flag("drop_last", drop_last))

    def __iter__(self) -> PositionBatches:
        return PositionBatches(self.sampler, self.batch_size, self.drop_last)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sampler!r}, batch_size={self.batch_size})"

    def state_dict(self) -> dict[str, Any]:
        """See ``Sampler.state_dict``."""
        state: dict[str, Any] = self.sampler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Sampler.load_state_dict``."""
        self.sampler.load_state_dict(state)


class PositionBatches(EpochPositions):
    """An iterator over the batches of one epoch; see ``EpochPositions``."""

    def __init__(self, sampler: Sampler, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler)
        self._batch_size = batch_size
        self._drop_last = drop_last

    def _items(self) -> Iterator[BatchPositions]:
        size = self._batch_size
        for chunk in self._chunks(size):
            run = Run(chunk, size)
            for start in range(0, len(chunk), size):
                positions = self._with_epoch(run.numbers[start : start + size])
                yield BatchPositions(positions, self._epoch, run, start)

    def __next__(self) -> BatchPositions:  # type: ignore[override] # of batches, not of positions
        batch: BatchPositions = self._next()
        self._number += len(batch)
        if self._drop_last:
            stop = self._order.stop(self._epoch)
            if len(batch) < self._batch_size:
                self._number = stop
                self.is_finished = True
                raise StopIteration
            if stop - self._number < self._batch_size:
                # What is left is dropped, so the next place is in the next epoch.
                self._number = stop
        return batch
