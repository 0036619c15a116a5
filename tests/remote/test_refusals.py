"""Servers that permit few connections, or requests, at a time."""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
import pytest
from remote_rig import Always, Answer, Asked, Never, Site
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl import backoff
from yogadl.errors import ThrottledError
from yogadl.remote._fetching import desk
from yogadl.remote._fetching.crew import Crew

ORDER = {"shuffle": True, "shuffle_seed": 1}

pytestmark = pytest.mark.timeout(100)


@pytest.fixture(autouse=True)
def impatient(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With servers that give nothing at all."""
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, patience=3.0))


def trickle(_asked: Asked, made: Answer) -> Answer:
    made.trickles = lambda: True
    return made


@pytest.mark.parametrize(("most", "space"), [(1, Never), (2, Never), (5, Never), (5, Always)])
def test_few_connections(site: Site, most: int, space: type) -> None:
    """All of it takes longer than a server is put up with that gives nothing."""
    near = site.store(records(60, most * 20_000), spec=SPEC)
    with site.ref(space()) as ref, site.twisting(trickle):
        site.web.most_connections = most
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    assert site.web.refused


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("most", [1, 4])
def test_few_requests(site: Site, most: int, status: int) -> None:
    near = site.store(records(60, most * 20_000), spec=SPEC)
    at_once = threading.Semaphore(most)
    refused: list[Asked] = []

    def busy(asked: Asked, made: Answer) -> Answer:
        if not at_once.acquire(blocking=False):
            refused.append(asked)
            return Answer(status, {}, b"")
        # As long as it would take to send it slowly.
        time.sleep(len(made.body) / 100_000)
        at_once.release()
        return made

    with site.ref(Never()) as ref, site.twisting(busy):
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    assert refused


def test_a_file_that_is_refused_for_ever_is_an_error(site: Site) -> None:
    """Though others of the same server come meanwhile."""
    site.store(records(60, 40_000), spec=SPEC, part_bytes=400_000)
    is_over = threading.Event()
    with site.ref(Never()) as ref:
        assert ref[0]["number"] == 0
        last = ref.reader.files.file(len(ref.reader.files) - 1).asked.name

        def refuse(asked: Asked, made: Answer) -> Answer:
            return Answer(503, {}, b"") if last in asked.path else made

        def read_others() -> None:
            while not is_over.is_set():
                ref.read(np.arange(20))

        others = threading.Thread(target=read_others)
        others.start()
        try:
            with site.twisting(refuse), pytest.raises(ThrottledError):
                ref.read([59])
        finally:
            is_over.set()
            others.join()


def test_a_range_that_is_refused_for_ever_is_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though others of the same file come meanwhile."""
    monkeypatch.setattr(desk, "_TURN_TIMES", 1)
    site.store(records(60, 40_000), spec=SPEC)
    is_over = threading.Event()
    with site.ref(Never()) as ref:
        assert ref[0]["number"] == 0
        ((_, start, _),) = ref.reader.record_ranges(np.array([59]))

        def refuse(asked: Asked, made: Answer) -> Answer:
            return Answer(503, {}, b"") if asked.start <= start < asked.stop else made

        def read_others() -> None:
            while not is_over.is_set():
                ref.read(np.arange(20))

        others = threading.Thread(target=read_others)
        others.start()
        try:
            with site.twisting(refuse), pytest.raises(ThrottledError):
                ref.read([59])
        finally:
            is_over.set()
            others.join()


def test_there_are_no_more_threads_while_most_are_refused() -> None:
    mutex, is_served, ends = threading.Lock(), threading.Event(), threading.Event()
    paused: list[threading.Thread] = []

    def run() -> None:
        with mutex:
            paused.append(threading.current_thread())
            while not is_served.is_set():
                crew.pause(0.01)
        ends.wait(30)
        with mutex:
            crew.leave()

    crew = Crew(mutex, run, lambda: True)
    try:
        with mutex:
            crew.call()
        wait_until(lambda: len(paused) == 1)
        with mutex:
            for _ in range(5):
                crew.call()
            assert crew.count == 1
        is_served.set()
        wait_until(lambda: not crew._pausing)
        with mutex:
            crew.call()
            assert crew.count == 2
    finally:
        is_served.set()
        ends.set()
    wait_until(lambda: crew.count == 0)
