"""What other chunk sizes would do: the rates of ``yogadl/chunk_sizes.py`` with a quarter and four
times of each.

    python benchmarks/chunk_sizes.py [--rounds 3] [--scale 0.2] [--seconds 1.0]

For each size, workload and way of reading that it matters for, one line: the size's name, and the
median rate with a quarter and with four times of it, as a share of the rate as it is, measured in
turn.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from unittest import mock

from loaders import BATCH
from loaders.this_yogadl import ThisYogadl
from workloads import workload

from yogadl import chunk_sizes
from yogadl.chunk_sizes import ChunkSize

FACTORS = (0.25, 1.0, 4.0)
READING = {
    "RECORDS": ("records",),
    "BATCHES": ("batches", "padded"),
    "TF_LOOKUP": ("tf_batch_size", "tf_batch", "tf_padded"),
    "TF_ROW": ("tf_batch",),
    "TF_ROW_BATCHES": ("tf_batch_size",),
    "TF_LARGE": ("tf_batch_size",),
    "TF_NUMPY_ROW": ("tf_padded", "tf_ragged", "tf_padded_batch"),
}
WRITING = ("SUBMITTED", "SUBMITTED_BLINDLY")
WORKLOADS = ("scalars", "small_images", "images", "tokens", "features")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.2, help="of the record counts")
    parser.add_argument("--seconds", type=float, default=1.0, help="for one measurement")
    given = parser.parse_args()
    for name in WORKLOADS:
        made = workload(name, given.scale)
        with tempfile.TemporaryDirectory(prefix="chunk-sizes-") as folder:
            make = functools.partial(ThisYogadl, made, pathlib.Path(folder))
            for size in WRITING:
                report(size, name, "write", functools.partial(writing_rate, make), given.rounds)
            for size, ways in READING.items():
                for way in sorted({*ways} & {*make().ways}):
                    rate = functools.partial(reading_rate, make, way, given.seconds)
                    report(size, name, way, rate, given.rounds)


def report(size: str, name: str, way: str, rate: Callable[[], float], rounds: int) -> None:
    """Measures one size in turn with its factors, and prints what came out."""
    rates: dict[float, list[float]] = {factor: [] for factor in FACTORS}
    for _round, factor in itertools.product(range(rounds), FACTORS):
        with changed(size, factor):
            rates[factor].append(rate())
    quarter, as_is, fourfold = (statistics.median(rates[factor]) for factor in FACTORS)
    print(
        f"{size:18} {name:13} {way:16} {as_is:12,.0f}/s   a quarter {quarter / as_is:5.2f}   "
        f"four times {fourfold / as_is:5.2f}",
        flush=True,
    )


@contextlib.contextmanager
def changed(size: str, factor: float) -> Iterator[None]:
    """The size, multiplied."""
    plain = getattr(chunk_sizes, size)
    if isinstance(plain, ChunkSize):
        other = ChunkSize(int(plain.nbytes * factor), int(plain.records * factor))
    else:
        other = int(plain * factor)
    with mock.patch.object(chunk_sizes, size, other):
        yield


def reading_rate(make: Callable[[], ThisYogadl], way: str, seconds: float) -> float:
    """Records a second of shuffled epochs, by a data set made with the size as it is now."""
    loader = make()
    loader.open()
    batches, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _batch in loader.epoch(way, seed=batches):
            batches += 1
            if time.perf_counter() - started > seconds:
                break
    spent = time.perf_counter() - started
    loader.close()
    return batches * BATCH / spent


def writing_rate(make: Callable[[], ThisYogadl]) -> float:
    loader = make()
    loader.prepare(loader.writes[0])
    started = time.perf_counter()
    loader.write_tf()
    return loader.workload.count / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
