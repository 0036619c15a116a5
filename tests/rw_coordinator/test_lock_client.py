"""The client and the server together."""

from __future__ import annotations

import pathlib
import pickle
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from lock_rig import HOLDER, PLACE, TARGET, RunningServer, Script, SilentClient
from waiting import wait_until

from yogadl.errors import (
    CoordinatorUnreachableError,
    CredentialsError,
    InvalidArgumentError,
    LockError,
    LockLostError,
)
from yogadl.rw_coordinator import HeldLock, RwCoordinatorClient


@pytest.fixture
def lone_listener() -> Iterator[socket.socket]:
    """Something that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


class _Waiting(threading.Thread):
    """Acquires a write lock in a thread."""

    def __init__(self, client: RwCoordinatorClient) -> None:
        super().__init__()
        self._client = client
        self.held: HeldLock | None = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.held = self._client.acquire(*PLACE, read_lock=False)
        except Exception as error:
            self.error = error


# Holding


def test_read_and_write(server: RunningServer) -> None:
    client = server.client()
    with client.read_lock(*PLACE), client.read_lock(*PLACE):
        assert server.counts() == (2, 0, 0)
    with client.write_lock(PLACE[0], PLACE[1], pathlib.PurePosixPath(PLACE[2])) as held:
        assert server.counts() == (0, 1, 0)
        held.check()
    wait_until(lambda: server.counts() == (0, 0, 0))


def test_silent_and_talking_clients_share_locks(server: RunningServer) -> None:
    old = SilentClient(server.port, TARGET + "False")
    assert old.granted() == "write_lock_granted"
    new = _Waiting(server.client())
    wait_until(lambda: server.counts() == (0, 1, 1))
    old.close()
    new.join(10)
    assert new.held is not None
    new.held.close()


def test_threads_exclude_each_other(server: RunningServer) -> None:
    history: list[tuple[str, int, bool]] = []

    def work(number: int) -> None:
        client, chance = server.client(), random.Random(number)
        for _ in range(12):
            shared = chance.random() < 0.6
            with client.acquire("s", "b", f"p{chance.randrange(2)}", read_lock=shared) as held:
                place = 0 if "p0" in repr(held) else 1
                history.append(("begin", place, shared))
                time.sleep(chance.random() * 0.003)  # its work
                history.append(("end", place, shared))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(history) == 12 * 12 * 2
    readers, writers, together = [0, 0], [0, 0], 0
    for step, place, shared in history:
        counts = readers if shared else writers
        counts[place] += 1 if step == "begin" else -1
        together = max(together, readers[place])
        assert not (writers[place] and readers[place])
        assert writers[place] <= 1
    assert together > 1


def test_closing(server: RunningServer) -> None:
    held = server.client().acquire(*PLACE, read_lock=False)
    assert "given back" not in repr(held)
    held.close()
    held.close()
    assert "given back" in repr(held)
    with pytest.raises(LockLostError, match="was given back"):
        held.check()
    wait_until(lambda: server.counts() == (0, 0, 0))


def test_forgotten_lock_is_given_back(server: RunningServer) -> None:
    held = server.client().acquire(*PLACE, read_lock=False)
    del held
    wait_until(lambda: server.counts() == (0, 0, 0))


def test_any_name(server: RunningServer) -> None:
    client = server.client()
    plain = ["a b", "a#b", "a?read_lock=True", "100%", "%20", "a\nb", "a;b", ".."]
    for name in [*plain, "ключ", "é" * 900]:
        with client.write_lock("s", "b", name):
            assert server.counts() == (0, 1, 0)
        wait_until(lambda: server.counts() == (0, 0, 0))
    with pytest.raises(InvalidArgumentError, match="at most"):
        client.acquire("s", "b", "x" * 5000, read_lock=True)


# Losing


def test_lock_lost_with_the_server(server: RunningServer) -> None:
    client = server.client()

    def lose() -> None:
        with client.write_lock(*PLACE):
            server.stop()

    with pytest.raises(LockLostError, match=r"lock on aws_storage/bucket/team/a/1\.0 of ws:"):
        lose()
    server.start()
    with client.write_lock(*PLACE):
        pass


def test_error_of_the_body_wins(server: RunningServer) -> None:
    def fail() -> None:
        with server.client().write_lock(*PLACE):
            server.stop()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_closing_a_lost_lock_says_nothing(server: RunningServer) -> None:
    held = server.client().acquire(*PLACE, read_lock=True)
    server.stop()
    held.close()


def test_server_that_hangs_counts_as_lost() -> None:
    with RunningServer(client_timeout=1.2) as server:
        held = server.client().acquire(*PLACE, read_lock=True)
        loop = server.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(time.sleep, 4.0)
        began = time.monotonic()
        with pytest.raises(LockLostError):
            held.check()
        assert time.monotonic() - began < 3.5
        held.close()


# Waiting


def test_server_restarts_while_a_client_waits(server: RunningServer) -> None:
    holder = server.client().acquire(*PLACE, read_lock=False)
    waiting = _Waiting(server.client())
    wait_until(lambda: server.counts() == (0, 1, 1))
    server.stop()
    time.sleep(0.3)  # for how long it is away
    server.start()
    waiting.join(10)
    assert waiting.held is not None, waiting.error
    waiting.held.check()
    with pytest.raises(LockLostError):
        holder.check()
    waiting.held.close()


def test_server_does_not_come_back_while_a_client_waits(server: RunningServer) -> None:
    holder = server.client().acquire(*PLACE, read_lock=False)
    waiting = _Waiting(server.client(connect_timeout=0.5))
    wait_until(lambda: server.counts() == (0, 1, 1))
    server.stop()
    waiting.join(10)
    assert isinstance(waiting.error, CoordinatorUnreachableError)
    holder.close()


def test_waiting_longer_than_all_time_outs() -> None:
    with RunningServer(client_timeout=0.6) as server:
        holder = server.client().acquire(*PLACE, read_lock=False)
        waiting = _Waiting(server.client(connect_timeout=0.5))
        wait_until(lambda: server.counts() == (0, 1, 1))
        time.sleep(2)  # longer than both
        assert server.counts() == (0, 1, 1)
        holder.check()
        holder.close()
        waiting.join(10)
        assert waiting.held is not None
        waiting.held.close()


def test_waiting_can_be_interrupted(server: RunningServer) -> None:
    code = """
