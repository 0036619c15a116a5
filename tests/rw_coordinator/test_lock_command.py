"""python -m yogadl.rw_coordinator, and what importing it imports."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest
from lock_rig import PLACE, PYTHONPATH, ROOT, TARGET, SilentClient

from yogadl.rw_coordinator import RwCoordinatorClient

COMMAND = [sys.executable, "-m", "yogadl.rw_coordinator"]


class _Command:
    """The server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--host", "127.0.0.1", "--port", "0", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | PYTHONPATH,
        )
        assert self.process.stderr is not None
        self.lines: list[str] = []
        found = None
        while found is None:
            self.lines.append(self.process.stderr.readline())
            assert self.lines[-1], self.lines
            found = re.search(r"listening on (wss?)://127\.0\.0\.1:(\d+)$", self.lines[-1].strip())
        self.scheme, self.port = found[1], int(found[2])

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=20)
        self.lines += rest.splitlines()
        return self.process.returncode

    def __enter__(self) -> _Command:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)


def _fail(*arguments: str, **environment: str) -> str:
    ended = subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
        env=os.environ | PYTHONPATH | environment,
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(number: signal.Signals) -> None:
    with _Command() as command:
        held = RwCoordinatorClient(f"ws://127.0.0.1:{command.port}").acquire(*PLACE, read_lock=True)
        silent = SilentClient(command.port, TARGET + "True")
        assert silent.granted() == "read_lock_granted"
        assert command.end(number) == 0
        assert any(f"{number.name}: stopping" in line for line in command.lines)
        assert "stopped listening" in command.lines[-1]
        held.close()
        silent.close()


def test_log_and_secret(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "secret"
    file.write_text("open-sesame\n")
    with _Command("--secret-file", str(file), "--log-level", "debug") as command:
        url = f"ws://127.0.0.1:{command.port}"
        with RwCoordinatorClient(url, secret="open-sesame").write_lock(*PLACE):
            pass
        assert SilentClient(command.port, TARGET + "True").status == 401
        command.end(signal.SIGTERM)
        text = "\n".join(command.lines)
        assert re.search(
            r"127\.0\.0\.1:\d+ has the write lock on aws_storage/bucket/team/a/1\.0$", text, re.M
        )
        assert re.search(
            r"127\.0\.0\.1:\d+ gave back the write lock on \S+ after \d\.\d s$", text, re.M
        )
        assert re.search(r"127\.0\.0\.1:\d+ was refused", text)
        assert "open-sesame" not in text


def test_soft_limit_of_open_files_is_raised() -> None:
    with _Command() as command:
        limits = pathlib.Path(f"/proc/{command.process.pid}/limits")
        if not limits.exists():
            pytest.skip("needs /proc")
        found = re.search(r"Max open files\s+(\d+)\s+(\d+)", limits.read_text())
        assert found
        assert found[1] == found[2]
        assert command.end(signal.SIGTERM) == 0


def test_tls(tmp_path: pathlib.Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    ca, pem = tmp_path / "ca.pem", tmp_path / "server.pem"
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    with _Command("--tls-cert", str(pem), "--tls-client-ca", str(ca)) as command:
        assert command.scheme == "wss"
        client = RwCoordinatorClient(
            f"wss://127.0.0.1:{command.port}", False, str(ca), client_cert=str(pem)
        )
        with client.read_lock(*PLACE):
            pass
        assert command.end(signal.SIGTERM) == 0


def test_bad_arguments(tmp_path: pathlib.Path) -> None:
    missing, empty = str(tmp_path / "missing"), tmp_path / "empty"
    empty.touch()
    assert "--secret-file" in _fail("--secret-file", missing)
    assert "printable ASCII" in _fail("--secret-file", str(empty))
    assert "YOGADL_COORDINATOR_SECRET" in _fail(YOGADL_COORDINATOR_SECRET="a b")
    assert "--tls-cert" in _fail("--tls-cert", missing)
    assert "--tls-cert" in _fail("--tls-key", missing)
    assert "client_timeout" in _fail("--client-timeout", "0")
    assert "--port" in _fail("--port", "70000")


def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert "in use" in _fail("--host", "127.0.0.1", "--port", port)


def test_importing_imports_no_websockets() -> None:
    code = (
        "import sys, yogadl.rw_coordinator as c; "
        "print([n for n in sys.modules if n.partition('.')[0] == 'websockets']); "
        "c.RwCoordinatorClient('ws://host:1'); print('websockets' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert ended.stdout.split() == ["[]", "True"]


def test_missing_websockets() -> None:
    code = (
        "import sys; sys.modules['websockets'] = None\n"
        "from yogadl.errors import MissingExtraError\n"
        "from yogadl.rw_coordinator import *\n"
        "for make in (lambda: RwCoordinatorClient('ws://host:1'), RwCoordinatorServer):\n"
        "    try:\n        make()\n"
        "    except MissingExtraError as error:\n        print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert ended.stdout.count("yogadl[coordinator]") == 2
