"""Several servers at once, of which some are late."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from remote_rig import Answer, Asked, Never, Site, another_site, desk
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

import yogadl
from yogadl.errors import ClosedError
from yogadl.remote._fetching import bulk_queue, passing
from yogadl.remote._fetching import desk as desk_module
from yogadl.remote._fetching.connections import Connections
from yogadl.remote._fetching.desk import Desk, Office
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.work import Range, Work, cells
from yogadl.remote._fetching.work_queue import WorkQueue
from yogadl.remote._local.sparse_file import CELL

pytestmark = pytest.mark.once

ORDERS: list[dict[str, Any]] = [
    {"shuffle": True, "shuffle_seed": 1},
    {"shuffle": True, "shuffle_seed": 1, "num_shards": 3, "shuffle_then_shard": True},
]


def never(_asked: Asked, made: Answer) -> Answer:
    made.stalls = 1000.0
    return made


def slowly(_asked: Asked, made: Answer) -> Answer:
    made.stalls = 0.02
    return made


@pytest.mark.parametrize("order", ORDERS, ids=["whole", "shard"])
@pytest.mark.parametrize("size", [300, 100_000])
def test_a_server_that_stalls_keeps_nobody_from_others(
    site: Site,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    order: dict[str, Any],
    size: int,
) -> None:
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", 1 << 16)
    site.store(records(400, 100_000), spec=SPEC)
    with another_site(tmp_path / "second") as second:
        near = second.store(records(400, size), spec=SPEC)
        with site.ref() as stalled, second.ref() as ref, site.twisting(never):
            stream = stalled.stream(shuffle=True, shuffle_seed=1)

            def read() -> None:
                with contextlib.suppress(ClosedError):
                    everything(stream)

            reading = threading.Thread(target=read)
            reading.start()
            # Nobody else could fetch anything if these were all.
            wait_until(lambda: len(desk(stalled).queue.flying) >= 48)
            assert everything(ref.stream(**order)) == everything(near.stream(**order))
            assert reading.is_alive()
        reading.join()


def test_there_are_few_threads_though_there_are_many_servers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each, at least."""
    # Of servers that other tests had.
    wait_until(lambda: not any(it.crew.count for it in fetcher().office.desks.values()))
    monkeypatch.setattr(fetcher().office, "most_threads", 3)
    mutex, busy, most = threading.Lock(), 0, 0

    def fetch(self: Desk, work: Work, connections: Connections) -> None:
        nonlocal busy, most
        with mutex:
            busy += 1
            most = max(most, busy)
        try:
            really_fetch(self, work, connections)
        finally:
            with mutex:
                busy -= 1

    really_fetch = Desk._fetch
    monkeypatch.setattr(Desk, "_fetch", fetch)
    with contextlib.ExitStack() as stack:
        sites = [stack.enter_context(another_site(tmp_path / f"{at}")) for at in range(5)]
        near = [each.store(records(100, 10_000), spec=SPEC) for each in sites]
        for each in sites:
            stack.enter_context(each.twisting(slowly))
        refs = [stack.enter_context(each.ref()) for each in sites]
        for order in ORDERS:
            found = everything(yogadl.concat(refs).stream(**order))
            assert found == everything(yogadl.concat(near).stream(**order))
        wait_until(lambda: not busy)
    # The last one may have its first when the others have three.
    assert 3 <= most <= 3 + 4


def test_what_is_late_gets_a_thread_though_there_may_be_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The only one of its server may be what is late."""
    done = threading.Event()
    office = Office(most_threads=1)

    def run(self: Desk) -> None:
        done.wait()
        with office.mutex:
            self.crew.leave()

    monkeypatch.setattr(Desk, "_run", run)
    crew = office.desk("server").crew
    with office.mutex:
        for _ in range(3):
            crew.call()
        assert crew.count == 1
        for _ in range(3):
            crew.call(at_least=2)
        assert crew.count == 2
        # Nor does it keep others from their first.
        other = office.desk("another").crew
        other.call()
        assert other.count == 1
    done.set()
    wait_until(lambda: crew.count == other.count == 0)


def test_threads_that_are_to_end_do_though_there_may_be_work_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They count as ended for who starts others in their place. What they look through takes longer
    than a turn, as it does on a busy machine, so they never find that there is none."""

    def never_finds_out(self: WorkQueue, _room: int) -> None:
        self.bulk.is_interrupted = is_busy

    is_busy = True
    monkeypatch.setattr(WorkQueue, "take", never_finds_out)
    monkeypatch.setattr(desk_module, "_IDLE_SECONDS", 0.1)
    office = Office(most_threads=3)
    desks = [office.desk(f"server {number}") for number in range(5)]
    for _ in range(20):
        for each in desks:
            with office.mutex:
                each.crew.call_many(8)
            time.sleep(0.001)
    wait_until(lambda: sum(each.crew.count for each in desks) <= 3 + 4)
    assert all(each.crew.count for each in desks)
    is_busy = False
    wait_until(lambda: not any(each.crew.count for each in desks))


