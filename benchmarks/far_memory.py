"""What a reader takes of the machine's memory; for ``far.py``."""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Iterator

import report
from far_bench import Bench, Results
from far_rounds import in_turn
from targets import Target

MOST_MEGABYTES = 200
FRAMEWORKS = ("NumPy", "TensorFlow", "PyTorch")
TORCH = "torch_yogadl"
"""The environment that has PyTorch."""

_SCRIPT = str(pathlib.Path(__file__).resolve().parent / "far_memory_reading.py")
_WHERE = {
    "disk": "on this machine",
    "far": "from afar",
    "passing": "from afar, little kept",
}
_TITLES = {
    "images": "3,000 of 150 KB",
    "parts": "the same in 1,000 parts",
    "large": "100 of 5 MB",
    "millions": "4,000,000 of 1 KB in 4 parts",
    "many": "10⁸ of 1 KB in 100 parts",
}

TOLD = (
    "The most memory of a process while it reads, in MB, the pages of files not counted, above "
    "what it had when the framework was imported and had run once. Batches of 32, of 4 where "
    "records have 5 MB; in the order of a `KeyedShuffle` unless it says otherwise. An epoch is "
    "read, but of the records of 1 KB, which are in tables that name one part many times, 20,000: "
    "those of one rank, or the first ones where little is kept. With little kept, that is a "
    "quarter of the data, or 256 MB."
)


def measure_memory(bench: Bench) -> Results:
    """The peaks of many readers."""
    folder = bench.server.folder / "data" / "memory"
    command = [sys.executable, _SCRIPT, "write", "--folder", str(folder)]
    sizes = bench.run("data for memory is written", [*command, "--scale", str(bench.scale)])
    pythons = _interpreters(bench)
    cases = {
        f"{framework}, {data}, {where}, {order}": functools.partial(
            _read, bench, sizes, (pythons[framework], framework, data, where, order)
        )
        for framework, data, where, order in _cases(pythons)
    }
    return {"cases": in_turn(bench, cases), "sizes": sizes}


def _interpreters(bench: Bench) -> dict[str, str]:
    """Those of the frameworks that are wanted and there."""
    found = {name: sys.executable for name in bench.frameworks if name != "PyTorch"}
    return {**found, "PyTorch": bench.pythons[TORCH]} if TORCH in bench.pythons else found


def _cases(pythons: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    for framework in pythons:
        for data in _TITLES:
            for where in _WHERE:
                yield framework, data, where, "keyed"
    if "NumPy" in pythons:
        for order in ("blocks", "none"):
            for where in _WHERE:
                yield "NumPy", "images", where, order


def _read(bench: Bench, sizes: Results, case: tuple[str, str, str, str, str]) -> Results:
    python, framework, data, where, order = case
    command = [python, _SCRIPT, "read", "--framework", framework, "--order", order]
    command += ["--folder", str(bench.server.folder / "data" / "memory"), "--data", data]
    command += ["--url", f"{bench.server.url}/data/memory", "--where", where]
    command += ["--limit", str(min(sizes[data] // 4, 256_000_000))]
    with bench.cache() as cache:
        what = f"{framework}, {data}, {where}, {order}"
        line = bench.run(what, [*command, "--cache", str(cache), "--scale", str(bench.scale)])
    return {
        "records": line["records"],
        "seconds": line["seconds"],
        "megabytes": line["memory"]["peak_bytes"] / 1e6,
    }


def targets(part: Results) -> list[Target]:
    """The largest of each framework and data set."""
    found = []
    names = [name.split(", ") for name in part["cases"]]
    for framework, data in dict.fromkeys((name[0], name[1]) for name in names):
        measured = {
            _named(*name[2:]): part["cases"][", ".join(name)].get("megabytes")
            for name in names
            if name[:2] == [framework, data]
        }
        where = max(measured, key=lambda place: measured[place] or 0)
        # One that failed may have been the worst.
        most = None if None in measured.values() else measured[where]
        text = f"MB of {framework}, at most"
        found.append(Target(text, _TITLES[data], most, MOST_MEGABYTES, False, where))
    return found


def _named(where: str, order: str) -> str:
    orders = {"keyed": "", "blocks": ", `BlockShuffle`", "none": ", in order"}
    return f"{_WHERE[where]}{orders[order]}"


def table(part: Results) -> str:
    rows: dict[str, list[str]] = {}
    for name, case in part["cases"].items():
        framework, data, where, order = name.split(", ")
        label = f"{_TITLES[data]}, {_named(where, order)}"
        cells = rows.setdefault(label, [""] * len(FRAMEWORKS))
        told = f"{case['megabytes']:.0f}" if "megabytes" in case else "failed"
        cells[FRAMEWORKS.index(framework)] = told
    return report.table(["", *FRAMEWORKS], [[label, *cells] for label, cells in rows.items()])
