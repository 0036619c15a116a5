"""Whether one commit of yogadl is slower than another, measured in turn.

    python benchmarks/compare.py BEFORE AFTER [--rounds 3] [--scale 1.0] [--seconds 3]

Both are checkouts in which ``make .venv/.bench`` was run. In each round, the benchmark is run of
the first, of the second and of the first again, each with its own code, and without peers. For
every rate, the table has the median of AFTER / BEFORE, and by how much BEFORE differed from itself
at most. A rate is *lower* if it fell by more than that; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from workloads import NAMES

Rates = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path, help="a checkout")
    parser.add_argument("after", type=pathlib.Path, help="a checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", default="1.0", help="of the record counts")
    parser.add_argument("--seconds", default="3", help="for one way of reading")
    parser.add_argument("--workloads", nargs="+", choices=NAMES, default=list(NAMES))
    given = parser.parse_args()
    options = ["--scale", given.scale, "--seconds", given.seconds, "--workloads", *given.workloads]
    rounds = []
    for number in range(given.rounds):
        print(f"round {number + 1} of {given.rounds} …", file=sys.stderr)
        checkouts = (given.before, given.after, given.before)
        rounds.append([measure(checkout.resolve(), options) for checkout in checkouts])
    table = compare(rounds)
    print(formatted(table))
    sys.exit(any(row["lower"] for row in table))


def measure(checkout: pathlib.Path, options: list[str]) -> Rates:
    """Records per second of one checkout, by workload, phase and way."""
    with tempfile.TemporaryDirectory(prefix="compare-", dir=checkout) as folder:
        command = [str(checkout / ".venv/bin/python"), str(checkout / "benchmarks/run.py")]
        command += ["--loaders", "this_yogadl", "--results", folder, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return rates(json.loads(pathlib.Path(folder, "results.json").read_text()))


def rates(results: dict[str, Any]) -> Rates:
    """All rates in the results of one run."""
    found = {}
    for workload, loaders in results["results"].items():
        phases = loaders["this_yogadl"]
        for phase in ("write", "warm"):
            for way, result in phases[phase]["result"]["ways"].items():
                found[f"{workload}, {phase}, {way}"] = result["records_per_second"]
        found[f"{workload}, cold"] = phases["cold"]["result"]["records_per_second"]
    return found


def compare(rounds: list[list[Rates]]) -> list[dict[str, Any]]:
    """A row for each rate of rounds of (before, after, before again)."""
    table = []
    for name in rounds[0][0]:
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
