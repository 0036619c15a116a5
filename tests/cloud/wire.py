"""HTTP/1.1 as it is on the wire, as far as a proxy has to know."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE_BYTES = 256 << 10
_LINE_BYTES = 4 << 10
_MOST_LINE_BYTES = 256 << 10
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "proxy-connection", "expect"))


class BrokenOffError(ConnectionError):
    """The other side closed the connection where it should not."""


@dataclass
class Head:
    """What comes before a body.

    Attributes:
        first: the request's or the answer's first line.
        fields: header fields, as they were written.
    """

    first: str
    fields: list[tuple[str, str]]

    def get(self, name: str, default: str = "") -> str:
        return next((v for found, v in self.fields if found.lower() == name.lower()), default)

    def drop(self, *names: str) -> None:
        lower = {name.lower() for name in names}
        self.fields = [field for field in self.fields if field[0].lower() not in lower]

    def drop_hop_by_hop(self) -> None:
        self.drop(*_HOP_BY_HOP)

    def encoded(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.fields), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    @property
    def closes(self) -> bool:
        """Whether the connection ends after this."""
        is_old = self.first.startswith("HTTP/1.0") or self.first.endswith("HTTP/1.0")
        return is_old or "close" in self.get("Connection").lower()

    @property
    def status(self) -> int:
        return int(self.first.split(" ", 2)[1])

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.get("Transfer-Encoding").lower()

    @property
    def length(self) -> int | None:
        """Bytes of the body, if it says so."""
        given = self.get("Content-Length")
        return int(given) if given and not self.is_chunked else None


@dataclass(frozen=True)
class Piece:
    """Some bytes of a body, good until the next are asked for.

    Attributes:
        data: these.
        is_framing: they are not the body's own, but say how long a chunk is.
    """

    data: memoryview
    is_framing: bool = False


class Stream:
    """A socket that is read through a buffer. Used by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._space = bytearray(_PIECE_BYTES)
        self._rest = memoryview(b"")

    def send(self, data: bytes | bytearray | memoryview) -> None:
        self._sock.sendall(data)

    def close(self) -> None:
        """Ends the connection, also where a forked child holds it, too."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def abort(self) -> None:
        """Ends the connection as a machine does that went away: with a reset."""
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    @property
    def is_quiet(self) -> bool:
        """Whether the other side neither closed nor said anything."""
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self._sock, select.POLLIN)
        return not self._rest and not poll.poll(0)

    # Reading

    def _fill(self) -> bool:
        """Reads more into the empty buffer; ``False`` at the end."""
        count = self._sock.recv_into(self._space)
        self._rest = memoryview(self._space)[:count]
        return count > 0

    def _take(self, count: int) -> memoryview:
        """At least one byte, at most so many."""
        if not self._rest and not self._fill():
            raise BrokenOffError("the connection ended within a message")
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def _line(self) -> bytes:
        """With its line feed; empty at the end of the connection."""
        line = bytearray()
        while self._rest or self._fill():
            rest = bytes(self._rest[:_LINE_BYTES])
            stop = rest.find(b"\n") + 1
            line += self._take(stop or len(rest))
            if stop:
                return bytes(line)
            if len(line) > _MOST_LINE_BYTES:
                raise BrokenOffError("a line without an end")
        if line:
            raise BrokenOffError("the connection ended within a line")
        return b""

    def read_head(self) -> Head | None:
        """``None`` if the other side has closed the connection instead."""
        try:
            first = self._line()
        except ConnectionResetError:
            return None
        if not first:
            return None
        fields = []
        while (line := self._line().decode("latin-1")) not in ("\r\n", "\n"):
            if not line:
                raise BrokenOffError("the connection ended within a head")
            name, _, value = line.partition(":")
            fields.append((name, value.strip()))
        return Head(first.decode("latin-1").rstrip("\r\n"), fields)

    def body(self, head: Head, ends_with_connection: bool = False) -> Iterator[Piece]:
        """The bytes after a head, as they come.

        Raises:
            BrokenOffError: there are fewer than it says.
        """
        if head.is_chunked:
            yield from self._chunks()
        elif head.length is not None or not ends_with_connection:
            yield from self._exactly(head.length or 0)
        else:
            while self._rest or self._fill():
                yield Piece(self._take(_PIECE_BYTES))

    def _exactly(self, count: int) -> Iterator[Piece]:
        while count:
            taken = self._take(count)
            count -= len(taken)
            yield Piece(taken)

    def _chunks(self) -> Iterator[Piece]:
        while True:
            line = self._line()
            size = int(line.split(b";")[0] or b"0", 16)
            yield Piece(memoryview(line), is_framing=True)
            if not size:
                break
            yield from self._exactly(size)
            yield Piece(memoryview(self._line()), is_framing=True)
        # Trailers, up to an empty line.
        while line := self._line():
            yield Piece(memoryview(line), is_framing=True)
            if line in (b"\r\n", b"\n"):
                return
        raise BrokenOffError("the connection ended within trailers")


def has_body(method: str, answer: Head) -> bool:
    """Whether a body follows the head of an answer."""
    return method != "HEAD" and answer.status not in (204, 304) and answer.status >= 200
