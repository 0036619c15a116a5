"""A lease while it is held: renewed, looked at, given back."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from yogadl.errors import LockLostError, StoreError
from yogadl.storage._leases.lease_object import LeaseContent, LeaseObject, Written

_RENEW_AFTER = 0.2
_GIVE_UP_AFTER = 0.6
_TRY_AGAIN_AFTER = 0.05
_MOST_WRITES = 4

_log = logging.getLogger(__name__)


class HeldLease:
    """See ``Lease``, whose moments these are fractions of.

    May be used by any thread: none holds a lock while it waits for the store, and each recognises
    what the others have written meanwhile.

    Args:
        target: the object.
        content: what it says while it is held.
        written: by whom it was acquired.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        target: LeaseObject,
        content: LeaseContent,
        written: Written,
        clock: Callable[[], float],
    ) -> None:
        self._target = target
        self._content = content
        self._clock = clock
        self._stop = threading.Event()
        self._mutex = threading.Lock()
        self._written = written
        self._is_lost = False

    @property
    def tag(self) -> str:
        """The object's, when it was last written."""
        with self._mutex:
            return self._written.tag

    def start_renewing(self) -> None:
        """Starts the thread that renews it until it is lost or given back."""
        threading.Thread(target=self._keep, name="yogadl lease", daemon=True).start()

    def _keep(self) -> None:
        is_failing = False
        pause = self._until(_RENEW_AFTER)
        while not self._stop.wait(pause):
            try:
                if not self._renew():
                    if not self._stop.is_set():
                        _log.warning("%s was taken over by somebody else.", self._target.name)
                    return
                is_failing = False
                pause = self._until(_RENEW_AFTER)
            except StoreError as error:
                level = logging.DEBUG if is_failing else logging.WARNING
                _log.log(level, "Cannot renew %s, and go on trying: %s", self._target.name, error)
                is_failing = True
                pause = _TRY_AGAIN_AFTER * self._content.seconds * random.uniform(0.5, 1.0)

    def _until(self, fraction: float) -> float:
        """Seconds until so much of the lease is over; 0 if it is."""
        with self._mutex:
            end = self._written.started + fraction * self._content.seconds
        return max(0.0, end - self._clock())

    def _renew(self) -> bool:
        """Whether it is still ours."""
        with self._mutex:
            if self._is_lost or self._stop.is_set():
                return False
            tag = self._written.tag
        written = self._target.write(self._content, tag)
        with self._mutex:
            if written is None or written.content.holder is None:
                self._is_lost = True
            elif written.started >= self._written.started:
                self._written = written
            return not self._is_lost

    def check(self) -> None:
        """Returns if it is still held; asks the store only if it was not renewed in time.

        Raises:
            LockLostError: it is not, or that is not known.
        """
        if not self._is_lost and self._until(_GIVE_UP_AFTER):
            return
        # Late, after a suspended machine, say; but as long as nobody took over, it is ours.
        try:
            # The first may find that an earlier renewal had arrived, and that is too long ago, too.
            for _ in range(2):
                if self._renew() and self._until(_GIVE_UP_AFTER):
                    return
        except StoreError as error:
            raise LockLostError(self._lost()) from error
        raise LockLostError(self._lost())

    def _lost(self) -> str:
        return (
            f"{self._target.name} could not be renewed in time, so that others may have taken it "
            "over; nothing was published"
        )

    def release(self) -> None:
        """Gives it back; never raises."""
        with self._mutex:
            self._stop.set()
            if self._is_lost:
                return
            self._is_lost = True
            tag = self._written.tag
        free = LeaseContent(None, self._content.seconds, self._content.told)
        try:
            for _ in range(_MOST_WRITES):
                written = self._target.write(free, tag)
                if written is None or written.content.holder is None:
                    return
                # A renewal was still under way, and came first.
                tag = written.tag
        except StoreError as error:
            _log.warning("Cannot give back %s; others wait longer: %s", self._target.name, error)
