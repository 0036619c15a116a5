"""What this yogadl is to reach, beside its peers and what the machine can do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from measures import MEASURES, OURS, TF_LOADERS, Results, kind

_BY_NAME = {measure.name: measure for measure in MEASURES}


@dataclasses.dataclass(frozen=True)
class Target:
    """A ratio and its limit.

    Attributes:
        ratio: ``None`` if one of its figures was not measured.
    """

    text: str
    workload: str
    ratio: float | None
    limit: float
    at_least: bool = True
    figures: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.ratio is None:
            return None
        return self.ratio >= self.limit if self.at_least else self.ratio <= self.limit

    @property
    def verdict(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.is_met]


class Figures:
    """The figures of a run that targets are about; ``None`` for what was not measured."""

    def __init__(self, results: Results) -> None:
        self._results = results

    @property
    def workloads(self) -> list[str]:
        return list(self._results["results"])

    def best(
        self,
        measure: str,
        workload: str,
        wanted: Callable[[str, str], bool],
    ) -> float | None:
        """The best value of the ``(loader, way)`` that are wanted."""
        values = _BY_NAME[measure].values(self._results)
        found = [
            cells[workload]
            for row, cells in values.items()
            if wanted(*row) and isinstance(cells.get(workload), float)
        ]
        best = max if _BY_NAME[measure].more_is_better else min
        return float(best(found)) if found else None

    def floor(self, workload: str, name: str, key: str = "records_per_second") -> float | None:
        value = self._floor(workload, name).get(key)
        return None if value is None else float(value)

    def ready(self, workload: str) -> dict[str, float]:
        """The rate of tf.data over ready batches, by way."""
        return dict(self._floor(workload, "tf_ready").get("ways", {}))

    def costs(self, way: str) -> list[float]:
        """Nanoseconds per record in order, of data sets of increasing size."""
        lines = self._results.get("scaling", {}).get("cost", [])
        return [line["ns"] for line in lines if line["way"] == way and not line["shuffled"]]

    def _floor(self, workload: str, name: str) -> Results:
        line = self._results["results"][workload].get("floors", {}).get(name, {})
        return dict(line.get("result", {}))


def _target(
    text: str, workload: str, ours: float | None, other: float | None, limit: float
) -> Target:
    if ours is None or not other:
        return Target(text, workload, None, limit)
    return Target(text, workload, ours / other, limit, True, f"{ours:,.0f} / {other:,.0f}")


def _ours(wanted: str) -> Callable[[str, str], bool]:
    return lambda loader, way: loader == OURS and kind((loader, way)) == wanted


def _warm(figures: Figures) -> Iterator[Target]:
    limits = {"small_images": 1.5, "scalars": 1.5, "images": 1.0, "strings": 1.0}
    for workload in figures.workloads:
        if workload not in limits:
            continue
        ours = figures.best("warm", workload, _ours("batches"))
        peer = figures.best("warm", workload, lambda loader, _way: loader == "ffcv_loader")
        yield _target("warm NumPy batches / FFCV", workload, ours, peer, limits[workload])
        if workload == "images":
            floor = figures.floor(workload, "copyto")
            yield _target("warm NumPy batches / copyto", workload, ours, floor, 0.85)


_TF_WAYS = {
    "batches": ("tf_batch_size", "tf_batch"),
    "padded": ("tf_padded", "tf_padded_batch"),
    "ragged": ("tf_ragged", "tf_ragged_batch"),
}
"""What a batch of tf.data is like: read whole, and batched by tf.data."""


def _tf(figures: Figures) -> Iterator[Target]:
    for workload in figures.workloads:
        for like, ready in figures.ready(workload).items():
            whole, single = (
                figures.best(
                    "warm", workload, lambda loader, way, name=name: (loader, way) == (OURS, name)
                )
                for name in _TF_WAYS[like]
            )
            peer = figures.best(
                "warm",
                workload,
                lambda loader, way, like=like: loader in TF_LOADERS and way == like,
            )
            more = "" if like == "batches" else f", {like}"
            yield _target(
                f"batch_size=32{more} / tf.data's ready batches", workload, whole, ready, 0.5
            )
            yield _target(
                f"batch_size=32{more} / best of tf.data's files", workload, whole, peer, 5.0
            )
            yield _target(
                f".batch(32){more} / best of tf.data's files", workload, single, peer, 2.0
            )


def _cold(figures: Figures) -> Iterator[Target]:
    if "images" not in figures.workloads:
        return
    ours = figures.best("cold", "images", lambda loader, _way: loader == OURS)
    peers = figures.best("cold", "images", lambda loader, _way: loader != OURS)
    disk = figures.floor("images", "random_reads", "reads_per_second")
    yield _target("cold epoch / direct random reads", "images", ours, disk, 0.85)
    yield _target("cold epoch / best peer", "images", ours, peers, 1.5)


def _shard(figures: Figures) -> Iterator[Target]:
    for workload in figures.workloads:
        ratio = figures.best("shard_bytes", workload, lambda loader, _way: loader == OURS)
        text = "read from the disk for one shard of 64 / its records' bytes"
        yield Target(text, workload, ratio, 1.05, at_least=False)


def _write(figures: Figures) -> Iterator[Target]:
    for workload in figures.workloads:
        for measure, text in (("write", "write"), ("write_cpu", "write, by processors' time")):
            ours = figures.best(measure, workload, _ours("arrays"))
            peer = figures.best(
                measure,
                workload,
                lambda loader, way: loader != OURS and kind((loader, way)) == "arrays",
            )
            yield _target(f"{text}, from arrays / best peer", workload, ours, peer, 1.0)
        if workload in ("scalars", "small_images"):
            ours = figures.best("write", workload, _ours("tf"))
            old = figures.best("write", workload, lambda loader, _way: loader == "yogadl_014")
            yield _target("write / yogadl 0.1.4", workload, ours, old, 5.0)
        if workload == "images":
            ours = figures.best("write", workload, lambda loader, _way: loader == OURS)
            floor = figures.floor(workload, "write_fsync")
            yield _target("write / plain write and fsync", workload, ours, floor, 0.8)


def _scaling(figures: Figures) -> Iterator[Target]:
    for way in ("records", "batches"):
        costs = figures.costs(way)
        if costs:
            text = "most / least cost per record of 10^4, 10^6 and 10^7, in order"
            shown = ", ".join(f"{cost:.1f}" for cost in costs) + " ns"
            yield Target(text, way, max(costs) / min(costs), 1.1, at_least=False, figures=shown)


def targets(results: Results) -> list[Target]:
    """All targets of the workloads that a run had."""
    figures = Figures(results)
    groups: list[Callable[[Figures], Iterator[Target]]] = [
        _warm,
        _tf,
        _cold,
        _shard,
        _write,
        _scaling,
    ]
    return [target for group in groups for target in group(figures)]


def as_json(found: list[Target]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(target), "verdict": target.verdict} for target in found]
