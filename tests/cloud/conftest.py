"""Stores for tests: real servers on loopback, a fresh bucket for each test."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import pathlib
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from rig import Rig
from servers import Server, gcs_server, s3_server

from yogadl import backoff

_USERS = (
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_API_USE_CLIENT_CERTIFICATE",
)


# Google's library leaves the connection open when a download is answered with an error, until the
# garbage collector finds it.
_UNCLOSED = r"ignore:unclosed <socket\.socket.*127\.0\.0\.1:ResourceWarning"


def pytest_configure(config: pytest.Config) -> None:
    # TensorFlow brings grpcio alone, which Google's library complains of when it is imported.
    ignored = "ignore:Please install grpcio-status:ImportWarning"
    config.addinivalue_line("filterwarnings", ignored)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"gcs", "rig"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.filterwarnings(_UNCLOSED))


@pytest.fixture(scope="session", autouse=True)
def _services_are_read_once() -> Iterator[None]:
    """What boto3 has to know of S3 takes it half of the time that it takes to make a client, of
    which tests make thousands."""
    loaders = pytest.importorskip("botocore.loaders")
    read = functools.cache(loaders.JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaders.JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


@pytest.fixture(scope="session")
def moto() -> Iterator[Server]:
    """A server of S3, one for each worker of the tests."""
    pytest.importorskip("boto3")
    pytest.importorskip("moto")
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def emulator() -> Iterator[Server]:
    """A server of Google Cloud Storage, one for each worker of the tests."""
    pytest.importorskip("google.cloud.storage")
    pytest.importorskip("gcp_storage_emulator")
    with gcs_server() as server:
        yield server


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the user has set for the SDKs."""
    for name in _USERS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def s3(moto: Server, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A fresh bucket of S3; see ``Rig``."""
    yield from _rig(Rig("s3", moto, f"bucket-{uuid.uuid4().hex}"), monkeypatch)


@pytest.fixture
def gcs(
    emulator: Server, clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    """A fresh bucket of Google Cloud Storage; see ``Rig``."""
    yield from _rig(Rig("gcs", emulator, f"bucket-{uuid.uuid4().hex}"), monkeypatch)
    # While this test's filter of warnings holds.
    gc.collect()


@pytest.fixture(params=["s3", "gcs"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """A fresh bucket of each provider in turn."""
    found: Rig = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def local(tmp_path: pathlib.Path) -> pathlib.Path:
    """A local cache directory."""
    directory = tmp_path / "local"
    directory.mkdir()
    return directory


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path) -> pathlib.Path:
    """The local cache directory of another machine."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    return directory


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly any wait between tries, and not for minutes in all. For this process."""
    quick = backoff.Limits(patience=5.0, first_pause=0.01, longest_pause=0.05)
    monkeypatch.setattr(backoff, "LIMITS", quick)


@pytest.fixture
def lock_server() -> Iterator[str]:
    """The address of a lock server."""
    with _lock_server() as address:
        yield address


@pytest.fixture
def impatient_lock_server() -> Iterator[str]:
    """The address of one that takes a client for dead that says nothing for two seconds."""
    with _lock_server(client_timeout=2.0) as address:
        yield address


@contextlib.contextmanager
def _lock_server(**options: Any) -> Iterator[str]:
    pytest.importorskip("websockets")
    from yogadl.rw_coordinator import RwCoordinatorServer

    server = RwCoordinatorServer("127.0.0.1", 0, **options)
    loop = asyncio.new_event_loop()
    listens = threading.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(server.run_server())
        listens.set()
        loop.run_forever()

    thread = threading.Thread(target=run, name="lock server")
    thread.start()
    try:
        assert listens.wait(30)
        yield f"ws://127.0.0.1:{server.port}"
    finally:
        server.stop_server()
        thread.join(30)
        loop.close()


def _rig(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    for name, value in rig.env.items():
        monkeypatch.setenv(name, value)
    try:
        yield rig
    finally:
        rig.close()
