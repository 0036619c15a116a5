"""When a request is late, so that it is made once more."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from yogadl import backoff

# After so many times what nearly all take, or what half of them do: some may stall, and as those
# end together, they are many of the last. But not before so many seconds; and after this share of
# the time for which an answer is waited for, or it were of no use.
_LATE_TIMES, _HALF_TIMES = 3.0, 16.0
_LATE_SECONDS, _LATE_SHARE = 0.25, 0.25
# Where more than this share of all bytes came late, it is this machine that is busy, and to ask
# again makes it worse: what is as late as this then is.
_RARE, _LATER_TIMES = 0.005, 4
_LATENCIES = 128
# What comes so many times more slowly than most of what is as large, once so much is known, is
# slow by itself, and not the network.
_SLOW_TIMES, _MOST = 4.0, 0.75
_RATES, _FEWEST_RATES, _TOLD_BYTES = 16, 3, 64 << 10


class Lateness:
    """Of the requests of a process. For one thread at a time.

    Attributes:
        brought_bytes: that came.
        again_bytes: that were asked for once more.
    """

    def __init__(self) -> None:
        self._latencies: collections.deque[float] = collections.deque(maxlen=_LATENCIES)
        self._rates: collections.deque[float] = collections.deque(maxlen=_RATES)
        self.brought_bytes = 0
        self.again_bytes = 0

    def answered(self, seconds: float) -> None:
        """Notes how long an answer took to begin or to go on; may be called by any thread."""
        self._latencies.append(seconds)

    def came(self, nbytes: int, seconds: float) -> None:
        """Notes how long so many bytes took."""
        self.brought_bytes += nbytes
        if nbytes >= _TOLD_BYTES:
            self._rates.append(nbytes / max(seconds, 1e-6))

    def is_slow(self, rate: float, others: Iterable[float]) -> bool:
        """Whether something comes much more slowly than the rest.

        Args:
            rate: bytes of it in a second.
            others: likewise of all that is coming.
        """
        known = sorted([*self._rates, *others])
        return len(known) >= _FEWEST_RATES and _SLOW_TIMES * rate < known[int(_MOST * len(known))]

    def seconds(self) -> float:
        """After how long without any byte a request is late."""
        known = sorted(self._latencies)
        if len(known) < _LATENCIES // 8:
            late = 4 * _LATE_SECONDS
        else:
            nearly_all, half = (known[int(share * len(known))] for share in (0.95, 0.5))
            late = min(_LATE_TIMES * nearly_all, _HALF_TIMES * half)
            late = max(_LATE_SECONDS, min(late, _LATE_SHARE * backoff.LIMITS.answer))
        is_rare = self.again_bytes <= _RARE * self.brought_bytes
        return late if is_rare else _LATER_TIMES * late
