"""What the waiters of one machine know of a lease, so that not each of them has to ask the store.

They share a file beside the local copy. Whoever finds that it is time asks the store, while it
holds the lock of the file, and writes down what it saw; the others read that. The lock is held for
no longer than it takes to ask once. It is let go of when its holder dies; of one that is stopped,
the others notice that nothing new is written, and ask themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import logging
import math
import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import xxhash

_DIGEST_BYTES = 16
_MOST_BYTES = 4096
# The folder may be one that others can write to: no links, no pipes that nobody writes to.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class News:
    """What somebody saw of a lease. Times are those of ``boot_seconds``.

    Attributes:
        next: when the store is to be asked again.
        tag: of the object; empty if it could not be read.
        since: from when on at least it has been as it is.
        told: who holds it, for people, in some 200 characters.
        looked: when it was last seen that what is waited for was not published.
        is_over: it is free, and what was waited for is published. Seen at ``next``.
        failing_since: when the store began to fail, if it does.
    """

    next: float
    tag: str = ""
    since: float = 0.0
    told: str = ""
    looked: float = 0.0
    is_over: bool = False
    failing_since: float | None = None


class LeaseBoard:
    """A place for ``News`` of one lease.

    What goes wrong with the file is no error: then each waiter asks for itself. May be used by any
    number of threads and processes of this machine, each with a board of its own.

    Args:
        path: of the file; ``None`` for a waiter that is alone.
    """

    def __init__(self, path: pathlib.Path | None) -> None:
        self._path = path
        self._own: News | None = None

    def read(self) -> News | None:
        """What was posted last; ``None`` if nothing was, or it cannot be read."""
        if self._path is None:
            return self._own
        try:
            descriptor = os.open(self._path, os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._be_alone(error)
        try:
            return _decoded(os.pread(descriptor, _MOST_BYTES, 0))
        except OSError as error:
            return self._be_alone(error)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def asking(self, even_if_busy: bool) -> Iterator[bool]:
        """Whether the caller may ask now: nobody else of this machine does.

        Args:
            even_if_busy: also if somebody does.
        """
        descriptor = self._open()
        if descriptor is None:
            yield True
            return
        try:
            is_locked = self._lock(descriptor)
            try:
                yield is_locked or even_if_busy or self._path is None
            finally:
                if is_locked:
                    # Closing would not do while a child that was forked meanwhile has it open, too.
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            self._be_alone(error)
            return False
        return True

    def post(self, news: News | None) -> None:
        """Writes something down; ``None`` is that it is time to ask."""
        self._own = news
        data = b"" if news is None else _encoded(news)
        descriptor = self._open()
        if descriptor is None:
            return
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        except OSError as error:
            self._be_alone(error)
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        if self._path is None:
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Others may not write, whatever the umask.
            return os.open(self._path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o664)
        except OSError as error:
            self._be_alone(error)
            return None

    def _be_alone(self, error: OSError) -> News | None:
        _log.info("Waiting without the other processes of this machine: %s", error)
        self._path = None
        return self._own


def _encoded(news: News) -> bytes:
    text = json.dumps(dataclasses.asdict(news)).encode()
    return xxhash.xxh3_64_hexdigest(text).encode() + text


def _decoded(data: bytes) -> News | None:
    """``None`` also while it is being written, and for whatever else is there."""
    digest, text = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if not text or xxhash.xxh3_64_hexdigest(text).encode() != digest:
        return None
    try:
        found: dict[str, Any] = json.loads(text)
        times = [found[name] or 0.0 for name in ("next", "since", "looked", "failing_since")]
        if not all(isinstance(time, float) and math.isfinite(time) for time in times):
            return None
        return News(**found)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
