"""The object that a lease is: what it says, and writing it.

Its format is in ``docs/cloud.md``.
"""

from __future__ import annotations

import collections
import json
import math
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from yogadl.errors import StoreUnavailableError, UnsafeStoreError
from yogadl.storage._configurations import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS
from yogadl.storage._objects.probe import cannot_be_trusted
from yogadl.storage._objects.store import ABSENT, ObjectStore, PreconditionFailedError

FORMAT = 1

# Of a lease's seconds: what is renewed at 0.2 is tried for the last time, and answered, before 0.6.
_PATIENCE = 0.24
# Of short leases it is more, since a busy store takes its time.
_LEAST_PATIENCE = 1.0
_MOST_REFUSALS = 3
# More than there are threads that write one lease at a time.
_REMEMBERED = 8


def patience_of(seconds: float) -> float:
    """For how long to try a request while others wait for a lease of so many seconds."""
    return max(_PATIENCE * seconds, _LEAST_PATIENCE)


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
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return LeaseContent("?", seconds, "an object that is no lease")
        if math.isnan(given):
            given = seconds
        given = min(max(given, SHORTEST_LEASE_SECONDS), LONGEST_LEASE_SECONDS)
        return LeaseContent(None if holder is None else str(holder), given, told[:200])


@dataclass(frozen=True)
class Written:
    """What we wrote last, as far as the store knows.

    Attributes:
        tag: of the object.
        started: when the request that wrote it began, or an earlier one.
        content: what it says.
    """

    tag: str
    started: float
    content: LeaseContent


class LeaseObject:
    """The object of a lease, as one who wants it, or has it, reads and writes it.

    All requests end soon, compared with the lease. What is written is remembered for a while, so
    that a write whose answer was lost is recognised by its nonce. May be used by some threads.

    Args:
        store: the bucket.
        key: of the object.
        seconds: of the lease.
        clock: seconds, monotonic.
    """

    def __init__(
        self, store: ObjectStore, key: str, seconds: float, clock: Callable[[], float]
    ) -> None:
        self.name = f"{store.url}/{key}"
        self._store = store
        self._key = key
        self._patience = patience_of(seconds)
        self._clock = clock
        self._mutex = threading.Lock()
        self._sent: collections.OrderedDict[bytes, Written] = collections.OrderedDict()
        self._refusals = 0

    def read(self) -> tuple[bytes, str] | None:
        """See ``ObjectStore.read``."""
        return self._store.read(self._key, self._patience)

    def is_ours(self, data: bytes) -> bool:
        """Whether these bytes were written here."""
        with self._mutex:
            return data in self._sent

    def write(self, content: LeaseContent, if_tag: str) -> Written | None:
        """Writes it on condition that it has this tag, or is ``ABSENT``.

        Returns:
            What is there now, if we wrote it: this, or what another thread of ours or an earlier
            attempt wrote. ``None`` if it is somebody else's, or gone.

        Raises:
            UnsafeStoreError: the store cannot do this, or keeps refusing it without a reason.
            StoreError: it is not known whether it was written.
        """
        started = self._clock()
        data = content.to_json()
        with self._mutex:
            self._sent[data] = Written("", started, content)
            while len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)
        try:
            tag = self._store.write(self._key, data, if_tag, self._patience)
        except PreconditionFailedError:
            return self._after_refusal(if_tag)
        except UnsafeStoreError as error:
            raise cannot_be_trusted(self._store, str(error)) from error
        self._refusals = 0
        return Written(tag, started, content)

    def _after_refusal(self, if_tag: str) -> Written | None:
        found = self.read()
        if (ABSENT if found is None else found[1]) == if_tag:
            # Some stores do so for a moment while others write; some, always.
            self._refusals += 1
            said = f"it refused to write {self._key}, which is as it was asked to be"
            if self._refusals >= _MOST_REFUSALS:
                raise cannot_be_trusted(self._store, f"{said}, {self._refusals} times")
            raise StoreUnavailableError(f"{self._store.url}: {said}")
        self._refusals = 0
        if found is None:
            return None
        with self._mutex:
            ours = self._sent.get(found[0])
        return None if ours is None else Written(found[1], ours.started, ours.content)
