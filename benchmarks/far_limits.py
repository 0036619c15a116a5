"""Epochs of a data set that is larger than what may be kept of it; for ``far.py``."""

from __future__ import annotations

import functools

import report
import workloads
from far_bench import OURS, PROCESSES, SCALES, Bench, Results
from far_rounds import in_turn
from targets import Target
from wording import number

SHARES = (0.25, 0.5)
EPOCHS = 3
MOST_BYTES = 1.02
LEAST_RATE = 0.8

TOLD = (
    f"{EPOCHS} epochs of true shuffles, each in another order, with `local_cache_bytes` of a share "
    f"of the file: by one process, and by {PROCESSES} that read one order among them and have one "
    "folder and one limit. Bytes are those of all epochs, as a multiple of what has to come: the "
    "file once, and what does not fit again in each later epoch. The rates of later epochs are the "
    "slowest one's."
)


def measure_limit(bench: Bench) -> Results:
    """Epochs with room for a share of the data."""
    cases = {}
    written = {}
    for workload in ("images", "small_images"):
        scale = SCALES[workload]
        written[workload] = bench.written(OURS, workload, scale)
        for share in SHARES:
            limit = int(share * written[workload]["bytes"])
            more = ("--epochs", str(EPOCHS), "--limit", str(limit))
            read = functools.partial(bench.read, "epochs", OURS, workload, scale, *more)
            together = functools.partial(bench.read_together, workload, scale, *more)
            cases[f"{workload}, {share}, 1"] = read
            cases[f"{workload}, {share}, {PROCESSES}"] = together
    return {"cases": in_turn(bench, cases), "written": written}


def targets(part: Results) -> list[Target]:
    found = []
    for name, case in part["cases"].items():
        workload, share, processes = name.split(", ")
        who = f"{processes} processes, {float(share):.0%} kept"
        title = workloads.workload(workload).title
        ratio = rate = None
        if "error" not in case:
            ratio = case["bytes"] / _wanted(case, part["written"][workload]["bytes"], float(share))
            rate = case["seconds"] / _slowest(case)
        text = f"bytes of {EPOCHS} epochs, {who}, to what has to come"
        found.append(Target(text, title, ratio, MOST_BYTES, False))
        text = f"slowest later epoch, {who}, to the first"
        found.append(Target(text, title, rate, LEAST_RATE))
    return found


def _wanted(case: Results, size: int, share: float) -> float:
    """Bytes that have to come, of a file of some size."""
    return size + _later(case) * (1 - share) * size


def _later(case: Results) -> int:
    return sum(name.startswith("epoch_") and name.endswith("_bytes") for name in case)


def _slowest(case: Results) -> float:
    return max(float(case[f"epoch_{each + 2}_seconds"]) for each in range(_later(case)))


def table(part: Results) -> str:
    rows = []
    for name, case in part["cases"].items():
        workload, share, processes = name.split(", ")
        label = f"{workloads.workload(workload).title}, {processes} processes"
        if "error" in case:
            rows.append([label, f"{float(share):.0%}", *["failed"] * 6])
            continue
        size = part["written"][workload]["bytes"]
        records = case["records"]
        later = [case[f"epoch_{each + 2}_bytes"] for each in range(_later(case))]
        rows.append(
            [
                label,
                f"{float(share):.0%}",
                f"{case['bytes'] / _wanted(case, size, float(share)):.3f}",
                f"{(case['bytes'] - sum(later)) / size:.3f}",
                ", ".join(f"{nbytes / size:.3f}" for nbytes in later),
                number(case["requests"]),
                number(records / case["seconds"]),
                number(records / _slowest(case)),
            ]
        )
    head = ["", "kept", "bytes / needed", "first epoch, bytes / file", "later ones, bytes / file"]
    return report.table([*head, "requests", "records/s, first", "records/s, later"], rows)
