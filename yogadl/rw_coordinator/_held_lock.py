"""A lock that this process holds."""

from __future__ import annotations

import logging
import os
import weakref
from typing import TYPE_CHECKING

from yogadl.closing import Closing
from yogadl.errors import LockLostError

if TYPE_CHECKING:
    from yogadl.rw_coordinator._client_connection import LockConnection

_log = logging.getLogger("yogadl.rw_coordinator")


class HeldLock(Closing):
    """A lock, held until it is closed or its connection is lost.

    It may be used by any thread. A forked child does not hold it, and closing it there does
    nothing. A lock that nobody refers to any more is given back.
    """

    def __init__(self, connection: LockConnection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._pid = os.getpid()
        self._give_back = weakref.finalize(self, _close, connection, self._pid, name)

    def __repr__(self) -> str:
        return f"<HeldLock: {self._name}{'' if self._give_back.alive else ', given back'}>"

    @property
    def is_own(self) -> bool:
        """Whether this process acquired it, and not one that this was forked from."""
        return self._pid == os.getpid()

    def check(self) -> None:
        """Returns if the lock is still held: asks the server, and waits for its answer.

        Raises:
            LockLostError: it is not, or the server does not answer in time.
        """
        if not self.is_own:
            raise LockLostError(f"the {self._name} is held by the process this was forked from")
        if not self._give_back.alive:
            raise LockLostError(f"the {self._name} was given back")
        if not self._connection.is_answered():
            raise LockLostError(
                f"the {self._name} was lost: the lock server stopped, or the network failed. "
                "Another may have had it meanwhile, so whatever it protected must be done again"
            )

    def close(self) -> None:
        """Gives the lock back. Never raises; may be called twice."""
        self._give_back()


def _close(connection: LockConnection, pid: int, name: str) -> None:
    if pid != os.getpid():
        return
    try:
        connection.close()
    except Exception:
        # The server notices in any case that the connection is gone.
        _log.warning("the %s was given back in disorder", name, exc_info=True)
