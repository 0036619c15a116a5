"""Locks that a forked child does not hold: it may outlive who took them."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Closable(Protocol):
    """A lock that :meth:`close` lets go of in a child, without unlocking it in the parent."""

    def close(self) -> None: ...


_locks: weakref.WeakSet[Closable] = weakref.WeakSet()


def not_for_children(lock: Closable) -> None:
    """Has children close a lock after a fork. Safe for threads."""
    _locks.add(lock)


def _close_in_child() -> None:
    for lock in list(_locks):
        lock.close()
    _locks.clear()


os.register_at_fork(after_in_child=_close_in_child)
