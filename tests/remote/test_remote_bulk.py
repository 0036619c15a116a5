"""What comes as a whole, in large pieces."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import math
import pathlib
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from remote_rig import Answer, Asked, Site, another_site
from test_claims import claiming
from test_remote_plan import is_nothing_fetched, store
from waiting import wait_until

from yogadl.remote._fetching import bulk_queue, lateness, work_queue
from yogadl.remote._fetching import fetcher as fetcher_module
from yogadl.remote._fetching.desk import Desk, Office
from yogadl.remote._fetching.planner import FIRST_RECORDS
from yogadl.remote._fetching.planner import _fetch as fetch_ahead
from yogadl.remote._fetching.work import Bulk, Range, Work, cells
from yogadl.remote._local.sparse_file import CELL, SparseFile
from yogadl.remote._open import HEAD_BYTES

pytestmark = pytest.mark.once

PIECE = 1 << 16


@pytest.fixture
def second(tmp_path: pathlib.Path) -> Iterator[Site]:
    with another_site(tmp_path / "second") as made:
        yield made


@pytest.fixture
def third(tmp_path: pathlib.Path) -> Iterator[Site]:
    with another_site(tmp_path / "third") as made:
        yield made


def test_data_sets_take_turns(
    site: Site, second: Site, third: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small one need not wait until a large one has come, nor one that comes record by record."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    for each in (site, second, third):
        store(each, (400, 3_000), None)
    with site.ref() as large, second.ref() as small, third.ref() as shard:
        found = [ref.reader.files for ref in (large, small, shard)]
        queue = work_queue.WorkQueue()
        # What lies before was read when they were opened.
        begin = HEAD_BYTES
        bulks = []
        for files, pieces in zip(found[:2], (10, 2), strict=True):
            whole = (files.file(0), begin, begin + pieces * PIECE)
            bulks.append(Bulk(iter([whole]), pieces * PIECE, files.traffic))
            queue.bulk.add(bulks[-1])
        behind = begin + 12 * PIECE
        wanted = [Work(files.file(0), behind, behind + CELL) for files in found]
        queue.soon.extend([wanted[0], wanted[2]])
        taken = []
        while (work := queue.take(1 << 30)) is not None and len(taken) < 7:
            taken.append(work)
        places = {id(files.traffic): number for number, files in enumerate(found)}
        numbers = [places[id(work.file.traffic)] for work in taken]
        # What is small waits for its own bulk only.
        assert numbers == [2, 0, 1, 0, 1, 0, 0]
        assert (list(queue.soon), list(bulks[0].left)) == ([], [wanted[0]])
        assert queue.bulk.has_any_of(found[0].traffic)
        assert not queue.bulk.has_any_of(found[1].traffic)
        # And comes when that has ended, if it has not come.
        queue.bulk.end(bulks[0])
        work = queue.take(1 << 30)
        assert work is not None
        assert (work.file, work.start) == (wanted[0].file, wanted[0].start)
        for work in queue.flying:
            work.file.pieces.release(work.start, work.stop, work.is_bulk)


@pytest.mark.parametrize(
    ("pieces", "has_many_files", "begun"), [(4, False, 4), (5, False, 2), (4, True, 3)]
)
def test_until_the_first_records_are_asked_for_much_bulk_has_some_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch, pieces: int, has_many_files: bool, begun: int
) -> None:
    """What comes at once need not wait, since the first records come with it."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 4)
    monkeypatch.setattr(bulk_queue, "HELD_CONNECTIONS", 2)
    monkeypatch.setattr(bulk_queue, "HELD_OF_MANY", 3)
    monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", 4 * PIECE)
    monkeypatch.setattr(bulk_queue, "_HOLD_SECONDS", 1000.0)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, queue = ref.reader.files, work_queue.WorkQueue()
        whole = (files.file(0), HEAD_BYTES, HEAD_BYTES + pieces * PIECE)
        bulk = Bulk(iter([whole]), pieces * PIECE, files.traffic, has_many_files=has_many_files)
        queue.bulk.add(bulk)

        def taken() -> int:
            return len(list(iter(lambda: queue.take(1 << 30), None)))

        assert taken() == begun
        assert queue.bulk.start() == (begun < pieces)
        assert taken() == min(pieces, 4) - begun

        def end() -> None:
            queue.bulk.end(bulk)
            for work in queue.flying:
                work.file.pieces.release(work.start, work.stop, work.is_bulk)
            queue.flying.clear()

        end()
        # What comes when there is none any more waits likewise, unless its first were read before.
        for is_begun, count in ((False, begun), (True, min(pieces, 4))):
            bulk = dataclasses.replace(bulk, ranges=iter([whole]), work=None, is_begun=is_begun)
            queue.bulk.add(bulk)
            assert taken() == count
            assert queue.bulk.start() == (not is_begun and begun < pieces)
            end()


