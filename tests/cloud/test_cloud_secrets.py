"""No secret is shown, logged or pickled."""

from __future__ import annotations

import logging
import pathlib
import pickle
import re
import time
import traceback
from typing import Any

import faults
import pytest
from answering import requests_to

from yogadl import backoff
from yogadl.errors import CredentialsError, InvalidArgumentError, StoreError
from yogadl.redaction import without_password, without_secrets
from yogadl.storage import GCSConfigurations, S3Configurations

SECRETS = {
    "access_key": "AKIDthisisasecret",
    "secret_key": "SKthisisasecret",
    "session_token": "STthisisasecret",
    "coordinator_secret": "CSthisisasecret",
}


def test_configurations_show_and_pickle_none(tmp_path: pathlib.Path) -> None:
    given = S3Configurations("bucket", "data", local_cache_dir=tmp_path, **SECRETS)  # type: ignore[arg-type]
    shown = repr(given) + str(given) + f"{given}"
    pickled = pickle.dumps(given)
    for name, secret in SECRETS.items():
        assert getattr(given, name) == secret
        assert secret not in shown
        assert secret.encode() not in pickled
    again = pickle.loads(pickled)
    assert (again.bucket, again.secret_key) == ("bucket", None)
    assert "never pickled" in again.hint
    assert given.hint == ""
    assert pickle.loads(pickle.dumps(again)).hint == again.hint


def test_a_url_with_a_password_is_not_shown() -> None:
    given = GCSConfigurations("bucket", "data", "wss://user:sesame@host:1/x")
    assert "sesame" not in repr(given)
    assert "host:1/x" in repr(given)
    stored = S3Configurations("bucket", "data", endpoint_url="https://user:sesame@host:2")
    for configurations in (given, stored):
        assert b"sesame" not in pickle.dumps(configurations)
        assert "never pickled" in pickle.loads(pickle.dumps(configurations)).hint
    with pytest.raises(InvalidArgumentError) as caught:
        GCSConfigurations("bucket", "data", "https://user:sesame@host:1/x")
    assert "sesame" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="host:2") as caught:
        S3Configurations("bucket", "data", endpoint_url="user:sesame@host:2")
    assert "sesame" not in str(caught.value)


def test_a_storage_goes_through_pickle_without_its_keys(
    s3: Any, storage_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG, logger="yogadl")
    keys = {name: SECRETS[name] for name in ("access_key", "secret_key")}
    storage = s3.make_storage(storage_dir, **keys)
    storage.submit([1, 2], "a", "1")
    pickled = pickle.dumps(storage)
    again = pickle.loads(pickled)
    assert len(again.fetch("a", "1")) == 2  # with the keys of the environment
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CredentialsError, match="pickled"):
        pickle.loads(pickled).fetch("a", "1")
    assert len(storage.fetch("a", "1")) == 2
    for secret in keys.values():
        assert secret not in repr(storage) + caplog.text
        assert secret.encode() not in pickled


@pytest.mark.parametrize(
    "wrong",
    [
        {"bucket": ""},
        {"bucket": None},
        {"url": "http://host"},
        {"endpoint_url": "host:9000"},
        {"endpoint_url": ""},
        {"endpoint_url": "http://"},
        {"endpoint_url": "https:///path"},
        {"endpoint_url": "http://["},
        {"lease_seconds": 0.1},
        {"lease_seconds": float("nan")},
        {"lease_seconds": 1e9},
    ],
)
def test_what_cannot_be_right_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        S3Configurations(**{"bucket": "b", "bucket_directory_path": "", **wrong})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(0.0, 2, 1.0, 1.0, 0.01, 0.01))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [faults.CUT, faults.ERROR_500, faults.FORBIDDEN], ids=str)
def test_errors_show_no_passwords(
    fault: Any, rig: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Nor do tracebacks of what they were raised from."""
    caplog.set_level(logging.INFO, logger="yogadl")
    address = rig.proxy.url.replace("://", "://me:sesame@")
    if rig.dialect == "s3":
        storage = rig.make_storage(tmp_path, endpoint_url=address)
    else:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        storage = rig.make_storage(tmp_path)
    store = storage._store
    told = repr(storage) + store.url
    ask = {**requests_to(store, tmp_path), "make": lambda: rig.make_storage(tmp_path)}
    for request in ask.values():
        with rig.failing(fault), pytest.raises(StoreError) as caught:
            request()
        told += "".join(traceback.format_exception(caught.value))
        assert pickle.dumps(caught.value).find(b"sesame") < 0
    assert "sesame" not in told + caplog.text
    assert b"sesame" not in pickle.dumps(storage)


@pytest.mark.usefixtures("impatient")
def test_an_upload_that_has_begun_is_not_shown(
    gcs: Any, tmp_path: pathlib.Path, caplog: Any
) -> None:
    """Whoever knows its address can go on with it."""
    caplog.set_level(logging.INFO, logger="yogadl")
    store = gcs.make_storage(tmp_path)._store
    with gcs.failing(faults.FORBIDDEN, "finish"), pytest.raises(StoreError) as caught:
        requests_to(store, tmp_path)["upload in parts"]()
    sent = [request for request in gcs.proxy.log if request.operation == "finish"]
    assert sent
    told = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "upload_id" in told
    assert sent[0].query["upload_id"] not in told


def test_texts_without_secrets() -> None:
    told = without_secrets(
        'Could not connect to "http://me:s1@host/b/k?x=1&X-Amz-Signature=s2&X-Amz-Credential=s3", '
        "proxy https://me:s4@host:3128, AWSAccessKeyId=s5 Authorization: Bearer s6s6s6s6.s6, "
        "a@b /path@1?upload_id=s7-_x and http://host/a@b"
    )
    assert re.search(r"s[1-7]", told) is None
    assert told.count("host") == 3
    assert "a@b /path@1" in told
    assert told.endswith("http://host/a@b")
    assert without_password("http://host/a@b") == "http://host/a@b"
    assert without_password("https://me@x:y@host:1/a@b") == "https://host:1/a@b"
    assert without_password("https://me:you@host/a@b") == "https://host/a@b"
    assert without_password("me:you@host") == "me:you@host"
    # Written as they are, such passwords make no good URL, and are none the less secret.
    for password in ("p/q", "p?q", "p#q", "1p/q@r"):
        assert without_password(f"ws://me:{password}@host:1/x") == "ws://host:1/x"
    for good in ("http://host:80/a@b", "http://[::1]:80/a@b", "http://[::1]/a:b@c"):
        assert without_password(good) == good


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "http://" + "x" * 10**6, "http://x:" + "a1" * 10**6, "a@" * 10**6]
)
def test_a_long_answer_of_a_store_is_soon_looked_through(text: str) -> None:
    began = time.monotonic()
    assert without_secrets(text) == without_password(text) == text
    assert time.monotonic() - began < 10
