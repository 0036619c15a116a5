"""A server in a thread, a client that knows nothing but sockets, and waiting for things."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from typing import Any

from yogadl.rw_coordinator import RwCoordinatorClient, RwCoordinatorServer

ROOT = pathlib.Path(__file__).parents[2]
# For programs in processes of their own: this checkout goes first.
PYTHONPATH = {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
PLACE = ("aws_storage", "bucket", "team/a/1.0")
TARGET = "/aws_storage/bucket/team/a/1.0?read_lock="


class RunningServer:
    """A server in a thread of its own, run and stopped the way 0.1.4's tests do it."""

    def __init__(self, **options: Any) -> None:
        self._options = {"hostname": "127.0.0.1"} | options
        self.start(0)

    def start(self, port: int | None = None) -> None:
        """Starts a new server, on the same port if nothing else is said."""
        port = self.port if port is None else port
        self.server = RwCoordinatorServer(**self._options, port=port)
        self._loop = asyncio.new_event_loop()
        listening = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            try:
                self._loop.run_until_complete(self.server.run_server())
            except OSError as error:
                failures.append(error)
            listening.set()
            if not failures:
                self._loop.run_forever()

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert listening.wait(10)
        if failures:
            raise failures[0]
        assert self.server.port is not None
        self.port = self.server.port

    def stop(self) -> None:
        """Stops it, as from another thread."""
        self.server.stop_server()
        self._thread.join(10)
        assert not self._thread.is_alive()
        if not self._loop.is_closed():
            self._loop.close()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> RwCoordinatorClient:
        return RwCoordinatorClient(self.url, **{"connect_timeout": 5.0} | options)

    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "application/json"
            return json.load(answer)

    def counts(self) -> tuple[int, int, int]:
        """Read locks, write locks, and those who wait."""
        health = self.health()
        return health["read_locks"], health["write_locks"], health["waiting"]

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


# Closed after each test.
SOCKETS: list[socket.socket] = []


class SilentClient:
    """Does as 0.1.4's client: asks for a lock, reads the answer, and answers no pings."""

    def __init__(self, port: int, target: str, headers: str = "", host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=10)
        SOCKETS.append(self.socket)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"{headers}\r\n".encode()
        )
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            assert byte, "the connection was closed during the handshake"
            self.head += byte
        self.status = int(self.head.split(b" ", 2)[1])

    def body(self) -> str:
        """What follows the head of a refusal."""
        rest = b""
        while more := self.socket.recv(4096):
            rest += more
        return rest.decode()

    def frame(self, seconds: float) -> tuple[int, bytes] | None:
        """Opcode and content of the next frame; ``None`` if none comes in time."""
        self.socket.settimeout(seconds)
        try:
            first, length = self._exactly(2)
            return first & 15, self._exactly(length)
        except TimeoutError:
            return None

    def granted(self, seconds: float = 10.0) -> str | None:
        """The next message; pings and pongs before it are not answered."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            frame = self.frame(left)
            if frame is not None and frame[0] == 1:
                return frame[1].decode()
        return None

    def send(self, opcode: int, content: bytes = b"") -> None:
        """Sends a frame of less than 126 bytes, masked with zeros."""
        self.socket.sendall(bytes([0x80 | opcode, 0x80 | len(content)]) + bytes(4) + content)

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise ConnectionError("closed by the server")
            found += more
        return found


class Script:
    """A Python program in a process of its own. Its standard output is read line by line."""

    def __init__(self, code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            env=os.environ | PYTHONPATH,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, text: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)


# Holds a write lock until it is told to stop; says then whether it was lost.
HOLDER = """
import sys
from yogadl.errors import LockLostError
from yogadl.rw_coordinator import RwCoordinatorClient
held = RwCoordinatorClient(sys.argv[1]).acquire(*sys.argv[2:5], read_lock=False)
print("held", flush=True)
sys.stdin.readline()
try:
    held.check()
    print("still held", flush=True)
except LockLostError:
    print("lost", flush=True)
held.close()
print("closed", flush=True)
sys.stdin.readline()
"""
