"""Stores whose conditional writes cannot be trusted are found out before anything is built."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import faults
import numpy as np
import pytest

from yogadl.errors import AccessDeniedError, StaleCacheWarning, StoreError, UnsafeStoreError

FLAVOURS = [
    "ignore_conditions",
    "refuse_conditions",
    "racy_conditions",
    "ignore_in_parts",
    "refuse_matches",
]


def never() -> Any:
    pytest.fail("it was built without a lock")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_store_that_cannot_be_trusted(
    flavour: str, rig: Any, tmp_path: pathlib.Path, lock_server: str
) -> None:
    rig.proxy.flavour = flavour
    for _ in range(2):
        storage = rig.make_storage(tmp_path, conditional_writes=None)
        with pytest.raises(UnsafeStoreError, match=r"rw_coordinator.*url="):
            storage.cacheable("a", "1")(never)()
        assert rig.raw.list() == []
    # With a lock server, conditions are asked for only where they hold.
    storage = rig.make_storage(tmp_path, url=lock_server, conditional_writes=None)
    ref = storage.cacheable("a", "1")(lambda: [1, 2])()
    assert [int(record) for record in ref.stream()] == [1, 2]
    # What is there can be read, whatever the store.
    with pytest.warns(StaleCacheWarning, match="never is not the same code"):
        assert (
            len(rig.make_storage(tmp_path, conditional_writes=None).cacheable("a", "1")(never)())
            == 2
        )


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_it_is_refused_whatever_was_asked_for_before(
    flavour: str, rig: Any, local: pathlib.Path
) -> None:
    storage = rig.make_storage(local, conditional_writes=None)
    storage.submit([1], "a", "1")
    rig.proxy.flavour = flavour
    for _ in range(2):
        with pytest.raises(UnsafeStoreError, match=r"cannot be trusted: .*conditional_writes=True"):
            storage.tag("a", "main", "1")
        with pytest.raises(UnsafeStoreError, match=r"rw_coordinator.*url="):
            storage.cacheable("a", "2")(never)()
    assert [key for key in rig.raw.list() if key.endswith(("lease", "mdb"))] == [
        "data/a/1/cache.mdb"
    ]


def test_the_switch(rig: Any, tmp_path: pathlib.Path) -> None:
    refused = rig.make_storage(tmp_path, conditional_writes=False)
    with pytest.raises(UnsafeStoreError, match="conditional_writes=False"):
        refused.cacheable("a", "1")(never)()
    trusted = rig.make_storage(tmp_path, conditional_writes=True)
    with rig.counting() as requests:
        assert len(trusted.cacheable("a", "1")(lambda: [1])()) == 1
    assert not [request for request in requests if "probe" in (request.key or "")]


def test_a_good_store_is_tried_out_once(rig: Any, tmp_path: pathlib.Path) -> None:
    storage = rig.make_storage(tmp_path, conditional_writes=None)
    assert len(storage.cacheable("a", "1")(lambda: [1])()) == 1
    with rig.counting() as requests:
        assert len(storage.cacheable("b", "1")(lambda: [1])()) == 1
    assert not [request for request in requests if "probe" in (request.key or "")]
    assert sorted(rig.own_keys()) == sorted(
        f"data/{name}/1/{file}" for name in "ab" for file in ("cache.mdb", "yogadl.lease")
    )


def test_a_store_that_wants_etags_without_quotes(s3: Any, tmp_path: pathlib.Path) -> None:
    s3.proxy.flavour = "refuse_quotes"
    storage = s3.make_storage(tmp_path, conditional_writes=None)
    for version in ("1", "2"):
        s3.raw.put(f"data/a/{version}/cache.mdb", b"no cache at all")
    assert len(storage.cacheable("a", "1")(lambda: [1, 2])()) == 2
    large = np.zeros((9, 1 << 20), "uint8")
    assert len(storage.cacheable("a", "2")(lambda: large)()) == 9
    # The lease was given back, and is taken again.
    storage.delete("a", "1")
    assert len(storage.cacheable("a", "1")(lambda: [1, 2, 3])()) == 3


def lease_of(holder: str | None) -> bytes:
    return json.dumps({"format": 1, "holder": holder, "seconds": 0.5, "told": "X"}).encode()


@pytest.mark.parametrize("holder", [None, "somebody who is gone"])
def test_a_store_that_refuses_to_replace_is_told_after_a_few_tries(
    holder: str | None, rig: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig.proxy.flavour = "refuse_matches"
    rig.raw.put("data/a/1/yogadl.lease", lease_of(holder))
    storage = rig.make_storage(tmp_path, conditional_writes=True, lease_seconds=2.0)
    with pytest.raises(UnsafeStoreError, match=r"refused to write .*lease.*rw_coordinator.*url="):
        storage.cacheable("a", "1")(never)()
    taking_over = [record for record in caplog.records if "Taking over" in record.message]
    assert len(taking_over) == (holder is not None)


@pytest.mark.parametrize("status", [400, 501])
def test_a_store_that_knows_no_such_request_is_told_at_once(
    status: int, rig: Any, tmp_path: pathlib.Path
) -> None:
    rig.raw.put("data/a/1/yogadl.lease", lease_of(None))
    storage = rig.make_storage(tmp_path, conditional_writes=True)
    fault = faults.Fault(faults.Kind.ERROR, status=status)
    with rig.failing(fault, "write"), pytest.raises(StoreError, match=str(status)):
        storage.cacheable("a", "1")(never)()


def test_a_store_that_refuses_to_replace_a_broken_cache(rig: Any, tmp_path: pathlib.Path) -> None:
    rig.raw.put("data/a/1/cache.mdb", b"no cache at all")
    rig.proxy.flavour = "refuse_matches"
    storage = rig.make_storage(tmp_path, conditional_writes=True)
    with pytest.raises(UnsafeStoreError, match=r"cache\.mdb.*url="):
        storage.cacheable("a", "1")(lambda: [1])()


def test_a_store_is_tried_out_without_races_for_a_lock_server(
    rig: Any, tmp_path: pathlib.Path, lock_server: str
) -> None:
    storage = rig.make_storage(tmp_path, url=lock_server, conditional_writes=None)
    with rig.counting() as requests:
        assert len(storage.cacheable("a", "1")(lambda: [1])()) == 1
    probes = [request for request in requests if "probe" in request.key]
    assert len(probes) < 40
    (publishes,) = [request for request in requests if request.publishes("data/a/1/cache.mdb")]
    assert publishes.is_conditional_write


def test_what_keeps_a_store_from_being_tried_out_is_told_before_anything_is_built(
    rig: Any, tmp_path: pathlib.Path, lock_server: str
) -> None:
    storage = rig.make_storage(tmp_path, url=lock_server, conditional_writes=None)
    with rig.failing(faults.FORBIDDEN, "delete"), pytest.raises(AccessDeniedError):
        storage.cacheable("a", "1")(lambda: pytest.fail("it was built"))()
