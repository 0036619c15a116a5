"""A lock that is an object in the bucket, written with the store's own conditional requests.

The object says who holds the lease and for how long a renewal lasts. Its holder writes it again
and again, each time on condition that nobody else did. Whoever waits looks whether it changes.
Clocks of different machines are never compared: a waiter measures, with its own clock, for how long
the object has stood as it is, and a holder, with its own, how long ago it began its last successful
renewal. Both are fractions of the same duration::

    0        0.2       0.44      0.6                 0.8             1.0  × seconds
    renewed  renews    last try  holder gives up                     the longest wait
    seen by the waiter at 0 or later                 waiter takes over

A holder that fails to renew has thus given up before anybody takes over, and the taking over is
conditional, too: on the object being as it was seen. A lease is given back by writing it without a
holder. It is never deleted, since a delete that the network delays could hit the next holder's.

Waiting costs the store one request now and then for each machine, however many wait there: see
``lease_board``. Who builds gives the lease back when the cache is published, so what is asked for
is the lease, and only now and then whether somebody has published without one.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Callable

from yogadl import backoff
from yogadl.errors import LockLostError, StoreError
from yogadl.storage._buckets.clock import boot_seconds
from yogadl.storage._leases.held_lease import HeldLease
from yogadl.storage._leases.lease_board import LeaseBoard, News
from yogadl.storage._leases.lease_object import LeaseContent, LeaseObject
from yogadl.storage._leases.locks import PublishLock
from yogadl.storage._objects.store import ABSENT, ObjectStore

_TAKE_OVER_AFTER = 0.8
# Until the store is asked again: a part of the wait so far. Both waits for an answer and for the
# next question have to fit between 0.8 and 1.
_POLL_AFTER = 1 / 8
_LONGEST_POLL = 0.1
_LONGEST_POLL_SECONDS = 5.0
_SHORTEST_POLL = 1 / 16
_LOOK_EVERY = 0.05
_LONGEST_LOOK_SECONDS = 0.5
# Who is asking gets so long before others ask, too.
_STUCK_AFTER = 0.5
_LOOK_FOR_CACHE_EVERY = 0.5
_REMIND_SECONDS = 60.0
_MOST_TOLD = 200

_log = logging.getLogger(__name__)


class Watch:
    """For how long a lease has stood unchanged before one machine's observers."""

    def __init__(self) -> None:
        self._tag: str | None = None
        self.since = 0.0

    def is_expired(self, tag: str, seconds: float, now: float) -> bool:
        """Whether a lease may be taken over that was seen with this tag, now."""
        self.note(tag, now)
        return now - self.since >= _TAKE_OVER_AFTER * seconds

    def note(self, tag: str, at: float) -> None:
        """It was seen with this tag, now or before; in any order."""
        if tag != self._tag:
            self._tag, self.since = tag, at
        self.since = min(self.since, at)


