"""When one commit counts as slower than another."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))

import compare


def rounds_of(*rates: tuple[float, float, float]) -> list[list[dict[str, float]]]:
    return [[{"scalars, cold": rate} for rate in measured] for measured in rates]


@pytest.mark.parametrize(
    ("rates", "lower"),
    [
        ([(100.0, 89.0, 100.0)], True),
        ([(100.0, 100.0, 100.0)], False),
        ([(100.0, 140.0, 101.0)], False),
        # The first differs from itself by as much as the second does from it.
        ([(100.0, 95.0, 110.0)], False),
        # The median tells, and the widest difference is what may be.
        ([(100.0, 60.0, 100.0), (100.0, 99.0, 102.0), (100.0, 99.0, 101.0)], False),
        ([(100.0, 90.0, 101.0), (100.0, 91.0, 99.0), (100.0, 130.0, 101.0)], True),
    ],
)
def test_lower(rates: list[tuple[float, float, float]], lower: bool) -> None:
    (row,) = compare.compare(rounds_of(*rates))
    assert row["lower"] is lower


def test_table() -> None:
    table = compare.compare(rounds_of((100.0, 80.0, 110.0)))
    assert compare.formatted(table).splitlines()[2] == "| scalars, cold | 0.762 | 0.100 | lower |"


def test_rates_of_a_run() -> None:
    ways = {"result": {"ways": {"batches": {"records_per_second": 3.0}}}}
    phases = {"write": ways, "warm": ways, "cold": {"result": {"records_per_second": 5.0}}}
    found = compare.rates({"results": {"tokens": {"this_yogadl": phases, "floors": {}}}})
    expected = {"tokens, write, batches": 3.0, "tokens, warm, batches": 3.0, "tokens, cold": 5.0}
    assert found == expected
