"""Servers that permit few connections, or requests, at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from remote_rig import Always, Answer, Asked, Never, Site, desk
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl import backoff
from yogadl.dataref import RemoteDataRef
from yogadl.errors import ClosedError, ThrottledError
from yogadl.remote._fetching import desk as desk_module
from yogadl.remote._fetching import refusals
from yogadl.remote._fetching.connections import Connections
from yogadl.remote._fetching.crew import Crew
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.work_queue import WorkQueue

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


@contextlib.contextmanager
def reading_others(ref: RemoteDataRef) -> Iterator[None]:
    """Somebody reads the first twenty again and again meanwhile."""
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            ref.read(np.arange(20))

    others = threading.Thread(target=read)
    others.start()
    try:
        yield
    finally:
        is_over.set()
        others.join()


def test_a_file_that_is_refused_for_ever_is_an_error(site: Site) -> None:
    """Though others of the same server come meanwhile."""
    site.store(records(60, 40_000), spec=SPEC, part_bytes=400_000)
    with site.ref(Never()) as ref:
        assert ref[0]["number"] == 0
        last = ref.reader.files.file(len(ref.reader.files) - 1).asked.name

        def refuse(asked: Asked, made: Answer) -> Answer:
            return Answer(503, {}, b"") if last in asked.path else made

        with reading_others(ref), site.twisting(refuse), pytest.raises(ThrottledError):
            ref.read([59])


def test_a_range_that_is_refused_for_ever_is_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though others of the same file come meanwhile."""
    monkeypatch.setattr(refusals, "_TURN_TIMES", 1)
    site.store(records(60, 40_000), spec=SPEC)
    with site.ref(Never()) as ref:
        assert ref[0]["number"] == 0
        ((_, start, _),) = ref.reader.record_ranges(np.array([59]))

        def refuse(asked: Asked, made: Answer) -> Answer:
            return Answer(503, {}, b"") if asked.start <= start < asked.stop else made

        with reading_others(ref), site.twisting(refuse), pytest.raises(ThrottledError):
            ref.read([59])


@contextlib.contextmanager
def reading(ref: RemoteDataRef) -> Iterator[None]:
    """Somebody reads all of it again and again meanwhile."""
    is_over, failures = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            while not is_over.is_set():
                for _ in ref.stream(**ORDER):
                    if is_over.is_set():
                        break
        except ClosedError:
            pass
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        is_over.set()
        reader.join()
    assert not failures


@pytest.mark.parametrize("most", [1, 2])
def test_who_opens_something_is_served_though_others_read(
    site: Site, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, patience=12.0))
    near = site.store(records(60, 5_000), spec=SPEC)
    with site.ref(Never()) as ref, site.twisting(trickle):
        site.web.most_connections = most
        with reading(ref):
            wait_until(lambda: site.web.refused > 0)
            for _ in range(3):
                with site.ref(Never()) as another:
                    assert another[3]["number"] == near[3]["number"]


def test_who_opens_something_is_served_though_what_comes_takes_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, patience=12.0))
    site.store(records(6, 4_000_000), spec=SPEC)
    with site.ref(Never()) as ref, site.twisting(trickle):
        site.web.most_connections = 1
        with reading(ref):
            wait_until(lambda: site.web.refused > 0)
            site.opener(Never())().close()
            ref.close()


def test_who_opens_something_is_served_though_others_are_idle(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "_IDLE_SECONDS", 1000.0)
    site.store(records(60, 20_000), spec=SPEC)
    site.web.most_connections = 1
    with site.ref(Never()) as ref:
        ref.read([3])
        for _ in range(3):
            with site.ref(Never()) as another:
                another.read([5])


