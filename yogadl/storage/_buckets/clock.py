"""The clock by which leases are judged."""

from __future__ import annotations

import time


def boot_seconds() -> float:
    """Seconds since this machine was started, or since some moment; the same in all processes.

    ``time.monotonic`` stands still while Linux is suspended: to the holder of a lease that slept
    for an hour, hardly any time would have passed. Elsewhere it goes on.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
