"""The conformance suite over real buckets, where the environment names any.

    YOGADL_TEST_S3_BUCKET=my-bucket YOGADL_TEST_GCS_BUCKET=other-bucket pytest tests/cloud

Credentials are those that the SDKs find. Everything is written below a folder of its own, and
removed afterwards.
"""

from __future__ import annotations

import os
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from yogadl import Storage
from yogadl.storage import GCSConfigurations, GCSStorage, S3Configurations, S3Storage
from yogadl.testing import StorageConformance

KINDS: dict[str, tuple[Any, Any]] = {
    "YOGADL_TEST_S3_BUCKET": (S3Storage, S3Configurations),
    "YOGADL_TEST_GCS_BUCKET": (GCSStorage, GCSConfigurations),
}


@pytest.mark.parametrize("variable", list(KINDS))
class TestRealBucket(StorageConformance):
    @pytest.fixture
    def storage(self, variable: str, storage_dir: pathlib.Path) -> Iterator[Storage]:
        bucket = os.environ.get(variable)
        if not bucket:
            pytest.skip(f"{variable} names no bucket")
        kind, configurations = KINDS[variable]
        folder = f"yogadl-test-{uuid.uuid4().hex}"
        storage = kind(configurations(bucket, folder, local_cache_dir=storage_dir))
        try:
            yield storage
        finally:
            for found in list(storage._store.list(f"{folder}/")):
                storage._store.delete(found.key)
