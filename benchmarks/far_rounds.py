"""Cases measured in turn, round after round, and their medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from far_bench import Bench, ReadingError, Results


def medians(rounds: list[Results]) -> Results:
    """The medians of all numbers, and the lowest and the highest of the seconds."""
    found: Results = {}
    for name in rounds[0]:
        values = [line[name] for line in rounds]
        found[name] = statistics.median(values)
        if name.endswith("seconds"):
            found[f"{name}_range"] = [min(values), max(values)]
    return {**found, "rounds": len(rounds)}


def in_turn(bench: Bench, cases: dict[str, Callable[[], Results]]) -> Results:
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
