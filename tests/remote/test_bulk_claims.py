"""What comes in large pieces is claimed before there are threads for all of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
from remote_rig import Answer, Asked, Site, desk
from test_claims import claiming
from test_remote_plan import is_nothing_fetched, store
from waiting import wait_until

from yogadl.remote._fetching import bulk_queue, work_queue
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.urgency import Urgency
from yogadl.remote._fetching.work import Bulk, Range, Small
from yogadl.remote._local.sparse_file import CELL, SparseFile
from yogadl.remote._open import HEAD_BYTES

pytestmark = pytest.mark.once

PIECE = 1 << 16


def test_bulk_is_claimed_before_threads_take_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much as there are connections for, each piece once; so the entries that the first records
    are found by are on their way, and not asked for by themselves."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "BULK_CONNECTIONS", 4)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        pieces = [(HEAD_BYTES + at * PIECE, HEAD_BYTES + (at + 1) * PIECE) for at in range(6)]
        whole = (file, HEAD_BYTES, pieces[-1][1])
        queue.bulk.add(Bulk(iter([whole]), 6 * PIECE, ref.reader.files.traffic))
        for _ in range(2):
            queue.bulk.claim()
            assert [file.pieces.is_claimed(*it) for it in pieces] == [True] * 4 + [False] * 2
        for wanted in (pieces[:4], pieces[4:]):
            taken = list(iter(lambda: queue.take(1 << 30), None))
            assert [(work.start, work.stop) for work in taken] == wanted
            for work in taken:
                queue.flying.remove(work)
                file.pieces.release(work.start, work.stop, work.is_bulk)


def test_no_more_bulk_is_claimed_than_there_may_be_threads(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what still waits for one is asked for by itself, or left where bulk fails."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    monkeypatch.setattr(bulk_queue, "most_connections", lambda usual: min(usual, 3))
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        bulk = Bulk(iter([(file, HEAD_BYTES, file.size)]), file.size, ref.reader.files.traffic)
        queue.bulk.add(bulk)
        queue.bulk.claim()
        waiting = sorted(queue.flying, key=lambda work: work.start)
        assert [work.start - HEAD_BYTES for work in waiting] == [0, PIECE, 2 * PIECE]
        first = queue.take(1 << 30)
        assert first is waiting[0]
        urgent = Urgency(queue, lambda _: None)
        wanted = (file, waiting[1].start + CELL, waiting[1].start + 2 * CELL)
        now = time.monotonic()
        for _ in range(2):
            assert urgent.hurry([wanted], Small.ASK, {wanted: now})
            assert not queue.urgent
        # It is late, and no bulk to be cut, since nothing is known of how fast it comes.
        for work in waiting:
            work.progressed -= 1000.0
        queue.bulk.cut(*wanted, is_first=True)
        assert not bulk.is_late
        assert not urgent.hurry([wanted], Small.ASK, {wanted: now})
        assert not file.pieces.is_claimed(*wanted[1:])
        urgent.hurry([wanted], Small.ASK, {wanted: now})
        assert [(work.start, work.stop) for work in queue.urgent] == [wanted[1:]]
        queue.bulk.end(bulk)
        assert queue.flying == {first}
        assert not file.pieces.is_claimed(waiting[1].start, file.size)
        first.file.pieces.release(first.start, first.stop, first.is_bulk)


def test_bulk_is_claimed_by_threads_that_ctrl_c_does_not_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody has claimed and left would be waited for, some seconds each time."""
    plain, claiming_threads = SparseFile.claim_bulk, set[str]()

    def claim(pieces: SparseFile, start: int, stop: int, bridge: int = 0) -> int:
        claiming_threads.add(threading.current_thread().name)
        return plain(pieces, start, stop, bridge)

    monkeypatch.setattr(SparseFile, "claim_bulk", claim)
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    count = store(site, (400, 3_000), None)
    with site.ref() as ref:
        numbers = [int(record["number"]) for record in ref.stream(shuffle=True, shuffle_seed=1)]
    assert sorted(numbers) == list(range(count))
    assert claiming_threads == {"yogadl fetch"}


