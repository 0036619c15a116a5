"""Storage on S3."""

from __future__ import annotations

from typing import Any

from yogadl import constants
from yogadl.extras import require
from yogadl.storage._cloud import BaseCloudStorage
from yogadl.storage._configurations import S3Configurations
from yogadl.storage._objects.store import ObjectStore


class S3Storage(BaseCloudStorage):
    """Data sets in a bucket of S3, or of a store that speaks its language.

    See ``BaseCloudStorage``. Needs ``pip install 'yogadl[s3]'``.

    Raises:
        MissingExtraError: boto3 is not installed.
    """

    _configurations: S3Configurations
    _takes = S3Configurations

    def __init__(self, configurations: S3Configurations, tensorflow_config: Any = None) -> None:
        super().__init__(configurations, tensorflow_config)

    @property
    def _storage_type(self) -> str:
        return constants.AWS_STORAGE

    def _open_store(self) -> ObjectStore:
        require("boto3", "s3")
        from yogadl.storage._objects.s3_store import S3Store

        return S3Store(self._configurations)
