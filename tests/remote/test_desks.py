"""Several servers at once, of which some are late."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from typing import Any

import pytest
from remote_rig import Answer, Asked, Site, another_site, desk
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

import yogadl
from yogadl.errors import ClosedError
from yogadl.remote._fetching import bulk_queue
from yogadl.remote._fetching.desk import Desk
from yogadl.remote._fetching.fetcher import fetcher

pytestmark = pytest.mark.once

ORDERS: list[dict[str, Any]] = [
    {"shuffle": True, "shuffle_seed": 1},
    {"shuffle": True, "shuffle_seed": 1, "num_shards": 3, "shuffle_then_shard": True},
]


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
