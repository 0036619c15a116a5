"""How the bytes of answers come: in chunks, in pieces, by drops, or not to the end."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import socket
import threading

import numpy as np
import pytest
from remote_rig import Answer, Asked, Site, Twist, WebObject, make_site
from test_remote_faults import everything, records
from test_remote_web import SPEC, opened, stored
from waiting import wait_until

from yogadl import backoff
from yogadl.errors import NetworkError, StoreError
from yogadl.remote import _open
from yogadl.remote._fetching.connections import Connections, OnData
from yogadl.remote._fetching.remote_object import Address, RemoteObject
from yogadl.remote._fetching.transfer import CutError, Transfer
from yogadl.remote._fetching.work import Bulk, EndedError, Work
from yogadl.remote._local.sparse_file import CELL


def test_an_answer_that_drips(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are asked for again elsewhere, and come."""
    wanted = stored(site)
    slow: list[int] = []
    original = site.web.answer

    def answer(path: str, given: str) -> Answer:
        made = original(path, given)
        if "bytes=0-" not in given and not slow:
            slow.append(1)
            made.cut = 100
            made.stalls = 1.0
        return made

    monkeypatch.setattr(site.web, "answer", answer)
    with opened(site) as ref:
        assert everything(ref.stream()) == wanted
    assert slow


def test_what_came_before_a_time_out_is_not_lost(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(answer=0.5))
    said = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-299999/300000\r\n"
    said += b"Content-Length: 300000\r\n\r\n" + bytes(100_000)
    came, ends = [], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.sendall(said)
                ends.wait(30)

        thread = threading.Thread(target=answer)
        thread.start()
        connections = Connections()
        asked = WebObject(f"http://127.0.0.1:{server.getsockname()[1]}/a", "a")
        try:
            with pytest.raises(NetworkError):
                connections.read(
                    asked, 300_000, 0, 300_000, lambda at, data: came.append((at, len(data)))
                )
        finally:
            ends.set()
            connections.close()
            thread.join()
    assert came == [(0, 64 << 10)]


def test_what_is_slow_is_handed_over_in_small_pieces(site: Site) -> None:
    """So that it is seen to go on, and is not asked for again; what is quick is, in large ones."""
    record = {"x": np.zeros(1_500_000, "u1"), "number": np.int64(1)}
    site.store([record], spec=SPEC)
    asked, connections = site.opener()._object("a/1/cache.mdb"), Connections()
    sizes: list[int] = []
    is_slow = True

    def trickle(asked: Asked, made: Answer) -> Answer:
        made.trickles = lambda: is_slow
        return made

    def read(nbytes: int) -> list[int]:
        sizes.clear()
        size = site.path().stat().st_size
        connections.read(asked, size, 1000, 1000 + nbytes, lambda _, data: sizes.append(len(data)))
        assert sum(sizes) == nbytes
        return sizes

    with contextlib.closing(connections), site.twisting(trickle):
        first, *others = read(200_000)
        assert first == 64 << 10
        assert all(16 << 10 <= piece < 64 << 10 for piece in others[:-1])
        assert connections.longest_wait > 0.3
        is_slow = False
        wait_until(lambda: max(read(1_400_000)) == 1 << 20)


def test_a_beginning_that_drips_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = stored(site)
    monkeypatch.setattr(_open, "_HEAD_SECONDS", 0.2)
    asked = 0

    def drip(_asked: Asked, made: Answer) -> Answer:
        nonlocal asked
        asked += 1
        made.drips = "body" if asked == 1 else "nothing"
        return made

    with site.twisting(drip), opened(site) as ref:
        assert asked == 2
        assert everything(ref.stream()) == wanted


def test_a_first_answer_that_stalls_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = stored(site)
    monkeypatch.setattr(_open, "_HEAD_SECONDS", 0.2)
    # Longer than a test may take.
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, answer=3600.0))

    def stall(asked: Asked, made: Answer) -> Answer:
        made.stalls = 0.0 if asked.number else 3600.0
        return made

    with site.twisting(stall), opened(site) as ref:
        assert everything(ref.stream()) == wanted


def _trickling(_asked: Asked, made: Answer) -> Answer:
    made.trickles = lambda: True
    return made


def _breaking_off(_asked: Asked, made: Answer) -> Answer:
    made.cut = 64 << 10
    return made


def _saying_no_more(asked: Asked, made: Answer) -> Answer:
    made.stalls = 0.0
    if not asked.start:
        # Never more of it, over a connection that stays open.
        made.headers["Content-Length"] = str(len(made.body))
        made.body = made.body[: 64 << 10]
    return made


