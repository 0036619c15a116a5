"""What comes as a whole, in large pieces."""

from __future__ import annotations

import itertools
import math
import pathlib
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from remote_rig import Answer, Asked, Site, make_site
from test_remote_plan import is_nothing_fetched, store
from test_remote_processes import claiming
from waiting import wait_until

from yogadl.remote import _fetcher, _queue
from yogadl.remote._open import HEAD_BYTES
from yogadl.remote._planner import FIRST_RECORDS
from yogadl.remote._sparse_file import CELL
from yogadl.remote._work import Bulk, Range, Work

pytestmark = pytest.mark.once

PIECE = 1 << 16


def _another(folder: pathlib.Path) -> Iterator[Site]:
    folder.mkdir()
    site = make_site(folder)
    try:
        yield site
    finally:
        site.web.close()


@pytest.fixture
def second(tmp_path: pathlib.Path) -> Iterator[Site]:
    yield from _another(tmp_path / "second")


@pytest.fixture
def third(tmp_path: pathlib.Path) -> Iterator[Site]:
    yield from _another(tmp_path / "third")


def test_data_sets_take_turns(
    site: Site, second: Site, third: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small one need not wait until a large one has come, nor one that comes record by record."""
    monkeypatch.setattr(_queue, "BULK_BYTES", PIECE)
    for each in (site, second, third):
        store(each, (400, 3_000), None)
    with site.ref() as large, second.ref() as small, third.ref() as shard:
        found = [ref.reader.files for ref in (large, small, shard)]
        queue = _queue.WorkQueue()
        # What lies before was read when they were opened.
        begin = HEAD_BYTES
        for files, pieces in zip(found[:2], (10, 2), strict=True):
            whole = (files.file(0), begin, begin + pieces * PIECE)
            queue.add_bulk(Bulk(iter([whole]), pieces * PIECE, files.traffic))
        behind = begin + 12 * PIECE
        wanted = [Work(files.file(0), behind, behind + CELL) for files in found]
        queue.soon.extend([wanted[2], wanted[0]])
        taken = []
        while (work := queue.take(1 << 30)) is not None and len(taken) < 7:
            taken.append(work)
        places = {id(files.traffic): number for number, files in enumerate(found)}
        numbers = [places[id(work.file.traffic)] for work in taken]
        # What is small waits for its own bulk only.
        assert numbers == [2, 0, 1, 0, 1, 0, 0]
        assert list(queue.soon) == [wanted[0]]
        assert queue.has_bulk(found[0].traffic)
        assert not queue.has_bulk(found[1].traffic)
        for work in queue.flying:
            work.file.pieces.release(work.start, work.stop, work.is_bulk)


@pytest.mark.parametrize(("pieces", "begun"), [(4, 4), (5, 2)])
def test_until_the_first_records_are_asked_for_much_bulk_has_some_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch, pieces: int, begun: int
) -> None:
    """What comes at once need not wait, since the first records come with it."""
    monkeypatch.setattr(_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(_queue, "BULK_CONNECTIONS", 4)
    monkeypatch.setattr(_queue, "HELD_CONNECTIONS", 2)
    monkeypatch.setattr(_queue, "AT_ONCE_BYTES", 4 * PIECE)
    monkeypatch.setattr(_queue, "_HOLD_SECONDS", 1000.0)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, queue = ref.reader.files, _queue.WorkQueue()
        whole = (files.file(0), HEAD_BYTES, HEAD_BYTES + pieces * PIECE)
        queue.add_bulk(Bulk(iter([whole]), pieces * PIECE, files.traffic))

        def taken() -> int:
            return len(list(iter(lambda: queue.take(1 << 30), None)))

        assert taken() == begun
        assert queue.start_bulk() == (begun < pieces)
        assert taken() == min(pieces, 4) - begun
        for work in queue.flying:
            work.file.pieces.release(work.start, work.stop, work.is_bulk)


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("processes", [2, 100])
def test_processes_of_a_machine_share_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch, processes: int, is_small: bool
) -> None:
    """And those that are first do not begin in full while others look for their first records."""
    monkeypatch.setattr(_queue, "BULK_BYTES", CELL)
    monkeypatch.setattr(_queue, "BULK_CONNECTIONS", 16)
    monkeypatch.setattr(_queue, "MACHINE_CONNECTIONS", 20)
    monkeypatch.setattr(_queue, "HELD_CONNECTIONS", 8)
    monkeypatch.setattr(_queue, "AT_ONCE_BYTES", CELL)
    monkeypatch.setattr(_queue, "_HOLD_SECONDS", 1000.0)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, queue = ref.reader.files, _queue.WorkQueue()
        whole = (files.file(0), HEAD_BYTES, HEAD_BYTES + 100 * CELL)
        bulk = Bulk(iter([whole]), 100 * CELL, files.traffic, processes, is_small)
        queue.add_bulk(bulk)

        def under_way() -> int:
            while queue.take(1 << 30) is not None:
                pass
            assert queue.free_for_bulk() <= 0
            return len(queue.flying)

        assert under_way() == max(8 // processes, 2)
        assert queue.start_bulk() != is_small
        assert under_way() == max((8 if is_small else 20) // processes, 2)
        # The time is over; they are taken for counted just now, and then for gone.
        queue._holds_bulk_until = 0.0
        bulk.begun, bulk.counted = 0.0, math.inf
        assert under_way() == max(20 // processes, 2)
        bulk.counted = 0.0
        assert under_way() == 16
        assert bulk.processes == 1
        for work in queue.flying:
            work.file.pieces.release(work.start, work.stop, work.is_bulk)


def test_what_is_small_is_not_asked_for_by_itself_while_all_of_it_comes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the first records."""
    monkeypatch.setattr(_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(_queue, "BULK_CONNECTIONS", 4)
    monkeypatch.setattr(_queue, "HELD_CONNECTIONS", 1)
    monkeypatch.setattr(_queue, "AT_ONCE_BYTES", PIECE)
    store(site, (800, 3_000), None)

    def slowly(_asked: Asked, made: Answer) -> Answer:
        made.stalls = 0.02
        return made

    with site.twisting(slowly), site.ref() as ref:
        for _batch in ref.stream(shuffle=True, shuffle_seed=1).batches(FIRST_RECORDS):
            pass
        pieces = -(-ref.reader.files.nbytes // PIECE)
        alone = len(site.web.asked) - pieces
    # Their entries, too.
    assert 1 <= alone <= 2 * FIRST_RECORDS + 1


@pytest.mark.parametrize("is_quick", [True, False])
def test_what_is_small_is_not_left_to_bulk_that_takes_long(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_quick: bool
) -> None:
    monkeypatch.setattr(_queue, "BULK_BYTES", PIECE)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, queue = ref.reader.files, _queue.WorkQueue()
        file = files.file(0)
        bulk = Bulk(iter([(file, HEAD_BYTES, file.size)]), file.size, files.traffic)
        queue.add_bulk(bulk)
        small = (file, file.size // CELL * CELL - CELL, file.size // CELL * CELL)
        assert queue.is_coming(*small)
        assert not queue.is_coming(file, HEAD_BYTES, HEAD_BYTES + _queue.LARGE_BYTES)
        work = queue.take(1 << 30)
        assert work is not None
        assert bulk.passed == PIECE
        # What is missing of that, being damaged or left by who was killed, bulk does not bring.
        assert not queue.is_coming(file, HEAD_BYTES, HEAD_BYTES + CELL)
        # Of all of it, so much has begun to come after so many seconds.
        would_take = _queue._QUICK_SECONDS * (0.9 if is_quick else 1.1)
        monkeypatch.setattr(_queue, "_SOON_SECONDS", 0.0)
        bulk.begun -= would_take * PIECE / file.size
        assert queue.is_coming(*small) == is_quick
        # It stands still.
        bulk.moved -= _queue._STILL_SECONDS
        assert not queue.is_coming(*small)
        bulk.moved = time.monotonic()
        assert queue.is_coming(*small) == is_quick
        queue.end_bulk(bulk)
        assert not queue.is_coming(*small)
        file.pieces.release(work.start, work.stop, work.is_bulk)


def test_records_come_though_bulk_that_was_to_bring_them_stands_still(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(_queue, "BULK_CONNECTIONS", 2)
    monkeypatch.setattr(_queue, "HELD_CONNECTIONS", 2)
    monkeypatch.setattr(_queue, "AT_ONCE_BYTES", PIECE)
    monkeypatch.setattr(_queue, "_SOON_SECONDS", 0.2)
    count = store(site, (800, 3_000), None)
    is_over = threading.Event()

    def stand_still(asked: Asked, made: Answer) -> Answer:
        if asked.stop - asked.start == PIECE:
            is_over.wait(60)
        return made

    with site.twisting(stand_still), site.ref() as ref:
        batches = ref.stream(shuffle=True, shuffle_seed=1).batches(1)
        numbers = [int(batch["number"][0]) for batch in itertools.islice(batches, 60)]
        is_over.set()
        records = ref.stream(shuffle=True, shuffle_seed=1)
        assert numbers == [int(record["number"]) for record in itertools.islice(records, 60)]
        assert len(set(numbers)) == 60 < count


def test_the_first_records_need_not_wait_for_bulk_that_has_claimed_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for beside it; and nothing of them stays in memory."""
    monkeypatch.setattr(_queue, "BULK_BYTES", 16 * PIECE)
    monkeypatch.setattr(_queue, "AT_ONCE_BYTES", PIECE)
    monkeypatch.setattr(_queue, "BULK_CONNECTIONS", 2)
    # What is late is asked for again in any case.
    monkeypatch.setattr(_fetcher, "_LATE_SECONDS", 1000.0)
    store(site, (1200, 3_000), None)
    is_over = threading.Event()

    def stand_still(asked: Asked, made: Answer) -> Answer:
        if asked.stop - asked.start >= PIECE and asked.start > 0 and asked.stop != asked.size:
            is_over.wait(60)
        return made

    with site.twisting(stand_still), site.ref() as ref:
        batches = iter(ref.stream(shuffle=True, shuffle_seed=1).batches(16))
        first = [next(batches) for _ in range(2)]
        file = ref.reader.files.file(0)
        assert file.pieces.is_claimed(HEAD_BYTES, HEAD_BYTES + PIECE)
        assert not is_over.is_set()
        assert not file.pieces.memory
        is_over.set()
        found = np.concatenate([batch["number"] for batch in (*first, *batches)])
        assert sorted(found.tolist()) == list(range(1200))
        order = ref.stream(shuffle=True, shuffle_seed=1)
        assert found.tolist() == [int(record["number"]) for record in order]


def test_what_was_asked_again_and_comes_late_does_not_stay_in_memory(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_queue, "BULK_BYTES", 4 * PIECE)
    monkeypatch.setattr(_queue, "AT_ONCE_BYTES", PIECE)
    monkeypatch.setattr(_queue, "BULK_CONNECTIONS", 4)
    monkeypatch.setattr(_fetcher, "_LATE_SECONDS", 1000.0)
    store(site, (1200, 3_000), None)

    def late(asked: Asked, made: Answer) -> Answer:
        made.stalls = 0.05 if asked.stop - asked.start >= PIECE else 0.6
        return made

    with site.ref() as ref:
        with site.twisting(late):
            for _batch in ref.stream(shuffle=True, shuffle_seed=1).batches(16):
                pass
            wait_until(is_nothing_fetched)
        assert any(each.stop - each.start < PIECE for each in site.web.asked[1:])
        assert not ref.reader.files.file(0).pieces.memory


def test_what_late_processes_have_claimed_is_not_left_to_bulk(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each batch they would be waited for anew otherwise."""
    monkeypatch.setattr(_queue, "BULK_BYTES", PIECE)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, fetching = ref.reader.files, _fetcher.Fetcher()
        file = files.file(0)
        fetching._queue.add_bulk(Bulk(iter([(file, 0, file.size)]), file.size, files.traffic))
        end = file.size // CELL * CELL
        claimed, free = (file, end - 2 * CELL, end - CELL), (file, end - CELL, end)

        def left(*wanted: Range) -> list[bool]:
            asked = dict.fromkeys(wanted, time.monotonic())
            return [fetching._is_left_to_bulk(each, asked) for each in wanted]

        with claiming(file.pieces.path, file.size, lambda pieces: pieces.claim(*claimed[1:])):
            assert left(claimed, free) == [True, True]
            file.others_are_late = time.monotonic() + 60
            assert left(claimed, free) == [False, True]
            file.others_are_late = 0.0
            long_ago = dict.fromkeys((claimed, free), time.monotonic() - 6)
            assert not fetching._is_left_to_bulk(claimed, long_ago)
            assert fetching._is_left_to_bulk(free, long_ago)
        assert left(claimed) == [True]
