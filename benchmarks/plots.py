"""Plots: a picture per measure, a panel per workload."""

from __future__ import annotations

import pathlib
from typing import Any

import workloads
from measures import MEASURES, OURS, Cell, Measure, Results, Row, kind
from wording import label, number

LOG_ABOVE = 30
COLUMNS = 3
OURS_COLOUR, PEERS_COLOUR = "#1f6f8b", "#b8bec4"


def draw(results: Results, directory: pathlib.Path) -> dict[str, str]:
    """Draws every measure that has values; returns the pictures' names by measure.

    Without matplotlib, there are none.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        return {}
    mpl.use("Agg")
    names = {}
    for measure in MEASURES:
        values = shown(measure, measure.values(results))
        if values:
            names[measure.name] = f"{measure.name}.png"
            _draw(measure, values, list(results["results"]), directory / names[measure.name])
    return names


def shown(measure: Measure, values: dict[Row, dict[str, Cell]]) -> dict[Row, dict[str, float]]:
    """Of every loader, its best way of each kind by the number of workloads it is best in."""
    found: dict[tuple[str, str], dict[Row, dict[str, float]]] = {}
    for row, cells in values.items():
        numbers = {name: cell for name, cell in cells.items() if isinstance(cell, float)}
        if numbers:
            found.setdefault((row[0], kind(row)), {})[row] = numbers
    merged: dict[Row, dict[str, float]] = {}
    best = max if measure.more_is_better else min
    for (loader, of_kind), rows in sorted(found.items(), key=lambda item: item[0][0] != OURS):
        ways = {way for _loader, way in rows}
        several = sum(name == loader for name, _kind in found) > 1
        way = (ways.pop() if len(ways) == 1 else of_kind) if several else ""
        places = dict.fromkeys(name for numbers in rows.values() for name in numbers)
        merged[loader, way] = {
            place: best(numbers[place] for numbers in rows.values() if place in numbers)
            for place in places
        }
    return merged


def _draw(
    measure: Measure,
    values: dict[Row, dict[str, float]],
    names: list[str],
    path: pathlib.Path,
) -> None:
    from matplotlib import pyplot

    columns = min(COLUMNS, len(names))
    lines = -(-len(names) // columns)
    height = lines * (0.75 + 0.24 * len(values)) + 0.6
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(10, height), sharey=True, squeeze=False, layout="constrained"
    )
    for place in axes.flat[len(names) :]:
        place.set_axis_off()
    for place, name in zip(axes.flat, names, strict=False):
        _panel(place, values, name)
    better = "more is better" if measure.more_is_better else "less is better"
    figure.suptitle(f"{measure.title} ({measure.unit}, {better})", fontsize=11)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _panel(place: Any, values: dict[Row, dict[str, float]], workload: str) -> None:
    rows = list(values)
    numbers = [values[row].get(workload, 0.0) for row in rows]
    colours = [OURS_COLOUR if row[0] == OURS else PEERS_COLOUR for row in rows]
    present = [value for value in numbers if value > 0]
    place.barh(range(len(rows)), numbers, color=colours, height=0.72)
    if present and max(present) > LOG_ABOVE * min(present):
        place.set_xscale("log")
        place.set_xlabel("logarithmic", fontsize=7, labelpad=1)
        place.set_xlim(min(present) / 3, max(present) * 8)
    else:
        place.set_xlim(0, max(present, default=1) * 1.3)
        place.locator_params(axis="x", nbins=4)
    left = place.get_xlim()[0]
    for at, (row, value) in enumerate(zip(rows, numbers, strict=True)):
        text = f" {number(value)}" if workload in values[row] else " –"
        place.text(max(value, left), at, text, va="center", fontsize=7)
    place.set_yticks(range(len(rows)), [label(row) for row in rows], fontsize=8)
    place.set_ylim(len(rows) - 0.4, -0.6)
    place.set_title(workloads.workload(workload).title, fontsize=9)
    place.tick_params(axis="x", labelsize=7)
    place.spines[["top", "right"]].set_visible(False)
