"""What the tests of profiles share: clocks that tests move, slow disks, and data sets."""

from __future__ import annotations

import copy
import mmap
import pathlib
from typing import Any

import numpy as np
import pytest

from yogadl.profile import Report

LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"
PAGE = mmap.PAGESIZE


class Clock:
    """A clock that advances by what it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowDisk(np.ndarray):
    """A file of which every page takes a second, by a clock, when its first byte is touched: others
    are read of pages that are there, see ``Toucher``."""

    clock: Clock
    touched: list[int]

    def take(self, places: Any, *rest: Any, **named: Any) -> Any:
        if not (places % PAGE).any():
            self.touched += places.tolist()
            self.clock.now += len(places)
        return super().take(places, *rest, **named)


def slow(stream: Any, clock: Clock) -> list[int]:
    """Makes the file of a profiled stream a slow disk; returns the offsets that are touched."""
    reader = stream.epochs.reader()
    file = reader._open_memory = copy.copy(reader._open_memory)
    file.array = file.array.view(SlowDisk)
    file.array.clock, file.array.touched = clock, []
    return file.array.touched


def pages_of(reader: Any, positions: list[int]) -> list[int]:
    found = []
    for offset, length, _ in reader.lookup(np.array(positions)).tolist():
        found += range(offset // PAGE * PAGE, offset + length, PAGE)
    return found


def parts_add_up(report: Report) -> None:
    assert report.wall == pytest.approx(report.model + report.waiting)
    assert report.waiting == pytest.approx(report.disk + report.decoding + report.other)
    assert report.disk + report.decoding + report.hidden == pytest.approx(
        report.disk_busy + report.decoding_busy
    )
    assert min(report.disk, report.decoding, report.other, report.hidden) >= 0
