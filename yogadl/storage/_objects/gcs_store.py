"""A bucket of Google Cloud Storage."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from typing import TYPE_CHECKING, Any

from yogadl.backoff import retried, timeouts
from yogadl.cache.progress import ByteProgress
from yogadl.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    NetworkError,
    StoreError,
)
from yogadl.extras import require
from yogadl.storage._objects.failures import told
from yogadl.storage._objects.gcs_answers import conditional, info_of
from yogadl.storage._objects.gcs_errors import is_altered, translate
from yogadl.storage._objects.gcs_files import UPLOAD_BYTES, CountingFile, Sink, crc32c
from yogadl.storage._objects.gcs_object import GCSObject
from yogadl.storage._objects.gcs_session import send_in_pieces
from yogadl.storage._objects.store import (
    SMALL_BYTES,
    ObjectGoneError,
    ObjectInfo,
    ObjectStore,
    PreconditionFailedError,
    Skip,
)

if TYPE_CHECKING:
    from yogadl.storage._configurations import GCSConfigurations

_READ_BYTES = 1 << 20
_HOST = "https://storage.googleapis.com"
_ATTEMPTS = 4

_log = logging.getLogger(__name__)


class GCSStore(ObjectStore):
    """See ``ObjectStore``. Over google-cloud-storage; one client per process.

    A range that is read is held in memory as a whole.

    Args:
        configurations: bucket and project.

    Raises:
        MissingExtraError: google-cloud-storage is not installed.
    """

    parallel_ranges = 4
    range_bytes = 16 << 20

    def __init__(self, configurations: GCSConfigurations) -> None:
        self._storage = require("google.cloud.storage", "gcs")
        self._configurations = configurations
        self._made: tuple[int, Any] | None = None

    @property
    def _client(self) -> Any:
        # Connections must not be shared with a parent. Threads may make two at first; no matter.
        if self._made is None or self._made[0] != os.getpid():
            with self._told("opening"):
                made = self._storage.Client(project=self._configurations.project)
                # Release 3.17 asks for the bucket in background threads, again after every 404.
                if hasattr(made, "_bucket_metadata_cache"):
                    made._bucket_metadata_cache = None
                send_in_pieces(made._http, made.api_endpoint)
                self._made = os.getpid(), made
        return self._made[1]

    @property
    def _bucket(self) -> Any:
        return self._client.bucket(self._configurations.bucket)

    @property
    def url(self) -> str:
        """See ``ObjectStore.url``."""
        return f"gs://{self._configurations.bucket}"

    @property
    def origin(self) -> str:
        """See ``ObjectStore.origin``: Google has but one bucket of a name."""
        host = urllib.parse.urlsplit(self._client.api_endpoint).netloc.rpartition("@")[2]
        if host.endswith(".googleapis.com"):
            return self.url
        return f"gs://{host}/{self._configurations.bucket}"

    @property
    def is_proven(self) -> bool:
        """See ``ObjectStore.is_proven``: Google documents it; an emulator has to be tried out."""
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", _HOST)
        return emulator == _HOST and self._client.api_endpoint.startswith("https://")

    # Asking

    def check(self, patience: float | None = None) -> None:
        """See ``ObjectStore.check``."""
        with self._told("looking for"):
            if self._is_bucket_there(self._limits(patience)):
                return
        raise BucketNotFoundError(f"there is no bucket {self.url}. Create it, or correct its name")

    def _is_bucket_there(self, limits: Mapping[str, Any]) -> bool:
        """``False`` if the store says that it is not."""
        from google.api_core.exceptions import Forbidden, NotFound

        try:
            try:
                self._client.get_bucket(self._configurations.bucket, **limits)
            except Forbidden:
                # Who may use objects need not have the right to see the bucket itself.
                blobs = self._client.list_blobs(self._bucket, max_results=1, **limits)
                list(blobs)
        except NotFound:
            return False
        return True

    def head(self, key: str, patience: float | None = None) -> ObjectInfo | None:
        """See ``ObjectStore.head``."""
        with self._told("looking for", key):
            blob = self._bucket.get_blob(key, **self._limits(patience))
        if blob is not None:
            return info_of(blob)
        with contextlib.suppress(AccessDeniedError):
            self.check(patience)
        return None

    def list(self, prefix: str, skip: Skip | None = None) -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        behind = ""
        with self._told("listing"):
            while True:
                first = {"start_offset": behind} if behind else {}
                found = self._client.list_blobs(
                    self._bucket, prefix=prefix, **first, **self._limits()
                )
                before, behind = behind, ""
                for page in found.pages:
                    last = ""
                    for blob in page:
                        last = blob.name
                        # The offset is that of the first one, and this is to be behind it.
                        if last > before:
                            yield info_of(blob)
                    if skip is not None and last and found.next_page_token:
                        behind = skip(last)
                        # Who heeds no offset would begin there again and again.
                        if behind > max(last, before):
                            break
                        behind = ""
                if not behind:
                    return

    # Small objects

    def read(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str] | None:
        """See ``ObjectStore.read``."""
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        limits = self._limits(patience)
        blob = self._bucket.blob(key)
        with self._told("reading", key):
            try:
                # One request: the answer says which generation it is.
                data = bytes(
                    blob.download_as_bytes(
                        end=largest, single_shot_download=True, checksum=None, **limits
                    )
                )
            except NotFound:
                return None
            except RequestRangeNotSatisfiable:
                # It is empty.
                data = b""
                blob.reload(**limits)
            if blob.generation is None:
                raise NetworkError(f"{self.url}/{key}: the answer broke off")
        if len(data) > largest:
            raise StoreError(f"{self.url}/{key} is far larger than it should be; delete it")
        return data, str(blob.generation)

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        """See ``ObjectStore.write``."""
        with self._told("writing", key), conditional(if_tag) as generation:
            blob = self._bucket.blob(key)
            blob.upload_from_string(
                data,
                content_type="application/octet-stream",
                if_generation_match=generation,
                **self._limits(patience),
            )
        return str(blob.generation)

    def delete(self, key: str, tag: str | None = None) -> bool:
        """See ``ObjectStore.delete``."""
        from google.api_core.exceptions import NotFound

        try:
            with (
                self._told("deleting", key),
                contextlib.suppress(NotFound),
                conditional(tag) as generation,
            ):
                limits = self._limits(may_be_empty=True)
                self._bucket.blob(key).delete(if_generation_match=generation, **limits)
        except PreconditionFailedError:
            # That may be said of what is not there, too.
            return self.head(key) is None
        return True

    # Files

    def copy(self, info: ObjectInfo, key: str, metadata: Mapping[str, str]) -> None:
        """See ``ObjectStore.copy``."""
        from google.api_core.exceptions import NotFound

        source = self._bucket.blob(info.key, generation=int(info.tag))
        with self._told("copying", info.key):
            copied = self._bucket.blob(key)
            copied.metadata = dict(metadata)
            token = None
            try:
                while True:
                    token, _, _ = copied.rewrite(source, token=token, **self._limits())
                    if token is None:
                        return
            except NotFound:
                gone = True
        if gone:
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
        """See ``ObjectStore.upload``.

        In one stream, in pieces that are sent again when the connection breaks. What a killed
        process leaves is not in the bucket, and expires.
        """
        from google.api_core.exceptions import GoogleAPICallError

        # Google compares it before the object appears. Left to itself, the SDK compares afterwards,
        # and then deletes whatever has this name.
        checksum = crc32c(path)
        with self._told("uploading", key), conditional(if_tag) as generation:
            for _ in range(_ATTEMPTS):
                blob = self._bucket.blob(key, chunk_size=UPLOAD_BYTES)
                blob.metadata, blob.crc32c = dict(metadata), checksum
                before_publishing()
                try:
                    self._send(blob, path, generation, in_parts)
                    return str(blob.generation)
                except GoogleAPICallError as error:
                    last = error
                    if not (_is_of_lost_session(error) or is_altered(error)):
                        raise
                # It may be done, and the store have forgotten it since, its answer being lost.
                found = self._published(key, metadata, checksum)
                if found is not None:
                    return found
                _log.info("Uploading %s again: %s", key, last)
        raise NetworkError(f"{_ATTEMPTS} uploads of {self.url}/{key} failed: {last}. Try later")

    def _send(
        self, blob: Any, path: pathlib.Path, generation: int | None, in_parts: bool | None
    ) -> None:
        size = path.stat().st_size
        with (
            open(path, "rb", buffering=0) as file,
            ByteProgress(f"Uploading {self.url}/{blob.name}", size) as progress,
        ):
            blob.upload_from_file(
                CountingFile(file, progress, in_pieces=size > UPLOAD_BYTES),
                # Of unknown size, it is sent as what is large.
                size=None if in_parts else size,
                content_type="application/octet-stream",
                if_generation_match=generation,
                checksum=None,
                **self._limits(but_altered=True),
            )
            progress.done()

    def _published(self, key: str, metadata: Mapping[str, str], checksum: str) -> str | None:
        """The generation of the object if it is what was uploaded."""
        blob = self._bucket.get_blob(key, **self._limits())
        if blob is None or blob.crc32c != checksum or (blob.metadata or {}) != dict(metadata):
            return None
        return str(blob.generation)

    def read_range(
        self, info: ObjectInfo, start: int, stop: int, write: Callable[[bytes], object]
    ) -> None:
        """See ``ObjectStore.read_range``."""
        from google.api_core.exceptions import NotFound

        with self._told("downloading", info.key):
            blob = self._bucket.blob(info.key, generation=int(info.tag))
            try:
                # Not in one shot, the SDK reads 8 KiB at a time, and takes three times as long.
                blob.download_to_file(
                    Sink(write),
                    start=start,
                    end=stop - 1,
                    raw_download=True,
                    single_shot_download=True,
                    checksum=None,
                    retry=None,
                    timeout=timeouts(None),
                )
            except NotFound as error:
                raise ObjectGoneError(info.key) from error

    def remote(self, key: str, tag: str | None = None) -> GCSObject:
        """See ``ObjectStore.remote``."""
        bucket = self._configurations.bucket
        return GCSObject(self._client, bucket, key, f"{self.url}/{key}", tag)

    def tag_of(self, key: str, answer: Message) -> str:
        """See ``ObjectStore.tag_of``; not all stores of this kind answer with it."""
        found = answer.get("X-Goog-Generation")
        if found is None:
            info = self.head(key)
            found = "0" if info is None else info.tag
        return found

    # Helpers

    def _limits(
        self,
        patience: float | None = None,
        *,
        may_be_empty: bool = False,
        but_altered: bool = False,
    ) -> dict[str, Any]:
        """What tells the SDK how long to wait for answers, and to use our back-off.

        It calls what is given as ``retry`` with the function that makes the request, and then calls
        what that returned instead.
        """

        def patient(request: Callable[[], Any]) -> Callable[[], Any]:
            def ask() -> Any:
                answer = request()
                # To the SDK, an answer that was cut off in its headers is one that says nothing.
                if answer == b"" and not may_be_empty:
                    raise NetworkError(f"{self.url}: an answer broke off")
                return answer

            def failure(error: Exception) -> StoreError | None:
                # It may be an earlier piece that arrived altered: all are to be sent again.
                final = but_altered and is_altered(error)
                return None if final else translate(error, self.url)

            return lambda: retried(ask, failure, patience)

        return {"retry": patient, "timeout": timeouts(patience)}

    def _told(self, doing: str, key: str = "") -> contextlib.AbstractContextManager[None]:
        name = f"{self.url}/{key}" if key else self.url
        return told(lambda error: translate(error, f"{doing} {name}"))


def _is_of_lost_session(error: Any) -> bool:
    """Whether a store has forgotten an upload that had begun; not that there is no such bucket."""
    return error.code in (404, 410) and error.response.request.method == "PUT"
