"""The results of ``frameworks.py`` as tables."""

from __future__ import annotations

import statistics
from typing import Any

import report
from targets import Target

OURS = "torch_yogadl"
LABELS = {
    OURS: "this yogadl, `MapDataset` and `BatchSampler`",
    "torch_yogadl_sampler": "this yogadl, `MapDataset` and `Sampler`",
    "torch_yogadl_plain": "this yogadl, `DataLoader(MapDataset(dataref), 32, shuffle=True)`",
    "torch_lmdb": "LMDB, decoded by NumPy, a batch at a time",
    "torch_lmdb_plain": "LMDB, decoded by NumPy in `__getitem__`, and torch's collating",
    "litdata_loader": "LitData",
}
AT_LEAST = (
    (OURS, "torch_lmdb", 1.5),
    ("torch_yogadl_plain", "torch_lmdb_plain", 1.5),
    (OURS, "litdata_loader", 3.0),
    ("torch_yogadl_plain", "litdata_loader", 3.0),
)
"""How many times as fast as what yogadl is to be, and in which way."""

AT_MOST = 1.1
"""How many times as long as from memory an epoch of ``fit`` may take."""

_TORCH = (
    "Records per second of shuffled, warm epochs of 3,144 bytes a record (28×28×1 float32 and an "
    "int64), by `DataLoader(…, batch_size=32, num_workers=0)`; of LitData, by its own "
    "`StreamingDataLoader`. All give tensors `[32, 28, 28, 1]` and `[32]`, and shuffle in every "
    "epoch: LitData its chunks and in each of them, the others the whole data set."
)
_KERAS = (
    "Milliseconds per batch of 32 in `model.fit`, with Keras's own part; the images are uint8. The "
    "same images come from NumPy arrays that `fit` shuffles and divides itself; from a "
    "`keras.utils.PyDataset` that takes shuffled batches out of these arrays; from "
    "`yogadl.keras.PyDataset`; and with TensorFlow from `make_tf_dataset(stream, batch_size=32)`, "
    "too. `convolutions` is a model of three layers of them. `one_pixel` looks at one pixel of "
    "each image, which leaves next to nothing but the input: it is told for information. The "
    "ratio is of the medians, yogadl's `PyDataset` to arrays; in brackets are the lowest and the "
    "highest of the rounds."
)

Results = dict[str, Any]


def markdown(results: Results) -> str:
    """The report."""
    parts = results["parts"]
    lines = ["# In PyTorch and Keras", _about(results), _versions(parts)]
    if "records_per_second" in parts.get("torch", {}):
        lines += ["## PyTorch", _TORCH, _torch_table(parts["torch"]["records_per_second"])]
    if _fits(parts):
        lines += ["## Keras", _KERAS, _keras_table(parts)]
    lines += ["## Targets", report.target_table(targets(parts))]
    return "\n\n".join(lines) + "\n"


def targets(parts: Results) -> list[Target]:
    """What is to be reached, and how far it is."""
    rates = parts.get("torch", {}).get("records_per_second", {})
    found = []
    for mine, name, limit in AT_LEAST:
        text = f"`DataLoader`: {LABELS[mine]}, to {LABELS[name]}"
        ratio = figures = None
        if rates:
            ours, theirs = statistics.median(rates[mine]), statistics.median(rates[name])
            ratio, figures = ours / theirs, f"{ours:,.0f} / {theirs:,.0f} records/s"
        found.append(Target(text, "3 KB", ratio, limit, figures=figures or ""))
    for part, fit in _fits(parts):
        if fit["model"] != "convolutions":
            continue
        text = f"`fit` with {part.removeprefix('keras_')}: seconds with yogadl to arrays in memory"
        figures = " / ".join(f"{_milliseconds(fit, way)[0]:.3g}" for way in ("yogadl", "memory"))
        size = f"{fit['side']}×{fit['side']}×3"
        found.append(Target(text, size, _ratio(fit), AT_MOST, False, f"{figures} ms per batch"))
    return found


def _about(results: Results) -> str:
    arguments = results["arguments"]
    return report.machine(results) + (
        f" Everything was measured in turn, {arguments['rounds']} times over; what is told is the "
        "median of these rounds, with the lowest and the highest in brackets."
    )


def _versions(parts: Results) -> str:
    lines = []
    for name, part in parts.items():
        lines += [f"- {version}" for version in part.get("versions", {}).values()]
        if "failed" in part:
            lines.append(f"- {name}: failed: {part['failed']}")
    return "\n".join(lines)


def _spread(values: list[float], form: str) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{form}} ({low:{form}}–{high:{form}})"


def _torch_table(rates: dict[str, list[float]]) -> str:
    ours = statistics.median(rates[OURS])
    rows = [
        [LABELS[name], _spread(found, ",.0f"), f"{ours / statistics.median(found):.3g}×"]
        for name, found in rates.items()
    ]
    return report.table(["", "records/s", "yogadl is as fast as it"], rows)


def _fits(parts: Results) -> list[tuple[str, Results]]:
    return [(name, fit) for name, part in parts.items() for fit in part.get("fits", [])]


def _batches(fit: Results) -> int:
    return int(fit["images"]) // 32


def _milliseconds(fit: Results, way: str) -> tuple[float, str]:
    values = [seconds / _batches(fit) * 1000 for seconds in fit["seconds"][way]]
    return statistics.median(values), _spread(values, ".3g")


def _ratio(fit: Results) -> float:
    seconds = fit["seconds"]
    return statistics.median(seconds["yogadl"]) / statistics.median(seconds["memory"])


def _keras_table(parts: Results) -> str:
    rows = []
    for name, fit in _fits(parts):
        seconds = fit["seconds"]
        pairs = zip(seconds["yogadl"], seconds["memory"], strict=True)
        by_round = [ours / memory for ours, memory in pairs]
        rows.append(
            [
                f"{name.removeprefix('keras_')}, {fit['side']}×{fit['side']}×3, `{fit['model']}`",
                *(_milliseconds(fit, way)[1] for way in ("memory", "memory_dataset", "yogadl")),
                f"{_ratio(fit):.3g} ({min(by_round):.3g}–{max(by_round):.3g})",
                _milliseconds(fit, "yogadl_tf_data")[1] if "yogadl_tf_data" in seconds else "–",
            ]
        )
    head = ["", "arrays", "`PyDataset` of arrays", "yogadl", "yogadl / arrays", "`make_tf_dataset`"]
    return report.table(head, rows)
