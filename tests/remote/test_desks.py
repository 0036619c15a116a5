"""Several servers at once, of which some are late."""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import threading
from typing import Any

import pytest
from remote_rig import Answer, Asked, Never, Site, another_site, desk
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

import yogadl
from yogadl.errors import ClosedError
from yogadl.remote._fetching import bulk_queue, passing, planner, work_queue
from yogadl.remote._fetching import desk as desk_module
from yogadl.remote._fetching.desk import Desk, Office
from yogadl.remote._fetching.fetcher import fetcher

pytestmark = pytest.mark.once

ORDERS: list[dict[str, Any]] = [
    {"shuffle": True, "shuffle_seed": 1},
    {"shuffle": True, "shuffle_seed": 1, "num_shards": 3, "shuffle_then_shard": True},
]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_PASSING_BYTES", 3_000_000)
    for module in (passing, work_queue, desk_module):
        monkeypatch.setattr(module, "AHEAD_BYTES", 2_000_000)
    monkeypatch.setattr(planner, "_LARGEST_RANGE", 200_000)


def never(_asked: Asked, made: Answer) -> Answer:
    made.stalls = 1000.0
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
    site: Site, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each, at least."""
    monkeypatch.setattr(fetcher().office, "most_threads", 3)
    most, used = 0, list[Desk]()

    def slowly(_asked: Asked, made: Answer) -> Answer:
        nonlocal most
        most = max(most, sum(it.crew.count for it in used))
        made.stalls = 0.02
        return made

    with contextlib.ExitStack() as stack:
        sites = [stack.enter_context(another_site(tmp_path / f"{at}")) for at in range(5)]
        near = [each.store(records(100, 10_000), spec=SPEC) for each in sites]
        for each in sites:
            stack.enter_context(each.twisting(slowly))
        refs = [stack.enter_context(each.ref()) for each in sites]
        used += map(desk, refs)
        for order in ORDERS:
            found = everything(yogadl.concat(refs).stream(**order))
            assert found == everything(yogadl.concat(near).stream(**order))
        wait_until(lambda: not any(it.queue.flying for it in used))
    # The last one may have its first when the others have three.
    assert 3 <= most <= 3 + 4


@pytest.mark.usefixtures("little_memory")
def test_what_is_fetched_ahead_of_many_servers_is_not_fetched_twice(
    site: Site, tmp_path: pathlib.Path
) -> None:
    """All of them together have the room of one."""
    with contextlib.ExitStack() as stack:
        sites = [site] + [stack.enter_context(another_site(tmp_path / f"{at}")) for at in range(5)]
        near = [each.store(records(60, 100_000), spec=SPEC) for each in sites]
        refs = [stack.enter_context(each.ref(Never())) for each in sites]
        asked = [len(each.web.asked) for each in sites]
        streams = [ref.stream(shuffle=True, shuffle_seed=1) for ref in refs]
        with concurrent.futures.ThreadPoolExecutor(len(sites)) as pool:
            found = list(pool.map(everything, streams))
        assert found == [everything(each.stream(shuffle=True, shuffle_seed=1)) for each in near]
        came = sum(
            each.stop - each.start
            for at, before in zip(sites, asked, strict=True)
            for each in at.web.asked[before:]
        )
        assert came <= 1.25 * sum(ref.info.file_size for ref in near)


def test_servers_that_nothing_is_asked_of_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office()
    monkeypatch.setattr(desk_module, "_MOST_DESKS", 8)
    busy = office.desk("busy")
    busy.crew.count = 1
    for number in range(100):
        office.desk(f"server {number}")
        assert len(office.desks) <= 8
    assert office.desk("busy") is busy
