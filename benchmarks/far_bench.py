"""Runs the processes of ``far.py``, and counts in the server's log what they asked for."""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Iterator
from typing import Any

import bucket_server
import steps
from bucket_server import BucketServer, Request

Results = dict[str, Any]

OURS = "yogadl_far"
SCALES = {"images": 0.5, "small_images": 1.0, "tokens": 1.0}
"""The workloads, and how much of each: 3,000 images, 60,000 records of 3 KB and as many texts."""

# Tests only see whether it runs.
PROCESSES = int(os.environ.get("YOGADL_BENCH_PROCESSES", "8"))
KILLED = (2, 5)
STEP_SECONDS = 300.0

_SCRIPT = str(pathlib.Path(__file__).resolve().parent / "far_reading.py")


class ReadingError(Exception):
    """A process failed, in words."""


class Bench:
    """Writes data sets where the server has them, and has them read.

    Args:
        server: that is running.
        slower: another one of the same files, with a longer time before its answers.
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
        self.frameworks: list[str] = given.frameworks
        self.rounds: int = given.rounds
        self.scale: float = given.scale
        self.directory = directory
        self._written: dict[str, Results] = {}

    def written(self, loader: str, workload: str, scale: float, parts: int = 0) -> Results:
        """Has a data set written, if it is not there yet; its bytes, among others.

        Raises:
            ReadingError: it cannot be.
        """
        name = self._name(loader, workload, parts)
        if name not in self._written:
            command = self._command("write", loader, workload, scale, name, self.server)
            self._written[name] = self.run(f"{name} is written", [*command, "--parts", str(parts)])
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
            line = self.run(f"{name}, {mode} {' '.join(more)}", [*command, *more])
        return _counted(line, requests)

    def read_together(
        self,
        workload: str,
        scale: float,
        *more: str,
        are_killed: bool = False,
        is_downloaded: bool = False,
    ) -> Results:
        """Has several processes read one order, with one folder for what they keep.

        Args:
            more: arguments of ``far_reading.py``.
            are_killed: some of them, on the way.
            is_downloaded: the version, by the first of them, before they begin to read.

        Raises:
            ReadingError: a process fails, or two read the same record.
        """
        name = self._name(OURS, workload, 0)
        told = " (downloaded)" * is_downloaded + " (some killed)" * are_killed
        print(f"{name}, {PROCESSES} processes{told} …", file=sys.stderr)
        with self.cache() as cache, bucket_server.counted(self.server) as requests:
            command = self._command("share", OURS, workload, scale, name, self.server, cache)
            command += ["--shards", str(PROCESSES), *["--is-downloaded"] * is_downloaded, *more]
            with contextlib.ExitStack() as stack:
                lines = _run_together(command, are_killed, stack)
        survivors = [line for line in lines if line is not None]
        epochs = zip(*[line.pop("numbers") for line in survivors], strict=True)
        for numbers in [list(itertools.chain.from_iterable(epoch)) for epoch in epochs]:
            if len(set(numbers)) != len(numbers):
                raise ReadingError(f"{name}: processes read the same records")
        times = [line["times"] for line in survivors]
        # An epoch has ended when it has for all of them.
        ends = {key: max(it[key] for it in times) for key in times[0] if key.startswith("ended")}
        return {
            "records": sum(line["records"] for line in survivors),
            "seconds": ends["ended"] - min(it["started"] for it in times),
            "first_seconds": statistics.median(it["first"] - it["started"] for it in times),
            "requests": len(requests),
            "bytes": sum(request.nbytes for request in requests),
            **_later_epochs(ends, requests),
        }

    def fault(self, error: ReadingError) -> Results:
        self.results["faults"].append(str(error))
        return {"error": str(error)}

    @contextlib.contextmanager
    def cache(self) -> Iterator[pathlib.Path]:
        path = pathlib.Path(tempfile.mkdtemp(prefix="cache-", dir=self.directory))
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

    def run(self, what: str, command: list[str]) -> Results:
        """The last line of JSON that a process prints.

        Args:
            what: it does, in words.
            command: of it.

        Raises:
            ReadingError: it fails, or says that something was wrong.
        """
        print(f"{what} …", file=sys.stderr)
        ended, lines = steps.run(command, STEP_SECONDS)
        if lines and "wrong" in lines[-1]:
            raise ReadingError(f"{what}: WRONG: {lines[-1]['wrong']}")
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
        if "connected" in times:
            found["from_fetch_to_end_seconds"] = times["ended"] - times["connected"]
    return {**found, **_later_epochs(times, requests)}


def _later_epochs(times: dict[str, float], requests: list[Request]) -> Results:
    """Seconds, requests and bytes of every epoch after the first."""
    found: Results = {}
    begun, number = times.get("ended"), 2
    while begun is not None and (ended := times.get(f"ended_{number}")) is not None:
        # What is asked for after the last of them counts as its.
        until = ended if f"ended_{number + 1}" in times else float("inf")
        asked = [request for request in requests if begun < request.started <= until]
        found[f"epoch_{number}_seconds"] = ended - begun
        found[f"epoch_{number}_requests"] = len(asked)
        found[f"epoch_{number}_bytes"] = sum(request.nbytes for request in asked)
        begun, number = ended, number + 1
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
