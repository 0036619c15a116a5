"""What ``far.py`` measures: which processes read what, and what the server's log says of them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import bucket_server
import steps
from bucket_server import BucketServer, Request

Results = dict[str, Any]

OURS = "yogadl_far"
PEERS = ("mosaic_far", "litdata_far", "webdataset_far", "huggingface_far")
SCALES = {"images": 0.5, "small_images": 1.0, "tokens": 1.0}
"""The workloads, and how much of each: 3,000 images, 60,000 records of 3 KB and as many texts."""

LARGE, SMALL = ("scalars", 10.0), ("small_images", 1 / 6)
"""Ten million records, and ten thousand."""

SLOWER_SECONDS = 0.15
"""Less than after which yogadl asks again for what is late."""

PARTS = 1000
FEWEST_PARTS = 10
SHARDS = 64
PROCESSES = 8
KILLED = (2, 5)
STEP_SECONDS = 300.0

_SCRIPT = str(pathlib.Path(__file__).resolve().parent / "far_reading.py")


class ReadingError(Exception):
    """A process failed, in words."""


class Bench:
    """Writes data sets where the server has them, and has them read.

    Args:
        server: that is running.
        slower: another one of the same files, with ``SLOWER_SECONDS`` more before its answers.
        directory: for what is kept while something is read; on the same disk.
        given: the arguments of ``far.py``.
        pythons: the peers' interpreters.
        results: for versions, faults, and what was skipped.
    """

    def __init__(
        self,
        server: BucketServer,
        slower: BucketServer,
        directory: pathlib.Path,
        given: argparse.Namespace,
        pythons: dict[str, str],
        results: Results,
    ) -> None:
        self.server, self.slower = server, slower
        self.pythons, self.results = pythons, results
        self.rounds: int = given.rounds
        self.scale: float = given.scale
        self._directory = directory
        self._written: dict[str, Results] = {}

    def written(self, loader: str, workload: str, scale: float, parts: int = 0) -> Results:
        """Has a data set written, if it is not there yet; its bytes, among others.

        Raises:
            ReadingError: it cannot be.
        """
        name = self._name(loader, workload, parts)
        if name not in self._written:
            command = self._command("write", loader, workload, scale, name, self.server)
            self._written[name] = self._lines(
                f"{name} is written", [*command, "--parts", str(parts)]
            )
            self.results["loaders"][loader] = {"version": self._written[name]["version"]}
        return self._written[name]

    def read(
        self,
        mode: str,
        loader: str,
        workload: str,
        scale: float,
        *more: str,
        parts: int = 0,
        server: BucketServer | None = None,
    ) -> Results:
        """Has a data set read by a new process; what it says, and what was asked for meanwhile.

        Args:
            more: arguments of ``far_reading.py``.
            parts: see ``written``.
            server: instead of the usual one.

        Raises:
            ReadingError: it cannot be.
        """
        name = self._name(loader, workload, parts)
        server = server or self.server
        with self.cache() as cache, bucket_server.counted(server) as requests:
            command = self._command(mode, loader, workload, scale, name, server, cache)
            line = self._lines(f"{name}, {mode} {' '.join(more)}", [*command, *more])
        return _counted(line, requests)

    def read_together(self, workload: str, scale: float, are_killed: bool) -> Results:
        """Has several processes read one order, with one folder for what they keep."""
        name = self._name(OURS, workload, 0)
        print(f"{name}, {PROCESSES} processes …", file=sys.stderr)
        with self.cache() as cache, bucket_server.counted(self.server) as requests:
            command = self._command("share", OURS, workload, scale, name, self.server, cache)
            command += ["--shards", str(PROCESSES)]
            with contextlib.ExitStack() as stack:
                lines = _run_together(command, are_killed, stack)
        survivors = [line for line in lines if line is not None]
        numbers = list(itertools.chain.from_iterable(line.pop("numbers") for line in survivors))
        times = [line["times"] for line in survivors]
        if len(set(numbers)) != len(numbers):
            raise ReadingError(f"{name}: processes read the same records")
        return {
            "records": len(numbers),
            "seconds": max(it["ended"] for it in times) - min(it["started"] for it in times),
            "requests": len(requests),
            "bytes": sum(request.nbytes for request in requests),
        }

    def fault(self, error: ReadingError) -> Results:
        self.results["faults"].append(str(error))
        return {"error": str(error)}

    @contextlib.contextmanager
    def cache(self) -> Iterator[pathlib.Path]:
        path = pathlib.Path(tempfile.mkdtemp(prefix="cache-", dir=self._directory))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _name(self, loader: str, workload: str, parts: int) -> str:
        return f"{loader}/{workload}{'-first' if parts else ''}"

    def _command(
        self,
        mode: str,
        loader: str,
        workload: str,
        scale: float,
        name: str,
        server: BucketServer,
        cache: pathlib.Path | None = None,
    ) -> list[str]:
        python = self.pythons.get(loader, sys.executable)
        command = [python, _SCRIPT, mode, "--loader", loader, "--workload", workload]
        command += ["--scale", str(scale * self.scale), "--served", str(self.server.folder)]
        command += ["--name", name, "--endpoint", server.url]
        return command if cache is None else [*command, "--cache", str(cache)]

    def _lines(self, what: str, command: list[str]) -> Results:
        print(f"{what} …", file=sys.stderr)
        ended, lines = steps.run(command, STEP_SECONDS)
        if ended or not lines:
            raise ReadingError(f"{what}: {ended or 'nothing came of it'}")
        return lines[-1]


def _counted(line: Results, requests: list[Request]) -> Results:
    """What a process said, and how much of what was asked belongs to which time."""
    times = line["times"]
    # Times of the log are cut to milliseconds.
    begun = [request for request in requests if request.started < times["first"]]
    before = [request for request in requests if request.ended <= times["first"] + 0.001]
    found = {
        **{name: value for name, value in line.items() if name != "times"},
        "first_seconds": times["first"] - times["started"],
        "fetched_seconds": times["fetched"] - times["started"],
        "first_requests": len(begun),
        "first_bytes": sum(request.nbytes for request in before),
        "requests": len(requests),
        "bytes": sum(request.nbytes for request in requests),
    }
    if "connected" in times:
        found["from_fetch_seconds"] = times["first"] - times["connected"]
    if "ended" in times:
        found["seconds"] = times["ended"] - times["started"]
    if "ended_again" in times:
        found["again_seconds"] = times["ended_again"] - times["started_again"]
        late = [request for request in requests if request.started > times["ended"]]
        found["again_requests"] = len(late)
        found["again_bytes"] = sum(request.nbytes for request in late)
    return found


def _run_together(
    command: list[str], are_killed: bool, stack: contextlib.ExitStack
) -> list[Results | None]:
    """What each of several processes said that began together; ``None`` of those that were killed.

    Raises:
        ReadingError: another one failed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    processes = []
    for rank in range(PROCESSES):
        more = ["--is-killed"] if are_killed and rank in KILLED else []
        process = subprocess.Popen(
            [*command, "--rank", str(rank), *more],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(_end, process)
        processes.append(process)
    for process in processes:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise ReadingError("a process that shares ended before it began")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    lines: list[Results | None] = []
    for rank, process in enumerate(processes):
        said, _ = process.communicate(timeout=STEP_SECONDS)
        is_killed = are_killed and rank in KILLED
        if process.returncode != (-signal.SIGKILL if is_killed else 0):
            raise ReadingError(f"a process that shares ended with status {process.returncode}")
        lines.append(None if is_killed else json.loads(said))
    return lines


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def medians(rounds: list[Results]) -> Results:
    """The medians of all numbers, and the lowest and the highest of the seconds."""
    found: Results = {}
    for name in rounds[0]:
        values = [line[name] for line in rounds]
        found[name] = statistics.median(values)
        if name.endswith("seconds"):
            found[f"{name}_range"] = [min(values), max(values)]
    return {**found, "rounds": len(rounds)}


def _in_turn(bench: Bench, cases: dict[str, Callable[[], Results]]) -> Results:
    """Every case once in every round; its medians, or what went wrong."""
    found: dict[str, list[Results]] = {name: [] for name in cases}
    failed: Results = {}
    for _ in range(bench.rounds):
        for name, case in cases.items():
            if name in failed:
                continue
            try:
                found[name].append(case())
            except ReadingError as error:
                failed[name] = bench.fault(error)
    return {name: failed.get(name) or medians(found[name]) for name in cases}


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
    return {"cases": _in_turn(bench, cases), "written": counts}


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
    return {"cases": _in_turn(bench, cases), "written": written}


def measure_shard(bench: Bench) -> Results:
    """One rank of many."""
    scale = SCALES["images"]
    written = {"images": bench.written(OURS, "images", scale)}
    more = ("--rank", "1", "--shards", str(SHARDS))
    cases = {"images": functools.partial(bench.read, "shard", OURS, "images", scale, *more)}
    return {"cases": _in_turn(bench, cases), "written": written}


def measure_share(bench: Bench) -> Results:
    """Processes that share a machine and an order."""
    cases = {}
    written = {}
    for workload in ("images", "small_images"):
        scale = SCALES[workload]
        written[workload] = bench.written(OURS, workload, scale)
        for name, are_killed in (("all", False), ("killed", True)):
            cases[f"{workload}, {name}"] = functools.partial(
                bench.read_together, workload, scale, are_killed
            )
    return {"cases": _in_turn(bench, cases), "written": written}


def measure_peers(bench: Bench) -> Results:
    """Every loader with every workload; one data set after the other."""
    found: Results = {}
    for workload, scale in SCALES.items():
        loaders = {name: _Peer(bench, name, workload, scale) for name in (OURS, *bench.pythons)}
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
    "peers": measure_peers,
}