def test_who_is_idle_has_no_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a thread stays, for what waits in memory to be read."""
    monkeypatch.setattr(desk_module, "_IDLE_SECONDS", 0.2)
    near = site.store(records(), spec=SPEC)
    with site.ref(Never()) as ref:
        for number in range(0, len(ref), 3):
            assert ref[number]["number"] == number
        crew, server = desk(ref).crew, site.web._server
        wait_until(lambda: bool(fetcher().office.passing) and crew.count == 1)
        wait_until(lambda: server._count == 0)
        assert crew.count == 1
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))


def test_other_processes_are_served_now_and_then(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which nobody here knows."""
    monkeypatch.setattr(refusals, "_OTHERS_SECONDS", 0.5)
    site.store(records(60, 20_000), spec=SPEC)
    with site.ref(Never()) as ref, site.twisting(trickle):
        site.web.most_connections = 1
        with reading(ref):
            wait_until(lambda: site.web.refused > 0)
            asked = ref.reader.files.file(0).asked
            for _ in range(3):
                connections = Connections()
                ask = functools.partial(connections.head, asked, 1000, 1000, 9.0)
                backoff.retried(ask, lambda _: None, 60.0)
                connections.close()


def test_few_threads_stay_that_are_refused(site: Site) -> None:
    """They are there to see when the server permits more, and then there are more of them."""
    site.store(records(400, 20_000), spec=SPEC)
    with site.ref(Never()) as ref, site.twisting(trickle):
        crew = desk(ref).crew
        site.web.most_connections = 1
        with reading(ref):
            wait_until(lambda: site.web.refused > 10)
            wait_until(lambda: 1 < crew.count <= 10)
            for _ in range(100):
                assert crew.count <= 20
                time.sleep(0.01)
            site.web.most_connections = 1 << 30
            wait_until(lambda: crew.count > 20)


def test_pauses_grow_though_some_requests_are_served(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    def pause_after(count: int) -> float:
        failures.append(count)
        return 0.001

    monkeypatch.setattr(backoff, "pause_after", pause_after)
    site.store(records(400, 20_000), spec=SPEC)
    numbers = itertools.count()

    def busy(_asked: Asked, made: Answer) -> Answer:
        return made if next(numbers) % 2 else Answer(503, {}, b"")

    with site.ref(Never()) as ref, site.twisting(busy), reading(ref):
        wait_until(lambda: len(failures) > 500)
    assert np.mean(failures[400:500]) > 4


def test_there_are_no_more_threads_while_most_are_refused() -> None:
    mutex, is_served, ends = threading.Lock(), threading.Event(), threading.Event()
    paused: list[threading.Thread] = []

    def run() -> None:
        with mutex:
            paused.append(threading.current_thread())
            crew.is_refused()
            while not is_served.is_set():
                crew.pause(0.01)
            crew.is_served()
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
        wait_until(lambda: not crew._refused)
        with mutex:
            crew.call()
            assert crew.count == 2
    finally:
        is_served.set()
        ends.set()
    wait_until(lambda: crew.count == 0)


def test_threads_that_are_refused_are_told_when_there_are_enough() -> None:
    mutex, ends = threading.Lock(), threading.Event()
    told: list[bool] = []

    def run() -> None:
        ends.wait(30)
        with mutex:
            told.append(crew.is_refused())
            if told[-1]:
                crew.leave()

    crew = Crew(mutex, run, lambda: True)
    with mutex:
        for _ in range(20):
            crew.call()
    ends.set()
    wait_until(lambda: len(told) == 20)
    with mutex:
        assert crew.count == 20 - sum(told)
        assert 2 <= crew.count <= 10


def test_a_connection_is_kept_for_a_while() -> None:
    """By who has got it from others, or each would hardly have it before it is theirs again."""
    made, now = refusals.Refusals(threading.Lock(), WorkQueue()), time.monotonic()
    assert not made.gives_way(now - 1000)
    made.note()
    # Those that there were before it was known that others are refused.
    assert not made.gives_way(now - 1000)
    made._gave_way = now - 1000
    assert made.gives_way(now - 1000)
    assert not made.gives_way(time.monotonic())
    with made.opening.waiting():
        assert made.gives_way(time.monotonic())
    made.give_way(lambda: None)
    assert not made.gives_way(now - 1000)
    made.last = now - 1000
    made._gave_way = now - 1000
    assert not made.gives_way(now - 1000)
