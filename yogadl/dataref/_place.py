"""Where one stands in the epochs of an order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from yogadl.cache.record_reader import RecordReader
from yogadl.dataref._state import state_of
from yogadl.orders import Order


@dataclass(frozen=True)
class Place:
    """A place before a record of an epoch, or at its end.

    Attributes:
        order: of who began there, or earlier in that epoch; see ``Order.beginning_at``.
        epoch: which one.
        number: of the record in the shard's epoch; at the end, how many it has.
    """

    order: Order
    epoch: int
    number: int

    @classmethod
    def at(cls, order: Order, epoch: int, offset: int) -> Place:
        """The place of who begins at an offset of an epoch."""
        begun, number = order.beginning_at(epoch, offset)
        return cls(begun, epoch, number)

    @property
    def left(self) -> int:
        """Records that the shard has from here to the end of the epoch."""
        return max(0, self.order.stop(self.epoch) - self.number)

    @property
    def offset(self) -> int:
        """See ``Order.offset``."""
        return self.order.offset(self.epoch, self.number)

    def after(self, records: int) -> Place:
        """The place after some more records, at most the end of the epoch."""
        return replace(self, number=self.number + min(records, self.left))

    def next_epoch(self) -> Place:
        """The beginning of the epoch after."""
        return replace(self, epoch=self.epoch + 1, number=0)

    def what_comes(self) -> tuple[int, int]:
        """The epoch and the offset of what is to be read next: of the next epoch at the end."""
        if self.offset < self.order.stop_offset(self.epoch):
            return self.epoch, self.offset
        return self.epoch + 1, 0

    def state(self, reader: RecordReader) -> dict[str, Any]:
        """The state of who stands here; see ``state_of``."""
        return state_of(reader, self.order, *self.what_comes())
