"""Measures loaders of one environment; run by that environment's interpreter, see run.py.

    python measure.py --directory DIRECTORY --loaders NAME … --workloads NAME … --phases NAME …

Prints a line of JSON for every phase as it ends, and one before and after memory is to be watched.
What a loader itself prints goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import os
import pathlib
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

import checks
import phases
from loaders import Loader, Unsupported
from workloads import NAMES, Workload, workload

FLOORS = "floors"
WATCH, WATCHED = "watch", "watched"


def loader_class(name: str) -> type[Loader]:
    """The loader that a module of ``loaders`` defines."""
    module = importlib.import_module(f"loaders.{name}")
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Loader)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    named = [value for value in found if value.__name__ == "PeerLoader"]
    return (named or found)[0]


class Reporter:
    """Runs phases and prints what came of each."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def print(self, line: dict[str, Any]) -> None:
        self._output.write(json.dumps(line) + "\n")
        self._output.flush()

    def run(self, function: Callable[[], dict[str, Any]], **names: str) -> None:
        """Calls a function and prints its result or, in words, why there is none."""
        try:
            line = {"result": function()}
        except Unsupported as reason:
            line = {"unsupported": str(reason)}
        except checks.WrongRecordsError as error:
            line = {"wrong": str(error)}
        except Exception as error:
            traceback.print_exc()
            line = {"error": f"{type(error).__name__}: {error}"[:500]}
        self.print({**names, **line})


def measure_loader(
    reporter: Reporter, name: str, work: Workload, arguments: argparse.Namespace
) -> None:
    kind = loader_class(name)
    baseline = phases.own_memory()
    directory = arguments.directory / name / work.name
    for phase in arguments.phases:
        names = {"loader": name, "workload": work.name, "phase": phase}
        if phase == "write":
            run = phases.Writing(kind, work, directory, arguments.seconds)
            reporter.run(run.measure, **names, version=kind.version())
            continue
        function = phases.READING[phase]
        run_phase = phases.Reading(kind, work, directory / kind.writes[0], arguments.seconds)
        run_phase.ways = tuple(arguments.ways)
        if phase == "warm":
            run_phase.watch = lambda: reporter.print({"event": WATCH, "baseline": baseline})
            run_phase.watched = lambda: reporter.print({"event": WATCHED})
        reporter.run(lambda function=function, run=run_phase: run.measure(function), **names)


def measure_floors(reporter: Reporter, work: Workload, arguments: argparse.Namespace) -> None:
    from loaders import floors

    directory = arguments.directory / FLOORS / work.name
    directory.mkdir(parents=True, exist_ok=True)
    for floor, function in floors.FLOORS.items():
        names = {"loader": FLOORS, "workload": work.name, "phase": floor}
        reporter.run(
            lambda function=function: function(work, directory, arguments.seconds), **names
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--loaders", nargs="+", required=True)
    parser.add_argument("--workloads", nargs="+", default=NAMES)
    parser.add_argument("--phases", nargs="+", default=["write", *phases.READING])
    parser.add_argument("--ways", nargs="+", default=[], help="of reading, instead of all")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    # A loader may print from C, too: its standard output becomes this process's standard error.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    reporter = Reporter(output)
    with contextlib.redirect_stdout(sys.stderr):
        for work_name, name in itertools.product(arguments.workloads, arguments.loaders):
            work = workload(work_name, arguments.scale)
            started = time.perf_counter()
            if name == FLOORS:
                measure_floors(reporter, work, arguments)
            else:
                measure_loader(reporter, name, work, arguments)
            print(f"{name} {work_name}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
    # Worker threads and processes of some libraries do not end by themselves.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
