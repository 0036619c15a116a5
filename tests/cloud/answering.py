"""Servers that give one answer to whatever they are asked, and all that a store can be asked."""

from __future__ import annotations

import contextlib
import http.server
import pathlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yogadl.storage._objects.store import ObjectStore

SMALL = 100
LARGE = 9 << 20
"""More than what is sent in one part."""


def requests_to(store: ObjectStore, folder: pathlib.Path) -> dict[str, Callable[[], object]]:
    """Every request to a store, by name; what is uploaded is put into a folder."""
    (folder / "small").write_bytes(b"x" * SMALL)
    (folder / "large").write_bytes(b"x" * LARGE)
    return {
        "check": store.check,
        "head": lambda: store.head("key"),
        "read": lambda: store.read("key"),
        "write": lambda: store.write("key", b"x"),
        "list": lambda: list(store.list("")),
        "delete": lambda: store.delete("key"),
        "upload": lambda: store.upload(folder / "small", "key", {}),
        "upload in parts": lambda: store.upload(folder / "large", "key", {}),
    }


@contextlib.contextmanager
def answering(status: int, body: str, headers: Mapping[str, str]) -> Iterator[str]:
    """A store that gives one answer to whatever it is asked; its address."""

    class Handler(_Handler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.say(status, headers, body.encode())

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    with _serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextlib.contextmanager
def slow_store(headers: Mapping[str, str], body: bytes) -> Iterator[str]:
    """A store that takes what it is sent in 20 pieces, with pauses; its address."""

    class Handler(_Handler):
        def take(self) -> None:
            rest = int(self.headers["Content-Length"])
            step = -(-rest // 20)
            while rest:
                threading.Event().wait(0.1)
                rest -= len(self.rfile.read(min(step, rest)))
            self.say(200, headers, body)

        do_PUT = do_POST = take  # noqa: N815

    class Server(http.server.ThreadingHTTPServer):
        def server_bind(self) -> None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            super().server_bind()

    with _serving(Server(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextlib.contextmanager
def saying(said: bytes) -> Iterator[str]:
    """What says just this to whatever it is asked, and closes the connection; its address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head and (more := self.request.recv(1 << 16)):
                head += more
            self.request.sendall(said)

    with _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        return


@contextlib.contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[str]:
    """Its address, while it serves in a thread."""
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
