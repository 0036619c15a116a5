"""Whether one commit of yogadl is slower than another, measured in turn.

    python benchmarks/compare.py BEFORE AFTER [--rounds 3] [--scale 1.0] [--seconds 3]
                                 [--workloads NAME …] [--phases NAME …] [--directory DIRECTORY]

Both are checkouts in which ``make .venv/.bench`` was run, and nothing else: the more packages an
environment has, the longer the first ``submit`` looks for adapters in them. Each workload is
written and read, warm and cold, by the first, by the second and by the first again, each with its
own code, round after round. For every rate, the table has the median of AFTER / BEFORE, and by how
much BEFORE differed from itself at most. A rate is *lower* if it fell by more than that; then the
exit status is 1.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import steps
from workloads import NAMES

STEP_SECONDS = 900
PHASES = ("write", "warm", "cold")
# What older checkouts call otherwise.
RENAMED = {"write": "tf", "write_arrays": "arrays"}

Rates = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path, help="a checkout")
    parser.add_argument("after", type=pathlib.Path, help="a checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--seconds", type=float, default=3.0, help="for one way of reading")
    parser.add_argument("--workloads", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--directory", type=pathlib.Path, help="for the data sets, on a disk")
    given = parser.parse_args()
    before, after = given.before.resolve(), given.after.resolve()
    for checkout in (before, after):
        check(checkout)
    table = []
    for workload in given.workloads:
        rounds = []
        for number in range(given.rounds):
            print(f"{workload}, round {number + 1} of {given.rounds} …", file=sys.stderr)
            rounds.append(
                [measure(checkout, workload, given) for checkout in (before, after, before)]
            )
        table += compare(rounds)
        print(formatted(table), flush=True)
    sys.exit(any(row["lower"] for row in table))


def check(checkout: pathlib.Path) -> None:
    """Sees that a checkout's environment runs the checkout's own code, not another's."""
    command = [interpreter(checkout), "-c", "import yogadl; print(yogadl.__file__)"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    found = answer.stdout.strip()
    if pathlib.Path(found) != checkout / "yogadl" / "__init__.py":
        sys.exit(f"the environment of {checkout} runs {found}; run `make .venv/.bench` there")


def interpreter(checkout: pathlib.Path) -> str:
    return str(checkout / ".venv/bin/python")


def measure(checkout: pathlib.Path, workload: str, given: argparse.Namespace) -> Rates:
    """Records per second of one workload in one checkout, by phase and way."""
    results: dict[str, Any] = {"loaders": {}, "results": {}}
    with tempfile.TemporaryDirectory(prefix="compare-", dir=given.directory or checkout) as folder:
        step = steps.Step(interpreter(checkout), pathlib.Path(folder), given.scale, given.seconds)
        step.script = [str(checkout / "benchmarks/measure.py")]
        # Nothing is read that was not written.
        for phase in dict.fromkeys(("write", *given.phases)):
            step.run(results, ["this_yogadl"], [workload], [phase], STEP_SECONDS)
    faults = steps.faults(results)
    if faults:
        sys.exit("\n".join(faults))
    return rates(results)


def rates(results: dict[str, Any]) -> Rates:
    """All rates in the results of one run."""
    found = {}
    for workload, loaders in results["results"].items():
        for phase, line in loaders["this_yogadl"].items():
            measured = line["result"]
            for way, result in measured.get("ways", {"": measured}).items():
                name = ", ".join(filter(None, (workload, phase, RENAMED.get(way, way))))
                # A way may need what its environment does not have, such as Arrow.
                if "unsupported" not in result:
                    found[name] = result["records_per_second"]
    return found


def compare(rounds: list[list[Rates]]) -> list[dict[str, Any]]:
    """A row for each rate that both have, of rounds of (before, after, before again)."""
    table = []
    before, after, _ = rounds[0]
    for name in [name for name in before if name in after]:
        ratios = [after[name] / statistics.mean((b[name], a[name])) for b, after, a in rounds]
        itself = max(abs(again[name] / before[name] - 1) for before, _, again in rounds)
        ratio = statistics.median(ratios)
        table.append({"rate": name, "ratio": ratio, "itself": itself, "lower": ratio < 1 - itself})
    return table


def formatted(table: list[dict[str, Any]]) -> str:
    """As a table of Markdown."""
    lines = ["| rate | after / before | before differs by | |", "|---|---:|---:|---|"]
    for row in table:
        verdict = "lower" if row["lower"] else ""
        lines.append(f"| {row['rate']} | {row['ratio']:.3f} | {row['itself']:.3f} | {verdict} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
