"""What ``far.py`` measures: which data sets are read, how, and how often."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from far_bench import OURS, SCALES, Bench, ReadingError, Results
from far_limits import measure_limit
from far_memory import measure_memory
from far_rounds import in_turn, medians

PEERS = ("mosaic_far", "litdata_far", "webdataset_far", "huggingface_far")
LARGE, SMALL = ("scalars", 10.0), ("small_images", 1 / 6)
"""Ten million records, and ten thousand."""

SLOWER_SECONDS = 0.15
"""Less than after which yogadl asks again for what is late."""

PARTS = 1000
FEWEST_PARTS = 10
SHARDS = 64


def measure_first(bench: Bench) -> Results:
    """First batches of true shuffles."""
    cases = {}
    counts: Results = {}
    parts = max(int(PARTS * min(bench.scale, 1)), FEWEST_PARTS)
    for workload, scale in (SMALL, LARGE):
        counts[workload] = bench.written(OURS, workload, scale, parts)
        for version in ("1", "2"):
            cases[f"{workload}, {version}"] = functools.partial(
                _first, bench, workload, scale, version, parts
            )
    return {"cases": in_turn(bench, cases), "written": counts}


def _first(bench: Bench, workload: str, scale: float, version: str, parts: int) -> Results:
    usual, slower = (
        bench.read("first", OURS, workload, scale, "--version", version, parts=parts, server=server)
        for server in (bench.server, bench.slower)
    )
    later = slower["from_fetch_seconds"] - usual["from_fetch_seconds"]
    return {**usual, "round_trips": later / SLOWER_SECONDS}


def measure_epoch(bench: Bench) -> Results:
    """First epochs, and boto3's downloads."""
    cases = {}
    written = {}
    for workload in ("images", "small_images"):
        scale = SCALES[workload]
        written[workload] = bench.written(OURS, workload, scale)
        cases[f"{workload}, yogadl"] = functools.partial(
            bench.read, "epochs", OURS, workload, scale, "--epochs", "2"
        )
        cases[f"{workload}, boto3"] = functools.partial(
            bench.read, "download", OURS, workload, scale
        )
    return {"cases": in_turn(bench, cases), "written": written}


def measure_shard(bench: Bench) -> Results:
    """One rank of many."""
    scale = SCALES["images"]
    written = {"images": bench.written(OURS, "images", scale)}
    more = ("--rank", "1", "--shards", str(SHARDS))
    cases = {"images": functools.partial(bench.read, "shard", OURS, "images", scale, *more)}
    return {"cases": in_turn(bench, cases), "written": written}


def measure_share(bench: Bench) -> Results:
    """Processes that share a machine and an order."""
    cases = {}
    written = {}
    for workload in ("images", "small_images"):
        scale = SCALES[workload]
        written[workload] = bench.written(OURS, workload, scale)
        read = functools.partial(bench.read_together, workload, scale)
        cases[f"{workload}, all"] = read
        cases[f"{workload}, killed"] = functools.partial(read, are_killed=True)
        cases[f"{workload}, downloaded"] = functools.partial(read, is_downloaded=True)
    return {"cases": in_turn(bench, cases), "written": written}


def measure_peers(bench: Bench) -> Results:
    """Every loader with every workload; one data set after the other."""
    found: Results = {}
    for workload, scale in SCALES.items():
        loaders = {
            name: _Peer(bench, name, workload, scale)
            for name in (OURS, *(name for name in PEERS if name in bench.pythons))
        }
        for _ in range(bench.rounds):
            for peer in loaders.values():
                peer.measure()
        found[workload] = {name: peer.result() for name, peer in loaders.items()}
    return found


class _Peer:
    """A loader with a workload: all its ways in the first round, then the fastest."""

    def __init__(self, bench: Bench, name: str, workload: str, scale: float) -> None:
        self._bench, self._name, self._workload, self._scale = bench, name, workload, scale
        self._ways = [""] if name == OURS else ["workers2", "workers0"]
        self._found: dict[str, list[Results]] = {}
        self._errors: dict[str, str] = {}
        self._written: Results = {}
        try:
            self._written = bench.written(name, workload, scale)
        except ReadingError as error:
            self._fail("", error)
            self._ways = []

    def measure(self) -> None:
        for way in self._ways:
            try:
                line = self._bench.read(
                    "epochs", self._name, self._workload, self._scale, "--way", way
                )
                self._found.setdefault(way, []).append(line)
            except ReadingError as error:
                self._fail(way, error)
        if self._found:
            self._ways = [min(self._found, key=lambda way: self._found[way][0]["seconds"])]

    def _fail(self, way: str, error: ReadingError) -> None:
        print(error, file=sys.stderr)
        self._errors[way] = str(error)
        if self._name == OURS:
            self._bench.fault(error)

    def result(self) -> Results:
        told: Results = {"errors": self._errors, "written": self._written}
        if not self._found:
            return told
        (best,) = self._ways
        others = {way: medians(lines) for way, lines in self._found.items() if way != best}
        return {**told, "way": best, **medians(self._found[best]), "other_ways": others}


CASES: dict[str, Callable[[Bench], Results]] = {
    "first": measure_first,
    "epoch": measure_epoch,
    "shard": measure_shard,
    "share": measure_share,
    "limit": measure_limit,
    "memory": measure_memory,
    "peers": measure_peers,
}