@pytest.mark.parametrize("part_bytes", [10_000, 100_000])
def test_small_files_come_by_one_request_each(site: Site, part_bytes: int) -> None:
    """But those of the first records, which are asked for by themselves where files are many."""
    count = store(site, (300, 8_000), part_bytes)
    with site.ref() as ref:
        files, before = ref.reader.files, len(site.web.asked)
        assert files.are_many_small == (part_bytes == 10_000)
        numbers = [
            int(number)
            for batch in ref.stream(shuffle=True, shuffle_seed=1).batches(FIRST_RECORDS)
            for number in batch["number"]
        ]
        wait_until(is_nothing_fetched)
        asked = site.web.asked[before:]
        assert sorted(numbers) == list(range(count))
        # The rest of theirs is in three pieces.
        assert len(files) <= len(asked) <= len(files) + 4 * FIRST_RECORDS
        assert sum(each.stop - each.start for each in asked) <= 1.02 * files.nbytes
        assert files.are_complete()


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("processes", [2, 100])
def test_processes_of_a_machine_share_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch, processes: int, is_small: bool
) -> None:
    """And those that are first do not begin in full while others look for their first records."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", CELL)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 16)
    monkeypatch.setattr(bulk_queue, "MACHINE_CONNECTIONS", 20)
    monkeypatch.setattr(bulk_queue, "HELD_CONNECTIONS", 8)
    monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", CELL)
    monkeypatch.setattr(bulk_queue, "_HOLD_SECONDS", 1000.0)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, queue = ref.reader.files, work_queue.WorkQueue()
        whole = (files.file(0), HEAD_BYTES, HEAD_BYTES + 100 * CELL)
        bulk = Bulk(iter([whole]), 100 * CELL, files.traffic, processes, is_small)
        queue.bulk.add(bulk)

        def under_way() -> int:
            while queue.take(1 << 30) is not None:
                pass
            assert queue.bulk.free() <= 0
            return len(queue.flying)

        assert under_way() == max(8 // processes, 2)
        assert queue.bulk.start() != is_small
        assert under_way() == max((8 if is_small else 20) // processes, 2)
        # The time is over; they are taken for counted just now, and then for gone.
        queue.bulk._holds_until = 0.0
        bulk.begun, bulk.counted = -math.inf, math.inf
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
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 4)
    monkeypatch.setattr(bulk_queue, "HELD_CONNECTIONS", 1)
    monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", PIECE)
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
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, queue = ref.reader.files, work_queue.WorkQueue()
        file = files.file(0)
        bulk = Bulk(iter([(file, HEAD_BYTES, file.size)]), file.size, files.traffic)
        queue.bulk.add(bulk)
        small = (file, file.size // CELL * CELL - CELL, file.size // CELL * CELL)
        assert queue.bulk.is_coming(*small)
        assert not queue.bulk.is_coming(file, HEAD_BYTES, HEAD_BYTES + bulk_queue.LARGE_BYTES)
        work = queue.take(1 << 30)
        assert work is not None
        assert bulk.passed == PIECE
        # What is missing of that, being damaged or left by who was killed, bulk does not bring.
        assert not queue.bulk.is_coming(file, HEAD_BYTES, HEAD_BYTES + CELL)
        # Of all of it, so much has begun to come after so many seconds.
        would_take = bulk_queue._QUICK_SECONDS * (0.9 if is_quick else 1.1)
        monkeypatch.setattr(bulk_queue, "_SOON_SECONDS", 0.0)
        bulk.begun -= would_take * PIECE / file.size
        assert queue.bulk.is_coming(*small) == is_quick
        # It stands still.
        bulk.moved -= bulk_queue._STILL_SECONDS
        assert not queue.bulk.is_coming(*small)
        bulk.moved = time.monotonic()
        assert queue.bulk.is_coming(*small) == is_quick
        queue.bulk.end(bulk)
        assert not queue.bulk.is_coming(*small)
        file.pieces.release(work.start, work.stop, work.is_bulk)


@pytest.mark.parametrize(
    ("is_small", "processes", "at_once"), [(True, 1, 4), (True, 2, 9), (False, 1, 9)]
)
def test_small_records_of_a_process_alone_come_before_much_else(
    monkeypatch: pytest.MonkeyPatch, is_small: bool, processes: int, at_once: int
) -> None:
    monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", 9)
    monkeypatch.setattr(bulk_queue, "_SMALL_AT_ONCE_BYTES", 4)
    found = [bulk_queue.comes_at_once(nbytes, is_small, processes) for nbytes in range(12)]
    assert found == [True] * (at_once + 1) + [False] * (11 - at_once)


@pytest.mark.parametrize("is_much", [False, True])
def test_first_records_that_bulk_brings_come_twice_but_a_little(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_much: bool
) -> None:
    """And not at all where bulk comes at once."""
    store(site, (400, 3_000), None)
    if is_much:
        monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", PIECE)
    with site.ref() as ref:
        files, queue = ref.reader.files, work_queue.WorkQueue()
        file, count = files.file(0), 3 if is_much else 0
        bulk = Bulk(iter([]), file.size, files.traffic, is_small=True)
        bulk.work = Work(file, HEAD_BYTES, file.size)
        queue.bulk.add(bulk)
        file.twice.most, file.twice.nbytes = 4 * CELL - 1, 0
        assert not queue.bulk.precedes(file, HEAD_BYTES, HEAD_BYTES + bulk_queue.LARGE_BYTES)
        ends = [queue.bulk.precedes(file, HEAD_BYTES, HEAD_BYTES + CELL) for _ in range(5)]
        assert ends == [True] * count + [False] * (5 - count)
        assert file.twice.nbytes == count * CELL
        queue.bulk.end(bulk)
        assert not queue.bulk.precedes(file, HEAD_BYTES, HEAD_BYTES + CELL)


def test_records_come_though_bulk_that_was_to_bring_them_stands_still(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 2)
    monkeypatch.setattr(bulk_queue, "HELD_CONNECTIONS", 2)
    monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "_SOON_SECONDS", 0.2)
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
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", 16 * PIECE)
    monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 2)
    # What is late is asked for again in any case.
    monkeypatch.setattr(lateness, "_LATE_SECONDS", 1000.0)
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
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", 4 * PIECE)
    monkeypatch.setattr(bulk_queue, "AT_ONCE_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 4)
    monkeypatch.setattr(lateness, "_LATE_SECONDS", 1000.0)
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
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files, fetching = ref.reader.files, Desk(Office())
        file = files.file(0)
        fetching.queue.bulk.add(Bulk(iter([(file, 0, file.size)]), file.size, files.traffic))
        end = file.size // CELL * CELL
        claimed, free = (file, end - 2 * CELL, end - CELL), (file, end - CELL, end)

        def left(*wanted: Range) -> list[bool]:
            asked = dict.fromkeys(wanted, time.monotonic())
            return [fetching.urgency._is_left_to_bulk(each, asked) for each in wanted]

        with claiming(file.pieces.path, file.size, lambda pieces: pieces.claim(*claimed[1:])):
            assert left(claimed, free) == [True, True]
            file.others.late_until = time.monotonic() + 60
            assert left(claimed, free) == [False, True]
            file.others.late_until = 0.0
            long_ago = dict.fromkeys((claimed, free), time.monotonic() - 6)
            assert not fetching.urgency._is_left_to_bulk(claimed, long_ago)
            assert fetching.urgency._is_left_to_bulk(free, long_ago)
        assert left(claimed) == [True]


def test_what_late_processes_have_claimed_is_fetched_ahead_here_as_well(site: Site) -> None:
    """Each batch would have a request of its own otherwise, which somebody waits for."""
    store(site, (60, 100_000), None)
    with site.ref() as ref:
        file, wanted = ref.reader.files.file(0), np.arange(20, 50)
        ranges = [(each, *cells(*where)) for each, *where in ref.reader.record_ranges(wanted)]
        ((start, stop),) = file.pieces.missing(ranges[0][1], ranges[-1][2])

        def claim(pieces: SparseFile) -> None:
            assert pieces.claim_bulk(start, stop) == stop

        with claiming(file.pieces.path, file.size, claim):
            fetch_ahead(ref.reader, wanted, must_keep=False)
            wait_until(is_nothing_fetched)
            assert not any(each.pieces.has(*where) for each, *where in ranges)
            file.others.late_until = time.monotonic() + 600
            before = len(site.web.asked)
            for _ in range(2):
                fetch_ahead(ref.reader, wanted, must_keep=False)
                wait_until(is_nothing_fetched)
            # In memory alone: who has claimed it may be about to write.
            assert all(each.pieces.has(*where) for each, *where in ranges)
            assert not any(each.pieces.is_kept(*where) for each, *where in ranges)
            assert len(site.web.asked) - before <= len(wanted)
            # But not what is fetched only to be kept.
            fetch_ahead(ref.reader, np.arange(50, 60), must_keep=True)
            wait_until(is_nothing_fetched)
            assert len(site.web.asked) - before <= len(wanted)
            numbers = [int(ref[at]["number"]) for at in range(20, 50)]
            assert numbers == list(range(20, 50))
            assert len(site.web.asked) - before <= len(wanted)


@pytest.mark.parametrize("is_of_other", [True, False])
def test_bulk_does_not_write_what_somebody_has_claimed(site: Site, is_of_other: bool) -> None:
    """It fetches it, not to be cut up; but who has claimed it may be about to write, or compare."""
    count = store(site, (400, 3_000), None)
    with site.ref() as ref, contextlib.ExitStack() as stack:
        file = ref.reader.files.file(0)
        begin = file.size // 2 // CELL * CELL
        claimed = [(begin, begin + 3 * CELL), (begin + 9 * CELL, begin + 10 * CELL)]

        def claim(pieces: SparseFile) -> None:
            for start, stop in claimed:
                assert pieces.claim(start, stop) == stop

        if is_of_other:
            stack.enter_context(claiming(file.pieces.path, file.size, claim))
        else:
            claim(file.pieces)
        before = len(site.web.asked)
        file.twice.most = file.size
        fetcher = fetcher_module.fetcher()
        bulk = Bulk(iter([(file, 0, file.size)]), file.size, file.traffic)
        fetcher.want_whole(bulk, file.server)
        wait_until(is_nothing_fetched)
        assert len(site.web.asked) - before == 1
        path = file.pieces.path
        lacking = [at for at in range(0, file.size, CELL) if not file.pieces.is_kept(at, at + CELL)]
        assert lacking == [at for start, stop in claimed for at in range(start, stop, CELL)]
        assert not any(any(path.read_bytes()[start:stop]) for start, stop in claimed)
        stack.close()
        if not is_of_other:
            for start, stop in claimed:
                file.pieces.release(start, stop)
        assert [int(record["number"]) for record in ref.stream()] == list(range(count))


def test_bulk_that_has_failed_keeps_no_files_open(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the interpreter looks for what has but itself; nor while some of it is under way."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        are_had = True

        def ranges() -> Iterator[Range]:
            nonlocal are_had
            try:
                yield file, HEAD_BYTES, file.size
                yield file, 0, HEAD_BYTES
            finally:
                are_had = False

        gc.disable()
        try:
            bulk = Bulk(ranges(), file.size, file.traffic)
            queue.bulk.add(bulk)
            work = queue.take(1 << 30)
            assert work is not None
            assert bulk.work is not None
            bulk.taken_back.append((file, 0, CELL))
            queue.bulk.put_back(work, work.start)
            queue.bulk.end(bulk)
            assert not are_had
            assert not any((bulk.work, bulk.taken_back, bulk.cut_off))
            file.pieces.release(work.start, work.stop, work.is_bulk)
            queue.flying.clear()
            found = weakref.ref(bulk)
            del bulk, work
            assert found() is None
        finally:
            gc.enable()