import signal, sys
from yogadl.rw_coordinator import RwCoordinatorClient
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
try:
    RwCoordinatorClient(sys.argv[1]).acquire(*sys.argv[2:5], read_lock=False)
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
"""
    with server.client().write_lock(*PLACE), Script(code, server.url, *PLACE) as waiting:
        assert waiting.line() == "ready"
        wait_until(lambda: server.counts() == (0, 1, 1))
        waiting.signal(signal.SIGINT)
        assert waiting.line() == "interrupted"
        # Its process is still alive, but nothing of it waits any more.
        wait_until(lambda: server.counts() == (0, 1, 0))


# Not reaching it


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = RwCoordinatorClient(f"ws://127.0.0.1:{port}", connect_timeout=0.5)
    began = time.monotonic()
    with pytest.raises(
        ConnectionError, match=r"could not be reached for 0\.5 s.*refused"
    ) as caught:
        client.acquire(*PLACE, read_lock=True)
    assert time.monotonic() - began > 0.3
    assert isinstance(caught.value, LockError)
    assert type(pickle.loads(pickle.dumps(caught.value))) is CoordinatorUnreachableError


def test_server_that_starts_later(server: RunningServer) -> None:
    server.stop()
    waiting = _Waiting(server.client())
    time.sleep(0.3)  # for how long nobody listens
    server.start()
    waiting.join(10)
    assert waiting.held is not None
    waiting.held.close()


def test_something_that_says_nothing(lone_listener: socket.socket) -> None:
    port = lone_listener.getsockname()[1]
    client = RwCoordinatorClient(f"ws://127.0.0.1:{port}", connect_timeout=0.5)
    with pytest.raises(CoordinatorUnreachableError, match="timed out"):
        client.acquire(*PLACE, read_lock=True)


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (b"404 Not Found", CoordinatorUnreachableError, "no lock server"),
        (b"200 OK", CoordinatorUnreachableError, "no lock server"),
        (b"403 Forbidden", CredentialsError, "403"),
        (b"503 Service Unavailable", CoordinatorUnreachableError, "503"),
    ],
)
def test_something_else_answers(
    lone_listener: socket.socket, answer: bytes, error: type[Exception], told: str
) -> None:
    def serve() -> None:
        while True:
            try:
                connection, _ = lone_listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 2\r\n\r\nno")

    thread = threading.Thread(target=serve)
    thread.start()
    port = lone_listener.getsockname()[1]
    client = RwCoordinatorClient(f"ws://127.0.0.1:{port}", connect_timeout=0.5)
    with pytest.raises(error, match=told):
        client.acquire(*PLACE, read_lock=True)
    lone_listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


# Secrets


def test_secret(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with RunningServer(secret="open-sesame") as server:
        for secret in (None, "wrong-one"):
            with pytest.raises(CredentialsError, match=r"401.*secret"):
                server.client(secret=secret).acquire(*PLACE, read_lock=True)
        client = server.client(secret="open-sesame")
        with client.read_lock(*PLACE) as held:
            assert "open-sesame" not in repr(client) + repr(held)
        monkeypatch.setenv("YOGADL_COORDINATOR_SECRET", "open-sesame")
        with server.client().write_lock(*PLACE):
            pass
    with RunningServer() as server:
        assert SilentClient(server.port, TARGET + "True").status == 401, "from the environment"
    assert "open-sesame" not in caplog.text
    assert "wrong-one" not in caplog.text


def test_secret_where_none_is_asked_for(server: RunningServer) -> None:
    with server.client(secret="whatever").read_lock(*PLACE):
        pass


# Arguments


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:1",
        "http://host:1",
        "ws://",
        "ws://host:x",
        "ws://host:1?a=b",
        "ws://host:1#a",
        None,
    ],
)
def test_url(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="lock server"):
        RwCoordinatorClient(url)


def test_url_shows_no_password() -> None:
    assert "pass" not in repr(RwCoordinatorClient("ws://user:pass@host:1/"))
    with pytest.raises(InvalidArgumentError) as caught:
        RwCoordinatorClient("http://user:pass@host:1/")
    assert "pass" not in str(caught.value)


def test_slash_at_the_end_of_the_url(server: RunningServer) -> None:
    with RwCoordinatorClient(server.url + "/").write_lock(*PLACE):
        client = SilentClient(server.port, TARGET + "False")
        assert client.granted(0.1) is None
        client.close()


def test_other_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match="connect_timeout"):
        RwCoordinatorClient("ws://host:1", connect_timeout=0)
    with pytest.raises(InvalidArgumentError, match="client_cert"):
        RwCoordinatorClient("ws://host:1", client_key="key.pem")


def test_holder_script_works(server: RunningServer) -> None:
    with Script(HOLDER, server.url, *PLACE) as holder:
        assert holder.line() == "held"
        holder.tell()
        assert holder.line() == "still held"
        assert holder.line() == "closed"
        wait_until(lambda: server.counts() == (0, 0, 0))


def test_a_pickled_client_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("YOGADL_COORDINATOR_SECRET", raising=False)
    client = RwCoordinatorClient("ws://user:hidden-1@127.0.0.1:1", secret="hidden-2")
    pickled = pickle.dumps(client)
    assert b"hidden" not in pickled
    assert "hidden" not in repr(client)
    assert pickle.loads(pickled)._secret is None
    monkeypatch.setenv("YOGADL_COORDINATOR_SECRET", "another")
    assert pickle.loads(pickled)._secret == "another"
