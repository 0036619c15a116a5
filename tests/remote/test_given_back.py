"""What Ctrl-C takes from its owner is given back, wherever it comes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from remote_rig import Never, Site
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl.remote._fetching import urgency
from yogadl.remote._fetching.fetcher import Fetcher, fetcher
from yogadl.remote._fetching.given_back import GivenBack
from yogadl.remote._fetching.work import Small, Work
from yogadl.remote._fetching.work_queue import WorkQueue


def test_it_is_given_back_once_its_token_has_ended() -> None:
    given: list[int] = []
    back = GivenBack()
    tokens = {number: back.token(lambda number=number: given.append(number)) for number in range(4)}
    back.look()
    assert not given
    for number in (2, 0):
        del tokens[number]
    assert not given
    back.look()
    back.look()
    assert given == [2, 0]


def test_what_is_interrupted_is_given_back_later() -> None:
    given: list[str] = []

    def give_back() -> None:
        given.append("begun")
        if len(given) == 1:
            raise KeyboardInterrupt
        given.append("done")

    back = GivenBack()
    back.token(give_back)
    with pytest.raises(KeyboardInterrupt):
        back.look()
    back.look()
    assert given == ["begun", "begun", "done"]


class Interrupting:
    """A lock of which the one taking of a number is ended by Ctrl-C, before or after it."""

    def __init__(self, lock: Any, number: int) -> None:
        self.lock = lock
        self.left = number
        self.thread = threading.current_thread()

    def __enter__(self) -> None:
        if threading.current_thread() is self.thread:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@contextlib.contextmanager
def interrupted(made: Fetcher, number: int) -> Iterator[Interrupting]:
    lock = made._mutex
    made._mutex = interrupting = Interrupting(lock, number)  # type: ignore[assignment]
    try:
        yield interrupting
    finally:
        made._mutex = lock


@pytest.mark.parametrize("small", list(Small))
def test_nothing_stays_held(site: Site, small: Small) -> None:
    """Nor in memory, where there is no room to keep it."""
    site.store(records(40), spec=SPEC)
    made, number, is_left = fetcher(), 0, False
    with site.ref(Never()) as ref:
        while not is_left:
            number += 1
            wanted = ref.reader.record_ranges(np.array([number % 40]))
            with interrupted(made, number) as lock:
                try:
                    with made.holding(wanted, small=small):
                        pass
                    is_left = lock.left > 0
                except KeyboardInterrupt:
                    assert lock.left <= 0
            with made.holding(wanted):
                pass
            assert not made.office.passing._held
            assert not wanted[0][0].pieces.memory._held
    assert number > 2
    del wanted
    wait_until(lambda: not made.office.passing, 20)


def test_a_claim_that_nobody_lets_go_of(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C has ended who had claimed it; others get the bytes all the same."""
    near = site.store(records(40), spec=SPEC)
    monkeypatch.setattr(urgency, "_OTHERS_SECONDS", 0.2)
    with site.ref() as ref:
        pieces, size = ref.reader.files.file(0).pieces, int(ref.reader.files.sizes[0])
        left = pieces.missing(0, size)
        for start, stop in left:
            assert pieces.claim(start, stop) == stop
        assert everything(ref.stream()) == everything(near.stream())


def test_a_thread_that_ends_by_an_error_is_not_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = site.store(records(40), spec=SPEC)
    left, plain = iter(range(5)), WorkQueue.take
    ended: list[object] = []

    def take(queue: WorkQueue, room: int) -> Work | None:
        if next(left, None) is not None:
            raise MemoryError
        return plain(queue, room)

    monkeypatch.setattr(threading, "excepthook", ended.append)
    monkeypatch.setattr(WorkQueue, "take", take)
    with site.ref() as ref:
        assert everything(ref.stream()) == everything(near.stream())
    assert len(ended) == 5
    crews = [desk.crew for desk in fetcher().office.desks.values()]

    def running() -> int:
        return sum(thread.name == "yogadl fetch" for thread in threading.enumerate())

    wait_until(lambda: sum(crew.count for crew in crews) == running())


def test_whole_files_are_compared_though_that_was_interrupted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = site.store(records(40), spec=SPEC)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with site.ref() as ref:
        with monkeypatch.context() as patched:
            patched.setattr(ref.reader._near, "_are_coming", lambda: True)
            patched.setattr(ref.reader._near, "_start_check", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ref.reader._whole()
        assert everything(ref.stream()) == everything(near.stream())
        wait_until(lambda: ref.reader._whole() is not None)