def test_what_was_claimed_is_not_asked_for_once_nobody_wants_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        files = ref.reader.files
        file, before = files.file(0), len(site.web.asked)
        whole = (file, HEAD_BYTES, file.size)
        bulk = Bulk(iter([whole]), file.size - HEAD_BYTES, files.traffic)
        with fetcher()._mutex:
            queue = desk(ref).queue
            queue.bulk.add(bulk)
            queue.bulk.claim()
            file.ended.set()
            desk(ref).crew.call_many(4)
        wait_until(is_nothing_fetched)
        assert not file.pieces.is_claimed(HEAD_BYTES, file.size)
        assert len(site.web.asked) == before


def test_what_is_here_is_gone_over_in_turns(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has the queue meanwhile is who all others wait for."""
    monkeypatch.setattr(bulk_queue, "_TURN_SECONDS", 0.02)
    monkeypatch.setattr(bulk_queue, "PAUSE_SECONDS", 0.0)
    store(site, (400, 3_000), None)
    with site.ref() as ref:
        file, queue = ref.reader.files.file(0), work_queue.WorkQueue()
        file.pieces.mark(HEAD_BYTES, HEAD_BYTES + PIECE)

        def ranges() -> Iterator[Range]:
            for _ in range(20):
                # To open a file takes time.
                time.sleep(0.005)
                yield file, HEAD_BYTES, HEAD_BYTES + PIECE
            yield file, HEAD_BYTES + PIECE, HEAD_BYTES + 2 * PIECE

        queue.bulk.add(Bulk(ranges(), 21 * PIECE, ref.reader.files.traffic))
        turns = 0
        while (work := queue.take(1 << 30)) is None:
            assert queue.bulk.is_interrupted
            turns += 1
        # In each, one range at least.
        assert 2 <= turns <= 20
        assert (work.start, work.stop) == (HEAD_BYTES + PIECE, HEAD_BYTES + 2 * PIECE)
        queue.flying.remove(work)
        file.pieces.release(work.start, work.stop, work.is_bulk)
        assert queue.take(1 << 30) is None
        assert not queue.bulk.is_interrupted


@pytest.mark.parametrize("part_bytes", [None, 400_000])
def test_what_a_process_had_claimed_that_died_comes_in_bulk(
    site: Site, monkeypatch: pytest.MonkeyPatch, part_bytes: int | None
) -> None:
    """And not record by record."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    count = store(site, (2_000, 3_000), part_bytes)
    with site.ref() as ref, contextlib.ExitStack() as others:
        for number in range(len(ref.reader.files)):
            file = ref.reader.files.file(number)
            others.enter_context(claiming(file.pieces.path, file.size, _claim_all_in_bulk))
        before = len(site.web.asked)
        threading.Timer(0.5, others.close).start()
        numbers = [int(record["number"]) for record in ref.stream(shuffle=True, shuffle_seed=1)]
        assert sorted(numbers) == list(range(count))
        nbytes = ref.reader.files.nbytes
        # The first records come by themselves, each with its entry.
        assert len(site.web.asked) - before < nbytes // PIECE + 200


def _claim_all_in_bulk(pieces: SparseFile) -> None:
    ((start, stop),) = pieces.missing(0, pieces.path.stat().st_size)
    assert pieces.claim_bulk(start, stop) == stop


def test_what_another_reader_had_claimed_that_is_closed_comes_in_bulk(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of them of one process."""
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", PIECE)
    count = store(site, (2_000, 3_000), None)

    def slowly(asked: Asked, made: Answer) -> Answer:
        if asked.stop - asked.start >= PIECE:
            made.stalls = 1.0 + 0.01 * (asked.number % 50)
        return made

    with site.ref() as ref:
        before = len(site.web.asked)
        with site.twisting(slowly), site.ref() as first:
            next(iter(first.stream(shuffle=True, shuffle_seed=2)))
            stream = iter(ref.stream(shuffle=True, shuffle_seed=1))
            numbers = [int(next(stream)["number"])]
        numbers += [int(record["number"]) for record in stream]
        assert sorted(numbers) == list(range(count))
        # Those that were asked for while the other had claimed them, and not all of the 2,000.
        assert len(site.web.asked) - before < ref.reader.files.file(0).size // PIECE + 500
