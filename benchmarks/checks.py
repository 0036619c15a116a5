"""Whether a loader delivers the records that it was given."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from loaders import Loader
from workloads import NUMBER, Record, Workload

SAMPLE = 2000
SEED = 11


class WrongRecordsError(Exception):
    """A loader delivered something else than the workload's records."""


def check_record(workload: Workload, record: dict[str, Any]) -> None:
    """Compares all of a record: values, dtypes and shapes.

    Raises:
        WrongRecordsError: it is another one.
    """
    wanted = workload.record(int(record[NUMBER]))
    if set(record) != set(wanted):
        raise WrongRecordsError(f"fields {sorted(record)} instead of {sorted(wanted)}")
    for name, value in wanted.items():
        if not _same(record[name], value):
            raise WrongRecordsError(
                f"record {int(wanted[NUMBER])}: {name} is {_words(record[name])} "
                f"instead of {_words(value)}"
            )


def check_epoch(
    loader: Loader, way: str, seconds: float, *, offset: int = 0, shard: int = 0, shards: int = 1
) -> dict[str, Any]:
    """Reads an epoch and checks it: no record twice, and those of a sample in full.

    Args:
        seconds: after which the epoch is left unfinished.

    Returns:
        How many ``records`` it had, and whether it came to its end (``complete``). Of a whole
        epoch also how far records were ``moved``: their mean distance from their place in the data
        set, as a share of its length. It is 1/3 in a uniform shuffle, and less where only a window
        is shuffled.

    Raises:
        WrongRecordsError: a record is wrong, comes twice, or is missing from a complete epoch.
    """
    workload = loader.workload
    step = max(workload.count // SAMPLE, 1)
    seen = np.zeros(workload.count, bool)
    deadline = time.monotonic() + seconds
    complete = True
    distance = place = 0
    for batch in loader.epoch(way, seed=SEED, offset=offset, shard=shard, shards=shards):
        for record in loader.to_records(way, batch):
            _check_number(record, seen)
            distance += abs(int(record[NUMBER]) - place)
            place += 1
            if int(record[NUMBER]) % step == 0:
                check_record(workload, record)
        if time.monotonic() > deadline:
            complete = False
            break
    result = {"records": int(seen.sum()), "complete": complete}
    if complete and offset == 0 and shards == 1:
        if not seen.all():
            raise WrongRecordsError(f"{way}: {int((~seen).sum())} records are missing")
        result["moved"] = distance / workload.count**2
    return result


def _check_number(record: Record, seen: np.ndarray[Any, Any]) -> None:
    if NUMBER not in record:
        raise WrongRecordsError(f"a record without its number: fields {sorted(record)}")
    number = int(record[NUMBER])
    if not 0 <= number < len(seen):
        raise WrongRecordsError(f"record {number} of {len(seen)}")
    if seen[number]:
        raise WrongRecordsError(f"record {number} comes twice")
    seen[number] = True


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, bytes):
        return isinstance(found, bytes) and found == wanted
    found, wanted = np.asarray(found), np.asarray(wanted)
    return (
        found.dtype == wanted.dtype
        and found.shape == wanted.shape
        and bool(np.array_equal(found, wanted))
    )


def _words(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes beginning with {value[:8]!r}"
    value = np.asarray(value)
    return f"{value.dtype}{list(value.shape)} beginning with {value.reshape(-1)[:4]}"
