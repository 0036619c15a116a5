"""Uploading a file to S3, whole or not at all."""

from __future__ import annotations

import functools
import hashlib
import logging
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import botocore.exceptions

from yogadl.errors import NetworkError
from yogadl.storage._object_store import OnBytes
from yogadl.storage._s3_errors import ALTERED, code_of
from yogadl.storage._transfer import FileSlice, in_parallel

SINGLE_BYTES = 8 << 20
"""Larger files go in parts."""

PARALLEL_PARTS = 10
"""As many as boto3 sends at a time."""

PART_BYTES = 8 << 20
_MOST_PARTS = 10_000
_ATTEMPTS = 4
_LARGEST_MD5 = 1 << 20

_log = logging.getLogger(__name__)


class S3Upload:
    """The upload of one file.

    s3transfer, boto3's own, cannot publish on a condition; for the rest this does what it does.

    Args:
        client: of boto3.
        path: of the file.
        target: ``Bucket`` and ``Key``.
        metadata: for the object.
        condition: ``IfMatch`` or ``IfNoneMatch``, or nothing.
        before_publishing: called just before the request that publishes; may raise.
        on_bytes: is told how many more bytes have arrived.
    """

    def __init__(
        self,
        client: Any,
        path: pathlib.Path,
        target: Mapping[str, str],
        metadata: Mapping[str, str],
        condition: Mapping[str, str],
        before_publishing: Callable[[], object],
        on_bytes: OnBytes,
    ) -> None:
        self._client = client
        self._path = path
        self._target = target
        self._metadata = dict(metadata)
        self._condition = condition
        self._before_publishing = before_publishing
        self._on_bytes = on_bytes
        self._size = path.stat().st_size

    def run(self) -> str:
        """Uploads, and returns the object's ETag as S3 gives it."""
        if self._size <= SINGLE_BYTES:
            return self._at_once()
        self._abort_others()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._in_parts()
            except self._client.exceptions.ClientError as error:
                # Somebody who uploads the same took this for a leftover; or two finished at once.
                again = code_of(error) in ("NoSuchUpload", "ConditionalRequestConflict")
                if not again or attempt == _ATTEMPTS:
                    raise
                _log.info("Uploading %s again: %s", self._target["Key"], code_of(error))
        raise AssertionError("the last attempt returns or raises")

    def _at_once(self) -> str:
        data = self._path.read_bytes()
        self._before_publishing()
        put = functools.partial(
            self._client.put_object, **self._target, **self._condition, Metadata=self._metadata
        )
        answer = _send(put, data, self._target["Key"])
        self._on_bytes(len(data))
        return str(answer["ETag"])

    def _in_parts(self) -> str:
        checksums = _checksums(self._client)
        begun = self._client.create_multipart_upload(
            **self._target, **checksums, Metadata=self._metadata
        )
        upload = {**self._target, "UploadId": begun["UploadId"]}
        try:
            step = max(PART_BYTES, -(-self._size // _MOST_PARTS))
            parts = [
                _Part(self._client, {**upload, **checksums}, self._path, number, start, step)
                for number, start in enumerate(range(0, self._size, step), 1)
            ]
            sends = [functools.partial(part.send, self._on_bytes) for part in parts]
            in_parallel(sends, PARALLEL_PARTS)
            self._before_publishing()
            answer = self._client.complete_multipart_upload(
                **upload, **self._condition, MultipartUpload={"Parts": [p.proof for p in parts]}
            )
            return str(answer["ETag"])
        except BaseException:
            self._abort(upload)
            raise

    def _abort(self, upload: Mapping[str, str]) -> None:
        """Removes the parts; never raises, since something worse is being raised."""
        try:
            self._client.abort_multipart_upload(**upload)
        except Exception as error:
            if getattr(error, "response", None) is None or code_of(error) != "NoSuchUpload":
                _log.warning("Parts of %s may be left in the bucket: %s", upload["Key"], error)

    def _abort_others(self) -> None:
        """Removes the parts of uploads that were killed.

        One that is alive begins anew, and does not do this again, so that two cannot keep each
        other from finishing.
        """
        try:
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._target["Bucket"], Prefix=self._target["Key"]):
                for found in page.get("Uploads", ()):
                    if found["Key"] == self._target["Key"]:
                        self._abort({**self._target, "UploadId": found["UploadId"]})
        except self._client.exceptions.ClientError as error:
            _log.info("Cannot look for parts of earlier uploads: %s", error)


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

    def send(self, on_bytes: OnBytes) -> None:
        put = functools.partial(self._client.upload_part, **self._upload, PartNumber=self._number)
        with FileSlice(self._path, self._start, self._size) as data:
            answer = _send(put, data, self._upload["Key"])
            on_bytes(data.size)
        kept = {name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}
        self.proof = {"PartNumber": self._number, **kept}


def _checksums(client: Any) -> dict[str, str]:
    """What asks for checksums, as boto3's own uploads do unless it is told not to."""
    wanted = getattr(client.meta.config, "request_checksum_calculation", None)
    return {"ChecksumAlgorithm": "CRC32"} if wanted == "when_supported" else {}


def _send(put: Callable[..., Any], data: bytes | FileSlice, key: str) -> Mapping[str, Any]:
    """Sends some bytes, again if they arrive altered, and returns the answer."""
    for _ in range(_ATTEMPTS):
        if isinstance(data, FileSlice):
            data.seek(0)
        try:
            answer = put(Body=data)
        except botocore.exceptions.ClientError as error:
            if code_of(error) not in ALTERED:
                raise
            _log.info("%s arrived altered, and is sent again.", key)
            continue
        if _arrived(data, answer):
            return answer  # type: ignore[no-any-return]
    raise NetworkError(f"{key} arrived altered {_ATTEMPTS} times")


def _arrived(data: bytes | FileSlice, answer: Mapping[str, Any]) -> bool:
    """Whether the ETag is that of some small data, where it is a digest.

    S3 itself compares a checksum that boto3 sends, but not everything that speaks its language. Of
    large data, this would cost more than the transfer.
    """
    if not isinstance(data, bytes) or len(data) > _LARGEST_MD5:
        return True
    encrypted = answer.get("ServerSideEncryption", "AES256") != "AES256"
    if encrypted or "SSECustomerAlgorithm" in answer:
        return True
    tag = answer["ETag"].strip('"')
    return len(tag) != 32 or tag == hashlib.md5(data, usedforsecurity=False).hexdigest()
