"""Uploading a file to S3, whole or not at all."""

from __future__ import annotations

import datetime
import email.utils
import functools
import hashlib
import io
import logging
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError

from yogadl.errors import NetworkError
from yogadl.storage._objects.s3_errors import MISSING, code_of, field
from yogadl.storage._objects.store import OnBytes
from yogadl.storage._objects.transfer import FileSlice, in_parallel

SINGLE_BYTES = 8 << 20
"""Larger files go in parts."""

PARALLEL_PARTS = 10
"""As many as boto3 sends at a time."""

PART_BYTES = 8 << 20

ABANDONED_SECONDS = 24 * 3600.0
"""An upload of which nothing has arrived for so long was killed."""

_MOST_PARTS = 10_000
_ATTEMPTS = 4
_LARGEST_MD5 = 1 << 20

# The latter where the answer's body was lost.
_NO_UPLOAD = frozenset(("NoSuchUpload", "404"))

_log = logging.getLogger(__name__)


class Patiently(Protocol):
    """Carries out a request until it succeeds; see ``backoff.retried``."""

    def __call__(
        self,
        request: Callable[[], Any],
        patience: float | None = None,
        stop: threading.Event | None = None,
    ) -> Any: ...


class S3Upload:
    """The upload of one file.

    s3transfer, boto3's own, cannot publish on a condition; for the rest this does what it does.

    Args:
        client: of boto3.
        patiently: what carries out each request.
        path: of the file.
        target: ``Bucket`` and ``Key``.
        metadata: for the object; says which contents these are.
        condition: ``IfMatch`` or ``IfNoneMatch``, or nothing.
        before_publishing: called just before each try of the request that publishes; may raise.
        on_bytes: is told how many more bytes have arrived.
    """

    def __init__(
        self,
        client: Any,
        patiently: Patiently,
        path: pathlib.Path,
        target: Mapping[str, str],
        metadata: Mapping[str, str],
        condition: Mapping[str, str],
        before_publishing: Callable[[], object],
        on_bytes: OnBytes,
    ) -> None:
        self._client = client
        self._patiently = patiently
        self._path = path
        self._target = target
        self._metadata = dict(metadata)
        self._condition = condition
        self._before_publishing = before_publishing
        self._on_bytes = on_bytes
        self._size = path.stat().st_size
        self._may_have_lost_one = False

    def run(self, in_parts: bool | None = None) -> str:
        """Uploads, and returns the object's ETag as S3 gives it.

        Args:
            in_parts: or in one request; if ``None``, that goes by the size.
        """
        if not (self._size > SINGLE_BYTES if in_parts is None else in_parts):
            return self._at_once()
        self._abort_abandoned()
        try:
            return self._in_some_attempts()
        finally:
            if self._may_have_lost_one:
                self._abort_lost()

    def _in_some_attempts(self) -> str:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._in_parts()
            except ClientError as error:
                # Somebody who uploads the same took this for abandoned; or two finished at once.
                again = code_of(error) in (*_NO_UPLOAD, "ConditionalRequestConflict")
                if not again or attempt == _ATTEMPTS:
                    raise
                _log.info("Uploading %s again: %s", self._target["Key"], code_of(error))
        raise AssertionError("the last attempt returns or raises")

    def _at_once(self) -> str:
        data = self._path.read_bytes()
        condition = self._condition

        def put() -> Any:
            self._before_publishing()
            # Not the bytes themselves, all of which would have to be sent before a time-out.
            answer = self._client.put_object(
                **self._target, **condition, Metadata=self._metadata, Body=io.BytesIO(data)
            )
            field(answer, "ETag")
            return answer

        for _ in range(_ATTEMPTS):
            answer = self._patiently(put)
            if _arrived(data, answer):
                self._on_bytes(len(data))
                return str(answer["ETag"])
            if condition:
                condition = {"IfMatch": answer["ETag"]}
        raise NetworkError(f"{self._target['Key']} arrived altered {_ATTEMPTS} times")

    def _in_parts(self) -> str:
        checksums = checksums_of(self._client)
        upload = {**self._target, "UploadId": self._patiently(self._begin)}
        try:
            step = max(PART_BYTES, -(-self._size // _MOST_PARTS))
            parts = [
                _Part(self._client, {**upload, **checksums}, self._path, number, start, step)
                for number, start in enumerate(range(0, self._size, step), 1)
            ]
            sends = [functools.partial(self._send, part) for part in parts]
            in_parallel(sends, PARALLEL_PARTS)
            return self._complete(upload, [part.proof for part in parts])
        except BaseException:
            self._abort(upload)
            raise

    def _begin(self) -> Any:
        try:
            answer = self._client.create_multipart_upload(
                **self._target, **checksums_of(self._client), Metadata=self._metadata
            )
            return field(answer, "UploadId")
        except (EndpointConnectionError, ConnectTimeoutError):
            raise
        except Exception:
            # It may have begun, and nobody knows its id.
            self._may_have_lost_one = True
            raise

    def _send(self, part: _Part, stop: threading.Event) -> None:
        self._on_bytes(self._patiently(part.send, stop=stop))

    def _complete(self, upload: Mapping[str, str], proofs: list[dict[str, Any]]) -> str:
        tries = 0

        def complete() -> str:
            nonlocal tries
            tries += 1
            self._before_publishing()
            try:
                answer = self._client.complete_multipart_upload(
                    **upload, **self._condition, MultipartUpload={"Parts": proofs}
                )
            except ClientError as error:
                # The try before may have completed it, and only its answer have been lost.
                if code_of(error) not in _NO_UPLOAD or tries == 1:
                    raise
                tag = self._published()
                if tag is None:
                    raise
                return tag
            return str(field(answer, "ETag"))

        return str(self._patiently(complete))

    def _published(self) -> str | None:
        """The ETag of the object if it is what was uploaded."""
        try:
            found = self._client.head_object(**self._target)
        except ClientError as error:
            if code_of(error) in MISSING:
                return None
            raise
        metadata = {name.lower(): value for name, value in found.get("Metadata", {}).items()}
        is_this = metadata == self._metadata and field(found, "ContentLength") == self._size
        return str(field(found, "ETag")) if is_this else None

    def _abort(self, upload: Mapping[str, str]) -> None:
        """Removes the parts; raises no error, since something worse is being raised."""
        try:
            self._patiently(functools.partial(self._client.abort_multipart_upload, **upload))
        except Exception as error:
            if not isinstance(error, ClientError) or code_of(error) not in _NO_UPLOAD:
                _log.warning("Parts of %s may be left in the bucket: %s", upload["Key"], error)

    def _abort_abandoned(self) -> None:
        """Removes the parts of uploads of this object that were killed.

        One that is under way looks the same, except that parts of it arrive.
        """
        try:
            for found, now in self._others():
                upload = {**self._target, "UploadId": found["UploadId"]}
                is_old = _seconds(found["Initiated"], now) >= ABANDONED_SECONDS
                if is_old and all(
                    _seconds(part["LastModified"], now) >= ABANDONED_SECONDS
                    for part in self._arrived_parts(upload)
                ):
                    _log.info("Removing parts of %s, left by who was killed.", upload["Key"])
                    self._abort(upload)
        except ClientError as error:
            _log.info("Cannot look for parts of earlier uploads: %s", error)

    def _abort_lost(self) -> None:
        """Removes uploads that were begun by requests whose answer was lost; raises no error.

        They have no parts. Another's may have none yet; that one then begins anew.
        """
        try:
            for found, _now in self._others():
                upload = {**self._target, "UploadId": found["UploadId"]}
                if not any(self._arrived_parts(upload)):
                    self._abort(upload)
        except Exception as error:
            _log.info("An upload without parts may be left in the bucket: %s", error)

    def _others(self) -> Iterator[tuple[Mapping[str, Any], datetime.datetime]]:
        """All uploads of this object that have begun and not ended, and the store's time."""
        bucket, key = self._target["Bucket"], self._target["Key"]
        listing = functools.partial(self._client.list_multipart_uploads, Bucket=bucket, Prefix=key)
        for page in self._pages(listing, "KeyMarker", "UploadIdMarker"):
            # Only times by the same clock are compared.
            date = page["ResponseMetadata"]["HTTPHeaders"].get("date")
            if date is not None:
                now = email.utils.parsedate_to_datetime(date)
                yield from (
                    (found, now) for found in page.get("Uploads", ()) if found["Key"] == key
                )

    def _arrived_parts(self, upload: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        listing = functools.partial(self._client.list_parts, **upload)
        for page in self._pages(listing, "PartNumberMarker"):
            yield from page.get("Parts", ())

    def _pages(self, listing: Callable[..., Any], *markers: str) -> Iterator[Any]:
        after: dict[str, Any] = {}

        def ask() -> Any:
            page = listing(**after)
            field(page, "IsTruncated")
            return page

        while True:
            page = self._patiently(ask)
            yield page
            if not page["IsTruncated"]:
                return
            after = {marker: page[f"Next{marker}"] for marker in markers}


def _seconds(since: datetime.datetime, now: datetime.datetime) -> float:
    return (now - since).total_seconds()


class _Part:
    """A part of an upload.

    Attributes:
        proof: its number, ETag and checksum, once it was sent.
    """

    def __init__(
        self,
        client: Any,
        upload: Mapping[str, str],
        path: pathlib.Path,
        number: int,
        start: int,
        size: int,
    ) -> None:
        self._client = client
        self._upload = upload
        self._path = path
        self._start = start
        self._size = size
        self._number = number
        self.proof: dict[str, Any] = {}

    def send(self) -> int:
        """Sends it once; how many bytes those were."""
        with FileSlice(self._path, self._start, self._size) as data:
            answer = self._client.upload_part(**self._upload, PartNumber=self._number, Body=data)
            size = data.size
        field(answer, "ETag")
        kept = {name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}
        self.proof = {"PartNumber": self._number, **kept}
        return size


def checksums_of(client: Any) -> dict[str, str]:
    """What asks for checksums, as boto3's own uploads do unless it is told not to."""
    wanted = getattr(client.meta.config, "request_checksum_calculation", None)
    return {"ChecksumAlgorithm": "CRC32"} if wanted == "when_supported" else {}


def _arrived(data: bytes, answer: Mapping[str, Any]) -> bool:
    """Whether the ETag is that of some small data, where it is a digest.

    S3 itself compares a checksum that boto3 sends, but not everything that speaks its language. Of
    large data, this would cost more than the transfer.
    """
    if len(data) > _LARGEST_MD5:
        return True
    encrypted = answer.get("ServerSideEncryption", "AES256") != "AES256"
    if encrypted or "SSECustomerAlgorithm" in answer:
        return True
    tag = answer["ETag"].strip('"')
    return len(tag) != 32 or tag == hashlib.md5(data, usedforsecurity=False).hexdigest()
