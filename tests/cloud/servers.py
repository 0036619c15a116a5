"""Real servers on loopback, each in a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

_HERE = pathlib.Path(__file__).parent
_START_SECONDS = 90.0
_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        port: it listens on 127.0.0.1.
        pid: of its process.
    """

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def s3_server() -> contextlib.AbstractContextManager[Server]:
    """moto's S3, see ``moto_main``; empty at first, and gone at the end."""
    return _started(_HERE / "moto_main.py")


def gcs_server() -> contextlib.AbstractContextManager[Server]:
    """gcp-storage-emulator, see ``gcs_main``; likewise."""
    return _started(_HERE / "gcs_main.py")


@contextlib.contextmanager
def _started(script: pathlib.Path) -> Iterator[Server]:
    """Runs a script that writes the port it listens on as its first line.

    Raises:
        RuntimeError: it does not answer in time; with what it had to say.
    """
    environment = {name: v for name, v in os.environ.items() if not name.startswith("AWS_")}
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + _START_SECONDS
            try:
                port = _read_port(process, deadline)
                _wait_for_answer(port, deadline)
            except (OSError, ValueError) as error:
                raise RuntimeError(f"{script.name} does not answer: {_tail(log)}") from error
            yield Server(port, process.pid)
        finally:
            _stop(process)


def _read_port(process: subprocess.Popen[bytes], deadline: float) -> int:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], deadline - time.monotonic())
    if not readable:
        raise TimeoutError("it has not said its port")
    return int(process.stdout.readline())


def _wait_for_answer(port: int, deadline: float) -> None:
    """Returns when the server has answered; its first answer loads much of it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=deadline - time.monotonic())
    with contextlib.closing(connection):
        connection.request("GET", "/")
        status = connection.getresponse().status
    if status >= 500:
        raise OSError(f"it answers {status}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - 4000))
    return log.read().decode(errors="replace")
