"""Waiting for other threads in a way that Ctrl-C may end anywhere.

When the wait for a ``threading.Condition`` ends, its lock is taken again. If Ctrl-C ends that, the
lock is given back by who has not got it: it is taken from who has, and then two threads have it.
Here, nothing is held while somebody waits, and nothing has to be taken afterwards.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Waiter:
    """What one thread waits with. That it was woken is kept until it waits next."""

    def __init__(self) -> None:
        # Taken unless it was woken.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Until it is woken, but for so long at most. Nothing may be held meanwhile."""
        self._lock.acquire(timeout=seconds)

    def wake(self) -> None:
        """For one thread at a time."""
        if self._lock.locked():
            self._lock.release()


class Waiters:
    """Those who wait for the same, whatever it is.

    For one thread at a time, but for :meth:`waiting`.
    """

    def __init__(self) -> None:
        self._all: set[Waiter] = set()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[Waiter]:
        """One more of them, as long as the context lasts. Safe for threads."""
        waiter = Waiter()
        try:
            # Each is one step for other threads.
            self._all.add(waiter)
            yield waiter
        finally:
            self._all.discard(waiter)

    def __bool__(self) -> bool:
        """Whether there are any. Safe for threads."""
        return bool(self._all)

    def wake_all(self) -> None:
        """Has all of them look again."""
        for waiter in self._all.copy():
            waiter.wake()
