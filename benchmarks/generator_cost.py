"""What a record costs that a generator gives, beside one of whole columns.

    python benchmarks/generator_cost.py [--scale 0.05] [--rounds 5]

By the processor's time, in microseconds per record, of the best of some rounds that take turns:
making the records, which is no part of yogadl; finding the values of a record and copying them,
which is done in Python for each; and writing what was copied, which is done for many at once.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import processes
import workloads
from workloads import Field, Workload

# Whoever runs this file from a checkout measures that checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from yogadl import spec as specs
from yogadl.cache.waiting import WaitingRecords
from yogadl.format.codec import RecordCodec
from yogadl.storage import LFSConfigurations, LFSStorage


def _leaf(field: Field) -> specs.TensorSpec:
    return specs.TensorSpec("string" if field.dtype == "bytes" else field.dtype, field.shape)


class Sides:
    """What is measured of a workload; each function handles all of its records."""

    def __init__(self, workload: Workload, folder: pathlib.Path) -> None:
        fields = workload.fields.items()
        self._workload = workload
        self._folder = folder
        self._spec = workloads.nest({name: _leaf(field) for name, field in fields})
        self._records = list(map(workloads.nest, workload.records()))
        self._arrays = workloads.nest(workloads.columns(workload))

    def make(self) -> None:
        for _ in map(workloads.nest, self._workload.records()):
            pass

    def copy(self) -> None:
        codec = RecordCodec(self._spec)
        waiting = WaitingRecords(codec)
        for record in self._records:
            if not waiting.add_plain(record):
                raise AssertionError(f"{record!r:.100} is not taken as it is")
            if waiting.is_full and codec.layout.content_size is not None:
                waiting.take_columns()
            elif waiting.is_full:
                waiting = WaitingRecords(codec)

    def submit_records(self) -> None:
        self._submit(iter(self._records))

    def submit_arrays(self) -> None:
        self._submit(self._arrays)

    def _submit(self, data: Any) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            LFSStorage(LFSConfigurations(name)).submit(data, "data", "1", spec=self._spec)


def best(functions: dict[str, Callable[[], None]], rounds: int, count: int) -> dict[str, float]:
    """Microseconds per record of each function."""
    found = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            started = processes.cpu_seconds()
            function()
            taken = (processes.cpu_seconds() - started) * 1e6 / count
            found[name] = min(found[name], taken)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.05, help="of the record counts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", nargs="+", default=list(workloads.NAMES))
    parser.add_argument("--directory", type=pathlib.Path, help="for the data sets")
    given = parser.parse_args()
    print("| µs per record | making it | copying its values | writing | all | from arrays |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in given.workloads:
        workload = workloads.workload(name, given.scale)
        sides = Sides(workload, given.directory or pathlib.Path(tempfile.gettempdir()))
        functions = {
            "make": sides.make,
            "copy": sides.copy,
            "records": sides.submit_records,
            "arrays": sides.submit_arrays,
        }
        taken = best(functions, given.rounds, workload.count)
        rest = taken["records"] - taken["copy"]
        cells = [taken["make"], taken["copy"], rest, taken["make"] + taken["records"]]
        shown = " | ".join(f"{cell:.2f}" for cell in [*cells, taken["arrays"]])
        print(f"| {workload.title} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
