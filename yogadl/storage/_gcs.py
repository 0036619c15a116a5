"""Storage on Google Cloud Storage."""

from __future__ import annotations

from typing import Any

from yogadl import constants
from yogadl.extras import require
from yogadl.storage._cloud import BaseCloudStorage
from yogadl.storage._configurations import GCSConfigurations
from yogadl.storage._objects.store import ObjectStore


class GCSStorage(BaseCloudStorage):
    """Data sets in a bucket of Google Cloud Storage.

    See ``BaseCloudStorage``. Needs ``pip install 'yogadl[gcs]'``.

    Raises:
        MissingExtraError: google-cloud-storage is not installed.
    """

    _configurations: GCSConfigurations
    _takes = GCSConfigurations

    def __init__(self, configurations: GCSConfigurations, tensorflow_config: Any = None) -> None:
        super().__init__(configurations, tensorflow_config)

    @property
    def _storage_type(self) -> str:
        return constants.GCS_STORAGE

    def _open_store(self) -> ObjectStore:
        require("google.cloud.storage", "gcs")
        from yogadl.storage._objects.gcs_store import GCSStore

        return GCSStore(self._configurations)
