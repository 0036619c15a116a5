"""The server's side of one connection. Imports websockets."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any, Protocol

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from yogadl.rw_coordinator._keep_alive import set_keep_alive
from yogadl.rw_coordinator._request import LockRequest

# How long a closing handshake may take. The lock is given back at its beginning.
CLOSE_SECONDS = 1.0

# A client that reads nothing must not fill up memory with answers to its own pings.
_MOST_UNSENT = 64 * 1024
# 0.1.4's client reads nothing while it holds a lock. What is sent meanwhile stays in its kernel's
# buffer, some 64 KiB; if that were full, this side's kernel would take the connection for dead. One
# pong has 2 bytes, 24 with TLS. At the default time-out, these are enough for 22 hours.
_MOST_UNREAD = 2_000

_log = logging.getLogger("yogadl.rw_coordinator")


class Owner(Protocol):
    """Who is told about connections."""

    def accepting(self, task: asyncio.Task[Any] | None) -> None:
        """A task accepts a connection; with TLS, that takes until the end of its handshake."""

    def opened(self, connection: LockSession) -> None:
        """There is a connection, with nothing sent on it yet."""

    def ended(self, connection: LockSession) -> None:
        """Its lock is to be given back; may be called more than once."""

    def closed(self, connection: LockSession) -> None:
        """There is no connection any more."""


class LockSession(ServerConnection):
    """A connection that asks for a lock, or holds it.

    Attributes:
        lock_request: what it asks for, once the request was read and found to be good.
        granted: done when the lock is held.
        since: when it was granted, on the monotonic clock.

    Args:
        owner: of all connections.
        client_timeout: for how long a client may be unreachable.
    """

    def __init__(
        self, *arguments: Any, owner: Owner, client_timeout: float, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.lock_request: LockRequest | None = None
        self.granted: asyncio.Future[None] = self.loop.create_future()
        self.since = 0.0
        self._owner = owner
        self._client_timeout = client_timeout
        self._in_request_line = True
        owner.accepting(asyncio.current_task())

    def __repr__(self) -> str:
        return f"<{self.lock_request} for {self.peer}>"

    @property
    def peer(self) -> str:
        """The client's address."""
        address = self.remote_address
        if not isinstance(address, tuple):
            return "?"
        return f"{str(address[0]).removeprefix('::ffff:')}:{address[1]}"

    def grant(self) -> None:
        """The lock is held from now on."""
        self.since = time.monotonic()
        self.granted.set_result(None)

    def give_up(self) -> None:
        """Takes the client for dead."""
        _log.warning("%s has not answered for %g s", self.peer, self._client_timeout)
        self._owner.ended(self)
        self.transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        super().connection_made(transport)
        set_keep_alive(transport.get_extra_info("socket"), self._client_timeout)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        super().data_received(self._quoted(data) if self._in_request_line else data)
        if self.state is State.CLOSING:
            # The client has said that it is done. It need not be waited for, but not for ever.
            self._owner.ended(self)
            self.loop.call_later(CLOSE_SECONDS, self.transport.abort)
        elif self.transport.get_write_buffer_size() > _MOST_UNSENT:
            self.transport.abort()

    def eof_received(self) -> None:
        """See ``asyncio.Protocol``."""
        super().eof_received()
        self._owner.ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        super().connection_lost(exc)
        self._owner.ended(self)
        self._owner.closed(self)

    def _quoted(self, data: bytes) -> bytes:
        """Quotes what is not ASCII in the request line: 0.1.4 sends paths as they are."""
        line, newline, rest = data.partition(b"\n")
        self._in_request_line = not newline
        return re.sub(rb"[\x80-\xff]", lambda found: b"%%%02X" % found[0][0], line) + newline + rest


async def speak(connection: LockSession, client_timeout: float) -> None:
    """Says all that there is to say to a client: that the lock is held, and now and then a ping.

    Pings keep proxies from closing the connection. Only a client that promised to answer them is
    taken for dead if it does not. Runs until it is cancelled or the connection is closed.
    """
    assert connection.lock_request is not None
    interval = client_timeout / 3
    ping = _strict_ping if connection.lock_request.answers_pings else _Lenient().ping
    told = False
    try:
        while True:
            if told:
                await asyncio.sleep(interval)
            else:
                await asyncio.wait({connection.granted}, timeout=interval)
                if connection.granted.done():
                    await connection.send(connection.lock_request.granted)
                    told = True
                    continue
            await ping(connection, client_timeout - interval)
    except ConnectionClosed:
        return  # its lock is given back by whoever noticed


async def _ping(connection: LockSession) -> asyncio.Future[float]:
    pong = asyncio.ensure_future(await connection.ping())
    # Or else asyncio complains that nobody asked why there was no answer.
    pong.add_done_callback(lambda done: done.cancelled() or done.exception())
    return pong


async def _strict_ping(connection: LockSession, seconds: float) -> None:
    pong = await _ping(connection)
    # Not wait_for, which prefers the time-out when this process was stopped and both are there.
    await asyncio.wait({pong}, timeout=seconds)
    if not pong.done():
        connection.give_up()


class _Lenient:
    """Pings a client that need not answer."""

    def __init__(self) -> None:
        self._pong: asyncio.Future[float] | None = None
        self._unread = 0

    async def ping(self, connection: LockSession, _seconds: float) -> None:
        if self._pong is None or self._pong.done():
            self._pong = await _ping(connection)
            self._unread = 0
        elif self._unread < _MOST_UNREAD:
            # Pings without an answer would be remembered; a pong nobody asked for is not.
            await connection.pong()
            self._unread += 1
