"""When a request is late, by how long others took."""

from __future__ import annotations

import pytest

from yogadl import backoff
from yogadl.remote._fetching.lateness import Lateness

pytestmark = pytest.mark.once


@pytest.mark.parametrize("stalled", [0.1, 0.4])
def test_what_stalls_does_not_tell_when_others_are_late(stalled: float) -> None:
    lateness = Lateness()
    for number in range(1000):
        lateness.answered(8.0 if number % 10 < 10 * stalled else 0.01)
    lateness.again_bytes, lateness.brought_bytes = 1, 1
    assert lateness.seconds() < 2.0


@pytest.mark.parametrize("seconds", [0.5, 2.0, 20.0])
def test_where_all_are_slow_none_is_late(seconds: float) -> None:
    """But what takes nearly as long as may be is asked for once more before it breaks off; of all
    that does, little."""
    lateness = Lateness()
    for number in range(1000):
        lateness.answered(seconds * (1.0 + number % 10 / 10))
    lateness.brought_bytes = 1_000_000
    assert lateness.seconds() > min(2.5 * seconds, backoff.LIMITS.answer / 5)
    lateness.again_bytes = 10_000
    assert lateness.seconds() > min(8.0 * seconds, backoff.LIMITS.answer / 2)
    assert lateness.seconds() <= backoff.LIMITS.answer
