"""Records of which each version can be told to be whole: some first ones, and what commits add."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

FIRST = 400
"""So many records has a version before the first commit."""

_ADDED = 3
_LEAST_TOKEN = 10**7


def first_records(start: int) -> np.ndarray:
    """Those of a version that is submitted, from ``start`` below a million."""
    return np.arange(start, start + FIRST)


def new_token(random_bits: int) -> int:
    """What tells a commit from all others, made of 44 random bits."""
    return _LEAST_TOKEN + random_bits


def added_records(token: int) -> np.ndarray:
    """Those that a commit appends."""
    return np.arange(token, token + _ADDED)


class Content(NamedTuple):
    """What a version has.

    Attributes:
        start: its first record.
        tokens: of the commits whose records it has, in their order.
        metadata: the user's.
    """

    start: int
    tokens: list[int]
    metadata: dict[str, Any]


def read(ref: Any, verifies: bool = False) -> Content:
    """Reads a version.

    Args:
        ref: it, which is closed.
        verifies: compare checksums, too.

    Raises:
        AssertionError: it is not whole, or has a commit twice.
    """
    with ref:
        if verifies:
            ref.verify()
        values = [int(value) for value in ref.stream()]
        assert len(ref) == len(values)
        metadata = ref.metadata
    assert len(values) >= FIRST, f"only {len(values)} records"
    start = values[0]
    assert values[:FIRST] == first_records(start).tolist(), f"wrong records from {start}"
    added = values[FIRST:]
    tokens = added[::_ADDED]
    assert added == [value for token in tokens for value in added_records(token).tolist()], (
        f"half of a commit in {added[-2 * _ADDED :]}"
    )
    assert len(set(tokens)) == len(tokens), "a commit is there twice"
    return Content(start, tokens, metadata)
