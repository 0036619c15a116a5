"""The measures of a report: where each is in the results, and which way it is better."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

Results = dict[str, Any]
Row = tuple[str, str]
"""A loader and one of its ways; the way is ``""`` where only a loader's first is measured."""

Cell = float | str
"""A value or, in words, why there is none."""

OURS = "this_yogadl"
TF_LOADERS = ("tf_record", "tf_save")
WRITTEN = {
    "tf": "tf",
    "tf_one_shard": "tf",
    "arrays": "arrays",
    "arrow": "arrays",
    "generator": "generator",
}
"""The kinds of the ways to write."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes:
        phase: of ``measure.py`` that measures it.
        by_way: the values of a phase's result, by way.
    """

    name: str
    title: str
    unit: str
    more_is_better: bool
    phase: str
    by_way: Callable[[Results], dict[str, Any]]

    def values(self, results: Results) -> dict[Row, dict[str, Cell]]:
        """All values: row, then workload."""
        found: dict[Row, dict[str, Cell]] = {}
        for workload, loaders in results["results"].items():
            for loader, phases in loaders.items():
                if loader == "floors":
                    continue
                for way, cell in self._cells(phases).items():
                    found.setdefault((loader, way), {})[workload] = cell
        return found

    def _cells(self, phases: Results) -> dict[str, Cell]:
        for phase in ("check", "write", self.phase):
            if "wrong" in phases.get(phase, {}):
                return {"": "WRONG"}
        line = phases.get(self.phase, {"error": "not run"})
        if "result" not in line:
            return {"": "–" if "unsupported" in line else "failed"}
        return {
            way: "–" if isinstance(value, dict) or value is None else float(value)
            for way, value in self.by_way(line["result"]).items()
        }

    def better(self, value: float, other: float) -> float:
        """How many times better ``other`` is than ``value``."""
        value, other = max(value, 1e-9), max(other, 1e-9)
        return other / value if self.more_is_better else value / other


def _ways(key: str) -> Callable[[Results], dict[str, Any]]:
    return lambda result: {way: value.get(key, value) for way, value in result["ways"].items()}


def _single(key: str) -> Callable[[Results], dict[str, Any]]:
    return lambda result: {"": result[key]}


def _memory(result: Results) -> dict[str, Any]:
    peak = result.get("memory", {}).get("peak_bytes")
    # Below a megabyte it is noise.
    return {"": None if peak is None else max(peak / 1e6, 1.0)}


def _disk(result: Results) -> dict[str, Any]:
    written = [way["disk_bytes"] for way in result["ways"].values() if "disk_bytes" in way]
    return {"": written[0] / 1e6 if written else None}


def _rate(name: str, title: str, phase: str, by_way: Any) -> Measure:
    return Measure(name, title, "records/s", True, phase, by_way)


def _seconds(name: str, title: str, phase: str, by_way: Any) -> Measure:
    return Measure(name, title, "s", False, phase, by_way)


MEASURES = (
    _rate("write", "Write, until it is on the disk", "write", _ways("records_per_second")),
    Measure(
        "write_cpu",
        "Write, by the processors' time",
        "records/s of a processor",
        True,
        "write",
        _ways("records_per_cpu_second"),
    ),
    _rate("warm", "Shuffled epoch, warm", "warm", _ways("records_per_second")),
    _rate("cold", "Shuffled epoch, cold", "cold", _single("records_per_second")),
    _seconds("open", "Open", "open", _single("open_seconds")),
    _seconds("first", "Open, up to the first batch", "open", _single("first_seconds")),
    _seconds("resume", "Resume at 90 %, up to the first batch", "resume", _ways("seconds")),
    _seconds("shard", "One shard of 64, cold", "shard", _single("seconds")),
    Measure(
        "shard_bytes",
        "Read from the disk for one shard of 64, as a multiple of its records' bytes",
        "×",
        False,
        "shard",
        _single("read_to_record_bytes"),
    ),
    Measure("memory", "Peak memory of a warm epoch, of its own", "MB", False, "warm", _memory),
    Measure("disk", "Bytes on disk", "MB", False, "write", _disk),
)


def kind(row: Row) -> str:
    """What a way yields, or writes; only ways of one kind are compared, where there are several."""
    loader, way = row
    if way in WRITTEN:
        return WRITTEN[way]
    if way.startswith("tf_") or (loader in TF_LOADERS and way != ""):
        return "tf"
    return "records" if way == "records" else "batches"


def reference(
    measure: Measure, values: dict[Row, dict[str, Cell]], row: Row, workload: str
) -> float | None:
    """This yogadl's best value of a row's kind, or of any kind if it has none of that."""
    ours = {
        other: cells[workload]
        for other, cells in values.items()
        if other[0] == OURS and isinstance(cells.get(workload), float)
    }
    same = [value for other, value in ours.items() if kind(other) == kind(row)]
    best = max if measure.more_is_better else min
    found = same or list(ours.values())
    return float(best(found)) if found else None
