"""Every failure of a store is an error of its own, and only "not found" means not found."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from yogadl import errors
from yogadl.storage import (
    GCSConfigurations,
    GCSStorage,
    S3Configurations,
    S3Storage,
    _backoff,
)
from yogadl.storage._gcs_store import GCSStore
from yogadl.storage._s3_store import S3Store

pytest.importorskip("boto3")
pytest.importorskip("google.cloud.storage")


@contextlib.contextmanager
def answering(status: int, body: str, headers: dict[str, str]) -> Iterator[str]:
    """A store that gives one answer to whatever it is asked; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            data = body.encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_arguments: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries that end at once, and SDKs that know nothing of this machine."""
    soon = _backoff.Limits(patience=0.1, fewest=2, first_pause=0.01, longest_pause=0.01)
    monkeypatch.setattr(_backoff, "LIMITS", soon)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def xml(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>In words.</Message></Error>"


S3_ANSWERS: list[tuple[int, str, type[errors.StoreError]]] = [
    (404, "NoSuchBucket", errors.BucketNotFoundError),
    (403, "AccessDenied", errors.AccessDeniedError),
    (403, "AllAccessDisabled", errors.AccessDeniedError),
    (403, "InvalidAccessKeyId", errors.CredentialsError),
    (403, "SignatureDoesNotMatch", errors.CredentialsError),
    (403, "RequestTimeTooSkewed", errors.CredentialsError),
    (400, "ExpiredToken", errors.CredentialsError),
    (400, "InvalidToken", errors.CredentialsError),
    (401, "Unauthorized", errors.CredentialsError),
    (400, "AuthorizationHeaderMalformed", errors.WrongRegionError),
    (301, "PermanentRedirect", errors.WrongRegionError),
    (503, "SlowDown", errors.ThrottledError),
    (429, "TooManyRequests", errors.ThrottledError),
    (500, "InternalError", errors.StoreUnavailableError),
    (502, "BadGateway", errors.StoreUnavailableError),
    (501, "NotImplemented", errors.UnsafeStoreError),
    (400, "SomethingNew", errors.StoreError),
]


def s3_store(endpoint: str) -> S3Store:
    return S3Store(S3Configurations("bucket", "data", endpoint_url=endpoint))


@pytest.mark.parametrize(("status", "code", "kind"), S3_ANSWERS, ids=str)
def test_s3(status: int, code: str, kind: type[errors.StoreError], tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    headers = {"Content-Type": "application/xml", "x-amz-bucket-region": "eu-west-1"}
    with answering(status, xml(code), headers) as endpoint:
        store = s3_store(endpoint)
        for request in (
            store.check,
            lambda: store.head("key"),
            lambda: store.read("key"),
            lambda: store.write("key", b"x"),
            lambda: list(store.list("")),
            lambda: store.delete("key"),
            lambda: store.upload(tmp_path / "file", "key", {}),
        ):
            with pytest.raises(errors.StoreError, match=r"bucket.*" + code) as caught:
                request()
            assert type(caught.value) is kind
            assert type(pickle.loads(pickle.dumps(caught.value))) is kind
        with pytest.raises(kind):
            S3Storage(
                S3Configurations("bucket", "", endpoint_url=endpoint, local_cache_dir=tmp_path)
            )


def test_s3_says_not_found_only_for_that() -> None:
    with answering(404, xml("NoSuchKey"), {"Content-Type": "application/xml"}) as endpoint:
        store = s3_store(endpoint)
        assert store.head("key") is None
        assert store.read("key") is None


GCS_ANSWERS: list[tuple[int, str, type[errors.StoreError]]] = [
    (403, "forbidden", errors.AccessDeniedError),
    (403, "userRateLimitExceeded", errors.ThrottledError),
    (401, "authError", errors.CredentialsError),
    (429, "rateLimitExceeded", errors.ThrottledError),
    (500, "backendError", errors.StoreUnavailableError),
    (503, "backendError", errors.StoreUnavailableError),
    (501, "notImplemented", errors.UnsafeStoreError),
    (400, "invalid", errors.StoreError),
]


def gcs_store(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> GCSStore:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
    return GCSStore(GCSConfigurations("bucket", "data", project="p"))


def told(status: int, reason: str) -> str:
    error = {"code": status, "message": reason, "errors": [{"reason": reason, "message": reason}]}
    return json.dumps({"error": error})


@pytest.mark.parametrize(("status", "reason", "kind"), GCS_ANSWERS, ids=str)
def test_gcs(
    status: int,
    reason: str,
    kind: type[errors.StoreError],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    answer = {"Content-Type": "application/json"}
    with answering(status, told(status, reason), answer) as endpoint:
        store = gcs_store(monkeypatch, endpoint)
        for request in (
            store.check,
            lambda: store.head("key"),
            lambda: store.read("key"),
            lambda: store.write("key", b"x"),
            lambda: list(store.list("")),
            lambda: store.delete("key"),
            lambda: store.upload(tmp_path / "file", "key", {}),
        ):
            with pytest.raises(errors.StoreError, match="bucket") as caught:
                request()
            assert type(caught.value) is kind, request
            assert type(pickle.loads(pickle.dumps(caught.value))) is kind


def test_gcs_without_a_bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"Content-Type": "application/json"}
    (tmp_path / "file").write_bytes(b"x" * 100)
    with answering(404, told(404, "notFound"), answer) as endpoint:
        store = gcs_store(monkeypatch, endpoint)
        for request in (
            store.check,
            lambda: store.head("key"),
            lambda: store.write("key", b"x"),
            lambda: list(store.list("")),
            lambda: store.upload(tmp_path / "file", "key", {}),
        ):
            with pytest.raises(errors.BucketNotFoundError):
                request()
        with pytest.raises(FileNotFoundError):
            GCSStorage(GCSConfigurations("bucket", "", local_cache_dir=tmp_path))


def test_nobody_listens(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, "", {}) as endpoint:
        pass
    with pytest.raises(errors.NetworkError, match="connection"):
        s3_store(endpoint).head("key")
    store = gcs_store(monkeypatch, endpoint)
    with pytest.raises(ConnectionError):
        store.head("key")


def test_no_credentials(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(errors.CredentialsError, match="credentials"):
        S3Store(S3Configurations("bucket", "data")).head("key")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(PermissionError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        GCSStore(GCSConfigurations("bucket", "data", project="p")).head("key")
