"""TLS: whom the client trusts, and whom the server lets in."""

from __future__ import annotations

import pathlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest
from lock_rig import PLACE, RunningServer

from yogadl.errors import CoordinatorUnreachableError, InvalidArgumentError
from yogadl.rw_coordinator import RwCoordinatorClient

trustme = pytest.importorskip("trustme")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: pathlib.Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def _context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[RunningServer]:
    with RunningServer(ssl_context=_context(authority, "127.0.0.1")) as running:
        yield running


def _client(
    server: RunningServer,
    skip_verify: bool = False,
    cert_file: str | None = None,
    cert_name: str | None = None,
    connect_timeout: float = 3.0,
    **options: str | None,
) -> RwCoordinatorClient:
    url = f"wss://127.0.0.1:{server.port}"
    return RwCoordinatorClient(
        url, skip_verify, cert_file, cert_name, connect_timeout=connect_timeout, **options
    )


def _acquire(client: RwCoordinatorClient) -> None:
    with client.write_lock(*PLACE) as held:
        held.check()


def test_own_authority(secure: RunningServer, ca_file: str) -> None:
    _acquire(_client(secure, cert_file=ca_file))


def test_unknown_authority(secure: RunningServer, tmp_path: pathlib.Path) -> None:
    began = time.monotonic()
    with pytest.raises(CoordinatorUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        _acquire(_client(secure, connect_timeout=30.0))
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        _acquire(_client(secure, cert_file=str(other), connect_timeout=30.0))
    assert time.monotonic() - began < 15, "trying again would not help"


def test_names(authority: trustme.CA, ca_file: str) -> None:
    with RunningServer(ssl_context=_context(authority, "locks.example")) as server:
        with pytest.raises(CoordinatorUnreachableError, match=r"127\.0\.0\.1"):
            _acquire(_client(server, cert_file=ca_file))
        with pytest.raises(CoordinatorUnreachableError, match=r"other\.example"):
            _acquire(_client(server, cert_file=ca_file, cert_name="other.example"))
        _acquire(_client(server, cert_file=ca_file, cert_name="locks.example"))


def test_skip_verify_skips_both(authority: trustme.CA) -> None:
    with RunningServer(ssl_context=_context(authority, "locks.example")) as server:
        _acquire(_client(server, skip_verify=True))
        _acquire(_client(server, skip_verify=True, cert_name="other.example"))


@pytest.mark.parametrize("separate", [True, False])
def test_client_certificates(
    authority: trustme.CA, ca_file: str, tmp_path: pathlib.Path, separate: bool
) -> None:
    context = _context(authority, "127.0.0.1")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    issued = authority.issue_cert("client@example.org")
    both, chain, key = tmp_path / "both.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(both)
    issued.cert_chain_pems[0].write_to_path(chain)
    issued.private_key_pem.write_to_path(key)
    files = (
        {"client_cert": str(chain), "client_key": str(key)}
        if separate
        else {"client_cert": str(both)}
    )
    with RunningServer(ssl_context=context) as server:
        _acquire(_client(server, cert_file=ca_file, **files))
        with pytest.raises(CoordinatorUnreachableError):
            _acquire(_client(server, cert_file=ca_file))


def test_files_that_cannot_be_used(secure: RunningServer, tmp_path: pathlib.Path) -> None:
    missing, empty = str(tmp_path / "missing.pem"), tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(InvalidArgumentError, match=r"missing\.pem"):
        _acquire(_client(secure, cert_file=missing))
    with pytest.raises(InvalidArgumentError, match=r"empty\.pem"):
        _acquire(_client(secure, cert_file=str(empty)))
    with pytest.raises(InvalidArgumentError, match=r"missing\.pem"):
        _acquire(_client(secure, skip_verify=True, client_cert=missing))


def test_tls_where_there_is_none(server: RunningServer) -> None:
    with pytest.raises(CoordinatorUnreachableError):
        _acquire(_client(server, skip_verify=True))


def test_no_tls_where_there_is(secure: RunningServer) -> None:
    with pytest.raises(CoordinatorUnreachableError):
        _acquire(RwCoordinatorClient(f"ws://127.0.0.1:{secure.port}", connect_timeout=0.5))


def test_stopping_with_tls(secure: RunningServer, ca_file: str) -> None:
    mute = socket.create_connection(("127.0.0.1", secure.port))
    # Connections are accepted in turn, so that one is by now.
    held = _client(secure, cert_file=ca_file).acquire(*PLACE, read_lock=False)
    held.check()
    began = time.monotonic()
    secure.stop()
    assert mute.recv(1) == b"", "closed, though its handshake had not begun"
    mute.close()
    assert time.monotonic() - began < 5
    held.close()
