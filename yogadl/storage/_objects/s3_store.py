"""A bucket of S3, or of a store that speaks its language."""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import pathlib
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from yogadl.backoff import retried
from yogadl.cache.progress import ByteProgress
from yogadl.errors import NetworkError, StoreError
from yogadl.redaction import without_password
from yogadl.storage._objects.failures import told
from yogadl.storage._objects.s3_answers import (
    bare_tag,
    conditional,
    created_at,
    info_of,
    tag_of,
)
from yogadl.storage._objects.s3_errors import (
    FAILED_PRECONDITIONS,
    MISSING,
    code_of,
    field,
    translate,
)
from yogadl.storage._objects.s3_object import S3Object
from yogadl.storage._objects.s3_session import S3Session
from yogadl.storage._objects.s3_upload import S3Upload, checksums_of
from yogadl.storage._objects.store import (
    SMALL_BYTES,
    ObjectGoneError,
    ObjectInfo,
    ObjectStore,
    PreconditionFailedError,
    Skip,
)

if TYPE_CHECKING:
    from yogadl.storage._configurations import S3Configurations

Result = TypeVar("Result")

_READ_BYTES = 1 << 20
# A condition that a store does not know.
_NOT_IMPLEMENTED = frozenset(("501", "NotImplemented"))

_log = logging.getLogger(__name__)


