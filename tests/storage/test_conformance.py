"""The tests that users are given for storages of their own, over those that need no network."""

from __future__ import annotations

import pathlib

import pytest

from yogadl import Storage
from yogadl.storage import LFSConfigurations, LFSStorage
from yogadl.testing import StorageConformance


class TestLFSStorage(StorageConformance):
    @pytest.fixture
    def storage(self, storage_dir: pathlib.Path) -> Storage:
        return LFSStorage(LFSConfigurations(storage_dir))
