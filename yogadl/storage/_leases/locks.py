"""The right to build and publish a version, among all threads, processes and machines."""

from __future__ import annotations

import abc
from collections.abc import Callable


class PublishLock(abc.ABC):
    """One attempt to be the only one who builds and publishes a version.

    Used by one thread. May be acquired again after it was lost.
    """

    @abc.abstractmethod
    def acquire(self, is_published: Callable[[], bool]) -> bool:
        """Waits for the lock; can be interrupted.

        Args:
            is_published: asked now and then while waiting, since nobody needs the lock any more
                once somebody has published.

        Returns:
            Whether the lock is held; if not, ``is_published()`` was true.

        Raises:
            LockError: it cannot be had.
            StoreError: the store does not answer.
        """

    @abc.abstractmethod
    def check(self) -> None:
        """Returns if the lock is still held.

        Raises:
            LockLostError: it is not.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Gives the lock back if it is held; never raises. May be called twice."""