class S3Store(ObjectStore):
    """See ``ObjectStore``. Over boto3; one client per process and length of time-outs.

    Args:
        configurations: bucket, endpoint, region and keys.

    Raises:
        MissingExtraError: boto3 is not installed.
    """

    def __init__(self, configurations: S3Configurations) -> None:
        self._session = S3Session(configurations)
        self._configurations = configurations
        self._bucket = configurations.bucket
        # Around the ETag of a condition; None as long as none has held.
        self._quote: str | None = None

    @property
    def url(self) -> str:
        """See ``ObjectStore.url``; with the host, if an endpoint was given."""
        endpoint = self._configurations.endpoint_url
        if endpoint is None:
            return f"s3://{self._bucket}"
        return f"s3://{urllib.parse.urlsplit(without_password(endpoint)).netloc}/{self._bucket}"

    @property
    def origin(self) -> str:
        """See ``ObjectStore.origin``: AWS has but one bucket of a name, whatever the endpoint."""
        if self.is_proven:
            return f"s3://{self._bucket}"
        parts = urllib.parse.urlsplit(self._session.endpoint)
        return f"s3://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/{self._bucket}"

    @property
    def is_proven(self) -> bool:
        """See ``ObjectStore.is_proven``: AWS documents it; whatever else has to be tried out."""
        host = urllib.parse.urlsplit(self._session.endpoint).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    # Asking

    def check(self) -> None:
        """See ``ObjectStore.check``."""

        def ask(client: Any) -> None:
            try:
                client.head_bucket(Bucket=self._bucket)
            except ClientError as error:
                # Its answer has no body to say why.
                client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)
                raise error

        self._ask("looking for", "", ask)

    def head(self, key: str, patience: float | None = None) -> ObjectInfo | None:
        """See ``ObjectStore.head``."""

        def ask(client: Any) -> ObjectInfo | None:
            try:
                return info_of(key, client.head_object(Bucket=self._bucket, Key=key))
            except ClientError as error:
                self._explain(client, error, key)
                return None

        return self._ask("looking for", key, ask, patience)

    def _explain(self, client: Any, error: ClientError, key: str) -> None:
        """Raises why a HEAD failed, whose answer has no body to say it, unless it is missing."""
        try:
            answer = client.get_object(Bucket=self._bucket, Key=key, Range="bytes=0-0")
            answer["Body"].close()
        except ClientError as more:
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

    def list(self, prefix: str, skip: Skip | None = None) -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        before, after = "", dict[str, str]()
        while True:
            page = self._list_page(prefix, after)
            contents = page.get("Contents", ())
            for found in contents:
                found["ContentLength"] = found["Size"]
                yield info_of(found["Key"], found)
            if not page["IsTruncated"]:
                return
            after = {"ContinuationToken": page["NextContinuationToken"]}
            keys = [found["Key"] for found in contents]
            # Buckets of one zone do not list in order, and know no StartAfter.
            if skip is not None and keys and keys == sorted(keys):
                behind = skip(keys[-1])
                # Who heeds no such key would begin there again and again.
                if behind > max(keys[-1], before):
                    before, after = behind, {"StartAfter": behind}

    def _list_page(self, prefix: str, after: Mapping[str, str]) -> Any:
        def ask(client: Any) -> Any:
            page = client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **after)
            field(page, "IsTruncated")
            return page

        return self._ask("listing", "", ask)

    # Small objects

    def read(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str] | None:
        """See ``ObjectStore.read``."""
        found = self.read_dated(key, patience, largest)
        return None if found is None else found[:2]

    def read_dated(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str, datetime.datetime] | None:
        """See ``ObjectStore.read_dated``."""

        def ask(client: Any) -> tuple[bytes, str, datetime.datetime] | None:
            try:
                answer = client.get_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if code_of(error) in MISSING:
                    return None
                raise
            with contextlib.closing(answer["Body"]) as body:
                # When it is told how much to read, nobody else notices that the body is not whole.
                size = int(field(answer, "ContentLength"))
                data = body.read(largest + 1)
                if len(data) < min(size, largest + 1):
                    raise NetworkError(f"{self.url}/{key}: the answer broke off")
                return data, tag_of(answer), created_at(answer)

        found = self._ask("reading", key, ask, patience)
        if found is not None and len(found[0]) > largest:
            raise StoreError(f"{self.url}/{key} is far larger than it should be; delete it")
        return found

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        """See ``ObjectStore.write``."""

        def ask(client: Any) -> str:
            target = {"Bucket": self._bucket, "Key": key}
            put = functools.partial(client.put_object, **target, Body=data)
            return tag_of(self._conditionally(put, client, key, if_tag))

        return self._ask("writing", key, ask, patience)

    def delete(self, key: str, tag: str | None = None) -> bool:
        """See ``ObjectStore.delete``."""
        target = {"Bucket": self._bucket, "Key": key}

        def ask(client: Any) -> bool:
            if tag is None:
                client.delete_object(**target)
                return True
            found = self._tag_of(client, key)
            if found == tag:
                # S3 knew no condition for this for long, and others that speak its language know
                # none, and ignore it or say so.
                try:
                    with conditional(tag) as condition:
                        client.delete_object(**target, **condition)
                except PreconditionFailedError:
                    # Some know ETags only without quotes.
                    if self._tag_of(client, key) != tag:
                        return False
                    client.delete_object(**target)
                except ClientError as error:
                    if code_of(error) not in _NOT_IMPLEMENTED:
                        raise
                    client.delete_object(**target)
            return found in (tag, None)

        return self._ask("deleting", key, ask)

    # Files

    def copy(self, info: ObjectInfo, key: str, metadata: Mapping[str, str]) -> None:
        """See ``ObjectStore.copy``; of 5 GB at most, as S3 has it."""

        def ask(client: Any) -> bool:
            try:
                client.copy_object(
                    Bucket=self._bucket,
                    Key=key,
                    CopySource={"Bucket": self._bucket, "Key": info.key},
                    CopySourceIfMatch=f'"{info.tag}"',
                    Metadata=dict(metadata),
                    MetadataDirective="REPLACE",
                    # What was uploaded in parts has one of theirs.
                    **checksums_of(client),
                )
            except ClientError as error:
                if code_of(error) in (*MISSING, *FAILED_PRECONDITIONS):
                    return False
                raise
            return True

        if not self._ask("copying", info.key, ask):
            raise ObjectGoneError(info.key)

    def upload(
        self,
        path: pathlib.Path,
        key: str,
        metadata: Mapping[str, str],
        if_tag: str | None = None,
        before_publishing: Callable[[], object] = lambda: None,
        *,
        in_parts: bool | None = None,
    ) -> str:
        """See ``ObjectStore.upload``. Large files go in parts, several at a time."""

        def send(**condition: str) -> str:
            with ByteProgress(f"Uploading {self.url}/{key}", path.stat().st_size) as progress:
                upload = S3Upload(
                    self._session.client(),
                    self._patiently,
                    path,
                    {"Bucket": self._bucket, "Key": key},
                    metadata,
                    condition,
                    before_publishing,
                    progress.update,
                )
                tag = upload.run(in_parts)
                progress.done()
            return tag

        with self._told("uploading", key):
            return bare_tag(self._conditionally(send, self._session.client(), key, if_tag))

    def read_range(
        self, info: ObjectInfo, start: int, stop: int, write: Callable[[bytes], object]
    ) -> None:
        """See ``ObjectStore.read_range``."""
        try:
            with self._told("downloading", info.key), conditional(info.tag) as condition:
                answer = self._session.client().get_object(
                    Bucket=self._bucket,
                    Key=info.key,
                    Range=f"bytes={start}-{stop - 1}",
                    **condition,
                )
        except PreconditionFailedError as error:
            raise ObjectGoneError(info.key) from error
        with self._told("downloading", info.key), contextlib.closing(answer["Body"]) as body:
            if tag_of(answer) != info.tag:
                raise ObjectGoneError(info.key)
            for data in body.iter_chunks(_READ_BYTES):
                write(data)

    def remote(self, key: str, tag: str | None = None) -> S3Object:
        """See ``ObjectStore.remote``."""
        name, server = f"{self.url}/{key}", self._session.endpoint
        return S3Object(self._sign, key, name, server, self._configurations.hint, tag)

    def _sign(self, key: str, seconds: int) -> str:
        """An address by which an object can be read for so many seconds."""
        with self._told("reading", key):
            target = {"Bucket": self._bucket, "Key": key}
            made: str = self._session.client().generate_presigned_url(
                "get_object", Params=target, ExpiresIn=seconds
            )
        return made

    # Helpers

    def _conditionally(
        self, write: Callable[..., Result], client: Any, key: str, if_tag: str | None
    ) -> Result:
        """Calls ``write`` with the arguments for a condition; raises that it does not hold.

        An ETag is quoted, and some stores know it only without its quotes.
        """
        try:
            with conditional(if_tag, '"' if self._quote is None else self._quote) as condition:
                done = write(**condition)
        except PreconditionFailedError:
            is_settled = self._quote is not None or self.is_proven
            if not if_tag or is_settled or self._tag_of(client, key) != if_tag:
                raise
            with conditional(if_tag, "") as condition:
                done = write(**condition)
            _log.info("%s wants ETags without quotes.", self.url)
            self._quote = ""
            return done
        if if_tag and self._quote is None:
            self._quote = '"'
        return done

    def _tag_of(self, client: Any, key: str) -> str | None:
        """``None`` if it is not there."""
        try:
            return tag_of(client.head_object(Bucket=self._bucket, Key=key))
        except ClientError as error:
            if code_of(error) in MISSING:
                return None
            raise

    def _ask(
        self,
        doing: str,
        key: str,
        ask: Callable[[Any], Result],
        patience: float | None = None,
    ) -> Result:
        """What ``ask`` returns, when it is given a client, after as many tries as it takes."""
        with self._told(doing, key):
            found: Result = self._patiently(lambda: ask(self._session.client(patience)), patience)
            return found

    def _patiently(
        self,
        request: Callable[[], Any],
        patience: float | None = None,
        stop: threading.Event | None = None,
    ) -> Any:
        return retried(request, lambda error: translate(error, self.url), patience, stop)

    def _told(self, doing: str, key: str = "") -> contextlib.AbstractContextManager[None]:
        name = f"{self.url}/{key}" if key else self.url
        hint = self._configurations.hint
        return told(lambda error: translate(error, f"{doing} {name}", hint))
