"""Measures this yogadl and its peers, and writes a report.

    python benchmarks/run.py [--scale 1.0] [--seconds 3] [--loaders NAME …] [--workloads NAME …]
    python benchmarks/run.py --steps write
    python benchmarks/run.py --smoke [--loaders all]

Every loader runs in an environment of its own, made from PyPI in ``.venv-bench-NAME``, unless
--python NAME=PATH names the interpreter of one. A loader that cannot be set up is reported as
skipped. The results are in ``benchmarks/results``: JSON, tables and plots. The exit status is 1 if
a loader delivered wrong records, or this yogadl did not deliver.

With --smoke, tiny data sets are written and read in every way, and nothing is reported but whether
the records are right: by default of this yogadl only, with ``--loaders all`` of its peers too.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
from typing import Any

import environments
import machine
import phases
import steps
from workloads import NAMES

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
SMOKE_SCALE, SMOKE_SECONDS = 0.0001, 0.05
SMOKE_STEP_SECONDS = 600
STEP_SECONDS = {"write": 900, "read": 400, "cold": 120, "shard": 120, "floors": 180}
STEPS = {
    "write": ["write"],
    "read": ["open", "warm", "resume", "check"],
    "cold": ["cold"],
    "shard": ["shard"],
}
"""What is measured by a process of its own; all but the first read what that has written."""
ALL_PHASES = ["write", *phases.READING]

Results = dict[str, Any]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--seconds", type=float, default=3.0, help="for one way of reading")
    parser.add_argument("--loaders", nargs="+", default=None, help="names, or all")
    parser.add_argument("--workloads", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--directory", type=pathlib.Path, help="for the data sets")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="where to report")
    parser.add_argument(
        "--steps", nargs="+", choices=list(STEPS), default=list(STEPS), help="what to measure"
    )
    parser.add_argument("--smoke", action="store_true", help="only see whether everything works")
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="of a loader"
    )
    arguments = parser.parse_args()
    known = environments.names()
    if arguments.loaders is None:
        arguments.loaders = known[:1] if arguments.smoke else known
    elif arguments.loaders == ["all"]:
        arguments.loaders = known
    unknown = set(arguments.loaders) - set(known)
    if unknown:
        parser.error(f"no loaders {sorted(unknown)}; there are {known}")
    if arguments.smoke:
        arguments.scale, arguments.seconds = SMOKE_SCALE, SMOKE_SECONDS
    arguments.pythons = dict(pair.split("=", 1) for pair in arguments.python)
    return arguments


def find_interpreters(arguments: argparse.Namespace, results: Results) -> dict[str, str]:
    """The interpreters by loader; why one is missing goes into the results."""
    found = {}
    for name in arguments.loaders:
        try:
            found[name] = environments.interpreter(name, arguments.pythons)
        except environments.UnavailableError as reason:
            results["loaders"][name] = {"skipped": str(reason)}
            print(f"{name}: skipped: {reason}", file=sys.stderr)
    return found


def smoke(pythons: dict[str, str], directory: pathlib.Path, arguments: argparse.Namespace) -> None:
    """Everything that a loader does, on tiny data sets, in one process for each interpreter."""
    for name, python in pythons.items():
        step = steps.Step(python, directory, arguments.scale, arguments.seconds)
        loaders = [name, "floors"] if name == "this_yogadl" else [name]
        step.run(
            arguments.results_so_far, loaders, arguments.workloads, ALL_PHASES, SMOKE_STEP_SECONDS
        )


def measure(
    pythons: dict[str, str], directory: pathlib.Path, arguments: argparse.Namespace
) -> None:
    """Every workload with every loader; reading in processes that have not written."""
    results = arguments.results_so_far
    for workload in arguments.workloads:
        own = steps.Step(sys.executable, directory, arguments.scale, arguments.seconds)
        own.run(results, ["floors"], [workload], ["floors"], STEP_SECONDS["floors"])
        shutil.rmtree(directory / "floors", ignore_errors=True)
        for name, python in pythons.items():
            step = steps.Step(python, directory, arguments.scale, arguments.seconds)
            for kind in dict.fromkeys(("write", *arguments.steps)):
                names = STEPS[kind]
                step.run(results, [name], [workload], names, STEP_SECONDS[kind])
                if "result" not in steps.outcome(results, workload, name, names[0]):
                    break
            shutil.rmtree(directory / name, ignore_errors=True)
            save(results, arguments.results)


def save(results: Results, directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=2) + "\n"
    (directory / "results.json").write_text(text)


def main() -> None:
    arguments = parse_arguments()
    results: Results = {
        "arguments": {"scale": arguments.scale, "seconds": arguments.seconds},
        "loaders": {},
        "results": {},
    }
    arguments.results_so_far = results
    pythons = find_interpreters(arguments, results)
    # The system's temporary directory may be in memory, where nothing can be read cold.
    place = arguments.directory or arguments.results
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="data-", dir=place) as temporary:
        directory = pathlib.Path(temporary)
        results["machine"] = machine.describe(directory)
        if arguments.smoke:
            smoke(pythons, directory, arguments)
        else:
            measure(pythons, directory, arguments)
        if "this_yogadl" in pythons and "read" in arguments.steps:
            print("scaling …", file=sys.stderr)
            step = steps.Step(pythons["this_yogadl"], directory, arguments.scale, arguments.seconds)
            results["scaling"] = step.scaling()
    faults = steps.faults(results)
    if arguments.smoke:
        print(json.dumps(results))
    else:
        import report

        save(results, arguments.results)
        print(report.write(results, arguments.results))
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