@pytest.mark.parametrize("is_started", [True, False])
def test_threads_of_which_ctrl_c_ended_the_start_are_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_started: bool
) -> None:
    """As far as they have begun."""
    near = site.store(records(40), spec=SPEC)
    start, interrupts = threading.Thread.start, iter(range(3))

    def interrupted(thread: threading.Thread) -> None:
        is_ours = threading.current_thread() is threading.main_thread()
        is_fetching = thread.name == "yogadl fetch" and is_ours and next(interrupts, 9) < 9
        if is_started or not is_fetching:
            start(thread)
        if is_fetching:
            raise KeyboardInterrupt

    with site.ref() as ref:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        for _ in range(20):
            with contextlib.suppress(KeyboardInterrupt):
                assert everything(ref.stream()) == everything(near.stream())
                break
        else:
            pytest.fail("it was interrupted again and again")
        crew = desk(ref).crew
    wait_until(lambda: crew.count == 0)
    assert crew.busy == 0


def test_who_is_to_end_and_has_to_stay_stays_no_longer_for_that(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one of a server, of which something waits in memory to be read."""
    monkeypatch.setattr(desk_module, "_IDLE_SECONDS", 0.3)
    site.store(records(), spec=SPEC)
    with site.ref(Never()) as ref:
        next(iter(ref.stream(**ORDERS[0])))
        crew, office = desk(ref).crew, fetcher().office
        wait_until(lambda: bool(office.passing) and crew.count == 1)
        for _ in range(300):
            with office.mutex:
                crew.dismiss()
            time.sleep(0.001)
        assert crew.count == 1
    began = time.monotonic()
    wait_until(lambda: crew.count == 0)
    # Instead of a minute and a half.
    assert time.monotonic() - began < 20


def test_one_of_many_threads_goes_over_what_is_in_memory(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that read wait meanwhile; and all threads may have nothing to do at once."""
    monkeypatch.setattr(desk_module, "_IDLE_SECONDS", 0.2)
    monkeypatch.setattr(passing, "_ROUND_SECONDS", 1000.0)
    site.store(records(), spec=SPEC)
    office, looks = Office(), []

    def drop_kept(self: passing.Passing, ranges: Iterable[Range]) -> None:
        looks.append(threading.current_thread())
        really_drop(self, ranges)

    really_drop = passing.Passing.drop_kept
    monkeypatch.setattr(passing.Passing, "drop_kept", drop_kept)
    crew = office.desk("server").crew
    with site.ref(Never()) as ref:
        file = ref.reader.files.file(0)
        last = file.size // CELL * CELL
        with office.mutex:
            office.passing.add((file, last - CELL, last), memoryview(bytes(CELL)))
            for _ in range(20):
                crew.call()
        wait_until(lambda: looks and crew.count == 1)
        assert len(looks) == 1
        # What another process brings goes, and then the last one.
        file.pieces.mark(last - CELL, last)
        office.passing._next_turn = 0.0
        wait_until(lambda: crew.count == 0)
    assert not office.passing
    assert len(looks) == 2


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_servers_together_have_room_for_what_is_fetched_ahead(site: Site, count: int) -> None:
    """But one that stalls, and keeps all of it, leaves others some."""
    site.store(records(400, 100_000), spec=SPEC)
    office = Office()
    desks = [office.desk(f"server {number}") for number in range(count)]
    with site.ref(Never()) as ref:
        file = ref.reader.files.file(0)
        for number, each in enumerate(desks):
            starts = range(number * 2_500_000, (number + 1) * 2_500_000, 100_000)
            each.queue.soon.extend(Work(file, *cells(at, at + 90_000)) for at in starts)
        took = [list(taken(office, each)) for each in desks]
        assert sum(work.stop - work.start for work in took[0]) > 1_800_000
        for number, works in enumerate(took[1:], 2):
            nbytes = sum(work.stop - work.start for work in works)
            assert 2_000_000 // number - 100_000 < nbytes <= 2_000_000 // number
        # What it has no room for is fetched once the others have done theirs.
        for each, works in zip(desks[1:], took[1:], strict=True):
            each.queue.flying.difference_update(works)
        assert all(each.queue.lacks_room for each in desks)
        desks[0].queue.flying.clear()
        last = desks[-1].queue.fitting(office.room(desks[-1]), 100)
        assert last == len(list(taken(office, desks[-1]))) > 3
        assert not list(taken(office, desks[-1]))


def taken(office: Office, desk: Desk) -> Iterator[Work]:
    while (work := desk.queue.take(office.room(desk))) is not None:
        yield work


def test_servers_that_nothing_is_asked_of_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office()
    monkeypatch.setattr(desk_module, "_MOST_DESKS", 8)
    busy = office.desk("busy")
    with office.mutex:
        busy.crew.call()
    for number in range(100):
        office.desk(f"server {number}")
        assert len(office.desks) <= 8
    assert office.desk("busy") is busy
