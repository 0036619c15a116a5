"""The client's side of one connection. Imports websockets."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import weakref
from typing import Any, cast

from websockets.exceptions import (
    ConnectionClosed,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from yogadl.errors import CoordinatorUnreachableError, CredentialsError, InvalidArgumentError
from yogadl.rw_coordinator._keep_alive import set_keep_alive
from yogadl.rw_coordinator._request import TIMEOUT_HEADER

# What 0.1.4's server does not say: it gives a client up 20 to 40 s after its last sign of life.
_OLD_SERVER_TIMEOUT = 30.0
_TIMEOUT_RANGE = (0.1, 86400.0)

_CLOSE_SECONDS = 5.0
_LARGEST_MESSAGE = 1024

_log = logging.getLogger("yogadl.rw_coordinator")
# websockets logs headers, and with them the secret, at the level DEBUG.
_wire_log = logging.getLogger("yogadl.rw_coordinator.websockets")
_wire_log.setLevel(logging.WARNING)

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    """Lets go of what a forked child inherited.

    A connection lives until the last process has closed it, so a child that outlives its parent
    would keep the parent's locks.
    """
    for inherited in list(_sockets):
        try:
            inherited.close()
        except OSError:
            _log.warning("a connection to the lock server was not closed", exc_info=True)
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class TransientError(Exception):
    """The server could not be reached this time."""


class LockConnection(ClientConnection):
    """A connection to a lock server. A thread of its own reads from it and answers pings."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        _sockets.add(sock)
        super().__init__(sock, *arguments, **options)

    @property
    def silence(self) -> float:
        """For how many seconds the server may be silent before the lock must be taken for lost.

        A sixth before a ping and this, which is a third, come to half of the server's time-out,
        and it begins to count two thirds before it lets anybody else have the lock.
        """
        return self._server_timeout / 3

    def set_keep_alive(self) -> None:
        """Has the kernel notice a server that vanished, though nobody asks for it."""
        if isinstance(self.socket, socket.socket):  # it is no real one within a TLS proxy
            set_keep_alive(self.socket, self._server_timeout / 2)

    @property
    def _server_timeout(self) -> float:
        said = None if self.response is None else self.response.headers.get(TIMEOUT_HEADER)
        try:
            timeout = _OLD_SERVER_TIMEOUT if said is None else float(said)
        except ValueError:
            timeout = _OLD_SERVER_TIMEOUT
        shortest, longest = _TIMEOUT_RANGE
        return timeout if shortest <= timeout <= longest else _OLD_SERVER_TIMEOUT

    def is_answered(self) -> bool:
        """Whether the server answers, now, and on this connection."""
        try:
            answered = self.ping(ack_on_close=True).wait(self.silence)
        except ConnectionClosed:
            return False
        return answered and self.state is State.OPEN

    def wait_for_message(self) -> str | bytes | None:
        """Waits, for however long it takes, for what the server says.

        Returns:
            Its message; ``None`` if the connection was lost.
        """
        while True:
            try:
                return self.recv(timeout=self.silence / 2)
            except TimeoutError:
                if not self.is_answered():
                    return None
            except ConnectionClosed:
                return None


def open_connection(
    url: str,
    *,
    ssl_context: ssl.SSLContext | None,
    server_name: str | None,
    secret: str | None,
    timeout: float,
) -> LockConnection:
    """Connects to a lock server and asks for a lock.

    Args:
        url: with path and query.
        ssl_context: for ``wss://``.
        server_name: the name in the server's certificate, if it is not its host.
        secret: what to prove oneself with.
        timeout: seconds until the server must have answered.

    Raises:
        TransientError: it may succeed later.
        CoordinatorUnreachableError: it will not.
        CredentialsError: the server refused the secret.
        InvalidArgumentError: the server does not accept the request.
    """
    made: list[LockConnection] = []

    def make(*arguments: Any, **options: Any) -> LockConnection:
        made.append(LockConnection(*arguments, **options))
        return made[-1]

    tls = {} if ssl_context is None else {"ssl": ssl_context, "server_hostname": server_name}
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    try:
        manager: Any = connect(
            url,
            create_connection=cast(Any, make),
            compression=None,
            additional_headers=headers,
            open_timeout=timeout,
            ping_interval=None,  # is_answered asks when somebody wants to know
            close_timeout=_CLOSE_SECONDS,
            max_size=_LARGEST_MESSAGE,
            logger=_wire_log,
            **cast(Any, tls),
        )
        connection = cast(LockConnection, manager.__enter__())
        connection.set_keep_alive()
        return connection
    except (OSError, WebSocketException, EOFError, UnicodeError) as error:
        lost = [getattr(c, "connection_exc", None) or getattr(c, "recv_exc", None) for c in made]
        raise _explained(error, next(filter(None, lost), None)) from error
    except BaseException:
        # Interrupted: or else the thread would go on, and hold what the server grants.
        for connection in made:
            connection.close_socket()
        raise


def _explained(error: Exception, lost: BaseException | None) -> Exception:
    """What a failed attempt to connect means for the caller."""
    if isinstance(error, InvalidURI):
        return InvalidArgumentError(f"the lock server's URL is not valid: {error.msg}")
    if isinstance(error, UnicodeError):
        return InvalidArgumentError(f"the lock server's name is not valid: {error}")
    if isinstance(error, InvalidStatus):
        return _refused(error)
    for failure in (error, lost):
        if isinstance(failure, ssl.SSLError) and not isinstance(
            failure, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            return CoordinatorUnreachableError(
                f"the lock server and this client cannot agree on TLS: {failure}. Check the "
                "certificates, their names, and whether the URL begins with ws:// or wss:// rightly"
            )
    told = "" if lost is None else f" ({lost})"
    return TransientError(f"{type(error).__name__}: {error}{told}")


def _refused(error: InvalidStatus) -> Exception:
    status = error.response.status_code
    body = (error.response.body or b"").decode("utf-8", "replace").strip()[:500]
    if status in (401, 403):
        return CredentialsError(
            f"the lock server refused this client ({status}: {body}). Give the secret that it was "
            "started with, as an argument or in YOGADL_COORDINATOR_SECRET"
        )
    if status in (400, 414):
        return InvalidArgumentError(f"the lock server refused the request ({status}: {body})")
    if status == 429 or status >= 500:
        return TransientError(f"it answered {status}: {body}")
    return CoordinatorUnreachableError(
        f"what answered is no lock server ({status}: {body}). Check the URL"
    )
