"""Room on the local disk for what is fetched."""

from __future__ import annotations

import logging
import pathlib
import shutil
import threading

from yogadl.cache.partial import reserve_of
from yogadl.per_process import PerProcess

# Between two looks at how much is free.
_STEP_BYTES = 64 << 20

_log = logging.getLogger(__name__)

_mutex = PerProcess(threading.Lock)


class FreeSpace:
    """As much as is free, but for what is left to others. Safe for threads.

    Args:
        directory: on the disk.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._left = 0

    def take(self, nbytes: int) -> bool:
        """See ``Space.take``."""
        with _mutex():
            if self._left < nbytes:
                try:
                    usage = shutil.disk_usage(self._directory)
                except OSError as error:
                    # Somebody deleted it, for example.
                    _log.warning("Nothing more is kept in %s: %s", self._directory, error.strerror)
                    return False
                self._left = min(usage.free - reserve_of(usage.total), nbytes + _STEP_BYTES)
            if self._left < nbytes:
                return False
            self._left -= nbytes
            return True

    def is_full(self) -> None:
        """See ``Space.is_full``."""
        self._left = 0
