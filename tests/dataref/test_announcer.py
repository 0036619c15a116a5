"""Batches are announced where the page cache lacks them, and not looked for too often elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from yogadl.cache.record_reader import RecordReader
from yogadl.dataref._announcer import BatchAnnouncer


class Recording(RecordReader):
    """Notes what it is asked for and told; has the records below ``limit`` in memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.asked: list[list[int]] = []
        self.announced: list[list[int]] = []

    def are_cached(self, positions: Any) -> bool:
        self.asked.append(positions.tolist())
        return bool((positions < self.limit).all())

    def announce(self, positions: Any) -> None:
        self.announced.append(positions.tolist())

    def __len__(self) -> int:
        return 1000

    @property
    def content_id(self) -> str:
        return "recording"

    def _columns(self, positions: Any, out: Any, spans: bool) -> Any:
        raise AssertionError("an announcer does not read")

    def _record(self, position: int) -> Any:
        raise AssertionError("an announcer does not read")

    @property
    def record_bytes(self) -> int:
        return 1

    def close(self) -> None:
        pass


BATCH = np.arange(32)


def test_every_batch_that_is_missing_is_announced() -> None:
    reader, announcer = Recording(0), BatchAnnouncer()
    for _ in range(5):
        announcer.before(reader, BATCH)
    assert reader.announced == [BATCH.tolist()] * 5
    assert reader.asked == [BATCH[::4].tolist()] * 5


def test_what_is_in_memory_is_looked_for_less_and_less() -> None:
    reader, announcer = Recording(1000), BatchAnnouncer()
    asked_at = []
    for number in range(100):
        before = len(reader.asked)
        announcer.before(reader, BATCH)
        if len(reader.asked) > before:
            asked_at.append(number)
    assert [len(samples) for samples in reader.asked[:5]] == [8, 4, 2, 1, 1]
    # After as many batches as before and one more, up to every 16th.
    assert asked_at == [0, 1, 2, 3, 5, 9, 17, *range(33, 100, 16)]
    assert reader.announced == []


def test_a_batch_that_is_missing_has_all_looked_at_again() -> None:
    reader, announcer = Recording(1000), BatchAnnouncer()
    for _ in range(50):
        announcer.before(reader, BATCH)
    reader.limit = 0
    for _ in range(16):
        announcer.before(reader, BATCH)
    count = len(reader.announced)
    assert count >= 1
    for _ in range(3):
        announcer.before(reader, BATCH)
    assert len(reader.announced) == count + 3
    assert len(reader.asked[-1]) == 8


@pytest.mark.parametrize("count", range(18))
def test_batches_of_any_size(count: int) -> None:
    reader, announcer = Recording(0), BatchAnnouncer()
    announcer.before(reader, np.arange(count))
    assert reader.announced == ([list(range(count))] if count else [])
    assert all(1 <= len(samples) <= 8 for samples in reader.asked)
