"""What is read in order from afar comes by few requests."""

from __future__ import annotations

import numpy as np
import pytest
from remote_rig import Always, Never, Site
from test_remote_plan import SHAPES, is_nothing_fetched, store
from waiting import wait_until

from yogadl.dataref import RemoteDataRef
from yogadl.remote._planner import FIRST_RECORDS

pytestmark = pytest.mark.once


def read(site: Site, ref: RemoteDataRef, expected: range) -> int:
    """Reads the records from some one on, which are as expected; how often something was asked."""
    before = len(site.web.asked)
    numbers = [batch["number"] for batch in ref.stream(expected.start).batches(16)]
    assert np.concatenate(numbers).tolist() == list(expected)
    wait_until(is_nothing_fetched)
    return len(site.web.asked) - before


@pytest.mark.parametrize("part_bytes", [None, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_of_it(site: Site, shape: tuple[int, int], part_bytes: int | None) -> None:
    count = store(site, shape, part_bytes)
    parts = 1 + shape[0] * shape[1] // (part_bytes or 1 << 60)
    with site.ref() as ref:
        # What the first batch waits for does not wait for the rest.
        assert read(site, ref, range(count)) <= FIRST_RECORDS + 4 * parts
        assert read(site, ref, range(count)) == 0


@pytest.mark.parametrize("space", [Always, Never])
@pytest.mark.parametrize("shape", SHAPES)
def test_from_some_record_on(site: Site, shape: tuple[int, int], space: type) -> None:
    count = store(site, shape, None)
    with site.ref(space()) as ref:
        expected = range(count // 3, count)
        most = 2 * FIRST_RECORDS + len(expected) // 50
        assert read(site, ref, expected) <= most
