"""Room on the local disk for what is fetched."""

from __future__ import annotations

import pathlib
import shutil
import threading

from yogadl.cache.partial import reserve_of

# Between two looks at how much is free.
_STEP_BYTES = 64 << 20


class FreeSpace:
    """As much as is free, but for what is left to others. Safe for threads.

    Args:
        directory: on the disk.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._left = 0
        self._mutex = threading.Lock()

    def take(self, nbytes: int) -> bool:
        """See ``Space.take``."""
        with self._mutex:
            if self._left < nbytes:
                usage = shutil.disk_usage(self._directory)
                self._left = min(usage.free - reserve_of(usage.total), nbytes + _STEP_BYTES)
            if self._left < nbytes:
                return False
            self._left -= nbytes
            return True

    def is_full(self) -> None:
        """See ``Space.is_full``."""
        self._left = 0
