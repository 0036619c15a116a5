"""What the tests of leases share: a key, a clock that tests move, leases on stores in memory."""

from __future__ import annotations

from collections.abc import Callable

from memory_store import MemoryStore

from yogadl.storage._buckets.clock import boot_seconds
from yogadl.storage._leases.lease import Lease

KEY = "folder/yogadl.lease"
SECONDS = 1.0
PATIENCE = 60.0


def never() -> bool:
    return False


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def lease(store: MemoryStore, clock: Callable[[], float] = boot_seconds) -> Lease:
    return Lease(store, KEY, SECONDS, clock)


def takes(one: Lease) -> bool:
    """Whether it gets the lease at once; it is not renewed then."""
    return one._try(never) is True
