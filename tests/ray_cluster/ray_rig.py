"""What the tasks of the tests do; imported by Ray's workers, too."""

from __future__ import annotations

import functools
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import ray
from building import SPEC, piece, same_data

import yogadl.ray

PIECES = 20


def note(folder: pathlib.Path, number: int) -> None:
    """Notes that a piece is being made."""
    (folder / f"{number}.{os.getpid()}.{random.random()}").touch()


def made_of(folder: pathlib.Path) -> dict[int, int]:
    """How often each piece was begun."""
    numbers = [int(path.name.partition(".")[0]) for path in folder.iterdir()]
    return {number: numbers.count(number) for number in sorted(set(numbers))}


def die_once(folder: pathlib.Path, number: int) -> None:
    """Kills this process if it is the first to come with one of every ten numbers."""
    if number % 10 == 3 and len(list(folder.glob(f"{number}.*"))) == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def make(folder: pathlib.Path, seconds: float, number: int) -> Iterator[dict[str, Any]]:
    """The records of a piece, by a task that may be killed."""
    note(folder, number)
    records = list(piece(number))
    yield from records[:5]
    time.sleep(seconds)
    die_once(folder, number)
    yield from records[5:]


def everything() -> Iterator[dict[str, Any]]:
    for number in range(PIECES):
        yield from piece(number)


def build(storage: Any, folder: pathlib.Path, seconds: float = 0.0, **options: Any) -> Any:
    task = functools.partial(make, folder, seconds)
    options = {"spec": SPEC, "recipe": "pieces", **options}
    return yogadl.ray.build(storage, "a", "1", range(PIECES), task, **options)


def same(one: Any, other: Any) -> bool:
    """Whether they have the same records, spec, identity, and orders of shards."""
    shards = [
        [
            [int(record["number"]) for record in ref.stream(shuffle=True, shuffle_seed=7, **shard)]
            for shard in ({"shard_rank": 1, "num_shards": 3}, {"shard_rank": 0, "num_shards": 2})
        ]
        for ref in (one, other)
    ]
    return same_data(one, other) and shards[0] == shards[1]


if __name__ == "__main__":
    # A driver, to be killed.
    from ray_rig import build as begin
    from rig import Remote  # type: ignore[import-not-found] # tests/cloud

    address, made, local, *of_bucket = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, logging_level="error")
    storage = Remote("s3", *of_bucket).make_storage(
        pathlib.Path(local), conditional_writes=True, lease_seconds=5
    )
    begin(storage, pathlib.Path(made), 0.2)
