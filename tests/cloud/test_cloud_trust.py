"""Stores whose conditional writes cannot be trusted are found out before anything is built."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from yogadl.errors import UnsafeStoreError

FLAVOURS = ["ignore_conditions", "refuse_conditions", "racy_conditions"]


def never() -> Any:
    pytest.fail("it was built without a lock")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_store_that_cannot_be_trusted(
    flavour: str, rig: Any, tmp_path: pathlib.Path, lock_server: str
) -> None:
    rig.proxy.flavour = flavour
    for _ in range(2):
        storage = rig.make_storage(tmp_path)
        with pytest.raises(UnsafeStoreError, match=r"rw_coordinator.*url="):
            storage.cacheable("a", "1")(never)()
        assert rig.raw.list() == []
    # With a lock server, no condition is asked for.
    storage = rig.make_storage(tmp_path, url=lock_server)
    ref = storage.cacheable("a", "1")(lambda: [1, 2])()
    assert [int(record) for record in ref.stream()] == [1, 2]
    # What is there can be read, whatever the store.
    assert len(rig.make_storage(tmp_path).cacheable("a", "1")(never)()) == 2


def test_the_switch(rig: Any, tmp_path: pathlib.Path) -> None:
    refused = rig.make_storage(tmp_path, conditional_writes=False)
    with pytest.raises(UnsafeStoreError, match="conditional_writes=False"):
        refused.cacheable("a", "1")(never)()
    trusted = rig.make_storage(tmp_path, conditional_writes=True)
    with rig.counting() as requests:
        assert len(trusted.cacheable("a", "1")(lambda: [1])()) == 1
    assert not [request for request in requests if "probe" in (request.key or "")]


def test_a_good_store_is_tried_out_once(rig: Any, tmp_path: pathlib.Path) -> None:
    storage = rig.make_storage(tmp_path)
    assert len(storage.cacheable("a", "1")(lambda: [1])()) == 1
    with rig.counting() as requests:
        assert len(storage.cacheable("b", "1")(lambda: [1])()) == 1
    assert not [request for request in requests if "probe" in (request.key or "")]
    assert sorted(rig.raw.list()) == sorted(
        f"data/{name}/1/{file}" for name in "ab" for file in ("cache.mdb", "yogadl.lease")
    )
