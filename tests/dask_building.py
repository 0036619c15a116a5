"""Versions of which the tasks of a Dask cluster write the pieces; tasks, nodes and drivers die."""

from __future__ import annotations

import functools
import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from building import PIECES, RECIPE, SPEC, piece
from processes_ready import READY

from yogadl.storage import Receipt

KILLED = {2, 7}
TWICE = [1, 2, 9]


def task(build: Any, folder: pathlib.Path, number: int) -> Receipt:
    """Writes a piece, and of some is killed in the middle of it the first time."""

    def make() -> Iterator[dict[str, Any]]:
        for at, record in enumerate(piece(number)):
            if at == 3 and number in KILLED:
                try:
                    (folder / f"{number}.killed").touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            yield record
        (folder / f"{number}.{os.getpid()}").touch()

    receipt: Receipt = build.write(number, make)
    return receipt


def drive(open_storage: Callable[[], Any], folder: pathlib.Path, dies_after: int) -> None:
    """Builds with a cluster of two nodes, of which one goes away; it may be killed on the way."""
    from distributed import Client, LocalCluster, as_completed

    storage = open_storage()
    options = {"dashboard_address": None, "silence_logs": "CRITICAL"}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **options) as cluster,
        Client(cluster) as client,
        storage.build("a", "1", spec=SPEC, recipe=RECIPE) as build,
    ):
        numbers = [*range(PIECES), *TWICE]
        futures = client.map(functools.partial(task, build, folder), numbers, pure=False)
        receipts = []
        for future in as_completed(futures):
            receipts.append(future.result())
            if len(receipts) == dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
            if len(receipts) == PIECES // 2:
                cluster.scale(1)
        assert not storage.list("a")
        build.commit(receipts).close()


def run(open_storage: Callable[[], Any], folder: pathlib.Path, dies_after: int) -> int | None:
    """How a driver of its own ends."""
    driver = READY.Process(target=drive, args=(open_storage, folder, dies_after))
    driver.start()
    driver.join()
    return driver.exitcode


def check_second_makes_what_is_missing(
    open_storage: Callable[[], Any], folder: pathlib.Path, receipts: Callable[[], set[str]]
) -> None:
    """Runs a driver that is killed, and a second one.

    Args:
        open_storage: can be pickled.
        folder: where tasks note what they make.
        receipts: the names of the receipts that are stored.
    """
    storage = open_storage()
    assert run(open_storage, folder, 5) == -signal.SIGKILL
    assert not storage.list("a")
    stored = {name.split(".")[1] for name in receipts()}
    assert len(stored) >= 4
    for number in stored:
        for path in folder.glob(f"{number}.[0-9]*"):
            path.unlink()
    assert run(open_storage, folder, 0) == 0
    again = {path.name.split(".")[0] for path in folder.iterdir() if path.suffix != ".killed"}
    # Tasks that the first driver had sent out may have been stored after it died.
    assert not stored & again
    assert receipts() == set()
