"""A lock that is an object in the bucket, written with the store's own conditional requests.

The object says who holds the lease and for how long a renewal lasts. Its holder writes it again
and again, each time on condition that nobody else did. Whoever waits looks whether it changes.
Clocks of different machines are never compared: a waiter measures, with its own clock, for how long
the object has stood as it is, and a holder, with its own, how long ago it began its last successful
renewal. Both are fractions of the same duration::

    0        0.2       0.4       0.6                 0.8             1.0  × seconds
    renewed  renews    renews    holder gives up                     the longest wait
    seen by the waiter at 0 or later                 waiter takes over

A holder that fails to renew has thus given up before anybody takes over, and the taking over is
conditional, too: on the object being as it was seen. A lease is given back by writing it without a
holder. It is never deleted, since a delete that the network delays could hit the next holder's.

The format of the object is in ``docs/cloud.md``.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from yogadl.errors import LockLostError, StoreError
from yogadl.storage._locks import PublishLock
from yogadl.storage._object_store import ABSENT, ObjectStore, PreconditionFailedError

FORMAT = 1
SHORTEST_SECONDS = 0.5
LONGEST_SECONDS = 3600.0

_RENEW_AFTER = 0.2
_GIVE_UP_AFTER = 0.6
_TAKE_OVER_AFTER = 0.8
_POLL_EVERY = 0.05
_LONGEST_POLL = 2.0
_REMIND_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseContent:
    """What a lease object says.

    Attributes:
        holder: a name nobody else has; ``None`` if the lease was given back.
        seconds: after which it may be taken over if it has not changed.
        told: who that is, for people.
    """

    holder: str | None
    seconds: float
    told: str = ""

    def to_json(self) -> bytes:
        """The object's bytes, different at every call: an ETag is a digest of them."""
        return json.dumps({"format": FORMAT, **vars(self), "nonce": uuid.uuid4().hex}).encode()

    @staticmethod
    def parse(data: bytes, seconds: float) -> LeaseContent:
        """What an object says, whatever is in it.

        Args:
            data: its bytes. What is no lease counts as one held by somebody unknown.
            seconds: its duration where it does not say so itself.
        """
        try:
            found: Any = json.loads(data)
            holder, told = found["holder"], str(found.get("told", ""))
            given = float(found["seconds"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return LeaseContent("?", seconds, "an object that is no lease")
        if math.isnan(given):
            given = seconds
        given = min(max(given, SHORTEST_SECONDS), LONGEST_SECONDS)
        return LeaseContent(None if holder is None else str(holder), given, told[:200])


class Watch:
    """For how long a lease has stood unchanged before one observer."""

    def __init__(self) -> None:
        self._tag: str | None = None
        self._since = 0.0

    def is_expired(self, tag: str, seconds: float, now: float) -> bool:
        """Whether a lease may be taken over that was seen with this tag, now."""
        if tag != self._tag:
            self._tag, self._since = tag, now
        return now - self._since >= _TAKE_OVER_AFTER * seconds


class Lease(PublishLock):
    """A lease on one object; see the module.

    Args:
        store: where conditional writes are atomic.
        key: of the lease object.
        seconds: how long others wait, at most, when the holder dies. ``0.5 … 3600``; the store must
            answer well within a fifth of it.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._key = key
        self._seconds = seconds
        self._clock = clock
        self._watch = Watch()
        self._holder = uuid.uuid4().hex
        self._told = f"process {os.getpid()} on {socket.gethostname()}"
        self._pid = os.getpid()
        # Guards all of the below, which the renewing thread uses, too.
        self._mutex = threading.RLock()
        self._tag: str | None = None
        self._valid_until = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # Acquiring

    def acquire(self, is_published: Callable[[], bool]) -> bool:
        """See ``PublishLock.acquire``."""
        failing_since: float | None = None
        reminded = -_REMIND_SECONDS
        while True:
            try:
                if is_published():
                    return False
                holder = self._try()
                failing_since = None
            except StoreError as error:
                # Who waits for hours should outlive a store that fails for a moment.
                now = self._clock()
                failing_since = now if failing_since is None else failing_since
                if not error.is_transient or now - failing_since > self._seconds:
                    raise
                holder = f"the store, which fails: {error}"
            if holder is None:
                self._start_renewing()
                return True
            if self._clock() - reminded >= _REMIND_SECONDS:
                reminded = self._clock()
                _log.info("Waiting for %s, which holds %s.", holder, self._key)
            poll = min(_POLL_EVERY * self._seconds, _LONGEST_POLL)
            time.sleep(poll * random.uniform(0.5, 1.0))

    def _try(self) -> str | None:
        """Takes the lease if it is free; else says who holds it."""
        found = self._store.read(self._key)
        now = self._clock()
        if found is None:
            tag, told = ABSENT, "somebody who was faster"
        else:
            data, tag = found
            content = LeaseContent.parse(data, self._seconds)
            told = content.told or "somebody"
            free = content.holder is None
            if not free and not self._watch.is_expired(tag, content.seconds, now):
                return told
            if not free:
                _log.warning("Taking over %s from %s, which is silent.", self._key, told)
        with self._mutex:
            return None if self._write(self._holder, tag) else told

    def _write(self, holder: str | None, if_tag: str) -> bool:
        """Writes the lease; whether it is ours now. The caller has the mutex."""
        started = self._clock()
        data = LeaseContent(holder, self._seconds, self._told).to_json()
        try:
            tag = self._store.write(self._key, data, if_tag)
        except PreconditionFailedError:
            # An attempt whose answer was lost may have succeeded, and the next one met its work.
            found = self._store.read(self._key)
            if found is None or found[0] != data:
                return False
            tag = found[1]
        self._tag = tag
        self._valid_until = started + _GIVE_UP_AFTER * self._seconds
        return True

    # Holding

    def _start_renewing(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(
            target=self._renew_until_stopped, name="yogadl lease", daemon=True
        )
        self._thread.start()

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(_RENEW_AFTER * self._seconds):
            try:
                if not self._renew():
                    _log.warning("%s was taken over by somebody else.", self._key)
                    return
            except StoreError as error:
                _log.warning("Cannot renew %s, and will try again: %s", self._key, error)

    def _renew(self) -> bool:
        with self._mutex:
            if self._tag is None or self._stop.is_set():
                return self._tag is not None
            if not self._write(self._holder, self._tag):
                self._tag = None
                return False
            return True

    def check(self) -> None:
        """See ``PublishLock.check``."""
        with self._mutex:
            held = self._tag is not None
            if held and self._clock() < self._valid_until:
                return
            # Late, after a suspended machine, say; but as long as nobody took over, it is ours.
            try:
                if held and self._renew() and self._clock() < self._valid_until:
                    return
            except StoreError as error:
                raise LockLostError(self._lost()) from error
        raise LockLostError(self._lost())

    def _lost(self) -> str:
        return (
            f"{self._store.url}/{self._key} could not be renewed in time, so that others may have "
            "taken it over; nothing was published"
        )

    def release(self) -> None:
        """See ``PublishLock.release``. Does nothing in a child of the process that acquired."""
        if os.getpid() != self._pid:
            return
        self._stop.set()
        with self._mutex:
            tag, self._tag = self._tag, None
            if tag is not None:
                try:
                    self._write(None, tag)
                except StoreError as error:
                    _log.warning("Cannot give back %s; others wait longer: %s", self._key, error)
                self._tag = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
