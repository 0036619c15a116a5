"""The times of a consumer: waiting for items, and making use of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]


class Meter:
    """The times of one consumer. Others may read them while it runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Seconds, and since when it is waiting again: one tuple, so that both are of one time.
        self._waits: tuple[float, float | None] = (0.0, None)
        self._given: float | None = None
        self.model = 0.0
        self.items = 0
        self.records: int | None = 0

    def waited(self, now: float) -> float:
        total, since = self._waits
        return total if since is None else total + max(0.0, now - since)

    def ask(self, first: bool = False) -> None:
        """An item is asked for."""
        if first:
            self.end()
        now = self._clock()
        if self._given is not None:
            self.model += now - self._given
            self._given = None
        self._waits = (self._waits[0], now)

    def give(self, records: int | None = None) -> None:
        """An item is there, of so many records if that is known."""
        now = self._clock()
        self._waits = (self.waited(now), None)
        self._given = now
        self.items += 1
        self.records = None if records is None or self.records is None else self.records + records

    def end(self) -> None:
        """No more items are asked for."""
        if self._waits[1] is not None:
            self._waits = (self.waited(self._clock()), None)
        self._given = None
