"""Whether a data set of many parts is read as fast as one file: rates of this yogadl, in turn.

    python benchmarks/parts.py [--parts 1000] [--turns 50] [--seconds 0.2] [--scale 1.0]
                               [--ways batches "tf batches" records] [--workloads images …]

For each workload and way of reading, one line: the median rate of one file, and that of the parts,
or of up to 10,000 runs over them and over two parts, as a share of it: the median of all turns,
with their quartiles. Then, how long 10,000 parts take to be opened.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.cache.parts import read_header
from yogadl.cache.table_writer import ColumnGroup, stored_groups, sums_of_runs, write_version
from yogadl.format.run_columns import RUN
from yogadl.storage import LFSStorage

BATCH = 32
RUNS = 10_000
WAYS = ("batches", "tf batches", "torch batches", "records")
USUAL_WAYS = ("batches", "tf batches", "records")
"""PyTorch and TensorFlow need not be in one environment."""

COUNTS = {"scalars": 2_000_000, "3 KB": 60_000, "images": 4_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0.2, help="of one turn")
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(USUAL_WAYS))
    parser.add_argument("--workloads", nargs="+", choices=COUNTS, default=list(COUNTS))
    given = parser.parse_args()
    for name in given.workloads:
        count = max(given.parts, int(COUNTS[name] * given.scale))
        with tempfile.TemporaryDirectory(prefix="parts-") as folder:
            storage = LFSStorage(folder)
            storage.submit(arrays(name, count), name, "one")
            one = storage.fetch(name, "one")
            storage.submit(
                arrays(name, count), name, "parts", part_bytes=one.info.file_size // given.parts
            )
            storage.submit(arrays(name, count), name, "two", part_bytes=one.info.file_size * 3 // 5)
            runs = min(RUNS, count // 2)
            for version in ("parts", "two"):
                cut_into_runs(storage, name, version, runs)
            for version in ("parts", "parts-runs", "two-runs"):
                with storage.fetch(name, version) as many:
                    found = len(many.reader.parts_by_digest())
                    title = f"{name}, {found:,} parts"
                    if version.endswith("runs"):
                        title += f" in {runs:,} runs"
                    for way in given.ways:
                        compare(f"{title}, {way}", (one, many), way, given)
            one.close()
    with tempfile.TemporaryDirectory(prefix="parts-") as folder:
        print(f"10,000 parts are opened in {opening_seconds(LFSStorage(folder)) * 1000:.1f} ms")


def cut_into_runs(storage: LFSStorage, name: str, version: str, count: int) -> None:
    """Makes a version of the same records in runs, of random lengths and in random order."""
    rng = np.random.default_rng(0)
    path = storage.fetch(name, version).reader.path
    header, file = read_header(path)
    made = stored_groups(file.array, header, str(path))
    (group,) = made.groups
    counts = group.runs["count"].astype("i8")
    ends = np.cumsum(counts)
    begins = ends - counts
    cuts = rng.choice(np.arange(1, ends[-1]), count - len(counts), replace=False)
    stops = np.union1d(cuts, ends)
    starts = np.append(0, stops[:-1])
    runs = np.zeros(len(stops), RUN)
    runs["part"] = np.searchsorted(ends, starts, side="right")
    runs["first"] = starts - begins[runs["part"]]
    runs["count"] = stops - starts
    runs = rng.permutation(runs)
    target = path.parent.with_name(f"{version}-runs") / path.name
    target.parent.mkdir()
    with storage.fetch(name, version) as ref:

        def tokens(part: int, first: int, count: int) -> Any:
            return ref.reader.tokens(begins[part] + first + np.arange(count))

        sums = sums_of_runs(group.parts, runs, tokens)
    groups = [ColumnGroup(made.spec, group.parts, runs)]
    with write_version(
        target, groups, made.spec, None, metadata=b"{}", created_ns=0, sums=sums
    ) as table:
        table.commit()


def arrays(name: str, count: int) -> dict[str, Any]:
    numbers = np.arange(count)
    if name == "scalars":
        return {"number": numbers}
    shape = (28, 28, 1) if name == "3 KB" else (224, 224, 3)
    dtype = "float32" if name == "3 KB" else "uint8"
    pool = np.random.default_rng(0).integers(0, 255, (64, *shape)).astype(dtype)
    return {"image": pool[numbers % 64], "number": numbers}


def compare(
    title: str, refs: tuple[Any, Any], way: str, given: argparse.Namespace, shuffle: bool = True
) -> None:
    """Prints the rate of the first, and that of the second as a share of it.

    Both are read on, in short turns: a machine of others' is seldom as fast a second later.
    """
    reads = [epochs(ref.stream(shuffle=shuffle, shuffle_seed=1), way) for ref in refs]
    size = 1 if way == "records" else BATCH
    for ref, items in zip(refs, reads, strict=True):
        # What it takes to begin is no rate: an epoch and a bit.
        seconds_of(items, len(ref) // size + 2)
    taken = max(1, round(32 * given.seconds / seconds_of(reads[0], 32)))
    turns = [[seconds_of(items, taken) for items in reads] for _ in range(given.turns)]
    ratios = [one / many for one, many in turns]
    rate = taken * size / statistics.median(one for one, _ in turns)
    low, _, high = statistics.quantiles(ratios, n=4)
    print(
        f"{title:48} {rate:12,.0f}/s   {statistics.median(ratios):.3f} ({low:.3f}-{high:.3f})",
        flush=True,
    )


def seconds_of(items: Iterator[Any], count: int) -> float:
    started = time.perf_counter()
    for _ in itertools.islice(items, count):
        pass
    return time.perf_counter() - started


def epochs(stream: Any, way: str) -> Iterator[Any]:
    items = stream
    if way == "batches":
        items = stream.batches(BATCH)
    elif way == "tf batches":
        import yogadl.tensorflow

        items = yogadl.tensorflow.make_tf_dataset(stream, batch_size=BATCH)
    elif way == "torch batches":
        import torch.utils.data

        import yogadl.torch

        dataset = yogadl.torch.IterableDataset(stream, batch_size=BATCH)
        items = torch.utils.data.DataLoader(dataset, batch_size=None)
    while True:
        yield from items


def opening_seconds(storage: LFSStorage) -> float:
    """The median of five openings of a table of 10,000 parts."""
    # A part a block of columns, of which each has a part's bytes.
    storage.submit(({"n": n} for n in range(10_000)), "many", "1", part_bytes=1)
    spent = []
    for _ in range(5):
        started = time.perf_counter()
        with storage.fetch("many", "1") as ref:
            spent.append(time.perf_counter() - started)
            assert len(ref.reader.parts_by_digest()) > 9_000, ref.reader
    return statistics.median(spent)


if __name__ == "__main__":
    main()
