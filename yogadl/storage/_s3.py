"""Storage on S3."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from yogadl import constants
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.storage._cloud import BaseCloudStorage
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._object_store import ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from yogadl.storage._configurations import CloudOptions


class S3Configurations(BaseCloudConfigurations):
    """Where an :class:`S3Storage` keeps its data sets.

    What is not given of keys, endpoint and region, boto3 finds where it always does: in the
    environment, in its files of profiles, or from the machine's role.

    Args:
        bucket: see ``BaseCloudConfigurations``, as for all that is not described here.
        access_key: id of an access key.
        secret_key: the secret of it.
        endpoint_url: of a store that is not AWS, ``https://…``.
        session_token: of temporary keys.
        region: of the bucket.

    Raises:
        InvalidArgumentError: one of them cannot be right.
    """

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint_url: str | None = None,
        local_cache_dir: str | pathlib.Path = "/tmp/",  # noqa: S108 - as in 0.1.4
        skip_verify: bool = False,
        coordinator_cert_file: str | None = None,
        coordinator_cert_name: str | None = None,
        *,
        session_token: str | None = None,
        region: str | None = None,
        **options: Unpack[CloudOptions],
    ) -> None:
        if endpoint_url is not None and not endpoint_url.strip().lower().startswith(
            ("http://", "https://")
        ):
            # What boto3 says of it would show a password.
            raise InvalidArgumentError(
                "endpoint_url must be that of a store, https://… or http://…, or None, not "
                f"{endpoint_url.rpartition('@')[2]!r}"
            )
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
        self.access_key = access_key
        self.secret_key = secret_key
        self.session_token = session_token
        self.endpoint_url = endpoint_url
        self.region = region


class S3Storage(BaseCloudStorage):
    """Data sets in a bucket of S3, or of a store that speaks its language.

    See ``BaseCloudStorage``. Needs ``pip install 'yogadl[s3]'``.

    Raises:
        MissingExtraError: boto3 is not installed.
    """

    _configurations: S3Configurations

    def __init__(self, configurations: S3Configurations, tensorflow_config: Any = None) -> None:
        super().__init__(configurations, tensorflow_config)

    @property
    def _storage_type(self) -> str:
        return constants.AWS_STORAGE

    def _open_store(self) -> ObjectStore:
        require("boto3", "s3")
        from yogadl.storage._s3_store import S3Store

        return S3Store(self._configurations)
