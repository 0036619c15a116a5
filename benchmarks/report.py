"""Writes a run's results as tables and plots.

    python benchmarks/report.py RESULTS.json DIRECTORY [--writing]

``run.py`` does this at its end; by itself it publishes an earlier run elsewhere; with ``--writing``
what it says of that, as ``writing.md`` and ``writing.json`` without plots.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

import plots
import targets
import workloads
from measures import MEASURES, OURS, Cell, Measure, Results, Row, reference
from wording import label, number

_SHUFFLE = (
    "The mean distance of a record of an epoch from its place in the data set, as a share of the "
    "data set: 0.333 in a uniform shuffle, less where only a window or a block is shuffled."
)
_FLOORS = (
    ("copyto", "copying batches out of plain mapped arrays, records/s", "records_per_second"),
    ("tf_ready", "`tf.data` handing out ready batches, records/s", "records_per_second"),
    ("write_fsync", "writing the bytes and fsync, records/s", "records_per_second"),
    ("random_reads", "direct random reads, records/s", "reads_per_second"),
)


def write(results: Results, directory: pathlib.Path) -> str:
    """Writes ``results.json``, ``report.md`` and a plot per measure; returns the tables."""
    directory.mkdir(parents=True, exist_ok=True)
    results["targets"] = targets.as_json(targets.targets(results))
    (directory / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    pictures = plots.draw(results, directory)
    text = markdown(results, pictures)
    (directory / "report.md").write_text(text)
    return text


def write_writing(results: Results, directory: pathlib.Path) -> str:
    """The same of a run that measured only writing, beside the report of another; no plots."""
    results["targets"] = [target for target in results["targets"] if target["ratio"] is not None]
    (directory / "writing.json").write_text(json.dumps(results, indent=2) + "\n")
    text = markdown(results, title="Writing")
    (directory / "writing.md").write_text(text)
    return text


def markdown(
    results: Results, pictures: dict[str, str] | None = None, title: str = "Benchmark"
) -> str:
    """The report; ``pictures`` are file names by measure."""
    parts = [f"# {title}", machine(results), _versions(results)]
    parts.append(
        "In brackets: how many times better this yogadl is, by its best way of the same kind: "
        "NumPy batches, single records, or TensorFlow batches; written from `arrays` (of Arrow's: "
        "`arrow`), from a `generator`, or from a data set of TensorFlow's, `tf`. "
        "`–`: the loader cannot do it."
    )
    for measure in MEASURES:
        if not _was_measured(measure, results):
            continue
        parts.append(f"## {measure.title}")
        if pictures and measure.name in pictures:
            parts.append(f"![{measure.title}]({pictures[measure.name]})")
        parts.append(_measure_table(measure, results))
    shuffles = _shuffle_rows(results)
    if shuffles:
        head = ["", *_titles(results).values()]
        parts += ["## How well it is shuffled", _SHUFFLE, table(head, shuffles)]
    parts += ["## What the machine can do", _floor_table(results)]
    if "cost" in results.get("scaling", {}):
        parts += ["## Scaling", _scaling(results["scaling"])]
    found = targets.targets(results)
    measured = [target for target in found if target.ratio is not None]
    parts += ["## Targets", target_table(measured)]
    if len(found) > len(measured):
        parts.append(f"Not measured: {len(found) - len(measured)} more.")
    return "\n\n".join(parts) + "\n"


def _was_measured(measure: Measure, results: Results) -> bool:
    loaders = [found for workload in results["results"].values() for found in workload.values()]
    return any(measure.phase in phases for phases in loaders)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _titles(results: Results) -> dict[str, str]:
    return {name: workloads.workload(name).title for name in results["results"]}


def _measure_table(measure: Measure, results: Results) -> str:
    values = measure.values(results)
    titles = _titles(results)
    rows = [
        [label(row), *(_cell(measure, values, row, name) for name in titles)]
        for row in sorted(values, key=lambda row: row[0] != OURS)
    ]
    return table([measure.unit, *titles.values()], rows)


def _cell(measure: Measure, values: dict[Row, dict[str, Cell]], row: Row, workload: str) -> str:
    cell = values[row].get(workload, "")
    if isinstance(cell, str):
        return cell
    ours = reference(measure, values, row, workload)
    if row[0] == OURS or ours is None:
        return number(cell)
    return f"{number(cell)} ({number(measure.better(cell, ours))}×)"


def machine(results: Results) -> str:
    machine = results["machine"]
    arguments = results["arguments"]
    return (
        f"{machine['date']}, {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB of memory, {machine['system']} "
        f"{machine['kernel']}, {machine['file_system']}, read-ahead "
        f"{machine['read_ahead_kb']} KiB, Python {machine['python']}. Scale "
        f"{arguments['scale']:g}, up to {arguments['seconds']:g} s per way of reading."
    )


def _versions(results: Results) -> str:
    lines = []
    for name, found in results["loaders"].items():
        told = f"skipped: {found['skipped']}" if "skipped" in found else found.get("version", "")
        lines.append(f"- {label((name, ''))}: {told}")
    for workload, loaders in results["results"].items():
        for name, phases in loaders.items():
            for phase, line in phases.items():
                for word in ("wrong", "error", "unsupported"):
                    if word in line and name != "floors":
                        told = "WRONG" if word == "wrong" else "skipped"
                        place = f"{label((name, ''))}, {workload}, {phase}"
                        lines.append(f"- {place}: {told}: {line[word]}")
    return "\n".join(lines)


def _shuffle_rows(results: Results) -> list[list[str]]:
    """How far an epoch moves a record, of the ways that were read to the end."""
    rows: dict[Row, dict[str, str]] = {}
    for workload, loaders in results["results"].items():
        for loader, phases in loaders.items():
            ways = phases.get("check", {}).get("result", {}).get("ways", {})
            for way, found in ways.items():
                epoch = found.get("epoch", {})
                if epoch.get("complete"):
                    rows.setdefault((loader, way), {})[workload] = number(epoch["moved"])
    names = _titles(results)
    return [[label(row), *(cells.get(name, "") for name in names)] for row, cells in rows.items()]


def _floor_table(results: Results) -> str:
    rows = []
    for name, text, key in _FLOORS:
        cells = []
        for loaders in results["results"].values():
            value = loaders.get("floors", {}).get(name, {}).get("result", {}).get(key)
            cells.append("–" if value is None else number(value))
        rows.append([text, *cells])
    return table(["", *_titles(results).values()], rows)


def _scaling(scaling: dict[str, Any]) -> str:
    costs = scaling["cost"]
    sizes = sorted({cost["records"] for cost in costs})
    rows: dict[tuple[str, str], list[str]] = {}
    for cost in sorted(costs, key=lambda cost: cost["records"]):
        order = "shuffled" if cost["shuffled"] else "in order"
        rows.setdefault((cost["way"], order), []).append(number(cost["ns"]))
    head = ["ns per record", *(f"{size:,} records" for size in sizes)]
    shown = table(head, [[f"{way}, {order}", *cells] for (way, order), cells in rows.items()])
    memory = scaling["memory"]
    lines = [
        f"- {way}: {found['own_bytes'] / 1e6:,.1f} MB of its own, "
        f"{found['mapped_file_bytes'] / 1e6:,.1f} MB of the mapped file"
        for way, found in memory.items()
        if way != "file_bytes"
    ]
    told = f"Memory grows while a file of {memory['file_bytes'] / 1e6:,.0f} MB is read in order:"
    return "\n\n".join([shown, told, "\n".join(lines)])


def target_table(found: list[targets.Target]) -> str:
    rows = []
    for target in found:
        ratio = "–" if target.ratio is None else f"{target.ratio:.3g}"
        limit = f"{'≥' if target.at_least else '≤'} {target.limit:g}"
        rows.append([target.text, target.workload, limit, ratio, target.figures, target.verdict])
    return table(["ratio", "records", "target", "measured", "figures", "verdict"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--writing", action="store_true", help="of a run of that alone")
    arguments = parser.parse_args()
    publish = write_writing if arguments.writing else write
    print(publish(json.loads(arguments.results.read_text()), arguments.directory))


if __name__ == "__main__":
    main()
