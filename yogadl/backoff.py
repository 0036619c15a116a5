"""Trying again what a store or the network failed to do.

There is this one back-off; the SDKs' own are switched off, so that the two do not multiply.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from yogadl.errors import StoreError
from yogadl.redaction import without_secrets

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How long failures are put up with. Documented in ``docs/cloud.md``.

    Attributes:
        patience: seconds after a request's first failure for which it is tried again.
        fewest: tries before that counts: a part that takes minutes may break off after them.
        connect: seconds that a try waits to be connected, and for a piece of 16 KiB to be taken.
        answer: seconds that a try waits for an answer, and for more of it.
        first_pause: seconds before the second try; then twice as many each time.
        longest_pause: seconds.
    """

    patience: float = 120.0
    fewest: int = 4
    connect: float = 10.0
    answer: float = 30.0
    first_pause: float = 0.25
    longest_pause: float = 8.0


LIMITS = Limits()

_TELL_AFTER = 2.0
_TRIES_WITHIN = 3


def timeouts(patience: float | None) -> tuple[float, float]:
    """Seconds to wait for a connection, and for an answer.

    Args:
        patience: of the request; in a short one there is to be time for some tries.
    """
    if patience is None:
        return LIMITS.connect, LIMITS.answer
    within = patience / _TRIES_WITHIN
    return min(LIMITS.connect, within), min(LIMITS.answer, within)


def pause_after(failures: int) -> float:
    """Seconds to wait after so many failures, one after the other."""
    pause = LIMITS.first_pause * 2.0 ** min(failures - 1, 30)
    return min(pause, LIMITS.longest_pause) * random.uniform(0.5, 1.0)


class Backoff:
    """The pauses between tries of one request, exponential and with jitter. Used by one thread.

    Args:
        patience: seconds from now after which no try begins; if ``None``, that is counted from the
            first failure, see ``Limits``.
        stop: once it is set, there is no other try.
    """

    def __init__(self, patience: float | None = None, stop: threading.Event | None = None) -> None:
        self._limits = LIMITS
        self._until = None if patience is None else time.monotonic() + patience
        self._fewest = LIMITS.fewest if patience is None else 1
        self._stop = stop
        self._failures = 0

    def progressed(self) -> None:
        """Something was done, so that what fails from now on fails for the first time."""
        self._until = None
        self._failures = 0

    def waits(self, error: StoreError) -> bool:
        """Waits until it is time for another try; ``False`` if there is to be none."""
        pause = self.next_pause(error)
        if pause is None:
            return False
        if self._stop is None:
            time.sleep(pause)
            return True
        return not self._stop.wait(pause)

    def next_pause(self, error: StoreError) -> float | None:
        """Seconds to wait until another try; ``None`` if there is to be none."""
        if not error.is_transient:
            return None
        now = time.monotonic()
        self._failures += 1
        if self._until is None:
            self._until = now + self._limits.patience
        rest = self._until - now
        if rest <= 0 and self._failures >= self._fewest:
            return None
        pause = pause_after(self._failures)
        # One try is to be at the very end.
        pause = min(pause, rest) if rest > 0 else pause
        level = logging.WARNING if pause >= _TELL_AFTER else logging.INFO
        said = without_secrets(str(error))
        longest = max(rest, pause)
        _log.log(level, "Trying again in %.1f s, for at most %.0f s: %s", pause, longest, said)
        return pause


def retried(
    request: Callable[[], Result],
    translate: Callable[[Exception], StoreError | None],
    patience: float | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """What a request returns, after as many tries as it takes.

    Args:
        request: may be carried out several times.
        translate: what an error of an SDK means, if it is one.
        patience: see ``Backoff``.
        stop: likewise.

    Raises:
        Exception: the last try's as it was, once the patience is over or if it is not transient.
    """
    backoff = Backoff(patience, stop)
    while True:
        try:
            return request()
        except Exception as error:
            failure = error if isinstance(error, StoreError) else translate(error)
            if failure is None or not backoff.waits(failure):
                raise
