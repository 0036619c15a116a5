"""A bucket of either provider behind a proxy, for tests that hold for both."""

from __future__ import annotations

import contextlib
import datetime
import functools
import http.client
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from exchange import Dialect, Request
from faults import CUT, PASSING, STALL, Fault
from proxy import Proxy
from servers import Server

from yogadl.storage import GCSConfigurations, GCSStorage, S3Configurations, S3Storage

Keys: TypeAlias = list[str]

REGION = "us-east-1"
_NOWHERE = os.devnull


def environment(dialect: Dialect, url: str) -> dict[str, str]:
    """What the SDKs are to find: credentials that mean nothing, and none of the user's files."""
    common = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    if dialect == "s3":
        return common | {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": _NOWHERE,
            "AWS_SHARED_CREDENTIALS_FILE": _NOWHERE,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    return common | {
        "STORAGE_EMULATOR_HOST": url,
        "GOOGLE_CLOUD_PROJECT": "test",
        "CLOUDSDK_CONFIG": _NOWHERE,
        "NO_GCE_CHECK": "true",
    }


class Raw(Protocol):
    """A bucket over the provider's SDK, without yogadl."""

    def list(self, prefix: str = "") -> Keys:
        """The keys of all objects, in order."""

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, stop: int) -> bytes: ...

    def put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None: ...

    def write_if(self, key: str, data: bytes, tag: str) -> bool:
        """Writes it if it has this tag, or is not there if that is empty; whether it was so."""

    def delete(self, key: str) -> None:
        """Of an object that is there."""

    def tag(self, key: str) -> str:
        """Its ETag or generation."""

    def created(self, key: str) -> datetime.datetime: ...

    def metadata(self, key: str) -> dict[str, str]: ...

    def uploads(self) -> Keys:
        """The keys of uploads in parts that have begun and not ended."""

    def create_bucket(self) -> None: ...

    def delete_bucket(self) -> None:
        """With all that is in it; then it is closed."""

    def close(self) -> None: ...


@functools.cache
def _session() -> Any:
    """Kept, since it has to read much before its first client."""
    import boto3

    return boto3.session.Session()


