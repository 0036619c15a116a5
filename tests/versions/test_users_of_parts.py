"""Where in a version the records of its parts are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from yogadl.storage._commits.new_runs import _Users
from yogadl.versions.runs import Runs

RUN = st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 9))


@given(
    runs=st.lists(RUN, min_size=1, max_size=12),
    part=st.integers(0, 4),
    first=st.integers(0, 22),
    count=st.integers(1, 25),
)
def test_each_record_that_is_used_is_found_once(
    runs: list[tuple[int, int, int]], part: int, first: int, count: int
) -> None:
    version = [(source, at + n) for source, at, length in runs for n in range(length)]
    users = _Users(Runs(*np.array(runs, np.int64).T))
    places, positions = users.find(part, first, count)
    wanted = {n for source, n in version if source == part and first <= n < first + count}
    assert sorted((places + first).tolist()) == sorted(wanted)
    for place, position in zip(places.tolist(), positions.tolist(), strict=True):
        assert version[position] == (part, first + place)
