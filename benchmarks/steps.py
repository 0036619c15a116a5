"""Runs ``measure.py`` with a loader's interpreter, and collects what it prints."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

import processes

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE_SECONDS = 0.02
SCALING_SECONDS = 900
ENDING_SECONDS = 5

Results = dict[str, Any]


class Step:
    """One run of a script in a process of its own, with its children ended at a timeout."""

    def __init__(self, python: str, directory: pathlib.Path, scale: float, seconds: float) -> None:
        self._python = python
        self.script = [str(HERE / "measure.py")]
        self._common = ["--directory", str(directory), "--scale", str(scale)]
        self._common += ["--seconds", str(seconds)]

    def run(
        self,
        results: Results,
        loaders: list[str],
        workloads: list[str],
        phases: list[str],
        timeout: float,
        ways: Sequence[str] = (),
    ) -> None:
        """Measures, and adds what comes of it to ``results``.

        Args:
            ways: of reading, instead of all.
        """
        command = [self._python, *self.script, *self._common]
        command += ["--loaders", *loaders, "--workloads", *workloads]
        command += ["--phases", *phases]
        if ways:
            command += ["--ways", *ways]
        print(f"{', '.join(workloads)}: {', '.join(loaders)} …", file=sys.stderr)
        ended, lines = run(command, timeout)
        for line in lines:
            add(results, line)
        for place in itertools.product(workloads, loaders, phases):
            workload, name, phase = place
            found = results["results"].setdefault(workload, {}).setdefault(name, {})
            if name != "floors":
                found.setdefault(phase, {"error": ended or "nothing came of it"})
            elif ended:
                found["all"] = {"error": ended}

    def scaling(self) -> Results:
        ended, lines = run([self._python, str(HERE / "scaling.py"), *self._common], SCALING_SECONDS)
        return {"error": ended} if ended else lines[-1]


def add(results: Results, line: dict[str, Any]) -> None:
    """Puts a line of ``measure.py`` in its place."""
    names = [line.pop(name) for name in ("workload", "loader", "phase")]
    version = line.pop("version", None)
    if version:
        results["loaders"].setdefault(names[1], {})["version"] = version
    results["results"].setdefault(names[0], {}).setdefault(names[1], {})[names[2]] = line


def outcome(results: Results, workload: str, loader: str, phase: str) -> dict[str, Any]:
    found: dict[str, Any] = (
        results["results"].get(workload, {}).get(loader, {}).get(phase, {"error": "not run"})
    )
    return found


def faults(results: Results) -> list[str]:
    """Wrong records of any loader, and whatever this yogadl could not do, in words."""
    found = []
    if "error" in results.get("scaling", {}):
        found.append(f"scaling: {results['scaling']['error']}")
    for workload, loaders in results["results"].items():
        for name, phases in loaders.items():
            for phase, line in phases.items():
                place = f"{workload}: {name}: {phase}"
                if "wrong" in line:
                    found.append(f"WRONG: {place}: {line['wrong']}")
                elif name == "this_yogadl" and "result" not in line:
                    found.append(f"{place}: {line}")
                elif name == "floors" and "error" in line:
                    found.append(f"{place}: {line['error']}")
    return found


def run(command: list[str], timeout: float, **variables: str) -> tuple[str, list[dict[str, Any]]]:
    """Why a process ended early, or ``""``, and the lines of JSON that it printed.

    Args:
        timeout: in seconds, after which it is ended with all that it started.
        variables: of its environment, besides those of this process.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    environment.update(variables)
    environment.pop("PYTHONPATH", None)
    lines: list[dict[str, Any]] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in _watch(process.pid, process.stdout, timeout):
                lines.append(line)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SECONDS)
        except TimeoutError:
            return f"not done after {timeout:g} s", lines
        finally:
            # Whatever it started is of its process group and ends with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        return f"ended with status {process.returncode}", lines
    return "", lines


def _watch(pid: int, output: IO[bytes], timeout: float) -> Iterator[dict[str, Any]]:
    """The lines of a process but for its events, between which its memory is sampled."""
    deadline = time.monotonic() + timeout
    peak: processes.MemoryPeak | None = None
    memory: dict[str, int] = {}
    baseline = 0
    for text in _lines(output):
        if text is None:
            if time.monotonic() > deadline:
                raise TimeoutError
            if peak is not None:
                peak.sample()
            continue
        line = json.loads(text)
        if line.get("event") == "watch":
            peak, baseline = processes.MemoryPeak(pid), line["baseline"]
            peak.sample()
        elif line.get("event") == "watched" and peak is not None:
            peak.sample()
            memory = {"peak_bytes": peak.own - baseline, "peak_resident_bytes": peak.resident}
            peak = None
        elif "event" not in line:
            if line.get("phase") == "warm" and "result" in line:
                line["result"]["memory"] = memory
            elif memory and "phase" not in line:
                line["memory"] = memory
            yield line


def _lines(output: IO[bytes]) -> Iterator[bytes | None]:
    """Lines as they come, and ``None`` every few milliseconds meanwhile."""
    os.set_blocking(output.fileno(), False)
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if not selector.select(SAMPLE_SECONDS):
                yield None
                continue
            chunk = os.read(output.fileno(), 1 << 16)
            if not chunk:
                return
            *complete, rest = (rest + chunk).split(b"\n")
            yield from complete
            yield None
