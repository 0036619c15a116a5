"""TensorPack data flows."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, stored

from yogadl.adapters import open_source
from yogadl.dataref._sources import from_source
from yogadl.errors import InfiniteDatasetError, UnsupportedTypeError

dataflow = pytest.importorskip("tensorpack.dataflow")

BASE: Any = dataflow.DataFlow


class Points(BASE):  # type: ignore[misc]
    def __init__(self, points: list[Any]) -> None:
        self.points = points
        self.resets = 0

    def reset_state(self) -> None:
        self.resets += 1

    def __iter__(self) -> Any:
        assert self.resets == 1, "reset_state is called once, and first"
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)


def test_lists_are_tuples(tmp_path: pathlib.Path) -> None:
    flow = Points([[np.full(2, i, "f4"), i] for i in range(4)])
    records = [(np.full(2, i, "f4"), np.int64(i)) for i in range(4)]
    assert_same(stored(tmp_path, flow).stream(), records)
    assert open_source(Points(flow.points)).count == 4


def test_dicts_and_other_flows(tmp_path: pathlib.Path) -> None:
    flow = Points([{"a": i, "s": "x"} for i in range(3)])
    assert_same(stored(tmp_path, flow).stream(), [{"a": np.int64(i), "s": b"x"} for i in range(3)])
    mapped = dataflow.MapData(Points([[np.zeros(1), i] for i in range(3)]), lambda p: [p[1], p[0]])
    assert_same(stored(tmp_path, mapped).stream(), [(np.int64(i), np.zeros(1)) for i in range(3)])


def test_infinite() -> None:
    flow = Points([[np.zeros(1), 1]])
    for endless in (
        dataflow.RepeatedData(flow, -1),
        dataflow.MapData(dataflow.RepeatedData(flow, -1), lambda p: p),
    ):
        with pytest.raises(InfiniteDatasetError, match="RepeatedData"):
            open_source(endless)
    assert open_source(dataflow.RepeatedData(flow, 3)).count == 3


def test_without_a_length_or_positions() -> None:
    class Endless(Points):
        def __len__(self) -> int:
            raise NotImplementedError

    assert open_source(Endless([[np.zeros(1), 1]])).count is None
    with pytest.raises(UnsupportedTypeError, match="one after the other"):
        from_source(Points([[np.zeros(1), 1]]))
