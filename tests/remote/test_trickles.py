"""Servers of which some answers drip: a few bytes a second, of whatever they have."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
import time

import pytest
from remote_rig import Answer, Asked, Site, WebObject
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl import backoff
from yogadl.errors import NetworkError, StoreError
from yogadl.remote._fetching.connections import Connections

ORDER = {"shuffle": True, "shuffle_seed": 1}
KINDS = ["headers", "body", "refusal"]

pytestmark = pytest.mark.timeout(100)


def drip(kind: str, made: Answer) -> Answer:
    if kind == "refusal":
        return Answer(503, {}, b"not now, " * 200, drips="body")
    made.drips = "headers" if kind == "headers" else "body"
    return made


def limited(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, **limits))


@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_drips_is_asked_for_until_it_comes(
    site: Site, monkeypatch: pytest.MonkeyPatch, kind: str, part_bytes: int
) -> None:
    """However many of its answers do, and those that are asked for instead."""
    near = site.store(records(), spec=SPEC, part_bytes=part_bytes)
    limited(monkeypatch, answer=1.0)

    def twist(asked: Asked, made: Answer) -> Answer:
        return drip(kind, made) if 1 <= asked.number <= 8 else made

    with site.twisting(twist), site.ref() as ref:
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    assert len(site.web.asked) > 9


@pytest.mark.parametrize("kind", KINDS)
def test_what_drips_for_ever_is_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """And keeps no thread for long."""
    near = site.store(records(), spec=SPEC)
    limited(monkeypatch, answer=0.5, patience=3.0)
    with site.ref() as ref:
        with (
            site.twisting(lambda _asked, made: drip(kind, made)),
            pytest.raises(StoreError) as raised,
        ):
            next(iter(ref.stream(**ORDER)))
        assert raised.value.is_transient
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    wait_until(lambda: all(thread.name != "yogadl fetch" for thread in threading.enumerate()))


def test_a_beginning_whose_headers_drip_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = site.store(records(), spec=SPEC)
    limited(monkeypatch, answer=1.0)

    def twist(asked: Asked, made: Answer) -> Answer:
        return drip("headers", made) if asked.number < 2 else made

    with site.twisting(twist), site.ref() as ref:
        assert everything([ref[0]]) == everything([near[0]])


def test_what_is_only_slow_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over one connection, whatever the time that it takes in all."""
    path = site.web.folder / "slow"
    path.write_bytes(bytes(range(256)) * 1024)
    size = path.stat().st_size
    limited(monkeypatch, answer=0.5)

    def trickle(_asked: Asked, made: Answer) -> Answer:
        # About as long as may be before the first byte, too.
        made.stalls, made.trickles = 0.3, lambda: True
        return made

    came: list[bytes] = []
    connections = Connections()
    try:
        with site.twisting(trickle):
            connections.read(
                WebObject(f"http://127.0.0.1:{site.web.port}/slow", "slow"),
                size,
                0,
                size,
                lambda _at, data: came.append(bytes(data)),
            )
    finally:
        connections.close()
    assert b"".join(came) == path.read_bytes()
    assert len(site.web.asked) == 1


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/100\r\n"
    b"Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n"
)
FAST = 1000


@pytest.mark.parametrize(
    ("first", "again", "pause"),
    [
        (b"", CONTINUE * FAST, 0.0),
        (b"", CONTINUE, 0.01),
        (CHUNKED, b"X-Trailer: 1\r\n" * FAST, 0.0),
        (CHUNKED, b"X-Trailer: 1\r\n", 0.01),
    ],
    ids=["continues", "continues slowly", "trailers", "trailers slowly"],
)
def test_headers_without_an_end_are_an_error(
    monkeypatch: pytest.MonkeyPatch, first: bytes, again: bytes, pause: float
) -> None:
    """However fast they come."""
    limited(monkeypatch, answer=0.5)
    sent = 0
    # The system keeps some megabytes for who does not read them yet.
    most = 3000 * len(again) if pause else 64 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            nonlocal sent
            client, _ = server.accept()
            with client, contextlib.suppress(ConnectionError):
                client.recv(1 << 16)
                client.sendall(first)
                while sent < most:
                    client.sendall(again)
                    sent += len(again)
                    time.sleep(pause)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        asked = WebObject(f"http://127.0.0.1:{server.getsockname()[1]}/a", "a")
        with contextlib.closing(Connections()) as connections, pytest.raises(NetworkError):
            connections.read(asked, 100, 0, 100, lambda *_: None)
        thread.join()
    # Instead of all of it.
    assert sent < most
