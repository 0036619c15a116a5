"""Reads a workload out of a bucket, in a process that has done nothing else; see ``far.py``.

Prints a line of JSON: when it did what, in seconds since 1970, and what came of it; or what was
wrong. What a loader itself prints goes to standard error. Before a time is told, the records are
compared with those that were written: the number of each, and those of the first and the last batch
in full.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import checks
import numpy as np
from far_loaders import KEYS, Place, RemoteLoader, loader_class
from loaders import BATCH
from workloads import Workload, workload

BUCKET = "data"
SEED = 1
PART_BYTES = 8 << 20
CONNECTIONS = 16
UNIFORM = 1 / 3
"""How far a true shuffle moves a record, as a share of the data set's length."""

Line = dict[str, Any]


def write(loader: RemoteLoader, arguments: argparse.Namespace) -> Line:
    """Stores the workload."""
    started = time.time()
    loader.directory.mkdir(parents=True)
    if arguments.parts:
        _write_parts(loader, arguments.parts)
    else:
        loader.write_generator()
    files = [path for path in loader.directory.rglob("*") if path.is_file()]
    # Nothing of the catalogue is read with the records.
    data = [path for path in files if path.parent.name != "yogadl.catalogue"]
    return {
        "version": loader.version(),
        "seconds": time.time() - started,
        "bytes": sum(path.stat().st_size for path in data),
        "value_bytes": loader.workload.total_bytes(),
        "records": loader.workload.count,
    }


