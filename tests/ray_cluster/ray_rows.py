"""Data sets of Ray Data, and how tasks of the tests write them; imported by Ray's workers, too."""

from __future__ import annotations

import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from ray_rig import die_once, note

import yogadl.ray


class RoughSink(yogadl.ray.Datasink):
    """One whose tasks are killed, and write at the same time as a second time."""

    def __init__(self, made: pathlib.Path, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._made = made

    def write(self, blocks: Any, ctx: Any) -> Any:
        note(self._made, ctx.task_idx)
        kept = list(blocks)
        if ctx.task_idx % 10 == 5:
            with ThreadPoolExecutor(2) as pool:
                begun = [pool.submit(super(RoughSink, self).write, kept, ctx) for _ in range(2)]
                one, two = [future.result() for future in begun]
            assert one == two
            return one
        receipt = super().write(kept, ctx)
        # It is stored, and nobody knows.
        die_once(self._made, ctx.task_idx)
        return receipt


def rows(batch: dict[str, Any]) -> dict[str, Any]:
    """Columns of all kinds for a batch of ids."""
    ids = batch["id"]
    varying = np.empty(len(ids), object)
    varying[:] = [np.full((number % 3 + 1, 2), number % 7, "f4") for number in ids]
    return {
        "id": ids,
        "image": np.stack([np.full((2, 3), number % 251, "u1") for number in ids]),
        "is_even": np.stack([[number % 2 == 0] * 3 for number in ids]),
        "varying": varying,
        "text": [f"record {number}" for number in ids],
    }


def row(number: int) -> dict[str, Any]:
    """The record that yogadl has of one of :func:`rows`."""
    return {
        "id": np.int64(number),
        "image": np.full((2, 3), number % 251, "u1"),
        "is_even": np.full(3, number % 2 == 0),
        "varying": np.full((number % 3 + 1, 2), number % 7, "f4"),
        "text": f"record {number}",
    }
