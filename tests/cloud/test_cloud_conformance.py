"""The tests of every storage, over buckets."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from yogadl import Storage
from yogadl.testing import StorageConformance


class TestLease(StorageConformance):
    """With leases in the bucket."""

    @pytest.fixture
    def storage(self, rig: Any, storage_dir: pathlib.Path) -> Storage:
        storage: Storage = rig.make_storage(storage_dir, lease_seconds=5.0)
        return storage


class TestLockServer(StorageConformance):
    """With a lock server."""

    @pytest.fixture
    def storage(self, rig: Any, storage_dir: pathlib.Path, lock_server: str) -> Storage:
        storage: Storage = rig.make_storage(storage_dir, url=lock_server)
        return storage
