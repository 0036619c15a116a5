"""A bucket of S3, or of a store that speaks its language."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from yogadl.cache.progress import ByteProgress
from yogadl.errors import StoreError
from yogadl.extras import require
from yogadl.storage._object_store import (
    ABSENT,
    ObjectGoneError,
    ObjectInfo,
    ObjectStore,
    PreconditionFailedError,
)
from yogadl.storage._s3_errors import FAILED_PRECONDITIONS, MISSING, code_of, told
from yogadl.storage._s3_upload import PARALLEL_PARTS, S3Upload

if TYPE_CHECKING:
    from yogadl.storage._s3 import S3Configurations

_READ_BYTES = 1 << 20
_SMALL_BYTES = 1 << 20
_ATTEMPTS = 5
# For several transfers at a time.
_CONNECTIONS = 4 * PARALLEL_PARTS


class S3Store(ObjectStore):
    """See ``ObjectStore``. Over boto3; one client per process.

    Args:
        configurations: bucket, endpoint, region and keys.

    Raises:
        MissingExtraError: boto3 is not installed.
    """

    def __init__(self, configurations: S3Configurations) -> None:
        self._boto3 = require("boto3", "s3")
        self._configurations = configurations
        self._bucket = configurations.bucket
        self._made: tuple[int, Any] | None = None

    @property
    def _client(self) -> Any:
        # Connections must not be shared with a parent. Threads may make two at first; no matter.
        if self._made is None or self._made[0] != os.getpid():
            with self._told("opening"):
                self._made = os.getpid(), self._make_client()
        return self._made[1]

    def _make_client(self) -> Any:
        from botocore.config import Config

        given = self._configurations
        return self._boto3.session.Session().client(
            "s3",
            aws_access_key_id=given.access_key,
            aws_secret_access_key=given.secret_key,
            aws_session_token=given.session_token,
            endpoint_url=given.endpoint_url,
            region_name=given.region,
            config=Config(
                max_pool_connections=_CONNECTIONS,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            ),
        )

    @property
    def url(self) -> str:
        """See ``ObjectStore.url``; with the host, if an endpoint was given."""
        endpoint = self._configurations.endpoint_url
        if endpoint is None:
            return f"s3://{self._bucket}"
        return f"s3://{urllib.parse.urlsplit(endpoint).netloc.rpartition('@')[2]}/{self._bucket}"

    @property
    def is_proven(self) -> bool:
        """See ``ObjectStore.is_proven``: AWS documents it; whatever else has to be tried out."""
        host = urllib.parse.urlsplit(self._client.meta.endpoint_url).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    # Asking

    def check(self) -> None:
        """See ``ObjectStore.check``."""
        with self._told("looking for"):
            try:
                self._client.head_bucket(Bucket=self._bucket)
            except self._client.exceptions.ClientError as error:
                with self._told("looking for"):
                    self._client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)
                raise error

    def head(self, key: str) -> ObjectInfo | None:
        """See ``ObjectStore.head``."""
        with self._told("looking for", key):
            try:
                return _info(key, self._client.head_object(Bucket=self._bucket, Key=key))
            except self._client.exceptions.ClientError as error:
                self._explain(error, key)
                return None

    def _explain(self, error: Any, key: str) -> None:
        """Raises why a HEAD failed, whose answer has no body to say it, unless it is missing."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key, Range="bytes=0-0")
            answer["Body"].close()
        except self._client.exceptions.ClientError as more:
            if code_of(error) in MISSING:
                # "Not there" is no answer while a second one says that something else is wrong.
                if code_of(more) not in MISSING:
                    raise
                return
            if code_of(more) not in MISSING:
                raise
        # It appeared or recovered between the two requests; the first one's answer is reported.
        if code_of(error) not in MISSING:
            raise error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        with self._told("listing"):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for found in page.get("Contents", ()):
                    found["ContentLength"] = found["Size"]
                    yield _info(found["Key"], found)

    # Small objects

    def read(self, key: str) -> tuple[bytes, str] | None:
        """See ``ObjectStore.read``."""
        with self._told("reading", key):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=key)
            except self._client.exceptions.ClientError as error:
                if code_of(error) in MISSING:
                    return None
                raise
            with contextlib.closing(answer["Body"]) as body:
                data = body.read(_SMALL_BYTES + 1)
        if len(data) > _SMALL_BYTES:
            raise StoreError(f"{self.url}/{key} is far larger than it should be; delete it")
        return data, _bare(answer["ETag"])

    def write(self, key: str, data: bytes, if_tag: str | None = None) -> str:
        """See ``ObjectStore.write``."""
        with self._told("writing", key), self._conditional(if_tag) as condition:
            answer = self._client.put_object(Bucket=self._bucket, Key=key, Body=data, **condition)
        return _bare(answer["ETag"])

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        with self._told("deleting", key):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    # Files

    def upload(
        self,
        path: pathlib.Path,
        key: str,
        metadata: Mapping[str, str],
        if_tag: str | None = None,
        before_publishing: Callable[[], object] = lambda: None,
    ) -> str:
        """See ``ObjectStore.upload``. Large files go in parts, several at a time."""
        with (
            ByteProgress(f"Uploading {self.url}/{key}", path.stat().st_size) as progress,
            self._told("uploading", key),
            self._conditional(if_tag) as condition,
        ):
            target = {"Bucket": self._bucket, "Key": key}
            upload = S3Upload(
                self._client, path, target, metadata, condition, before_publishing, progress.update
            )
            tag = upload.run()
            progress.done()
        return _bare(tag)

    def read_range(
        self, info: ObjectInfo, start: int, stop: int, write: Callable[[bytes], object]
    ) -> None:
        """See ``ObjectStore.read_range``."""
        try:
            with self._told("downloading", info.key), self._conditional(info.tag) as condition:
                answer = self._client.get_object(
                    Bucket=self._bucket,
                    Key=info.key,
                    Range=f"bytes={start}-{stop - 1}",
                    **condition,
                )
        except PreconditionFailedError as error:
            raise ObjectGoneError(info.key) from error
        with self._told("downloading", info.key), contextlib.closing(answer["Body"]) as body:
            if _bare(answer["ETag"]) != info.tag:
                raise ObjectGoneError(info.key)
            for data in body.iter_chunks(_READ_BYTES):
                write(data)

    # Helpers

    def _told(self, doing: str, key: str = "") -> contextlib.AbstractContextManager[None]:
        name = f"{self.url}/{key}" if key else self.url
        return told(f"{doing} {name}", self._configurations.hint)

    @contextlib.contextmanager
    def _conditional(self, if_tag: str | None) -> Iterator[dict[str, str]]:
        """The arguments for a condition; raises that it does not hold."""
        condition = {}
        if if_tag is not None:
            absent = if_tag == ABSENT
            condition = {"IfNoneMatch": "*"} if absent else {"IfMatch": f'"{if_tag}"'}
        try:
            yield condition
        except self._client.exceptions.ClientError as error:
            # An object that is to be as it was, and is gone, is not as it was either.
            gone = if_tag and code_of(error) in MISSING
            if gone or code_of(error) in FAILED_PRECONDITIONS:
                raise PreconditionFailedError from error
            raise


def _info(key: str, answer: Mapping[str, Any]) -> ObjectInfo:
    metadata = {name.lower(): value for name, value in answer.get("Metadata", {}).items()}
    created = answer["LastModified"].astimezone(datetime.timezone.utc)
    return ObjectInfo(key, int(answer["ContentLength"]), _bare(answer["ETag"]), created, metadata)


def _bare(tag: str) -> str:
    return tag.strip('"')