def _write_parts(loader: Any, parts: int) -> None:
    """Stores it twice: version 1 as one file, version 2 in parts."""
    work = loader.workload
    if work.name == "scalars":  # ten million records one by one would take minutes
        records = {"number": np.arange(work.count)}
        loader.store(records)
    else:
        loader.write_generator()
    (file,) = loader.directory.rglob("cache.mdb")
    records = {"number": np.arange(work.count)} if work.name == "scalars" else work.records()
    loader.store(records, "2", part_bytes=max(file.stat().st_size // parts, 1))


def first(loader: Any, arguments: argparse.Namespace) -> Line:
    """Reads the first batch of a true shuffle."""
    times = _Times()
    loader.connect()
    times.note("connected")
    loader.fetch(arguments.version)
    times.note("fetched")
    batch = next(loader.batches(loader.stream(SEED)))
    times.note("first")
    _compare(loader, "", batch)
    return {"times": times.noted, "parts": _parts(loader.dataref)}


def _parts(dataref: Any) -> int:
    return len(dataref.reader.files)


def epochs(loader: RemoteLoader, arguments: argparse.Namespace) -> Line:
    """Reads one epoch or several."""
    times = _Times()
    loader.connect()
    times.note("connected")
    loader.open()
    times.note("fetched")
    found = []
    for number in range(arguments.epochs):
        batches = loader.read(arguments.way, SEED + number)
        found.append(_read(loader, arguments.way, batches, times, _ended(number)))
    for numbers in found:
        _check_all(numbers, loader.workload)
    return {
        "times": times.noted,
        "records": len(found[0]),
        "moved": _moved(found[0]),
        "first_span": float(np.ptp(found[0][:BATCH]) + 1) / len(found[0]),
    }


def shard(loader: Any, arguments: argparse.Namespace) -> Line:
    """Reads what one rank of many has of an epoch."""
    times = _Times()
    loader.connect()
    times.note("connected")
    loader.open()
    times.note("fetched")
    stream = loader.stream(SEED, shard_rank=arguments.rank, num_shards=arguments.shards)
    numbers = _read(loader, "", loader.batches(stream), times)
    return {"times": times.noted, "records": len(numbers)}


def share(loader: Any, arguments: argparse.Namespace) -> Line:
    """Reads what one of several processes has of the one order of all; begins when it is told."""
    print(json.dumps({"event": "ready"}), file=arguments.output, flush=True)
    sys.stdin.readline()
    times = _Times()
    loader.connect()
    loader.fetch(is_downloaded=arguments.is_downloaded)

    def watched(seed: int) -> Iterator[Any]:
        stream = loader.stream(
            seed,
            shard_rank=arguments.rank,
            num_shards=arguments.shards,
            shuffle_then_shard=True,
        )
        deadline = loader.workload.count // arguments.shards // 3
        seen = 0
        for batch in loader.batches(stream):
            yield batch
            seen += BATCH
            if arguments.is_killed and seen >= deadline:
                os.kill(os.getpid(), signal.SIGKILL)

    found = [
        _read(loader, "", watched(SEED + number), times, _ended(number)).tolist()
        for number in range(arguments.epochs)
    ]
    return {"times": times.noted, "records": len(found[0]), "numbers": found}


def download(loader: RemoteLoader, arguments: argparse.Namespace) -> Line:  # noqa: ARG001
    """Has boto3 download the one file that is there, with the settings that AWS advises."""
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    (file,) = loader.directory.rglob("cache.mdb")
    bucket, _, prefix = loader.place.path.partition("/")
    os.environ.update(KEYS)
    times = _Times()
    client = boto3.client(
        "s3",
        endpoint_url=loader.place.endpoint,
        config=Config(max_pool_connections=2 * CONNECTIONS),
    )
    times.note("connected")
    times.note("fetched")
    client.download_file(
        bucket,
        f"{prefix}/{file.relative_to(loader.directory)}",
        str(loader.place.cache / "file"),
        Config=TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_concurrency=CONNECTIONS,
        ),
    )
    times.note("ended")
    assert (loader.place.cache / "file").stat().st_size == file.stat().st_size
    return {"times": {**times.noted, "first": times.noted["ended"]}}


MODES: dict[str, Callable[[Any, argparse.Namespace], Line]] = {
    "write": write,
    "first": first,
    "epochs": epochs,
    "shard": shard,
    "share": share,
    "download": download,
}


def _ended(number: int) -> str:
    """How the end of an epoch is called, counted from 0."""
    return f"ended_{number + 1}" if number else "ended"


class _Times:
    """When what was reached."""

    def __init__(self) -> None:
        self.noted = {"started": time.time()}

    def note(self, name: str) -> None:
        self.noted[name] = time.time()


def _read(
    loader: RemoteLoader, way: str, batches: Iterator[Any], times: _Times, name: str = "ended"
) -> Any:
    """The numbers of the records of some batches, in their order, int64."""
    numbers = []
    opening = batch = None
    for batch in batches:
        if opening is None:
            opening = batch
            times.noted.setdefault("first", time.time())
        numbers.append(loader.numbers(batch))
    times.note(name)
    _compare(loader, way, opening)
    _compare(loader, way, batch)
    return np.concatenate(numbers)


def _compare(loader: RemoteLoader, way: str, batch: Any) -> None:
    for record in loader.to_records(way, batch):
        checks.check_record(loader.workload, record)


def _check_all(numbers: Any, work: Workload) -> None:
    if not np.array_equal(np.sort(numbers), np.arange(work.count)):
        raise checks.WrongRecordsError("an epoch did not have every record once")


def _moved(numbers: Any) -> float:
    """The mean distance of records from their place in the data set; 1 in a true shuffle."""
    places = np.arange(len(numbers))
    return float(np.abs(numbers - places).mean() / len(numbers) / UNIFORM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--loader", required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--served", type=pathlib.Path, required=True)
    parser.add_argument("--name", required=True, help="of the data set's folder")
    parser.add_argument("--cache", type=pathlib.Path, help="an empty folder")
    parser.add_argument("--endpoint", default="")
    parser.add_argument("--way", default="")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--limit", type=int, help="bytes that may be kept on this machine")
    parser.add_argument("--parts", type=int, default=0)
    parser.add_argument("--version", default="1")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--is-killed", action="store_true")
    parser.add_argument("--is-downloaded", action="store_true")
    arguments = parser.parse_args()
    # A loader may print from C, too: its standard output becomes this process's standard error.
    output = arguments.output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kind = loader_class(arguments.loader)
    path = f"{BUCKET}/{arguments.name}"
    place = Place(
        arguments.served / path, arguments.endpoint, path, arguments.cache, arguments.limit
    )
    loader = kind(workload(arguments.workload, arguments.scale), place)
    with contextlib.redirect_stdout(sys.stderr):
        try:
            line = MODES[arguments.mode](loader, arguments)
        except checks.WrongRecordsError as error:
            line = {"wrong": str(error)}
    output.write(json.dumps(line) + "\n")
    output.flush()
    # What threads and worker processes of a loader still do is not measured, nor waited for.
    os._exit("wrong" in line)


if __name__ == "__main__":
    main()