class RawS3:
    """See ``Raw``."""

    def __init__(self, url: str, bucket: str) -> None:
        from botocore.config import Config

        self._bucket = bucket
        self.client: Any = _session().client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name=REGION,
            config=Config(max_pool_connections=32, retries={"total_max_attempts": 1}),
        )

    def list(self, prefix: str = "") -> Keys:
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self._bucket, Prefix=prefix)
        return [made["Key"] for page in found for made in page.get("Contents", ())]

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self._bucket, Key=key)["Body"].read())

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        part = f"bytes={start}-{stop - 1}"
        answer = self.client.get_object(Bucket=self._bucket, Key=key, Range=part)
        return bytes(answer["Body"].read())

    def put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        self.client.put_object(
            Bucket=self._bucket, Key=key, Body=data, Metadata=dict(metadata or {})
        )

    def write_if(self, key: str, data: bytes, tag: str) -> bool:
        condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        try:
            self.client.put_object(Bucket=self._bucket, Key=key, Body=data, **condition)
        except self.client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            return False
        return True

    def tag(self, key: str) -> str:
        return str(self._head(key)["ETag"]).strip('"')

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self._bucket, Key=key)

    def created(self, key: str) -> datetime.datetime:
        found: datetime.datetime = self._head(key)["LastModified"]
        return found

    def metadata(self, key: str) -> dict[str, str]:
        return dict(self._head(key)["Metadata"])

    def _head(self, key: str) -> Any:
        return self.client.head_object(Bucket=self._bucket, Key=key)

    def uploads(self) -> Keys:
        found = self.client.list_multipart_uploads(Bucket=self._bucket)
        return [upload["Key"] for upload in found.get("Uploads", ())]

    def create_bucket(self) -> None:
        self.client.create_bucket(Bucket=self._bucket)

    def delete_bucket(self) -> None:
        found = self.client.list_multipart_uploads(Bucket=self._bucket)
        for upload in found.get("Uploads", ()):
            self.client.abort_multipart_upload(
                Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
        keys = [{"Key": key} for key in self.list()]
        for start in range(0, len(keys), 1000):
            some = {"Objects": keys[start : start + 1000]}
            self.client.delete_objects(Bucket=self._bucket, Delete=some)
        self.client.delete_bucket(Bucket=self._bucket)
        self.close()

    def close(self) -> None:
        self.client.close()


class RawGCS:
    """See ``Raw``."""

    def __init__(self, url: str, bucket: str) -> None:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        self._url = url
        self.client: Any = storage.Client(
            project="test",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": url},
        )
        # Otherwise it asks for the bucket in the background, also when an object is not found.
        self.client._bucket_metadata_cache = None
        self.bucket: Any = self.client.bucket(bucket)

    def list(self, prefix: str = "") -> Keys:
        return [blob.name for blob in self.client.list_blobs(self.bucket, prefix=prefix)]

    def get(self, key: str) -> bytes:
        return bytes(self.bucket.blob(key).download_as_bytes())

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        blob = self.bucket.blob(key)
        return bytes(blob.download_as_bytes(start=start, end=stop - 1, raw_download=True))

    def put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        blob = self.bucket.blob(key)
        blob.metadata = dict(metadata or {})
        blob.upload_from_string(data, content_type="application/octet-stream")

    def write_if(self, key: str, data: bytes, tag: str) -> bool:
        from google.api_core.exceptions import PreconditionFailed

        blob = self.bucket.blob(key)
        try:
            blob.upload_from_string(data, if_generation_match=int(tag or 0))
        except PreconditionFailed:
            return False
        return True

    def tag(self, key: str) -> str:
        return str(self.bucket.get_blob(key).generation)

    def delete(self, key: str) -> None:
        self.bucket.blob(key).delete()

    def created(self, key: str) -> datetime.datetime:
        found: datetime.datetime = self.bucket.get_blob(key).time_created
        return found

    def metadata(self, key: str) -> dict[str, str]:
        return dict(self.bucket.get_blob(key).metadata or {})

    def uploads(self) -> Keys:
        """Always none, as a client sees it: they are not in the bucket, and expire."""
        return []

    def pending(self) -> Keys:
        """What really has begun and not ended."""
        connection = http.client.HTTPConnection(self._url.removeprefix("http://"), timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/_pending")
            found = json.loads(connection.getresponse().read())
        start = f"{self.bucket.name}/"
        return [name.removeprefix(start) for name in found if name.startswith(start)]

    def create_bucket(self) -> None:
        self.bucket.create()

    def delete_bucket(self) -> None:
        for key in self.list():
            self.delete(key)
        self.close()

    def close(self) -> None:
        self.client.close()


@dataclass(frozen=True)
class Remote:
    """What another process needs of a rig; can be pickled.

    Attributes:
        dialect: of the provider.
        endpoint: of the store, through the proxy.
        bucket: its name.
        env: what the environment has to be updated with before ``make_storage``.
    """

    dialect: Dialect
    endpoint: str
    bucket: str
    env: dict[str, str] = field(default_factory=dict)

    def make_storage(
        self, local_cache_dir: pathlib.Path, bucket_directory_path: str = "data", **options: Any
    ) -> S3Storage | GCSStorage:
        """A storage in the bucket; ``options`` are its configuration's.

        Left to itself, each would try out first whether the bucket heeds conditions, which is much
        of what a short test takes.
        """
        options = {"conditional_writes": True, **options, "local_cache_dir": local_cache_dir}
        if self.dialect == "s3":
            options.setdefault("endpoint_url", self.endpoint)
            return S3Storage(S3Configurations(self.bucket, bucket_directory_path, **options))
        return GCSStorage(GCSConfigurations(self.bucket, bucket_directory_path, **options))


class Rig:
    """A bucket behind a proxy.

    Args:
        dialect: of the provider.
        server: that has the bucket.
        bucket: its name; it is created.

    Attributes:
        dialect: likewise.
        bucket: likewise.
        proxy: what yogadl's requests go through; see there for faults and the log.
        raw: the bucket, not through the proxy; see ``Raw``.
        through: the bucket through the proxy, but not through yogadl; likewise.
        env: what the environment has to have for ``make_storage``; the fixtures have seen to it.
    """

    raw: Any
    through: Any

    def __init__(self, dialect: Dialect, server: Server, bucket: str) -> None:
        self.dialect: Dialect = dialect
        self.bucket = bucket
        self._server = server
        self.raw = self._open(server.url)
        self.raw.create_bucket()
        self.proxy = Proxy(server.port, dialect)
        self.through = self._open(self.proxy.url)
        self.env = environment(dialect, self.proxy.url)

    def _open(self, url: str) -> Any:
        return (RawS3 if self.dialect == "s3" else RawGCS)(url, self.bucket)

    def close(self) -> None:
        self.through.close()
        self.proxy.close()
        self.raw.delete_bucket()

    def remote(self) -> Remote:
        """What another process needs."""
        return Remote(self.dialect, self.proxy.url, self.bucket, self.env)

    def own_keys(self) -> Keys:
        """Those of all objects but the catalogue's, in order."""
        return [key for key in self.raw.list() if "yogadl.catalogue/" not in key]

    def make_storage(
        self, local_cache_dir: pathlib.Path, bucket_directory_path: str = "data", **options: Any
    ) -> Any:
        """See ``Remote.make_storage``."""
        return self.remote().make_storage(local_cache_dir, bucket_directory_path, **options)

    @contextlib.contextmanager
    def another_way(self) -> Iterator[tuple[Proxy, Remote]]:
        """A second proxy to the bucket, for what only happens to some of its users.

        With Google, the endpoint is in the environment, so it is for other processes.
        """
        with Proxy(self._server.port, self.dialect) as proxy:
            env = environment(self.dialect, proxy.url)
            yield proxy, Remote(self.dialect, proxy.url, self.bucket, env)

    # What happens meanwhile

    def counting(self) -> contextlib.AbstractContextManager[list[Request]]:
        """The requests that come meanwhile, in a list that grows."""
        return self.proxy.counting()

    @contextlib.contextmanager
    def failing(self, fault: Fault, *operations: str, **which: Any) -> Iterator[None]:
        """A fault happens meanwhile; see ``Faults.add``, except that it is all the time."""
        self.proxy.faults.add(fault, *operations, **{"times": None, **which})
        try:
            yield
        finally:
            self.proxy.faults.clear()

    @contextlib.contextmanager
    def random_faults(self, seed: float, chance: float) -> Iterator[None]:
        """Each request fails meanwhile with this chance, in whatever way."""
        self.proxy.faults.randomly(seed, chance / len(PASSING))
        try:
            yield
        finally:
            self.proxy.faults.clear()

    def cutting_parts_after(self, count: int) -> contextlib.AbstractContextManager[None]:
        """Only so many parts of uploads arrive meanwhile."""
        return self.failing(CUT, "part", "finish", skip=count)

    def slow_requests(self) -> contextlib.AbstractContextManager[None]:
        """Every request takes half a second more meanwhile."""
        return self.failing(STALL)
