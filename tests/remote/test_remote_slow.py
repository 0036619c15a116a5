"""What comes slowly as a whole does not keep waiting who needs some of it soon."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from remote_rig import Always, Answer, Asked, Never, Site
from test_remote_plan import is_nothing_fetched, store
from waiting import wait_until

from yogadl.remote._fetching import bulk_queue, lateness, planner, work_queue
from yogadl.remote._fetching import work as work_module
from yogadl.remote._fetching.bulk_queue import LARGE_BYTES
from yogadl.remote._fetching.urgency import Urgency
from yogadl.remote._fetching.work import Bulk, RemoteFile, Work
from yogadl.remote._local.sparse_file import CELL
from yogadl.remote._open import HEAD_BYTES

pytestmark = pytest.mark.once

PIECE = 4 << 20


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 4)
    # What does not come at all is asked for again in any case.
    monkeypatch.setattr(lateness, "_LATE_SECONDS", 1000.0)


@pytest.fixture
def slow(site: Site) -> Iterator[Callable[[], None]]:
    """What is large trickles until this is called."""
    is_over = threading.Event()

    def trickle(asked: Asked, made: Answer) -> Answer:
        if asked.start and asked.stop - asked.start >= PIECE // 2:
            made.trickles = lambda: not is_over.is_set()
        return made

    with site.twisting(trickle):
        yield is_over.set
        is_over.set()


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("shape", [(160, 100_000), (5_000, 3_000)], ids=["large", "small"])
def test_the_first_records_overtake_bulk(
    site: Site,
    slow: Callable[[], None],
    shape: tuple[int, int],
    at_once: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not at_once:
        monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", PIECE)
    count = store(site, shape, None)
    with site.ref() as ref:
        batches = iter(ref.stream(shuffle=True, shuffle_seed=1).batches(16))
        found = [int(n) for batch in itertools.islice(batches, 2) for n in batch["number"]]
        is_cut = sum(each.stop - each.start for each in site.web.asked) > ref.reader.files.nbytes
        # What trickles would have come after a minute.
        assert is_cut or not is_nothing_fetched()
        slow()
        found += [int(n) for batch in batches for n in batch["number"]]
        order = ref.stream(shuffle=True, shuffle_seed=1)
        assert found == [int(record["number"]) for record in order]
        assert len(found) == count
        wait_until(is_nothing_fetched)
        pieces = ref.reader.files.file(0).pieces
        assert pieces.is_kept(0, ref.reader.files.nbytes)
        assert not pieces.memory


@pytest.mark.parametrize("at_once", [True, False])
def test_many_first_records_come_twice_but_a_little(
    site: Site, slow: Callable[[], None], monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Small ones that have a fifth of all bytes; bulk is cut off, so that they need not wait."""
    if not at_once:
        monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", PIECE)
    count = store(site, (160, 50_000), None)
    with site.ref() as ref:
        batches = iter(ref.stream(shuffle=True, shuffle_seed=1).batches(32))
        found = [int(n) for n in next(batches)["number"]]
        slow()
        found += [int(n) for batch in batches for n in batch["number"]]
        assert sorted(found) == list(range(count))
        wait_until(is_nothing_fetched)
        files = ref.reader.files
        assert files.traffic.nbytes < 1.02 * files.nbytes
        assert files.file(0).pieces.is_kept(0, files.nbytes)
        assert not files.file(0).pieces.memory


