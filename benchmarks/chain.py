"""Whether what a thousand commits made is read as fast as one file: rates of this yogadl, in turn.

    python benchmarks/chain.py [--commits 1000] [--turns 50] [--seconds 0.2] [--scale 1.0]

Every commit replaces a thousandth of the records, at random places. For each workload and way of
reading, one line: the median rate of a file of the same records, and that of the last version as a
share of it, with the quartiles of all turns; then the same after ``compact``. Before that, how long
a commit takes, and how long the last version takes to be opened.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import numpy as np
import parts

from yogadl.storage import LFSStorage

WAYS = parts.USUAL_WAYS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0.2, help="of one turn")
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--workloads", nargs="+", choices=parts.COUNTS, default=list(parts.COUNTS))
    given = parser.parse_args()
    for name in given.workloads:
        count = max(100, int(parts.COUNTS[name] * given.scale))
        with tempfile.TemporaryDirectory(prefix="chain-") as folder:
            storage = LFSStorage(folder)
            spent = make_chain(storage, name, count, given.commits)
            opened = statistics.median(opening_seconds(storage, name) for _ in range(5))
            print(
                f"{name}: {given.commits:,} commits, {statistics.median(spent) * 1000:.1f} ms each "
                f"(the last hundred {statistics.median(spent[-100:]) * 1000:.1f} ms), opened in "
                f"{opened * 1000:.1f} ms",
                flush=True,
            )
            read(storage, name, "the last", given)
            storage.compact(name, "main")
            read(storage, name, "compacted", given)


def make_chain(storage: LFSStorage, name: str, count: int, commits: int) -> list[float]:
    """Makes the chain, and a file of the records that it ends with; seconds of each commit."""
    rng = np.random.default_rng(0)
    data = parts.arrays(name, count)
    storage.submit(data, name, "first")
    storage.tag(name, "main", "first")
    spent = []
    for number in range(commits):
        positions = np.sort(rng.choice(count, max(count // 1000, 1), replace=False))
        for leaf, values in data.items():
            # Other numbers, and the images of others.
            others = values[(positions + number + 1) % count]
            data[leaf][positions] = others + number if leaf == "number" else others
        new = {leaf: values[positions] for leaf, values in data.items()}
        started = time.perf_counter()
        with storage.change(name, "main") as change:
            change.replace(positions, new)
        spent.append(time.perf_counter() - started)
    storage.submit(data, name, "one")
    return spent


def opening_seconds(storage: LFSStorage, name: str) -> float:
    started = time.perf_counter()
    with storage.fetch(name, "main") as ref:
        next(iter(ref.stream()))
    return time.perf_counter() - started


def read(storage: LFSStorage, name: str, what: str, given: argparse.Namespace) -> None:
    with storage.fetch(name, "one") as one, storage.fetch(name, "main") as made:
        every = slice(None, None, 97)
        assert np.array_equal(
            made.read(range(len(made))[every])["number"], one.read(range(len(one))[every])["number"]
        )
        for shuffle in (False, True):
            for way in WAYS:
                title = f"{name}, {what}, {'shuffled' if shuffle else 'in order'}, {way}"
                parts.compare(title, (one, made), way, given, shuffle)


if __name__ == "__main__":
    main()
