"""What becomes of ranges that somebody waits for, and how who waits is told."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remote_rig import Always, Answer, Asked, Site
from test_remote_plan import is_nothing_fetched, store
from waiting import wait_until

from yogadl import backoff
from yogadl.cache.traffic import Traffic
from yogadl.errors import AccessDeniedError, ClosedError
from yogadl.remote._fetching import fetcher
from yogadl.remote._fetching.urgency import _Known
from yogadl.remote._fetching.work import RemoteFile, Work
from yogadl.remote._fetching.work_queue import WorkQueue
from yogadl.remote._local.sparse_file import CELL

pytestmark = pytest.mark.once


def test_who_waits_is_told_however_seldom_is_looked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it was closed, or cannot be had."""
    is_over = threading.Event()

    def stall(asked: Asked, made: Answer) -> Answer:
        is_over.wait(60)
        return made

    def deny(asked: Asked, made: Answer) -> Answer:
        # Somebody waits by then, and has looked.
        time.sleep(0.3)
        return Answer(403, {}, b"")

    monkeypatch.setattr(fetcher, "_LOOK_SHARE", 10**9)
    monkeypatch.setattr(fetcher, "_SELDOM_SECONDS", 10.0**9)
    store(site, (40, 100_000), None)
    with site.ref() as ref, ThreadPoolExecutor() as pool:
        with site.twisting(deny), pytest.raises(AccessDeniedError):
            pool.submit(ref.read, [20]).result(30)
        with site.twisting(stall):
            reading = pool.submit(ref.read, [30])
            wait_until(lambda: not is_nothing_fetched())
            ref.close()
            try:
                with pytest.raises(ClosedError):
                    reading.result(30)
            finally:
                is_over.set()


def test_who_opens_it_again_waits_for_nothing_that_was_asked_for_before(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process: neither for what was claimed, nor for what was asked for once more."""
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, answer=100.0))
    is_over, stalled = threading.Event(), []

    def stall(asked: Asked, made: Answer) -> Answer:
        if asked.start:
            stalled.append(asked.start)
            is_over.wait(100)
        return made

    store(site, (40, 100_000), None)
    with ThreadPoolExecutor() as pool:
        try:
            with site.twisting(stall), site.ref(Always()) as first:
                reading = pool.submit(first.read, [30])
                wait_until(lambda: len(stalled) > len(set(stalled)))
                first.close()
                with pytest.raises(ClosedError):
                    reading.result(30)
            with site.ref(Always()) as again:
                reading = pool.submit(again.read, [30])
                assert reading.result(40)["number"].tolist() == [30]
        finally:
            is_over.set()


def made_file() -> RemoteFile:
    nothing = cast(Any, None)
    return RemoteFile(nothing, 0, cast(Any, object()), Traffic(), nothing, threading.Event())


FILES = [made_file(), made_file(), made_file()]
# It was open before, and is again.
FILES[2].pieces = FILES[0].pieces
FILES[2].ended.set()


@given(st.data())
def test_what_is_asked_for_twice_is_looked_up(data: st.DataObject) -> None:
    """As looking through all work finds it."""
    queue = WorkQueue()
    ranges = st.tuples(st.sampled_from(FILES), st.integers(0, 12), st.integers(1, 5))
    works = st.lists(st.tuples(ranges, st.booleans()), max_size=6)

    def work_of(drawn: Any) -> Work:
        (file, first, count), is_claimed = drawn
        return Work(file, first * CELL, (first + count) * CELL, is_claimed=is_claimed)

    queue.urgent.extend(map(work_of, data.draw(works)))
    queue.flying.update(map(work_of, data.draw(works)))
    known = _Known(queue)
    for work in map(work_of, data.draw(works)):
        queue.urgent.append(work)
        known.note(work)
    for file, first, count in data.draw(st.lists(ranges, max_size=6)):
        start, stop = first * CELL, (first + count) * CELL
        plain = any(
            not work.is_claimed and work.touches(file, start, stop) and not work.file.ended.is_set()
            for work in (*queue.urgent, *queue.flying)
        )
        assert known.has_second(file, start, stop) == plain
    assert known.urgent == {(work.file, work.start) for work in queue.urgent}
