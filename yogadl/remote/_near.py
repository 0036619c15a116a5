"""When all of a version has been fetched: its files are read like any other on this machine.

They are compared with their digests first, in a thread, and noted to be whole; see ``_whole``.
"""

from __future__ import annotations

import logging
import os
import pathlib
import threading
import time
from collections.abc import Sequence

from yogadl.cache.file_reader import FileReader
from yogadl.cache.opening import open_cache
from yogadl.cache.reader import CacheFile
from yogadl.errors import YogadlError
from yogadl.remote._files import RemoteFiles
from yogadl.remote._whole import check_whole, is_noted

# Who reads the last records of a first epoch waits for this; to look takes some microseconds.
_LOOK_SECONDS = 0.01

_log = logging.getLogger(__name__)


class Near:
    """Safe for threads. A child looks again after a fork.

    Args:
        path: of the version's file on this machine.
        kinds: that file, and the parts that it names if it is a table.
    """

    def __init__(self, path: pathlib.Path, *kinds: RemoteFiles) -> None:
        self._path = path
        self._kinds = kinds
        self._reader: FileReader | None = None
        self._failed = False
        self._next_look = 0.0
        self._checking = 0
        try:
            if self._are_complete() and all(map(is_noted, self._paths())):
                self._reader = open_cache(path)
        except (YogadlError, OSError) as error:
            self.give_up(error)

    def reader(self) -> FileReader | None:
        """What reads the files themselves, once they are whole."""
        if self._reader is None and not self._failed:
            now = time.monotonic()
            if now >= self._next_look and self._checking != os.getpid():
                self._next_look = now + _LOOK_SECONDS
                if self._are_complete():
                    self._checking = os.getpid()
                    self._start_check()
        return self._reader

    def _start_check(self) -> None:
        try:
            threading.Thread(target=self._check, name="yogadl check", daemon=True).start()
        except RuntimeError as error:
            # The system has no more.
            self.give_up(error)

    def _are_complete(self) -> bool:
        return all(files.are_complete() for files in self._kinds)

    def _paths(self) -> Sequence[pathlib.Path]:
        return [path for files in self._kinds for path in files.paths()]

    def _check(self) -> None:
        try:
            reader = open_cache(self._path)
            # Its memory is that of the check, so that it need not be mapped page by page once more.
            file = reader if isinstance(reader, CacheFile) else None
            for path in self._paths():
                if not is_noted(path):
                    check_whole(path, file)
            self._reader = reader
        except (YogadlError, OSError) as error:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Has the files not be read themselves any more, after an error."""
        # Record by record, what is wrong is found and fetched again. Who keeps what is logged must
        # not keep the error, which has the files, so that they would not be removed.
        _log.warning("What was fetched is not read as whole files: %s", str(error))
        self._failed = True
        self._reader = None
