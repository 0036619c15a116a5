"""When all of a version has been fetched: its files are read like any other on this machine.

They are compared with their digests first, in a thread, and noted to be whole; see ``whole``. That
begins while they are fetched, so that little is left to be done when the last bytes come, and what
is larger than memory is not read from the disk once more.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import pathlib
import threading
import time
import weakref
from collections.abc import Sequence

from yogadl.cache.file_reader import FileReader
from yogadl.cache.mapping import MappedFile
from yogadl.cache.noted import is_noted
from yogadl.cache.opening import open_cache
from yogadl.errors import ChecksumError, YogadlError
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.work import RemoteFile
from yogadl.remote._files import RemoteFiles
from yogadl.remote._local.whole import compare, note
from yogadl.remote._remembered import keep

# Who reads the last records of a first epoch waits for this; to look takes some microseconds.
_LOOK_SECONDS = 0.01
_ARRIVAL_SECONDS = 0.004
# Who compares files may be stopped.
_LONGEST_WAIT = 0.1
# Of several kinds of files, some may come and others not.
_STOPPED_SECONDS = 1.0
# What is compared at a time: at least so much unless it is the end, since the interpreter's lock is
# waited for each time; and at most.
_STEP_BYTES, _MOST_BYTES = 8 << 20, 256 << 20

_log = logging.getLogger(__name__)


class Near:
    """Safe for threads. A child looks again after a fork. While it lives, nothing of the version is
    removed from this machine.

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
        keep(self, kinds[0].file(0))
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
                if self._are_complete() or self._are_coming():
                    self._checking = os.getpid()
                    try:
                        self._start_check()
                    except BaseException:
                        # Such as Ctrl-C; it may begin anew.
                        self._checking = 0
                        raise
        return self._reader

    def _start_check(self) -> None:
        try:
            # It has none of this while it waits: who closes the version fetches no more of it.
            threading.Thread(
                target=_check, args=(weakref.ref(self),), name="yogadl check", daemon=True
            ).start()
        except RuntimeError as error:
            # The system has no more.
            self.give_up(error)

    def _are_complete(self) -> bool:
        return all(files.are_complete() for files in self._kinds)

    def _are_coming(self) -> bool:
        return any(fetcher().has_bulk(files.traffic) for files in self._kinds)

    def _paths(self) -> Sequence[pathlib.Path]:
        return [path for files in self._kinds for path in files.paths()]

    def file(self, number: int) -> tuple[pathlib.Path, RemoteFile] | None:
        """One of all files, and where it is on this machine; ``None`` behind the last."""
        for files in self._kinds:
            if number < len(files):
                return files.path(number), files.file(number)
            number -= len(files)
        return None

    def open(self, own: MappedFile | None) -> None:
        """Has the files be read themselves from now on.

        Args:
            own: the version's file, if it is in memory already: it need not be mapped page by page
                once more.
        """
        self._reader = open_cache(self._path, mapped=own)

    def stop(self) -> None:
        """What was compared is not all of it; begins anew when it is, or more is coming."""
        self._next_look = time.monotonic() + _STOPPED_SECONDS
        self._checking = 0

    def give_up(self, error: Exception) -> None:
        """Has the files not be read themselves any more, after an error."""
        # Record by record, what is wrong is found and fetched again. Who keeps what is logged must
        # not keep the error, which has the files, so that they would not be removed.
        _log.warning("What was fetched is not read as whole files: %s", str(error))
        self._failed = True
        self._reader = None


class _StoppedError(Exception):
    """No more is coming, or nobody wants it."""


def _check(wanted: weakref.ref[Near]) -> None:
    """Compares all files with their digests as they arrive."""
    own = None
    try:
        for number in itertools.count():
            near = wanted()
            found = None if near is None else near.file(number)
            del near
            if found is None:
                break
            mapped = _checked(*found)
            own = mapped if number == 0 else own
            del found, mapped
        near = wanted()
        if near is not None:
            near.open(own)
    except _StoppedError:
        near = wanted()
        if near is not None:
            near.stop()
    except (YogadlError, OSError) as error:
        near = wanted()
        if near is not None:
            near.give_up(error)


def _checked(path: pathlib.Path, file: RemoteFile) -> MappedFile | None:
    """A file once it has been compared with its digest; ``None`` if that was done before.

    Raises:
        CacheFormatError: it is not what it should be, as a whole.
        _StoppedError: not all of it is there.
    """
    pause = _ARRIVAL_SECONDS
    while not is_noted(path):
        with file.pieces.claims.checking() as is_alone:
            if is_alone:
                found = _compared(path, file)
                if found is not None:
                    return found
        # Another process does it, of whose comparing this one sees the note.
        _wait(file, pause)
        pause = min(2 * pause, _LONGEST_WAIT)
    return None


def _compared(path: pathlib.Path, file: RemoteFile) -> MappedFile | None:
    """The same by this process; ``None`` if some of it was fetched again meanwhile."""
    before = file.pieces.discarded()
    # What others took back before is not there, though this process may know that it was.
    file.pieces.forget()
    was_complete = file.pieces.is_kept(0, file.size)
    try:
        fingerprint, found = compare(path, functools.partial(_arrived, file))
    except ChecksumError:
        if was_complete and file.pieces.discarded() == before:
            raise
        return None
    if file.pieces.discarded() != before:
        return None
    note(path, fingerprint)
    return found


def _arrived(file: RemoteFile, start: int) -> int:
    """Waits until some bytes from an offset on are there; where these end."""
    most = min(start + _MOST_BYTES, file.size)
    while True:
        # Before it is looked for, so that nothing comes unseen.
        is_coming = fetcher().has_bulk(file.traffic) or file.pieces.others_have(
            start, min(start + _STEP_BYTES, most)
        )
        end = start
        while end < most and file.pieces.is_kept(end, min(end + _STEP_BYTES, most)):
            end = min(end + _STEP_BYTES, most)
        if end > start:
            file.pieces.check_size()
            return end
        if not is_coming:
            raise _StoppedError
        _wait(file)


def _wait(file: RemoteFile, seconds: float = _ARRIVAL_SECONDS) -> None:
    if file.ended.wait(seconds):
        raise _StoppedError
