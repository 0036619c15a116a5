"""Every failure of a store is an error of its own, and only "not found" means not found."""

from __future__ import annotations

import gc
import http.client
import json
import pathlib
import pickle
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from answering import answering, requests_to, saying, slow_store
from faults import CUT, CUT_ANSWER, TRUNCATE, Fault

from yogadl import backoff, errors
from yogadl.storage import GCSConfigurations, GCSStorage, S3Configurations, S3Storage
from yogadl.storage._objects import gcs_errors, s3_errors
from yogadl.storage._objects.gcs_session import send_in_pieces
from yogadl.storage._objects.gcs_store import GCSStore
from yogadl.storage._objects.s3_store import S3Store

pytest.importorskip("boto3")
pytest.importorskip("google.cloud.storage")

import google.auth.exceptions
import requests
import urllib3

# Of Google's library, whose downloads leave the connection of an error to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:unclosed <socket\.socket.*127\.0\.0\.1:ResourceWarning"
)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries that end at once, and SDKs that know nothing of this machine."""
    soon = backoff.Limits(patience=0.1, fewest=2, first_pause=0.01, longest_pause=0.01)
    monkeypatch.setattr(backoff, "LIMITS", soon)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def xml(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>In words.</Message></Error>"


S3_ANSWERS: list[tuple[int, str, type[errors.StoreError]]] = [
    (404, "NoSuchBucket", errors.BucketNotFoundError),
    # Altered on its way, and so no word that something is not there.
    (404, "NoSuciKey", errors.NetworkError),
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
    # Of requests that make no condition.
    (412, "PreconditionFailed", errors.StoreError),
    (409, "ConditionalRequestConflict", errors.StoreError),
]


def s3_store(endpoint: str) -> S3Store:
    return S3Store(S3Configurations("bucket", "data", endpoint_url=endpoint))


@pytest.mark.parametrize(("status", "code", "kind"), S3_ANSWERS, ids=str)
def test_s3(status: int, code: str, kind: type[errors.StoreError], tmp_path: pathlib.Path) -> None:
    headers = {"Content-Type": "application/xml", "x-amz-bucket-region": "eu-west-1"}
    with answering(status, xml(code), headers) as endpoint:
        store = s3_store(endpoint)
        for name, request in requests_to(store, tmp_path).items():
            with pytest.raises(errors.StoreError, match=r"bucket.*" + code) as caught:
                request()
            assert type(caught.value) is kind, name
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
    (408, "timeout", errors.StoreUnavailableError),
    # Of requests that make no condition.
    (412, "conditionNotMet", errors.StoreError),
]


def gcs_store(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> GCSStore:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
    return GCSStore(GCSConfigurations("bucket", "data", project="p"))


def told(status: int, reason: str) -> str:
    error = {"code": status, "message": reason, "errors": [{"reason": reason, "message": reason}]}
    return json.dumps({"error": error})


@pytest.fixture
def collected() -> Iterator[None]:
    """Leaves no such connection to other tests."""
    yield
    gc.collect()


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("status", "reason", "kind"), GCS_ANSWERS, ids=str)
def test_gcs(
    status: int,
    reason: str,
    kind: type[errors.StoreError],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = {"Content-Type": "application/json"}
    with answering(status, told(status, reason), answer) as endpoint:
        store = gcs_store(monkeypatch, endpoint)
        for name, request in requests_to(store, tmp_path).items():
            with pytest.raises(errors.StoreError, match="bucket") as caught:
                request()
            assert type(caught.value) is kind, name
            assert type(pickle.loads(pickle.dumps(caught.value))) is kind


def test_gcs_without_a_bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"Content-Type": "application/json"}
    with answering(404, told(404, "notFound"), answer) as endpoint:
        store = gcs_store(monkeypatch, endpoint)
        ask = requests_to(store, tmp_path)
        for name in ("check", "head", "write", "list", "upload"):
            with pytest.raises(errors.BucketNotFoundError):
                ask[name]()
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


BROKEN: list[Exception] = [
    http.client.IncompleteRead(b"x", 5),
    http.client.BadStatusLine("?"),
    urllib3.exceptions.ProtocolError("Connection broken"),
    urllib3.exceptions.IncompleteRead(1, 5),
    urllib3.exceptions.ReadTimeoutError(None, "/", "Read timed out."),  # type: ignore[arg-type]
    ConnectionResetError(104, "Connection reset by peer"),
    TimeoutError("timed out"),
    ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
]
GOOGLES: list[Exception] = [
    requests.exceptions.ChunkedEncodingError("Connection broken"),
    requests.exceptions.ConnectionError("Read timed out."),
    requests.exceptions.ReadTimeout("Read timed out."),
    google.auth.exceptions.TransportError("refused"),
]


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("translate", [s3_errors.translate, gcs_errors.translate])
def test_broken_connections(translate: Any, error: Exception) -> None:
    failure = translate(error, "reading")
    assert type(failure) is errors.NetworkError
    assert failure.is_transient


@pytest.mark.parametrize("error", GOOGLES, ids=lambda error: type(error).__name__)
def test_googles_broken_connections(error: Exception) -> None:
    failure = gcs_errors.translate(error, "reading")
    assert type(failure) is errors.NetworkError
    assert failure.is_transient


@pytest.mark.parametrize("retryable", [False, True])
def test_googles_servers_of_tokens_may_fail_for_a_while(retryable: bool) -> None:
    error = google.auth.exceptions.RefreshError("503", retryable=retryable)
    failure = gcs_errors.translate(error, "reading")
    assert type(failure) is (errors.NetworkError if retryable else errors.CredentialsError)


def test_what_no_other_try_changes_is_said_at_once() -> None:
    refused = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")
    for translate in (s3_errors.translate, gcs_errors.translate):
        failure = translate(refused, "reading")
        assert failure is not None
        assert "certificate" in str(failure)
        assert not failure.is_transient
    failure = gcs_errors.translate(requests.exceptions.InvalidURL("http://:x"), "reading")
    assert failure is not None
    assert not failure.is_transient


@pytest.mark.parametrize("fault", [TRUNCATE, CUT_ANSWER, CUT], ids=str)
def test_a_range_that_breaks_off_can_be_tried_again(
    fault: Fault, rig: Any, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    storage = rig.make_storage(tmp_path)
    store = storage._store
    store.upload(tmp_path / "file", "key", {})
    with rig.failing(fault, "read"), pytest.raises(errors.NetworkError) as caught:
        store.read_range(store.head("key"), 0, 1 << 20, lambda _: None)
    assert caught.value.is_transient


@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_a_slow_upload_is_not_cut_while_bytes_move(
    dialect: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds altogether, with time-outs of one."""
    limits = backoff.Limits(patience=0.0, fewest=1, connect=1.0, answer=1.0)
    monkeypatch.setattr(backoff, "LIMITS", limits)
    (tmp_path / "file").write_bytes(bytes(8 << 20))
    made = json.dumps({"name": "key", "bucket": "bucket", "generation": "7"}).encode()
    answers = {"s3": ({"ETag": '"7"'}, b""), "gcs": ({"Content-Type": "application/json"}, made)}
    with slow_store(*answers[dialect]) as endpoint:
        store = s3_store(endpoint) if dialect == "s3" else gcs_store(monkeypatch, endpoint)
        assert store.upload(tmp_path / "file", "key", {}) == "7"


def test_no_option_is_given_that_an_older_urllib3_does_not_know() -> None:
    """What boto3 and requests take, 1.26 too, raises a ``TypeError`` for it."""
    url = "http://127.0.0.1:1"
    session = requests.Session()
    known = set(session.get_adapter(url).poolmanager.connection_pool_kw)
    send_in_pieces(session, url)
    assert set(session.get_adapter(url).poolmanager.connection_pool_kw) == known


OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 300\r\n"


@pytest.mark.parametrize(
    "said", [b"", OK, OK + b"Content-Ty", OK + LENGTH, OK + LENGTH + b"\r\n", OK + b"\r\n"], ids=str
)
@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_an_answer_that_is_cut_off_says_nothing(
    dialect: str, said: bytes, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Least of all that a bucket has no objects, though the SDKs make that of it."""
    with saying(said) as endpoint:
        store = s3_store(endpoint) if dialect == "s3" else gcs_store(monkeypatch, endpoint)
        ask = requests_to(store, tmp_path)
        for name in ("head", "read", "write", "list", "upload", "upload in parts"):
            with pytest.raises(errors.NetworkError):
                ask[name]()


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