def test_large_records_are_not_kept_waiting_by_bulk(
    site: Site, slow: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do many of their bytes come twice, nor are any left out."""
    claimed, put_back = [], bulk_queue.BulkQueue.put_back

    def noted(self: bulk_queue.BulkQueue, work: Work, start: int, *how: Any) -> None:
        # What is claimed is passed over.
        claimed.append(work.file.pieces.is_claimed(start, work.stop))
        put_back(self, work, start, *how)

    monkeypatch.setattr(bulk_queue.BulkQueue, "put_back", noted)
    count = store(site, (160, 100_000), None)
    with site.ref() as ref:
        batches = iter(ref.stream(shuffle=True, shuffle_seed=1).batches(16))
        found = [int(n) for batch in itertools.islice(batches, 6) for n in batch["number"]]
        slow()
        found += [int(n) for batch in batches for n in batch["number"]]
        order = ref.stream(shuffle=True, shuffle_seed=1)
        assert found == [int(record["number"]) for record in order]
        assert sorted(found) == list(range(count))
        wait_until(is_nothing_fetched)
        traffic, size = ref.reader.files.traffic, ref.reader.files.nbytes
        # What is cut off may have come in part.
        assert traffic.nbytes < 1.05 * size + 4 * 256 * 1024
        assert ref.reader.files.file(0).pieces.is_kept(0, size)
        assert claimed
        assert not any(claimed)


def test_what_is_waited_for_is_looked_at_seldom_if_that_takes_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, hurry = [], Urgency.hurry

    def slowly(self: Urgency, *given: Any) -> bool:
        looks.append(time.monotonic())
        busy_until = time.thread_time() + 0.1
        while time.thread_time() < busy_until:
            pass
        return hurry(self, *given)

    def late(asked: Asked, made: Answer) -> Answer:
        made.stalls = 2.0
        return made

    store(site, (40, 100_000), None)
    with site.ref() as ref:
        ref.read([0])
        monkeypatch.setattr(Urgency, "hurry", slowly)
        with site.twisting(late):
            ref.read([20])
        # Half a second from one to the next; a look every fifth of a second, which takes a tenth,
        # would begin again after less.
        gaps = [second - first for first, second in itertools.pairwise(looks)]
        assert gaps
        assert min(gaps) > 0.4


def bulk_of(file: RemoteFile, stop: int) -> Bulk:
    return Bulk(iter([(file, HEAD_BYTES, stop)]), stop - HEAD_BYTES, file.traffic)


def test_bulk_is_cut_whose_answer_has_just_begun(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at what is late and the cut, of which its thread knows nothing."""
    store(site, (160, 100_000), None)
    late = bulk_queue.BulkQueue._late

    def begins(queue: bulk_queue.BulkQueue, *where: Any) -> list[Work]:
        found = late(queue, *where)
        for work in found:
            work.answered = work.progressed = time.monotonic()
        return found

    monkeypatch.setattr(bulk_queue.BulkQueue, "_late", begins)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        bulk = bulk_of(file, HEAD_BYTES + PIECE)
        queue.bulk.add(bulk)
        work = taken(queue)
        work.progressed -= 10
        queue.bulk.cut(file, work.stop - LARGE_BYTES, work.stop)
        assert work.is_cut
        assert bulk.piece == PIECE
        finish(queue, work)


def test_bulk_that_is_cut_comes_later_in_smaller_pieces(site: Site) -> None:
    store(site, (160, 100_000), None)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        bulk = bulk_of(file, HEAD_BYTES + PIECE)
        queue.bulk.add(bulk)
        work = taken(queue)
        assert (work.start, work.stop) == (HEAD_BYTES, HEAD_BYTES + PIECE)
        assert not queue.bulk.has_any()
        last = (file, work.stop - LARGE_BYTES, work.stop)
        queue.bulk.cut(*last)
        # It cannot be told yet.
        assert not work.is_cut
        came = 16 * CELL
        work.nbytes, work.answered = came, time.monotonic() - 10
        queue.bulk.cut(file, work.stop - CELL, work.stop)
        queue.bulk.cut(file, work.stop, work.stop + LARGE_BYTES)
        assert not work.is_cut
        queue.bulk.cut(*last)
        assert work.is_cut
        finish(queue, work)
        queue.bulk.put_back(work, work.start + came)
        assert queue.bulk.has_any_of(file.traffic)
        assert bulk.passed == came
        file.pieces.mark(work.start, work.start + came)
        # What somebody has read meanwhile, and does not keep.
        file.pieces.memory.add(work.start + PIECE // 2, memoryview(bytes(LARGE_BYTES)))
        again = taken(queue)
        assert (again.start, again.stop) == (work.start + came, work.start + came + (256 << 10))
        # When it is quick again, pieces are as large as before.
        sizes = [again.stop - again.start]
        while True:
            again.answered = time.monotonic()
            file.pieces.mark(again.start, again.stop)
            finish(queue, again)
            if (work := queue.take(1 << 30)) is None:  # type: ignore[assignment]
                break
            again = work
            sizes.append(again.stop - again.start)
        assert sum(sizes) == PIECE - came
        assert sizes[:4] == [256 << 10, 512 << 10, 1 << 20, 2 << 20]
        assert not bulk.is_late
        assert file.pieces.is_kept(HEAD_BYTES, HEAD_BYTES + PIECE)


def taken(queue: work_queue.WorkQueue) -> Work:
    work = queue.take(1 << 30)
    assert work is not None
    return work


def finish(queue: work_queue.WorkQueue, work: Work) -> None:
    queue.flying.discard(work)
    queue.bulk.note_end(work)
    work.file.pieces.release(work.start, work.stop, work.is_bulk)


def test_bulk_that_failed_is_not_put_back(site: Site) -> None:
    store(site, (160, 100_000), None)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        bulk = bulk_of(file, HEAD_BYTES + PIECE)
        queue.bulk.add(bulk)
        work = taken(queue)
        finish(queue, work)
        queue.bulk.end(bulk)
        queue.bulk.put_back(work, work.start + CELL)
        assert not queue.bulk.has_any()


def test_how_long_it_takes_until_an_offset_has_come(site: Site) -> None:
    store(site, (160, 100_000), None)
    with site.ref() as ref:
        work = Work(ref.reader.files.file(0), 1000, 9000, progressed=100.0)
        soon, late = 100.0 + work_module._TOLD_SECONDS / 2, 100.0 + 2 * work_module._ANSWER_SECONDS
        assert (work.seconds_to(9000, soon), work.seconds_to(9000, late)) == (0.0, math.inf)
        work.answered, work.nbytes = 101.0, 2000
        assert work.seconds_to(9000, 101.1) == 0.0
        assert work.seconds_to(9000, 102.0) == 3.0
        assert work.seconds_to(20_000, 102.0) == 3.0
        assert work.seconds_to(4000, 102.0) == 0.5
        assert work.seconds_to(2000, 102.0) == 0.0


def test_what_is_left_to_bulk_is_fetched_when_that_is_late(site: Site) -> None:
    """All of the rest comes at once, so what streams need next of it need not come by itself."""
    store(site, (160, 100_000), None)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        bulk = bulk_of(file, HEAD_BYTES + 2 * PIECE)
        queue.bulk.add(bulk)
        work = taken(queue)
        begin = HEAD_BYTES + PIECE
        wanted = [Work(file, at, at + LARGE_BYTES) for at in (begin, begin + LARGE_BYTES)]
        queue.soon.extend(wanted)
        # There is more bulk, which has more connections.
        bulk.work = Work(file, begin + 4 * LARGE_BYTES, begin + PIECE, bulk)
        second = taken(queue)
        assert second.is_bulk
        assert list(bulk.left) == wanted
        work.nbytes, work.answered = CELL, time.monotonic() - 10
        bulk.work = Work(file, begin + PIECE, begin + PIECE + CELL, bulk)
        queue.bulk.cut(file, HEAD_BYTES, HEAD_BYTES + LARGE_BYTES)
        assert bulk.is_late
        found = [taken(queue) for _ in wanted]
        assert [(each.start, each.stop) for each in found] == [
            (each.start, each.stop) for each in wanted
        ]
        for each in (work, second, *found):
            finish(queue, each)


@pytest.mark.parametrize("space", [Always, Never])
def test_what_comes_much_more_slowly_than_others_is_cut_off(site: Site, space: type) -> None:
    """Though it never stops; nor does much of it come twice."""
    slow: list[Asked] = []
    is_over = threading.Event()

    def trickle(asked: Asked, made: Answer) -> Answer:
        if asked.stop - asked.start >= PIECE // 2 and not slow:
            slow.append(asked)
            made.trickles = lambda: not is_over.is_set()
        return made

    count = store(site, (160, 100_000), None)
    try:
        with site.twisting(trickle), site.ref(space()) as ref:
            found = [int(n) for batch in ref.stream().batches(16) for n in batch["number"]]
            assert found == list(range(count))
            files = ref.reader.files
            assert files.traffic.nbytes < 1.02 * files.nbytes
    finally:
        is_over.set()
    # Otherwise all of that answer was waited for.
    (first,) = slow
    assert any(first.start < it.start < first.stop for it in site.web.asked)


def test_what_comes_as_slowly_as_all_else_is_not_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trickle(asked: Asked, made: Answer) -> Answer:
        made.trickles = lambda: True
        return made

    monkeypatch.setattr(planner, "_LARGEST_RANGE", 400_000)
    count = store(site, (160, 30_000), None)
    with site.ref(Never()) as ref, site.twisting(trickle):
        found = [int(n) for batch in ref.stream().batches(16) for n in batch["number"]]
        assert found == list(range(count))
        files = ref.reader.files
        assert files.traffic.nbytes < 1.02 * files.nbytes
    starts = [it.start for it in site.web.asked]
    stops = [it.stop for it in site.web.asked]
    assert len(set(stops)) == len(stops)
    assert len(set(starts)) == len(starts)
