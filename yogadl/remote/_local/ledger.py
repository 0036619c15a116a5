"""How many bytes of a limit are used, agreed on by all processes of the machine.

``<name>`` is that number, which is changed under a lock. Beside it, each process that was granted
some has ``<name>.<random>``, its *claim*: the bytes that it may still write. It holds a lock on
that for as long as it lives. So what is used can be counted whenever there seems to be no room:
what the files take, and what is claimed. What a killed process had left is free again then, and
what somebody has removed by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import random
import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from yogadl.cache.mapping import Descriptor
from yogadl.remote._local.own_file import sized_file

_NUMBER = struct.Struct("<q")
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# For who is suspended while he has the lock; otherwise it is a matter of a second at most.
_PATIENCE = 5.0
_POLL_SECONDS = 0.002

_log = logging.getLogger(__name__)


@dataclass
class Used:
    """What is used, in bytes; to be changed."""

    nbytes: int


class Ledger:
    """For one thread at a time. Of several in one process, each counts as another's.

    Args:
        path: of the number, in a folder that is trusted.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._claim: tuple[pathlib.Path, Descriptor] | None = None

    def forget(self) -> None:
        """To be called in a child after a fork: the claim is its parent's."""
        self._claim = None

    @property
    def has_claim(self) -> bool:
        """Whether this has claimed anything yet."""
        return self._claim is not None

    @contextlib.contextmanager
    def locked(self) -> Iterator[Used]:
        """The bytes that all processes use, for nobody else meanwhile; changes are written.

        Raises:
            OSError: it cannot be read or written, or somebody else does not let go of it.
        """
        with exclusive(self._path) as ledger:
            data = os.pread(ledger.number, _NUMBER.size, 0)
            used = Used(_NUMBER.unpack(data)[0] if len(data) == _NUMBER.size else 0)
            yield used
            os.pwrite(ledger.number, _NUMBER.pack(max(0, used.nbytes)), 0)

    def claim(self, nbytes: int) -> None:
        """Says how many bytes this may still write; for the first time under the lock.

        Raises:
            OSError: that cannot be written.
        """
        if self._claim is None:
            path = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}")
            made = Descriptor(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o664))
            fcntl.flock(made.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._claim = path, made
        os.pwrite(self._claim[1].number, _NUMBER.pack(nbytes), 0)

    def claims_of_others(self) -> list[int]:
        """What others who live may still write; under the lock."""
        found = []
        for path in self._path.parent.glob(f"{self._path.name}.*"):
            if self._claim is not None and path == self._claim[0]:
                continue
            try:
                claim = Descriptor(os.open(path, _FLAGS))
                fcntl.flock(claim.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                data = os.pread(claim.number, _NUMBER.size, 0)
                found.append(max(0, *_NUMBER.unpack(data)) if len(data) == _NUMBER.size else 0)
            except OSError as error:
                _log.debug("%s is no claim: %s", path, error)
            else:
                with contextlib.suppress(OSError):
                    # Whoever had it is dead; if it stays, the next one tries again.
                    path.unlink()
        return found


@contextlib.contextmanager
def exclusive(path: pathlib.Path) -> Iterator[Descriptor]:
    """A file that is made if it is not there, locked.

    Raises:
        OSError: it cannot be opened or locked.
        TimeoutError: somebody else does not let go of it, being suspended.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        file = sized_file(path, 0)
        _lock(file, until)
        # It may have been removed before it was locked.
        if os.fstat(file.number).st_nlink:
            break
    try:
        yield file
    finally:
        # Closing it is not enough: a child of a fork may have it, too.
        fcntl.flock(file.number, fcntl.LOCK_UN)


def _lock(file: Descriptor, until: float) -> None:
    while True:
        try:
            fcntl.flock(file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"another process has had the lock for {_PATIENCE:.0f} s"
                ) from None
        else:
            return
        time.sleep(random.uniform(0, _POLL_SECONDS))
