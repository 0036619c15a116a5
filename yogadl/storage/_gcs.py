"""Storage on Google Cloud Storage."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from yogadl import constants
from yogadl.extras import require
from yogadl.storage._cloud import BaseCloudStorage
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._object_store import ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from yogadl.storage._configurations import CloudOptions


class GCSConfigurations(BaseCloudConfigurations):
    """Where a :class:`GCSStorage` keeps its data sets.

    Credentials are found as Google's libraries always do: in the environment, in the files of
    ``gcloud auth application-default login``, or from the machine's service account.

    Args:
        bucket: see ``BaseCloudConfigurations``, as for all that is not described here.
        project: of the bucket, where the credentials do not say.
    """

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: str | None = None,
        local_cache_dir: str | pathlib.Path = "/tmp/",  # noqa: S108 - as in 0.1.4
        skip_verify: bool = False,
        coordinator_cert_file: str | None = None,
        coordinator_cert_name: str | None = None,
        *,
        project: str | None = None,
        **options: Unpack[CloudOptions],
    ) -> None:
        super().__init__(
            bucket,
            bucket_directory_path,
            url,
            local_cache_dir,
            skip_verify,
            coordinator_cert_file,
            coordinator_cert_name,
            **options,
        )
        self.project = project


class GCSStorage(BaseCloudStorage):
    """Data sets in a bucket of Google Cloud Storage.

    See ``BaseCloudStorage``. Needs ``pip install 'yogadl[gcs]'``.

    Raises:
        MissingExtraError: google-cloud-storage is not installed.
    """

    _configurations: GCSConfigurations

    def __init__(self, configurations: GCSConfigurations, tensorflow_config: Any = None) -> None:
        super().__init__(configurations, tensorflow_config)

    @property
    def _storage_type(self) -> str:
        return constants.GCS_STORAGE

    def _open_store(self) -> ObjectStore:
        require("google.cloud.storage", "gcs")
        from yogadl.storage._gcs_store import GCSStore

        return GCSStore(self._configurations)
