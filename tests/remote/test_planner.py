"""The thread that turns what streams announce into ranges to fetch."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

from yogadl.remote._fetching import planner as planner_module
from yogadl.remote._fetching.planner import Planner

pytestmark = pytest.mark.once


class Reader:
    """Has nothing to fetch, and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def in_steps(self, positions: Any) -> list[Any]:
        return [positions]

    def index_ranges(self, positions: Any) -> list[Any]:
        self.asked += positions.tolist()
        return []

    def record_ranges(self, positions: Any) -> list[Any]:
        return []


def test_what_is_announced_just_when_the_thread_ends_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planner, reader = Planner(), Reader()
    condition, wait = planner._wake, planner._wake.wait
    late = [np.array([7])]

    def wait_in_vain(seconds: float) -> bool:
        # Another thread has the lock meanwhile, and this one is woken by the clock.
        assert not wait(seconds)
        if late:
            other = threading.Thread(target=planner.submit, args=(reader, late.pop()))
            condition.release()
            other.start()
            other.join()
            condition.acquire()
        return False

    monkeypatch.setattr(planner_module, "_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(condition, "wait", wait_in_vain)
    planner.submit(reader, np.array([1, 2]))
    wait_until(lambda: reader.asked == [1, 2, 7])
    wait_until(lambda: planner._thread is None)


def test_the_thread_ends_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, reader = Planner(), Reader()
    monkeypatch.setattr(planner_module, "_IDLE_SECONDS", 0.01)
    for number in range(3):
        planner.submit(reader, np.array([number]))
        wait_until(lambda: planner._thread is None)
    assert reader.asked == [0, 1, 2]
