"""Who holds which lock, and who waits for one. No input or output happens here.

Several readers may hold a resource at once, or one writer. A reader waits as long as a writer holds
it or waits for it; writers are served in the order they came.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Holder = TypeVar("Holder", bound=Hashable)


@dataclass(frozen=True)
class LockCounts:
    """How much a table holds.

    Attributes:
        read: read locks that are held.
        write: write locks that are held.
        waiting: requests that are not granted yet.
    """

    read: int
    write: int
    waiting: int


class _Resource(Generic[Holder]):
    """The locks on one resource. The dicts are sets that keep the order."""

    def __init__(self) -> None:
        self.readers: dict[Holder, None] = {}
        self.writer: dict[Holder, None] = {}
        self.waiting_readers: dict[Holder, None] = {}
        self.waiting_writers: dict[Holder, None] = {}

    @property
    def groups(self) -> tuple[dict[Holder, None], ...]:
        return self.readers, self.writer, self.waiting_readers, self.waiting_writers

    def grant(self) -> list[Holder]:
        """Moves to the holders whoever need not wait any longer, and returns them."""
        if self.writer:
            return []
        if not self.waiting_writers:
            granted = list(self.waiting_readers)
            self.readers.update(self.waiting_readers)
            self.waiting_readers.clear()
            return granted
        if self.readers:
            return []
        first = next(iter(self.waiting_writers))
        del self.waiting_writers[first]
        self.writer[first] = None
        return [first]


class LockTable(Generic[Holder]):
    """The locks on any number of resources. Used by one thread.

    A holder is whatever the caller tells requests apart by. It requests a resource once, and
    releases it once, whether it was granted in between or not.
    """

    def __init__(self) -> None:
        self._resources: dict[bytes, _Resource[Holder]] = {}

    def request(self, resource: bytes, holder: Holder, *, shared: bool) -> list[Holder]:
        """Asks for a lock.

        Args:
            resource: what to lock.
            holder: for whom; it must not have requested this resource before.
            shared: a read lock rather than a write lock.

        Returns:
            Who is granted a lock by that: the holder or nobody.
        """
        locks = self._resources.setdefault(resource, _Resource())
        if any(holder in group for group in locks.groups):
            raise ValueError("a holder requests a resource once")
        (locks.waiting_readers if shared else locks.waiting_writers)[holder] = None
        return locks.grant()

    def release(self, resource: bytes, holder: Holder) -> list[Holder]:
        """Gives a lock back, or gives up waiting for it.

        Returns:
            Who is granted a lock by that, in the order they came.

        Raises:
            KeyError: the holder has no request for this resource.
        """
        locks = self._resources[resource]
        group = next((group for group in locks.groups if holder in group), None)
        if group is None:
            raise KeyError(holder)
        del group[holder]
        granted = locks.grant()
        if not any(locks.groups):
            del self._resources[resource]
        return granted

    def __len__(self) -> int:
        """The number of resources that are held or waited for."""
        return len(self._resources)

    def counts(self) -> LockCounts:
        """How many locks are held and waited for, over all resources."""
        resources = self._resources.values()
        return LockCounts(
            read=sum(len(locks.readers) for locks in resources),
            write=sum(len(locks.writer) for locks in resources),
            waiting=sum(len(x.waiting_readers) + len(x.waiting_writers) for x in resources),
        )
