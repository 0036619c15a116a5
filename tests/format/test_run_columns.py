"""Runs in the columns that a table has of them."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from yogadl.format import run_columns
from yogadl.format.run_columns import BLOCK, RUN

MOST = 10**8


def decoded(data: bytes, count: int) -> tuple[Any, bytes]:
    runs, rest = run_columns.decode(np.frombuffer(data, "u1"), count)
    return runs, rest.tobytes()


def random_runs(seed: int, count: int, parts: int, largest: int) -> Any:
    rng = np.random.default_rng(seed)
    runs = np.empty(count, RUN)
    runs["part"] = rng.integers(parts, size=count)
    runs["first"] = rng.integers(largest, size=count)
    runs["count"] = rng.integers(1, largest + 1, size=count)
    return runs


@hypothesis.given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 5) | st.integers(1, 3 * BLOCK),
    parts=st.sampled_from([1, 3, 256, 257, 65_536, 65_537, 2**32]),
    largest=st.sampled_from([1, 128, 129, 256, 257, 32_768, 65_536, MOST]),
    rest=st.binary(max_size=20),
)
def test_there_and_back(seed: int, count: int, parts: int, largest: int, rest: bytes) -> None:
    runs = random_runs(seed, count, parts, largest)
    data = run_columns.encode(runs)
    assert len(data) <= 3 * (4 * count + -(-count // BLOCK))
    found, behind = decoded(data + rest, count)
    assert found.dtype == RUN
    assert np.array_equal(found, runs)
    assert behind == rest


def test_what_follows_takes_three_bytes() -> None:
    """Of ten records each, every other from the first part, as where commits replaced records."""
    count = 10 * BLOCK
    runs = np.empty(count, RUN)
    numbers = np.arange(count)
    runs["part"] = numbers % 2 * (1 + numbers // 2 % 40)
    runs["count"] = np.where(numbers % 2, 1, 10)
    runs["first"] = np.where(numbers % 2, numbers // 80, numbers // 2 * 11)
    data = run_columns.encode(runs)
    assert len(data) == 3 * (count + 10)
    assert np.array_equal(decoded(data, count)[0], runs)


def test_one_wide_number_widens_its_block_only() -> None:
    runs = np.zeros(3 * BLOCK, RUN)
    runs["count"] = 1
    narrow = run_columns.encode(runs)
    runs["count"][BLOCK + 7] = MOST
    assert len(run_columns.encode(runs)) == len(narrow) + (3 + 3) * BLOCK  # and the step back


@hypothesis.given(seed=st.integers(0, 2**32), count=st.integers(1, BLOCK + 3), data=st.data())
def test_what_is_cut_off_or_changed(seed: int, count: int, data: st.DataObject) -> None:
    """It is refused, or gives runs that some part could have."""
    encoded = run_columns.encode(random_runs(seed, count, 5, 300))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ValueError, match=r"too few bytes|impossible widths"):
        decoded(encoded[:cut], count)
    changed = bytearray(encoded)
    for _ in range(3):
        changed[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    wrong = data.draw(st.integers(1, 2**64))
    for number in (count, wrong):
        try:
            runs, _ = decoded(bytes(changed), number)
        except ValueError:
            continue
        assert len(runs) == number <= len(encoded) // 3
        assert runs["first"].max() <= MOST
        assert 1 <= runs["count"].min() <= runs["count"].max() <= MOST
