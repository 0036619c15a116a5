"""No secret is shown, logged or pickled."""

from __future__ import annotations

import logging
import pathlib
import pickle
from typing import Any

import pytest

from yogadl.errors import CredentialsError, InvalidArgumentError
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
    given = GCSConfigurations("bucket", "data", "wss://user:secret@host:1/x")
    assert "secret" not in repr(given)
    assert "host:1/x" in repr(given)


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
        {"lease_seconds": 0.1},
        {"lease_seconds": float("nan")},
        {"lease_seconds": 1e9},
    ],
)
def test_what_cannot_be_right_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        S3Configurations(**{"bucket": "b", "bucket_directory_path": "", **wrong})
