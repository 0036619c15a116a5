"""Answers that do not drip for ever, nor begin for ever.

The time that a socket waits begins anew with each byte, so that a few bytes a second, of headers as
of anything else, would keep who reads them waiting without end. So would headers of which there is
no end, such as of answers that say that another one follows.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

from yogadl import backoff

_LEAST_BYTES = 8 << 10
"""That have to come in the time for which an answer is waited for. Many connections that share a
line of 1 Mbit/s bring several times as much; and what has come of one that ends is not lost."""
_MOST_HEADER_BYTES = 64 << 10
"""Of all headers of an answer, and of those before it; most have a hundredth."""


class Answer(http.client.HTTPResponse):
    """Ends as if it had broken off when nearly nothing comes any more."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        source = _Source(sock)
        super().__init__(source, *args, **options)  # type: ignore[arg-type] # asked for a file only
        self._incoming = source.incoming

    def begin(self) -> None:
        """Reads the headers."""
        super().begin()
        self._incoming.has_headers = True

    def _read_and_discard_trailer(self) -> None:
        # Of the headers behind what comes in chunks, there need be no end, either.
        self._incoming.expect_headers()
        super()._read_and_discard_trailer()  # type: ignore[misc] # not told of


class _Source:
    """What an answer takes from a socket.

    Args:
        connected: the socket.

    Attributes:
        incoming: what comes.
    """

    __slots__ = ("incoming",)

    def __init__(self, connected: socket.socket) -> None:
        self.incoming = _Incoming(connected.makefile("rb", buffering=0))

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What comes, to be read."""
        return io.BufferedReader(self.incoming)


class _Incoming(io.RawIOBase):
    """For one thread at a time.

    Args:
        raw: where it comes from.

    Attributes:
        has_headers: whether all headers have been read.
    """

    # There is one for each answer, most of which come at once: so much is theirs only if need be.
    has_headers = _has_begun = _is_over = False
    # Of the time that is measured: the seconds in which somebody waited, and what came.
    _waited = 0.0
    _came = 0

    def __init__(self, raw: socket.SocketIO) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def expect_headers(self) -> None:
        """To be called when more of them follow."""
        self.has_headers, self._waited, self._came = False, 0.0, 0

    def readinto(self, buffer: Any) -> int | None:
        if not self._has_begun:
            # For the first byte, the socket waits as long.
            self._has_begun = True
            return self._raw.readinto(buffer)
        if self._is_over:
            return 0
        before = time.monotonic()
        count = self._raw.readinto(buffer)
        self._waited += time.monotonic() - before
        self._came += count or 0
        if not self.has_headers:
            self._is_over = self._waited > backoff.LIMITS.answer or self._came > _MOST_HEADER_BYTES
        elif self._waited > backoff.LIMITS.answer:
            self._is_over = self._came < _LEAST_BYTES
            self._waited, self._came = 0.0, 0
        return count

    def close(self) -> None:
        try:
            self._raw.close()
        finally:
            super().close()