class Lease(PublishLock):
    """A lease on one object; see the module.

    Args:
        store: where conditional writes are atomic.
        key: of the lease object.
        seconds: how long others wait, at most, when the holder dies. ``0.5 … 3600``; the store must
            answer well within a tenth of it.
        clock: seconds, monotonic, the same in all processes of this machine.
        board: what is shared with the other waiters of this machine.
        prove: called before the lease is first written; raises if the store is not to be trusted.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        seconds: float,
        clock: Callable[[], float] = boot_seconds,
        board: LeaseBoard | None = None,
        prove: Callable[[], object] = lambda: None,
    ) -> None:
        self._key = key
        self._seconds = seconds
        # Of who waits; a holder has less.
        self._patience = max(seconds, backoff.LIMITS.patience)
        self._clock = clock
        self._board = LeaseBoard(None) if board is None else board
        self._prove = prove
        self._target = LeaseObject(store, key, seconds, clock)
        self._watch = Watch()
        self._silent: str | None = None
        told = f"process {os.getpid()} on {socket.gethostname()}"
        self._content = LeaseContent(uuid.uuid4().hex, seconds, told)
        self._pid = os.getpid()
        self._held: HeldLease | None = None

    # Acquiring

    def acquire(self, is_published: Callable[[], bool]) -> bool:
        """See ``PublishLock.acquire``."""
        began = self._clock()
        reminded = began - _REMIND_SECONDS
        due_since: float | None = None
        doubted: News | None = None
        while True:
            now = self._clock()
            news = self._board.read()
            if news is not None and news.is_over and news.next >= began and news != doubted:
                if _is_seen(is_published):
                    return False
                doubted = news
            if not self._is_due(news, began, now):
                due_since = None
            else:
                due_since = now if due_since is None else due_since
                is_stuck = now - due_since >= _STUCK_AFTER * self._seconds
                with self._board.asking(is_stuck or self._is_hopeless(news, began, now)) as (
                    is_my_turn
                ):
                    # Somebody may have asked just before.
                    if is_my_turn and self._is_due(self._board.read(), began, now):
                        due_since = None
                        outcome = self._ask(is_published, began)
                        if isinstance(outcome, bool):
                            return outcome
                        news = outcome
            if news is not None and news.told and self._clock() - reminded >= _REMIND_SECONDS:
                reminded = self._clock()
                _log.info("Waiting for %s, which holds %s.", news.told, self._key)
            look = min(_LOOK_EVERY * self._seconds, _LONGEST_LOOK_SECONDS)
            time.sleep(look * random.uniform(0.5, 1.0))

    def _is_due(self, news: News | None, began: float, now: float) -> bool:
        """Whether the store has to be asked."""
        if news is None or news.is_over or not now < news.next <= now + _LONGEST_POLL_SECONDS:
            return True
        return self._is_hopeless(news, began, now)

    def _is_hopeless(self, news: News | None, began: float, now: float) -> bool:
        """Whether the store has failed for so long that each waiter is to see for itself."""
        failing = None if news is None else news.failing_since
        return failing is not None and now - max(began, failing) > self._patience

    def _ask(self, is_published: Callable[[], bool], began: float) -> bool | News:
        """Asks the store, and tells the others: what ``acquire`` returns, or what there is."""
        known = self._board.read()
        if known is not None and known.tag:
            self._watch.note(known.tag, known.since)
        try:
            outcome = self._try(is_published, began)
        except StoreError as error:
            # Who waits for hours should outlive a store that fails for a moment.
            now = self._clock()
            failing = None if known is None else known.failing_since
            # What is yet to come was written before this machine was started anew.
            failing = now if failing is None else min(failing, now)
            if not error.is_transient or now - max(failing, began) > self._patience:
                raise
            told = f"the store, which fails: {str(error)[:_MOST_TOLD]}"
            outcome = dataclasses.replace(
                known or News(now),
                next=self._next(began, now, self._seconds),
                told=told,
                is_over=False,
                failing_since=failing,
            )
        if isinstance(outcome, News):
            self._board.post(outcome)
        elif self._held is None:
            self._board.post(News(self._clock(), is_over=True))
        else:
            now = self._clock()
            told = self._content.told
            ask = self._next(now, now, self._seconds)
            self._board.post(News(ask, self._held.tag, now, told, looked=now))
            self._held.start_renewing()
        return outcome

    def _try(self, is_published: Callable[[], bool], began: float = 0.0) -> bool | News:
        """Takes the lease if it is free, unless it is published; else says who holds it."""
        found = self._target.read()
        now = self._clock()
        tag, told, silent = ABSENT, "somebody who was faster", False
        if found is not None:
            data, tag = found
            content = LeaseContent.parse(data, self._seconds)
            told = content.told or "somebody"
            # What we wrote ourselves, and were not told that it arrived, may be written again.
            if content.holder is not None and not self._target.is_ours(data):
                silent = self._watch.is_expired(tag, content.seconds, now)
                if not silent:
                    looked = self._looked(began, now)
                    if now - looked >= _LOOK_FOR_CACHE_EVERY * self._seconds:
                        if is_published():
                            return False
                        looked = now
                    end = self._watch.since + _TAKE_OVER_AFTER * content.seconds
                    poll = self._next(began, now, min(content.seconds, self._seconds))
                    return News(min(end, poll), tag, self._watch.since, told, looked)
        if is_published():
            return False
        self._prove()
        if silent and self._silent != tag:
            self._silent = tag
            _log.warning("Taking over %s from %s, which is silent.", self._key, told)
        written = self._target.write(self._content, tag)
        if written is None or written.content.holder is None:
            return News(now, told=told)
        self._held = HeldLease(self._target, self._content, written, self._clock)
        return True

    def _looked(self, began: float, now: float) -> float:
        """When somebody looked for the cache; who begins to wait just has."""
        known = self._board.read()
        return began if known is None else max(min(known.looked, now), began)

    def _next(self, began: float, now: float, seconds: float) -> float:
        """When to ask again."""
        longest = min(_LONGEST_POLL * seconds, _LONGEST_POLL_SECONDS)
        pause = min(max(_POLL_AFTER * (now - began), _SHORTEST_POLL * longest), longest)
        return now + pause * random.uniform(0.5, 1.0)

    # Holding

    def check(self) -> None:
        """See ``PublishLock.check``."""
        if self._held is None:
            raise LockLostError(f"the lease {self._key} is not held")
        self._held.check()

    def release(self) -> None:
        """See ``PublishLock.release``. Does nothing in a child of the process that acquired."""
        if os.getpid() != self._pid or self._held is None:
            return
        self._held.release()
        self._held = None
        self._board.post(None)


def _is_seen(is_published: Callable[[], bool]) -> bool:
    try:
        return is_published()
    except StoreError as error:
        if not error.is_transient:
            raise
        _log.info("Cannot look for what others have seen, and will try again: %s", error)
        return False
