"""The lock server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hmac
import json
import logging
import math
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, cast

from yogadl._version import __version__
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.rw_coordinator._lock_table import LockTable
from yogadl.rw_coordinator._request import TIMEOUT_HEADER, find_secret, parse_target

if TYPE_CHECKING:
    from websockets.asyncio.server import Server
    from websockets.http11 import Request, Response

    from yogadl.rw_coordinator._server_connection import LockSession

DEFAULT_CLIENT_TIMEOUT = 120.0

_OPEN_SECONDS = 10.0
_BACKLOG = 1024
_LARGEST_MESSAGE = 1024  # clients have nothing to say
_TRIES = 10
_GRACE_SECONDS = 0.2
_POLL_SECONDS = 0.005

_log = logging.getLogger("yogadl.rw_coordinator")
# websockets logs headers, and with them the secret, at the level DEBUG.
_wire_log = logging.getLogger("yogadl.rw_coordinator.websockets")
_wire_log.setLevel(logging.WARNING)


class RwCoordinatorServer:
    """Grants read and write locks to the clients that connect to it.

    A lock is given back when its connection ends, in whatever way. All locks are kept in memory, so
    there must be one server for all who share resources; when it stops, all locks are lost.

    Its ``repr`` shows no secret.

    Args:
        hostname: the interface to listen on, or ``None`` for all.
        port: ``None`` or 0 for any that is free; see :attr:`port`.
        ssl_context: for TLS.
        secret: what clients must know; the environment variable ``YOGADL_COORDINATOR_SECRET`` if
            ``None``. If that is not set either, everybody is let in.
        client_timeout: seconds after which a client that vanished without a word loses its lock.

    Raises:
        InvalidArgumentError: one of them cannot be right.
        MissingExtraError: websockets is not installed.
    """

    def __init__(
        self,
        hostname: str | None = None,
        port: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        *,
        secret: str | None = None,
        client_timeout: float = DEFAULT_CLIENT_TIMEOUT,
    ) -> None:
        require("websockets.asyncio.server", "coordinator")
        if not 0 < client_timeout < math.inf:
            raise InvalidArgumentError(
                f"client_timeout must be a positive number of seconds, not {client_timeout!r}"
            )
        found = find_secret(secret)
        self._hostname = hostname
        self._wanted_port = port or 0
        self._ssl_context = ssl_context
        self._authorization = None if found is None else f"Bearer {found}".encode()
        self._client_timeout = float(client_timeout)
        self._table: LockTable[LockSession] = LockTable()
        # Those that asked for a lock; and all, also those that have not asked yet.
        self._clients: set[LockSession] = set()
        self._connections: set[LockSession] = set()
        self._accepting: set[asyncio.Task[Any]] = set()
        self._server: Server | None = None
        self._port: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stop_mutex = threading.Lock()
        self._started = 0.0

    def __repr__(self) -> str:
        state = "stopped" if self._server is None else "listening"
        return f"<RwCoordinatorServer {self.url}, {state}>"

    @property
    def port(self) -> int | None:
        """The port it listens on, or listened on; ``None`` if it was never started."""
        return self._port

    @property
    def url(self) -> str:
        """What a client on the same machine may connect to."""
        host = self._hostname or "0.0.0.0"  # noqa: S104 # to be read
        host = f"[{host}]" if ":" in host else host
        scheme = "ws" if self._ssl_context is None else "wss"
        return f"{scheme}://{host}:{self._port or self._wanted_port}"

    # Starting and stopping

    async def run_server(self) -> None:
        """Starts to listen, on the running event loop, and returns.

        Raises:
            InvalidArgumentError: it is listening already.
            OSError: the port is in use, or there is no such interface.
        """
        if self._server is not None:
            raise InvalidArgumentError(f"{self!r} cannot be started again before it is stopped")
        self._loop = asyncio.get_running_loop()
        self._closing = None
        self._server = await self._listen()
        self._port = _ports(self._server)[0]
        self._started = time.monotonic()
        _log.info("listening on %s", self.url)

    async def close(self) -> None:
        """Stops listening, closes all connections and waits for that. May be called twice.

        Clients that do not react are cut off after a second.
        """
        if self._closing is None and self._server is not None:
            self._closing = asyncio.ensure_future(self._close(self._server))
        if self._closing is not None:
            await asyncio.shield(self._closing)

    def stop_server(self) -> None:
        """Closes the server, stops its event loop, and returns when that is done.

        It may be called from any thread, whether the loop runs or not, and twice. Called from
        within the running loop, it cannot wait, and returns at once; use :meth:`close` there.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if _is_running_here(loop):
            self._stopping = asyncio.ensure_future(self.close())
            self._stopping.add_done_callback(lambda _: loop.stop())
            return
        with self._stop_mutex:
            # Whoever runs the loop may be between starting the server and running for ever.
            deadline = time.monotonic() + _GRACE_SECONDS
            while self._server and not loop.is_running() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            if loop.is_running():
                self._stop_elsewhere(loop)
            if self._server is not None and not loop.is_closed():
                loop.run_until_complete(self.close())

    def _stop_elsewhere(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes the server in a loop that another thread runs, and stops that."""
        closed = asyncio.run_coroutine_threadsafe(self.close(), loop)
        while loop.is_running() and not closed.done():
            time.sleep(_POLL_SECONDS)
        with contextlib.suppress(RuntimeError):  # it was closed meanwhile
            loop.call_soon_threadsafe(loop.stop)
        while loop.is_running():
            time.sleep(_POLL_SECONDS)

    async def _listen(self) -> Server:
        server = await self._serve(self._wanted_port)
        for _ in range(_TRIES):
            ports = _ports(server)
            if len(set(ports)) == 1:
                return server
            # One free port for each address family: ask for the same one on all.
            server.close()
            await server.wait_closed()
            try:
                server = await self._serve(ports[0])
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                server = await self._serve(self._wanted_port)
        raise OSError(errno.EADDRINUSE, "no port is free on all addresses")

    async def _serve(self, port: int) -> Server:
        from websockets.asyncio.server import serve

        from yogadl.rw_coordinator import _server_connection

        factory = functools.partial(
            _server_connection.LockSession, owner=self, client_timeout=self._client_timeout
        )
        return await serve(
            cast(Any, self._handle),
            self._hostname,
            port,
            ssl=self._ssl_context,
            process_request=cast(Any, self._check_request),
            process_response=cast(Any, self._add_timeout),
            create_connection=cast(Any, factory),
            compression=None,
            open_timeout=_OPEN_SECONDS,
            ping_interval=None,
            close_timeout=_server_connection.CLOSE_SECONDS,
            max_size=_LARGEST_MESSAGE,
            logger=_wire_log,
            backlog=_BACKLOG,
        )

    async def _close(self, server: Server) -> None:
        from yogadl.rw_coordinator._server_connection import CLOSE_SECONDS

        # Those that have not said anything yet would be waited for, or stay when the loop ends.
        for task in self._accepting:
            task.cancel()
        for connection in self._connections - self._clients:
            connection.transport.abort()
        server.close()
        closed = asyncio.ensure_future(server.wait_closed())
        await asyncio.wait({closed}, timeout=CLOSE_SECONDS)
        for connection in list(self._connections):
            connection.transport.abort()
        await asyncio.wait({closed, *self._accepting})
        self._server = None
        _log.info("stopped listening on %s", self.url)

    # Requests

    def _check_request(self, connection: LockSession, request: Request) -> Response | None:
        """Answers what is no good request for a lock."""
        if request.path.partition("?")[0] == "/health":
            response = connection.respond(200, json.dumps(self._health()) + "\n")
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        if not self._is_authorized(request):
            _log.warning("%s was refused: no secret, or a wrong one", connection.peer)
            response = connection.respond(401, "The lock server's secret is missing or wrong.\n")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        try:
            connection.lock_request = parse_target(request.path)
        except InvalidArgumentError as error:
            _log.warning("%s was refused: %s", connection.peer, error)
            return connection.respond(400, f"This is no request for a lock: {error}.\n")
        return None

    def _is_authorized(self, request: Request) -> bool:
        if self._authorization is None:
            return True
        given = request.headers.get_all("Authorization")
        return len(given) == 1 and hmac.compare_digest(
            given[0].encode("utf-8", "surrogateescape"), self._authorization
        )

    def _add_timeout(self, _: LockSession, __: Request, response: Response) -> None:
        if response.status_code == 101:
            response.headers[TIMEOUT_HEADER] = f"{self._client_timeout:g}"

    def _health(self) -> dict[str, Any]:
        counts = self._table.counts()
        return {
            "status": "ok",
            "connections": len(self._clients),
            "read_locks": counts.read,
            "write_locks": counts.write,
            "waiting": counts.waiting,
            "uptime_seconds": round(time.monotonic() - self._started, 3),
            "version": __version__,
        }

    # Locks

    async def _handle(self, connection: LockSession) -> None:
        """One connection, from the end of the handshake on."""
        from websockets.exceptions import ConnectionClosed
        from websockets.protocol import State

        from yogadl.rw_coordinator._server_connection import speak

        request = connection.lock_request
        assert request is not None
        if connection.state is not State.OPEN or self._closing is not None:
            return
        self._clients.add(connection)
        self._grant(self._table.request(request.resource, connection, shared=request.shared))
        if not connection.granted.done():
            _log.info("%s waits for the %s", connection.peer, request)
        speaking = asyncio.ensure_future(speak(connection, self._client_timeout))
        try:
            async for _ in connection:
                pass  # messages mean nothing, but must be read for the end to be seen
        except ConnectionClosed:
            pass  # in whatever way
        finally:
            self.ended(connection)
            speaking.cancel()
            await asyncio.wait({speaking})

    def _grant(self, connections: list[LockSession]) -> None:
        for connection in connections:
            connection.grant()
            _log.info("%s has the %s", connection.peer, connection.lock_request)

    def accepting(self, task: asyncio.Task[Any] | None) -> None:
        """See ``Owner``."""
        if task is not None:
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def opened(self, connection: LockSession) -> None:
        """See ``Owner``."""
        self._connections.add(connection)

    def ended(self, connection: LockSession) -> None:
        """See ``Owner``."""
        if connection not in self._clients:
            return
        self._clients.discard(connection)
        request = connection.lock_request
        assert request is not None
        if connection.granted.done():
            seconds = time.monotonic() - connection.since
            _log.info("%s gave back the %s after %.1f s", connection.peer, request, seconds)
        else:
            _log.info("%s no longer waits for the %s", connection.peer, request)
        granted = self._table.release(request.resource, connection)
        # A server that stops cuts off everybody: nobody gets a lock that another has just lost.
        if self._closing is None:
            self._grant(granted)

    def closed(self, connection: LockSession) -> None:
        """See ``Owner``."""
        self._connections.discard(connection)


def _ports(server: Server) -> list[int]:
    return [sock.getsockname()[1] for sock in server.sockets]


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
