"""Pieces of a data set, for the tests of builds; used in other processes, too."""

from __future__ import annotations

import datetime
import functools
import os
import pathlib
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.spec import TensorSpec
from yogadl.storage import Receipt

SPEC = {"x": TensorSpec("uint8", (None,)), "number": TensorSpec("int64", ())}
PIECE = 40
PIECES = 12
RECIPE = "numbers"
AT_ONCE = datetime.timedelta()


def piece(number: int) -> Iterator[dict[str, Any]]:
    """The records of a piece; one of them has none."""
    for record in range(PIECE * number, PIECE * number + PIECE) if number != 5 else ():
        yield {"x": np.full(record % 50, record % 251, "u1"), "number": np.int64(record)}


def everything() -> Iterator[dict[str, Any]]:
    for number in range(PIECES):
        yield from piece(number)


def write_piece(build: Any, number: int) -> Receipt:
    receipt: Receipt = build.write(number, functools.partial(piece, number))
    return receipt


def write_noting(build: Any, folder: pathlib.Path, number: int) -> Receipt:
    """The same; notes it if the records were made."""

    def make() -> Iterator[dict[str, Any]]:
        (folder / f"{number}.{os.getpid()}.{random.random()}").touch()
        yield from piece(number)

    receipt: Receipt = build.write(number, make)
    return receipt


def drive(storage: Any, folder: pathlib.Path, seed: int) -> None:
    """Builds, in an order of its own, and is killed somewhere on the way, or not."""
    roll = random.Random(seed)
    numbers = roll.sample(range(PIECES), PIECES)
    ends = roll.randrange(PIECES + 2)
    with storage.build("a", "1", spec=SPEC, recipe=RECIPE) as build:
        receipts = []
        for at, number in enumerate(numbers):
            if at == ends and not build.is_stored:
                os.kill(os.getpid(), signal.SIGKILL)
            receipts.append(write_noting(build, folder, number))
            time.sleep(roll.uniform(0, 0.01))
        if ends == PIECES and not build.is_stored:
            os.kill(os.getpid(), signal.SIGKILL)
        build.commit(receipts).close()


def left_over(storage: Any, folder: pathlib.Path) -> list[str]:
    """What there is on a disk beside versions, and parts and tables that they need."""
    storage.collect_parts(older_than=AT_ONCE)
    needed = {"cache.mdb", "yogadl.lock", "yogadl.building", "root.json"}
    for stored in storage.list():
        with storage.fetch(stored.dataset_id, stored.dataset_version) as ref:
            needed |= {f"{it.hex()}.mdb" for it in ref.reader.parts_by_digest()}
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    return sorted(name for name in names - needed if not name.endswith(".table"))


def same_data(one: Any, other: Any) -> bool:
    """Whether two data sets have the same records, orders, spec and identity."""
    orders: list[dict[str, Any]] = [{}, {"shuffle": True, "shuffle_seed": 1}]
    return (
        one.spec == other.spec
        and one.reader.content_id == other.reader.content_id
        and all(_records(one.stream(**it)) == _records(other.stream(**it)) for it in orders)
    )


def _records(found: Any) -> list[tuple[int, bytes]]:
    return [(int(record["number"]), record["x"].tobytes()) for record in found]
