"""The server, as seen by clients that know nothing but its protocol."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from lock_rig import TARGET, RunningServer, SilentClient
from waiting import wait_until

from yogadl._version import __version__
from yogadl.errors import InvalidArgumentError
from yogadl.rw_coordinator import RwCoordinatorServer, communication_protocol
from yogadl.rw_coordinator._server_connection import CLOSE_SECONDS

READ, WRITE = TARGET + "True", TARGET + "False"
READ_GRANTED = communication_protocol.READ_LOCK_GRANTED
WRITE_GRANTED = communication_protocol.WRITE_LOCK_GRANTED
PING, PONG, TEXT, CLOSE = 9, 10, 1, 8


@pytest.fixture
def impatient() -> Iterator[RunningServer]:
    """A server that gives clients up soon."""
    with RunningServer(client_timeout=0.6) as running:
        yield running


# Granting


def test_messages() -> None:
    assert (READ_GRANTED, WRITE_GRANTED) == ("read_lock_granted", "write_lock_granted")


def test_readers_share_and_writers_do_not(server: RunningServer) -> None:
    readers = [SilentClient(server.port, READ) for _ in range(3)]
    assert [reader.granted() for reader in readers] == [READ_GRANTED] * 3
    writer = SilentClient(server.port, WRITE)
    wait_until(lambda: server.counts() == (3, 0, 1))
    late = SilentClient(server.port, READ)
    wait_until(lambda: server.counts() == (3, 0, 2))
    assert late.granted(0.1) is None, "a writer waits"
    for reader in readers:
        reader.close()
    assert writer.granted() == WRITE_GRANTED
    assert server.counts() == (0, 1, 1)
    writer.close()
    assert late.granted() == READ_GRANTED
    late.close()
    wait_until(lambda: server.counts() == (0, 0, 0))


def test_cancelled_waiting_writer_blocks_nobody(server: RunningServer) -> None:
    reader = SilentClient(server.port, READ)
    assert reader.granted() == READ_GRANTED
    writer = SilentClient(server.port, WRITE)
    wait_until(lambda: server.counts() == (1, 0, 1))
    late = SilentClient(server.port, READ)
    assert late.granted(0.1) is None
    writer.close()
    assert late.granted() == READ_GRANTED
    reader.close()
    late.close()


@pytest.mark.parametrize("way", ["handshake", "close frame only", "end of stream", "reset"])
def test_any_way_of_closing_gives_the_lock_back(server: RunningServer, way: str) -> None:
    holder = SilentClient(server.port, WRITE)
    assert holder.granted() == WRITE_GRANTED
    waiter = SilentClient(server.port, WRITE)
    wait_until(lambda: server.counts() == (0, 1, 1))
    if way in ("handshake", "close frame only"):
        holder.send(CLOSE, b"\x03\xe8")
    if way == "handshake":
        assert holder.frame(5) == (CLOSE, b"\x03\xe8")
        holder.close()
    elif way == "end of stream":
        holder.socket.shutdown(socket.SHUT_WR)
    elif way == "reset":
        holder.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        holder.close()
    assert waiter.granted(CLOSE_SECONDS / 2) == WRITE_GRANTED
    holder.close()
    waiter.close()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/s/b/a%20b", "/s/b/a%20b"),
        ("/s/b/caf%C3%A9", "/s/b/caf\u00e9"),
        ("/s/b/a+b", "/s/b/a%2Bb"),
        ("/s/b/a:b", "//s/b/a%3ab"),
    ],
)
def test_quoted_and_raw_paths_are_one(server: RunningServer, one: str, other: str) -> None:
    first = SilentClient(server.port, one + "?read_lock=False")
    assert first.granted() == WRITE_GRANTED
    second = SilentClient(server.port, other + "?read_lock=False")
    wait_until(lambda: server.counts() == (0, 1, 1))
    first.close()
    assert second.granted() == WRITE_GRANTED
    second.close()


def test_different_paths_are_two(server: RunningServer) -> None:
    clients = [
        SilentClient(server.port, f"{path}?read_lock=False")
        for path in ("/s/b/p", "/s/b/P", "/s/c/p", "/t/b/p", "/s/b/p%3F", "/s/b/p%23")
    ]
    assert [client.granted() for client in clients] == [WRITE_GRANTED] * 6
    for client in clients:
        client.close()


# Refusing


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("/s/b/p", "read_lock=True or read_lock=False"),
        ("/s/b/p?read_lock=yes", "read_lock=True or read_lock=False"),
        ("/?read_lock=True", "the path is empty"),
        ("/" + "x" * 5000 + "?read_lock=True", "5000 bytes"),
    ],
)
def test_bad_requests(server: RunningServer, target: str, sentence: str) -> None:
    client = SilentClient(server.port, target)
    assert client.status == 400
    assert sentence in client.body()
    client.close()
    assert server.counts() == (0, 0, 0)


def test_secret() -> None:
    with RunningServer(secret="open-sesame") as server:
        for headers in (
            "",
            "Authorization: Bearer other\r\n",
            "Authorization: Bearer open-sesame2\r\n",
            "Authorization: open-sesame\r\n",
            "Authorization: Bearer \u00fcber\r\n",
            "Authorization: Bearer open-sesame\r\nAuthorization: Bearer other\r\n",
        ):
            client = SilentClient(server.port, "/nonsense", headers)
            assert client.status == 401
            assert "secret" in client.body()
            client.close()
        client = SilentClient(server.port, WRITE, "Authorization: Bearer open-sesame\r\n")
        assert client.granted() == WRITE_GRANTED
        client.close()
        assert server.health()["status"] == "ok", "a load balancer knows no secret"
        assert "open-sesame" not in repr(server.server)


def test_messages_are_ignored_and_large_ones_end_it(server: RunningServer) -> None:
    client = SilentClient(server.port, WRITE)
    assert client.granted() == WRITE_GRANTED
    for _ in range(100):
        client.send(TEXT, b"hello")
    client.send(PING, b"there?")
    assert client.frame(5) == (PONG, b"there?")
    client.socket.sendall(b"\x81\xfe\x10\x00" + bytes(4))  # announces 4,096 bytes
    wait_until(lambda: server.counts() == (0, 0, 0))
    client.close()


def test_client_that_never_reads_is_cut_off(server: RunningServer) -> None:
    client = SilentClient(server.port, WRITE)
    client.socket.settimeout(5)
    pings = (bytes([0x80 | PING, 0x80 | 125]) + bytes(4) + bytes(125)) * 1000
    with pytest.raises(OSError, match=r"reset|pipe"):
        client.socket.sendall(pings * 1000)
    wait_until(lambda: server.counts() == (0, 0, 0))
    client.close()


# Health


def test_health(server: RunningServer) -> None:
    client = SilentClient(server.port, READ)
    assert client.granted() == READ_GRANTED
    health = server.health()
    assert 0 <= health.pop("uptime_seconds") < 60
    assert health == {
        "status": "ok",
        "connections": 1,
        "read_locks": 1,
        "write_locks": 0,
        "waiting": 0,
        "version": __version__,
    }
    client.close()
    assert SilentClient(server.port, "/health?read_lock=True").status == 200


# Silence


def test_silent_client_keeps_its_lock(impatient: RunningServer) -> None:
    # As 0.1.4's client does while its body runs.
    holder = SilentClient(impatient.port, WRITE)
    assert holder.granted() == WRITE_GRANTED
    waiter = SilentClient(impatient.port, WRITE)
    assert waiter.granted(2.4) is None, "four times the time-out"
    assert impatient.counts() == (0, 1, 1)
    # It was pinged, which keeps proxies from closing the connection; and not without bounds.
    frames = [frame for frame in iter(lambda: holder.frame(0.01), None) if frame]
    assert [opcode for opcode, _ in frames].count(PING) == 1
    assert [opcode for opcode, _ in frames].count(PONG) > 3
    holder.close()
    assert waiter.granted() == WRITE_GRANTED
    waiter.close()


def test_client_that_answers_without_having_promised(impatient: RunningServer) -> None:
    client = SilentClient(impatient.port, WRITE)
    assert client.granted() == WRITE_GRANTED
    for _ in range(3):
        frame = client.frame(5)
        assert frame is not None
        assert frame[0] == PING
        client.send(PONG, frame[1])
    client.close()


def test_promise_that_is_not_kept(impatient: RunningServer) -> None:
    holder = SilentClient(impatient.port, WRITE + "&answers_pings=True")
    assert holder.granted() == WRITE_GRANTED
    began = time.monotonic()
    waiter = SilentClient(impatient.port, WRITE)
    assert waiter.granted() == WRITE_GRANTED
    assert time.monotonic() - began > 0.5
    holder.close()
    waiter.close()


def test_clients_are_told_the_time_out(impatient: RunningServer) -> None:
    client = SilentClient(impatient.port, WRITE)
    assert b"Yogadl-Client-Timeout: 0.6\r\n" in client.head
    client.close()


# Many


def test_a_thousand_idle_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    try:
        with RunningServer() as server:
            targets = [f"/s/b/{number // 2}?read_lock=True" for number in range(1000)]
            clients = [SilentClient(server.port, target) for target in targets]
            assert all(client.granted() == READ_GRANTED for client in clients)
            assert server.health()["connections"] == 1000
            writer = SilentClient(server.port, "/s/b/0?read_lock=False")
            clients[0].close()
            clients[1].close()
            assert writer.granted() == WRITE_GRANTED
            writer.close()
            for client in clients:
                client.close()
            wait_until(lambda: server.counts() == (0, 0, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Starting and stopping


def test_stopping_twice_and_never_started() -> None:
    server = RunningServer()
    server.stop()
    server.server.stop_server()
    RwCoordinatorServer().stop_server()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port))


def test_stopping_with_clients_of_all_sorts() -> None:
    server = RunningServer()
    silent = SilentClient(server.port, WRITE)
    assert silent.granted() == WRITE_GRANTED
    waiter = SilentClient(server.port, WRITE)
    wait_until(lambda: server.counts() == (0, 1, 1))
    mute = socket.create_connection(("127.0.0.1", server.port))
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 2 * CLOSE_SECONDS + 1
    # Nobody is granted what somebody else has just lost.
    assert waiter.frame(5) == (CLOSE, b"\x03\xe9")
    mute.close()
    silent.close()
    waiter.close()


def test_stopping_after_the_loop_was_stopped() -> None:
    loop = asyncio.new_event_loop()
    server = RwCoordinatorServer("127.0.0.1")
    loop.run_until_complete(server.run_server())
    server.stop_server()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port or 0))
    loop.close()
    server.stop_server()


def test_stopping_from_within_the_loop() -> None:
    loop = asyncio.new_event_loop()
    server = RwCoordinatorServer("127.0.0.1")
    loop.run_until_complete(server.run_server())
    loop.call_soon(server.stop_server)
    loop.run_forever()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port or 0))
    loop.close()


def test_stopping_from_many_threads() -> None:
    server = RunningServer()
    threads = [threading.Thread(target=server.server.stop_server) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    server.stop()


def test_in_a_program_of_its_own_with_asyncio() -> None:
    async def run() -> None:
        server = RwCoordinatorServer("127.0.0.1", 0)
        assert server.port is None
        await server.run_server()
        port = server.port
        assert port
        with pytest.raises(InvalidArgumentError, match="before it is stopped"):
            await server.run_server()
        await asyncio.gather(server.close(), server.close())
        await server.close()
        await server.run_server()
        assert server.port
        await server.close()

    asyncio.run(run())


def test_one_port_for_all_addresses() -> None:
    with RunningServer(hostname=None) as server:
        client = SilentClient(server.port, WRITE)
        assert client.granted() == WRITE_GRANTED
        client.close()
        if not socket.has_dualstack_ipv6():
            return
        try:
            client = SilentClient(server.port, WRITE, host="::1")
        except OSError as error:
            pytest.skip(f"no IPv6: {error}")
        assert client.granted() == WRITE_GRANTED
        client.close()


def test_port_in_use(server: RunningServer) -> None:
    with pytest.raises(OSError, match="in use"):
        asyncio.run(RwCoordinatorServer("127.0.0.1", server.port).run_server())


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_client_timeout_must_be_a_time(timeout: float) -> None:
    with pytest.raises(InvalidArgumentError, match="client_timeout"):
        RwCoordinatorServer(client_timeout=timeout)
