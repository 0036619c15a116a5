"""Versions of which the tasks of a Dask cluster write the pieces."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from building import PIECES, RECIPE, SPEC, everything, piece, same_data

from yogadl.storage import LFSStorage, Receipt

pytest.importorskip("distributed")

SPAWN = multiprocessing.get_context("spawn")
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


def drive(storage: LFSStorage, folder: pathlib.Path, dies_after: int) -> None:
    """Builds with a cluster of two nodes, of which one goes away; it may be killed on the way."""
    from distributed import Client, LocalCluster, as_completed

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


def run(*arguments: Any) -> int | None:
    driver = SPAWN.Process(target=drive, args=arguments)
    driver.start()
    driver.join()
    return driver.exitcode


def test_tasks_nodes_and_the_driver_are_killed(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path / "stored")
    made = tmp_path / "made"
    made.mkdir()
    assert run(storage, made, 5) == -signal.SIGKILL
    assert not storage.list("a")
    stored = {path.name.split(".")[1] for path in (tmp_path / "stored").rglob("*.piece")}
    assert len(stored) >= 4
    for number in stored:
        for path in made.glob(f"{number}.[0-9]*"):
            path.unlink()
    assert run(storage, made, 0) == 0
    again = {path.name.split(".")[0] for path in made.iterdir() if path.suffix != ".killed"}
    # Tasks that the first driver had sent out may have been stored after it died.
    assert not stored & again
    storage.submit(everything(), "all", "1", spec=SPEC)
    with storage.fetch("a", "1") as ref, storage.fetch("all", "1") as other:
        assert same_data(ref, other)
    assert not list((tmp_path / "stored").rglob("*.piece"))
    assert not list((tmp_path / "stored").rglob("*partial*"))
