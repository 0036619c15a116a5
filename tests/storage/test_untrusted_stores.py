"""Stores that cannot be trusted with conditions are found out, and said to be such."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import pytest
from lease_rig import lease, never, takes
from memory_store import MemoryStore

from yogadl.errors import UnsafeStoreError
from yogadl.storage._objects.probe import what_is_wrong
from yogadl.storage._objects.store import PreconditionFailedError


class Unreasonable(MemoryStore):
    """Creates on a condition, and never replaces."""

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        if if_tag:
            raise PreconditionFailedError
        return super().write(key, data, if_tag, patience)


def test_a_store_that_refuses_without_a_reason_is_told(caplog: pytest.LogCaptureFixture) -> None:
    store = Unreasonable()
    assert takes(lease(store))
    with pytest.raises(UnsafeStoreError, match=r"refused to write .*3 times.*url="):
        lease(store).acquire(never)
    assert len([record for record in caplog.records if "Taking over" in record.message]) == 1


def test_a_good_store_passes_and_keeps_nothing() -> None:
    store = MemoryStore()
    assert not what_is_wrong(store, "folder/")
    assert list(store.list("")) == []


class Ignoring(MemoryStore):
    def _put(self, key: str, data: bytes, metadata: Any, _if_tag: str | None) -> str:
        return super()._put(key, data, metadata, None)


class IgnoringInParts(MemoryStore):
    """As Ceph 16."""

    def upload(self, path: pathlib.Path, key: str, *args: Any, **options: Any) -> str:
        metadata, _, *rest = args
        return super().upload(path, key, metadata, None, *rest, **options)


class Racy(MemoryStore):
    """Right one at a time; but of writers at once, all win."""

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        found = self.read(key)
        if if_tag is not None and if_tag != ("" if found is None else found[1]):
            raise PreconditionFailedError
        time.sleep(0.05)  # in which the others get as far
        return super().write(key, data)


class Refusing(MemoryStore):
    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        if if_tag is not None:
            raise UnsafeStoreError("501 NotImplemented")
        return super().write(key, data)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Ignoring, "racing creators"),
        (IgnoringInParts, "racing creators"),
        (Racy, "racing creators"),
        (Refusing, "501 NotImplemented"),
        (Unreasonable, "refuses to"),
    ],
)
def test_a_store_that_cannot_be_trusted_is_found_out(kind: type[MemoryStore], said: str) -> None:
    store = kind()
    assert said in what_is_wrong(store, "folder/")
    assert list(store.list("")) == []
