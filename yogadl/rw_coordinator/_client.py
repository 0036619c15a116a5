"""The lock server's client."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pathlib
import random
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from yogadl.errors import CoordinatorUnreachableError, InvalidArgumentError, LockError
from yogadl.extras import require
from yogadl.redaction import without_password
from yogadl.rw_coordinator._held_lock import HeldLock
from yogadl.rw_coordinator._request import LockRequest, find_secret, make_request

if TYPE_CHECKING:
    from yogadl.rw_coordinator._client_connection import LockConnection

DEFAULT_CONNECT_TIMEOUT = 30.0

_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# A connection that lasted for so long shows that the server works.
_GOOD_SECONDS = 5.0

_log = logging.getLogger("yogadl.rw_coordinator")


class RwCoordinatorClient:
    """Acquires locks from a lock server.

    It holds no connection itself: each lock has its own. It may be used by any number of threads,
    and after a fork. Its ``repr`` shows no secret.

    Args:
        url: of the server, ``ws://host:port`` or ``wss://host:port``.
        skip_verify: accept any certificate of the server, with any name.
        coordinator_cert_file: certificates to trust, instead of the system's.
        coordinator_cert_name: the name in the server's certificate, if it is not its host.
        client_cert: this client's certificate, for a server that asks for it.
        client_key: its key, if it is not in the same file.
        secret: what the server shares with its clients; the environment variable
            ``YOGADL_COORDINATOR_SECRET`` if ``None``.
        connect_timeout: for how many seconds to try to reach the server: at first, and again when
            it goes away while a lock is waited for.

    Raises:
        InvalidArgumentError: one of them cannot be right.
        MissingExtraError: websockets is not installed.
    """

    def __init__(
        self,
        url: str,
        skip_verify: bool = False,
        coordinator_cert_file: str | None = None,
        coordinator_cert_name: str | None = None,
        *,
        client_cert: str | None = None,
        client_key: str | None = None,
        secret: str | None = None,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
    ) -> None:
        require("websockets.sync.client", "coordinator")
        self._url = _checked_url(url)
        self._shown_url = without_password(self._url)
        self._is_secure = urllib.parse.urlsplit(url).scheme == "wss"
        if not 0 < connect_timeout < math.inf:
            raise InvalidArgumentError(
                f"connect_timeout must be a positive number of seconds, not {connect_timeout!r}"
            )
        if client_key is not None and client_cert is None:
            raise InvalidArgumentError("client_key needs the client_cert that it belongs to")
        self._skip_verify = skip_verify
        self._cert_file = coordinator_cert_file
        self._cert_name = coordinator_cert_name
        self._client_cert = client_cert
        self._client_key = client_key
        self._secret = find_secret(secret)
        self._connect_timeout = connect_timeout

    def __repr__(self) -> str:
        return f"RwCoordinatorClient({self._shown_url!r})"

    def __getstate__(self) -> dict[str, Any]:
        # No secret is pickled; where this is read, the environment has to have it.
        return {**self.__dict__, "_secret": None, "_url": self._shown_url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._secret = find_secret(None)

    def acquire(
        self,
        storage_type: str,
        bucket: str,
        cache_path: str | os.PathLike[str],
        *,
        read_lock: bool,
    ) -> HeldLock:
        """Waits for a lock, for however long others hold it. Can be interrupted.

        If the server goes away meanwhile, it is asked again as soon as it is back.

        Args:
            storage_type: with bucket and path, what to lock: any strings.
            bucket: see there.
            cache_path: see there.
            read_lock: a lock that others may have at the same time, rather than an exclusive one.

        Raises:
            CoordinatorUnreachableError: the server could not be reached for ``connect_timeout``
                seconds; a ``ConnectionError``.
            CredentialsError: it refused the secret.
            InvalidArgumentError: it refused the request, or a certificate cannot be read.
            LockError: it answered something else.
        """
        path = os.fspath(cache_path) if isinstance(cache_path, os.PathLike) else cache_path
        if isinstance(cache_path, pathlib.PurePath):
            path = cache_path.as_posix()
        request = make_request(storage_type, bucket, path, shared=read_lock)
        patience = _Patience(self._connect_timeout, self._shown_url)
        while True:
            held = self._ask(request, patience)
            if held is not None:
                return held

    @contextlib.contextmanager
    def read_lock(
        self, storage_type: str, bucket: str, cache_path: str | os.PathLike[str]
    ) -> Iterator[HeldLock]:
        """Holds a read lock; see :meth:`acquire`.

        Raises:
            LockLostError: at the end of the body, if the lock was lost meanwhile and the body did
                not raise anything itself.
        """
        with self._lock(storage_type, bucket, cache_path, read_lock=True) as held:
            yield held

    @contextlib.contextmanager
    def write_lock(
        self, storage_type: str, bucket: str, cache_path: str | os.PathLike[str]
    ) -> Iterator[HeldLock]:
        """Holds a write lock; see :meth:`read_lock`."""
        with self._lock(storage_type, bucket, cache_path, read_lock=False) as held:
            yield held

    @contextlib.contextmanager
    def _lock(
        self,
        storage_type: str,
        bucket: str,
        cache_path: str | os.PathLike[str],
        *,
        read_lock: bool,
    ) -> Iterator[HeldLock]:
        with self.acquire(storage_type, bucket, cache_path, read_lock=read_lock) as held:
            yield held
            if held.is_own:
                held.check()

    def _ask(self, request: LockRequest, patience: _Patience) -> HeldLock | None:
        """Asks for a lock and waits for it; ``None`` if the server went away."""
        connection = self._connect(request, patience)
        connected = time.monotonic()
        try:
            message = connection.wait_for_message()
            if message == request.granted:
                return HeldLock(connection, f"{request} of {self._shown_url}")
            if message is not None:
                raise LockError(
                    f"{self._shown_url} answered {message!r} instead of granting the {request}; "
                    "it is no lock server of yogadl, check the URL"
                )
        except BaseException:
            connection.close_socket()
            raise
        connection.close_socket()
        patience.worked_for(time.monotonic() - connected)
        patience.wait(f"the connection was lost while waiting for the {request}")
        return None

    def _connect(self, request: LockRequest, patience: _Patience) -> LockConnection:
        from yogadl.rw_coordinator._client_connection import TransientError, open_connection

        while True:
            try:
                connection = open_connection(
                    self._url + request.target,
                    ssl_context=self._ssl_context(),
                    server_name=self._cert_name,
                    secret=self._secret,
                    timeout=patience.left,
                )
            except TransientError as error:
                patience.wait(str(error))
            else:
                _log.debug("asking %s for the %s", self._shown_url, request)
                return connection

    def _ssl_context(self) -> ssl.SSLContext | None:
        if not self._is_secure:
            return None
        try:
            context = ssl.create_default_context(cafile=self._cert_file)
            if self._client_cert is not None:
                context.load_cert_chain(self._client_cert, self._client_key)
        except OSError as error:
            names = [self._cert_file, self._client_cert, self._client_key]
            raise InvalidArgumentError(
                f"a certificate cannot be used, of {[n for n in names if n]}: {error}"
            ) from error
        if self._skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _Patience:
    """For how long to go on trying, and how long to pause between attempts."""

    def __init__(self, seconds: float, url: str) -> None:
        self._seconds = seconds
        self._url = url
        self._pause = _SHORTEST_PAUSE
        self._until: float | None = None
        self._warned = False

    def worked_for(self, seconds: float) -> None:
        """There was a connection for so long, which does not count as trying."""
        if self._until is not None:
            self._until += seconds
        if seconds > _GOOD_SECONDS:
            self._pause, self._until, self._warned = _SHORTEST_PAUSE, None, False

    @property
    def left(self) -> float:
        """The seconds left; they count from when this is first asked."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        return max(_SHORTEST_PAUSE, self._until - now)

    def wait(self, reason: str) -> None:
        """Pauses before another attempt.

        Raises:
            CoordinatorUnreachableError: there have been enough.
        """
        if self.left <= _SHORTEST_PAUSE:
            raise CoordinatorUnreachableError(
                f"the lock server {self._url} could not be reached for {self._seconds:g} s "
                f"({reason}). Check that it runs, its address, whether it wants TLS or a client's "
                "certificate, and that no firewall is in between"
            )
        if not self._warned:
            self._warned = True
            _log.warning("cannot reach %s, trying again: %s", self._url, reason)
        # Many clients that lost the same server should not all come back at the same moment.
        time.sleep(min(self.left, self._pause * random.uniform(0.5, 1.0)))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _checked_url(url: str) -> str:
    """The URL without a slash at its end."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_good = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        is_good = False
    if not is_good or parts.query or parts.fragment:
        raise InvalidArgumentError(
            "url must be that of a lock server, ws://host:port or wss://host:port, without a query"
            f", not {without_password(str(url))!r}"
        )
    return url.rstrip("/")