@pytest.mark.once
@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("twist", [_trickling, _breaking_off, _saying_no_more])
def test_what_came_of_a_beginning_opens_a_version(
    site: Site, monkeypatch: pytest.MonkeyPatch, twist: Twist, part_bytes: int
) -> None:
    """The rest of it comes like anything else."""
    near = site.store(records(400), spec=SPEC, part_bytes=part_bytes)
    monkeypatch.setattr(_open, "_HEAD_SECONDS", 0.3)
    limits = dataclasses.replace(backoff.LIMITS, answer=1.0)
    monkeypatch.setattr(backoff, "LIMITS", limits)
    with site.twisting(twist), opened(site) as ref:
        assert [asked.start for asked in site.web.asked].count(0) == 1
        site.web.twist = None if twist is _trickling else twist
        assert everything(ref.stream()) == everything(near.stream())


@pytest.mark.parametrize("times", [1, 2, 3])
def test_answers_with_all_of_it_instead_of_a_range(site: Site, times: int) -> None:
    """A proxy may give one; a server that always does cannot be read from."""
    wanted = stored(site)
    left = times

    def whole(asked: Asked, made: Answer) -> Answer:
        nonlocal left
        if left:
            left -= 1
            body = (site.web.folder / asked.path.lstrip("/")).read_bytes()
            return Answer(200, {}, body)
        return made

    with site.twisting(whole):
        if times == 3:
            with pytest.raises(StoreError, match="knows no ranges"):
                opened(site)
        else:
            with opened(site) as ref:
                assert everything(ref.stream()) == wanted


def test_chunked_answers(site: Site) -> None:
    wanted = stored(site)

    def chunk(_asked: Asked, made: Answer) -> Answer:
        pieces = [made.body[at : at + 1000] for at in range(0, len(made.body), 1000)]
        made.body = b"".join(b"%x\r\n%s\r\n" % (len(it), it) for it in pieces) + b"0\r\n\r\n"
        made.headers["Transfer-Encoding"] = "chunked"
        return made

    with site.twisting(chunk), opened(site) as ref:
        assert everything(ref.stream()) == wanted


def test_ranges_that_are_answered_in_small_pieces(site: Site) -> None:
    wanted = stored(site)

    def less(asked: Asked, made: Answer) -> Answer:
        if asked.start:
            made.body = made.body[:5000]
            end = asked.start + len(made.body) - 1
            made.headers["Content-Range"] = f"bytes {asked.start}-{end}/{asked.size}"
        return made

    with site.twisting(less), opened(site) as ref:
        assert everything(ref.stream()) == wanted


def test_connections_of_one_answer_each_wait_as_long_for_it(site: Site) -> None:
    """As those of servers that know only HTTP/1.0."""
    stored(site)
    asked, size = site.opener()._object("a/1/cache.mdb"), site.path().stat().st_size
    waits: list[float | None] = []

    def end(_asked: Asked, made: Answer) -> Answer:
        made.headers["Connection"] = "close"
        return made

    def take(_at: int, _data: memoryview) -> None:
        assert connections._socket is not None
        waits.append(connections._socket.gettimeout())

    with contextlib.closing(Connections()) as connections, site.twisting(end):
        for _ in range(3):
            connections.read(asked, size, 0, 5000, take)
    assert waits == [backoff.LIMITS.answer] * 3


def test_what_comes_behind_an_answer_is_not_the_next() -> None:
    """Such as one more answer."""
    said = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/%d\r\n"
    said += b"Content-Length: 10\r\n\r\n%s"
    came, is_read = [], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for behind in (said % (20, b"abcdefghij"), b""):
                client, _ = server.accept()
                # Who leaves something unread resets the connection.
                with client, contextlib.suppress(ConnectionError):
                    client.recv(1 << 16)
                    client.sendall(said % (10, b"0123456789"))
                    is_read.wait(30)
                    client.sendall(behind)
                    client.recv(1)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        asked = WebObject(f"http://127.0.0.1:{server.getsockname()[1]}/a", "a")
        with contextlib.closing(Connections()) as connections:
            connections.read(asked, 10, 0, 10, lambda _, data: came.append(bytes(data)))
            is_read.set()
            wait_until(lambda: connections.has_come(1))
            connections.read(asked, 10, 0, 10, lambda _, data: came.append(bytes(data)))
        thread.join()
    assert came == [b"0123456789"] * 2


@pytest.mark.parametrize("last", ["Content-Range: bytes 0-9/1", 'ETag: "ab'])
def test_answers_that_break_off_in_their_headers_tell_of_no_change(last: str) -> None:
    said = f"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\n{last}".encode()
    if last.startswith("Content-Range"):
        said = f"HTTP/1.1 206 Partial Content\r\n{last}".encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(said)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a"
        asked = Tagged(url, "a")
        with contextlib.closing(Connections()) as connections, pytest.raises(NetworkError):
            connections.read(asked, 10, 0, 10, lambda *_: None)
        thread.join()


class Tagged(WebObject):
    """One of a state."""

    def address(self, renew: bool = False) -> Address:
        return Address(self.url, tag="abc")


