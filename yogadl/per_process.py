"""What a process has one of, and a child its own after a fork."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class PerProcess(Generic[Made]):
    """Made when it is first asked for. Safe for threads.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # A thread of the parent may have held it.
        self._mutex = threading.Lock()
        self._made: Any = None

    def __call__(self) -> Made:
        """The one of this process."""
        if self._made is None:
            with self._mutex:
                if self._made is None:
                    self._made = self._make()
        found: Made = self._made
        return found


def _end_imports() -> None:
    """Imports what threads may import, or waits for the one that does.

    Some releases of NumPy import it when ``np.unique`` is first called. A child that is forked
    meanwhile would wait for ever for the lock that the thread has on it.
    """
    importlib.import_module("numpy.ma")


os.register_at_fork(before=_end_imports)
