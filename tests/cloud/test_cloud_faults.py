"""Whatever the network and the store do, a round ends in the right records or a clear error."""

from __future__ import annotations

import collections
import pathlib
import random
from typing import Any

import numpy as np
import pytest
from outages import IS_FULL_LENGTH

from yogadl.errors import CacheFormatError, LockError, StoreError

ROUNDS = 100 if IS_FULL_LENGTH else 25

pytestmark = pytest.mark.usefixtures("quick_retries")


def content(version: int) -> Any:
    """Records that differ in every version, some of 16 KB."""
    return np.full((40, 2000), version) + np.arange(40)[:, None]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_rounds_of_submit_and_fetch(seed: int, rig: Any, tmp_path: pathlib.Path) -> None:
    """Every fault at random; what is read is one of the versions that may be there, whole."""
    chance = random.Random(seed)
    (tmp_path / "here").mkdir()
    here = rig.make_storage(tmp_path / "here")
    here.submit(content(0), "a", "1")
    # Versions that the bucket may have: after a failed submit, either.
    possible = {0}
    outcomes: collections.Counter[str] = collections.Counter()
    for number in range(1, ROUNDS + 1):
        with rig.random_faults(chance.random(), 0.25):
            try:
                here.submit(content(number), "a", "1")
                possible = {number}
                outcomes["submitted"] += 1
            except StoreError as error:
                possible.add(number)
                outcomes[type(error).__name__] += 1
        there = tmp_path / f"there-{number}"
        there.mkdir()
        with rig.random_faults(chance.random(), 0.25):
            try:
                ref = rig.make_storage(there).fetch("a", "1")
            except (StoreError, CacheFormatError) as error:
                outcomes[type(error).__name__] += 1
                assert list(there.rglob("cache.mdb*")) == []
                continue
        records = np.stack(list(ref.stream()))
        found = int(records[0, 0])
        assert found in possible, "an old version, or none that was ever there"
        assert np.array_equal(records, content(found))
        possible = {found}
        outcomes["fetched"] += 1
    assert outcomes["submitted"] > ROUNDS / 4
    assert outcomes["fetched"] > ROUNDS / 4
    assert sum(bool(request.fault) for request in rig.proxy.log) > ROUNDS / 2, "hardly any fault"
    assert rig.raw.uploads() == []


@pytest.mark.long_for("s3")
def test_cacheable_under_faults(rig: Any, tmp_path: pathlib.Path) -> None:
    """It builds once, or says clearly why not."""
    chance = random.Random(3)
    for number in range(12):
        local = tmp_path / str(number)
        local.mkdir()
        storage = rig.make_storage(local, lease_seconds=2.0)
        make = storage.cacheable("b", str(number))(lambda number=number: content(number))
        with rig.random_faults(chance.random(), 0.1):
            try:
                ref = make()
            except (StoreError, CacheFormatError, LockError):
                continue
        assert np.array_equal(np.stack(list(ref.stream())), content(number))