def test_connections_to_many_hosts_are_not_kept(tmp_path: pathlib.Path) -> None:
    connections = Connections()
    with contextlib.ExitStack() as stack:
        stack.callback(connections.close)
        for number in range(20):
            (folder := tmp_path / str(number)).mkdir()
            site = make_site(folder)
            stack.callback(site.web.close)
            stored(site)
            asked = site.opener()._object("a/1/cache.mdb")
            size, data, _ = connections.head(asked, 100, 100, 10.0)
            assert (size, len(data)) == (site.path().stat().st_size, 100)
        assert len(connections._open) <= 4


def test_what_is_cut_off_and_has_come_is_taken(site: Site) -> None:
    """It would come again otherwise, and a machine that is busy may have much of it to read."""
    site.store([{"x": np.zeros(100_000, "u1"), "number": np.int64(1)}], spec=SPEC)
    with site.ref() as ref:
        file = ref.reader.files.file(0)
        bulk = Bulk(iter(()), file.size, file.traffic)
        for pieces_here, end in ((0, 1), (2, 3), (9, 9)):
            connections = Come(pieces_here)
            work = Work(file, 0, 9 * CELL, bulk, is_cut=True)
            transfer = Transfer(work, is_kept=False, arrived=lambda: None)
            with contextlib.nullcontext() if end == 9 else pytest.raises(CutError):
                transfer.run(connections, lambda _seconds: None, lambda *_: False)
            assert connections.at == end * CELL


class Come(Connections):
    """An answer of which some pieces are here when the first is read."""

    def __init__(self, pieces_here: int) -> None:
        super().__init__()
        self._pieces_here = pieces_here
        self.at = 0

    def has_come(self, nbytes: int) -> bool:
        assert nbytes == 9 * CELL - self.at
        self._pieces_here -= 1
        return self._pieces_here >= 0

    def read(
        self,
        asked: RemoteObject,
        size: int,
        start: int,
        stop: int,
        take: OnData,
        into: memoryview | None = None,
    ) -> None:
        for at in range(start, stop, CELL):
            self.at = at + CELL
            take(at, memoryview(bytes(CELL)))


def test_who_has_ended_meanwhile_asks_for_nothing_again() -> None:
    """Such as since a connection that was kept ended: an answer may take long to begin, or never
    do."""
    said = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\n"
    said += b"Content-Length: 10\r\n\r\n0123456789"
    ended, clients = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                client, _ = server.accept()
                with client:
                    clients.append(client)
                    if not client.recv(1 << 16):
                        return
                    client.sendall(said)
                    if client.recv(1 << 16):
                        ended.set()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        asked = WebObject(f"http://127.0.0.1:{server.getsockname()[1]}/a", "a")
        with contextlib.closing(Connections()) as connections:
            connections.ended = ended
            connections.read(asked, 10, 0, 10, lambda *_: None)
            with pytest.raises(EndedError):
                connections.read(asked, 10, 0, 10, lambda *_: None)
            assert ended.is_set()
        # Has the thread end.
        socket.create_connection(server.getsockname()).close()
        thread.join()
    assert len(clients) == 2


def test_what_is_fetched_ends_with_its_file(site: Site) -> None:
    """Also where another place is to be asked for it."""
    site.store([{"x": np.zeros(100_000, "u1"), "number": np.int64(1)}], spec=SPEC)
    with site.ref() as ref, contextlib.closing(Connections()) as connections:
        file = ref.reader.files.file(0)
        before = len(site.web.asked)

        def elsewhere(_asked: Asked, _made: Answer) -> Answer:
            file.ended.set()
            return Answer(302, {"Location": "/a/1/cache.mdb"}, b"")

        transfer = Transfer(Work(file, 0, CELL), is_kept=False, arrived=lambda: None)
        with site.twisting(elsewhere), pytest.raises(EndedError):
            transfer.run(connections, lambda _seconds: None, lambda *_: False)
        assert len(site.web.asked) == before + 1


def test_what_has_come_is_told(site: Site) -> None:
    site.store([{"x": np.zeros(100_000, "u1"), "number": np.int64(1)}], spec=SPEC)
    asked, size = site.opener()._object("a/1/cache.mdb"), site.path().stat().st_size
    seen = []

    def take(at: int, data: memoryview) -> None:
        if not at:
            wait_until(lambda: connections.has_come(20_000))
        seen.append(connections.has_come(40_000))

    def halt(_asked: Asked, made: Answer) -> Answer:
        made.cut = (64 << 10) + 30_000
        return made

    with contextlib.closing(Connections()) as connections:
        assert not connections.has_come(1)
        with site.twisting(halt), pytest.raises(NetworkError):
            connections.read(asked, size, 0, 100_000, take)
        assert not connections.has_come(1)
    assert not any(seen)
