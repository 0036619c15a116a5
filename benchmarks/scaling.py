"""How this yogadl's cost per record and memory grow with the data set.

    python scaling.py --directory DIRECTORY [--scale 1.0] [--seconds 3]

Prints one line of JSON: nanoseconds per record of data sets of 10^4 to 10^7 int64 scalars, and how
much memory grows while a large file is read once. TensorFlow is imported only when its turn comes:
its threads and its memory would be measured, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import disk
import numpy as np
import processes
from loaders import BATCH

import yogadl.storage

SIZES = (10_000, 1_000_000, 10_000_000)
RUNS = 4
ENOUGH_SECONDS = 1.0
LARGE_RECORD, LARGE_RECORDS = 1 << 17, 8192
SAMPLE_EVERY = 16


def _lists(stream: Any) -> Iterator[list[Any]]:
    records = iter(stream)
    while batch := list(itertools.islice(records, BATCH)):
        yield batch


def _tf_dataset(stream: Any) -> Any:
    import yogadl.tensorflow

    return yogadl.tensorflow.make_tf_dataset(stream, batch_size=BATCH)


WAYS: dict[str, Callable[[Any], Iterable[Any]]] = {
    "records": _lists,
    "batches": lambda stream: stream.batches(BATCH),
    "tf_batch_size": _tf_dataset,
}


def nanoseconds(make: Callable[[], Iterable[Any]], count: int, seconds: float) -> float:
    """Per record, of epochs repeated until a second has passed, but not for over ``seconds``."""
    read = 0
    started = time.perf_counter()
    while time.perf_counter() - started < min(ENOUGH_SECONDS, seconds):
        read += _epoch(make(), count, started + seconds)
    return (time.perf_counter() - started) / read * 1e9


def _epoch(batches: Iterable[Any], count: int, deadline: float) -> int:
    """Records read of an epoch until it ends or the deadline comes."""
    number = 0
    for number, _batch in enumerate(batches, 1):
        if number % SAMPLE_EVERY == 0 and time.perf_counter() > deadline:
            break
    return min(number * BATCH, count)


def costs(storage: Any, scale: float, seconds: float) -> list[dict[str, Any]]:
    counts = [max(int(size * scale), 64) for size in SIZES]
    for count in counts:
        storage.submit(np.arange(count), "scaling", str(count))
    found = []
    for (way, read), shuffle, count in itertools.product(WAYS.items(), (False, True), counts):
        with storage.fetch("scaling", str(count)) as dataref:
            stream = dataref.stream(shuffle=shuffle, shuffle_seed=1)
            # A TensorFlow pipeline is made once; each iteration is the stream's next epoch.
            pipeline = read(stream) if way.startswith("tf_") else None

            def make(pipeline: Any = pipeline, stream: Any = stream, read: Any = read) -> Any:
                return read(stream) if pipeline is None else pipeline

            best = min(nanoseconds(make, count, seconds) for _ in range(RUNS))
            found.append({"records": count, "way": way, "shuffled": shuffle, "ns": best})
    return found


def growth(storage: Any, directory: pathlib.Path, scale: float) -> dict[str, Any]:
    """The most that memory grows by while a large file is read in order, once."""
    count = max(int(LARGE_RECORDS * scale), 64)
    storage.submit(_large_records(count), "large", "1")
    found: dict[str, Any] = {"file_bytes": disk.used_bytes(directory / "large")}
    for way in ("batches", "records"):
        with storage.fetch("large", "1") as dataref:
            before = processes.Memory(["self"])
            own = file = 0
            for number, _batch in enumerate(WAYS[way](dataref.stream())):
                if number % SAMPLE_EVERY == 0:
                    now = processes.Memory(["self"])
                    own = max(own, now.own - before.own)
                    file = max(file, now.file - before.file)
            found[way] = {"own_bytes": own, "mapped_file_bytes": file}
    return found


def _large_records(count: int) -> Iterator[Any]:
    pool = np.random.default_rng(0).integers(0, 255, (16, LARGE_RECORD)).astype(np.uint8)
    return (pool[number % 16] for number in range(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    directory = arguments.directory / "scaling"
    directory.mkdir()
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(directory))
    # Memory first, while the process has freed nothing that it could use again.
    memory = growth(storage, directory, arguments.scale)
    cost = costs(storage, arguments.scale, arguments.seconds)
    shutil.rmtree(directory)
    print(json.dumps({"cost": cost, "memory": memory}))


if __name__ == "__main__":
    main()
