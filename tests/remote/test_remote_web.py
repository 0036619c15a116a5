"""``from_url`` with odd addresses and servers that mislead."""

from __future__ import annotations

import contextlib
import gzip
import logging
import pathlib
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from remote_rig import Answer, Asked, Site
from test_remote_faults import everything, records

import yogadl
from yogadl import backoff
from yogadl.errors import (
    AccessDeniedError,
    CacheNotFoundError,
    CacheReplacedError,
    InvalidArgumentError,
    NetworkError,
    StoreError,
    YogadlError,
)

SPEC = {
    "x": yogadl.spec.TensorSpec("uint8", (None,)),
    "number": yogadl.spec.TensorSpec("int64", ()),
}
PASSWORD = "open/sesame@9:x?"
ESCAPED = "open%2Fsesame%409%3Ax%3F"


def opened(site: Site, where: str = "a/1/cache.mdb", user: str = "") -> Any:
    return yogadl.from_url(
        f"http://{user}127.0.0.1:{site.web.port}/{where}", local_cache_dir=site.folder
    )


def stored(site: Site, **options: Any) -> list[tuple[int, bytes]]:
    return everything(site.store(records(100), spec=SPEC, **options).stream())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is, and not for minutes."""
    quick = backoff.Limits(patience=0.3, answer=5.0, first_pause=0.01, longest_pause=0.1)
    monkeypatch.setattr(backoff, "LIMITS", quick)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http:",
        "http://",
        "http:///a/cache.mdb",
        "http://me:it@/a/cache.mdb",
        "http://:80/cache.mdb",
        "http://[::1/cache.mdb",
        "http://[nonsense]/cache.mdb",
        "http://host:port/cache.mdb",
        "http://host:99999/cache.mdb",
        "http://host:0/cache.mdb",
        "http://host:-1/cache.mdb",
        "http://a..b/cache.mdb",
        f"http://{'h' * 64}/cache.mdb",
        "http://ho st/cache.mdb",
        "http://ho\x00st/cache.mdb",
        "http://host/a\tb/cache.mdb",
        "http://host/a\nb/cache.mdb",
        "file:///etc/passwd",
        "ftp://host/cache.mdb",
        "gopher://host/cache.mdb",
        "//host/cache.mdb",
        "host/cache.mdb",
        "javascript:alert(1)",
        None,
        b"http://host/cache.mdb",
        17,
    ],
)
def test_addresses_that_are_none(address: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError, match="url must be that of"):
        yogadl.from_url(address, local_cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "address",
    [
        f"http://me:{PASSWORD}@host/cache.mdb",
        f"me:{PASSWORD}@host/cache.mdb",
        f"ftp://me:{PASSWORD}@host/cache.mdb",
        f"http://me:{PASSWORD}@host:port/cache.mdb",
        "http://host:port/cache.mdb?X-Amz-Signature=sesame",
    ],
)
def test_what_is_no_address_is_told_without_its_password(
    address: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        yogadl.from_url(address, local_cache_dir=tmp_path)
    assert "sesame" not in str(raised.value)
    assert "open" not in str(raised.value)


@pytest.mark.parametrize("name", ["a b", "ä", "a%20b", "a+b", "a'b(c)", "日本"])
def test_names_that_have_to_be_escaped(site: Site, name: str) -> None:
    wanted = stored(site)

    def twist(asked: Asked, made: Answer) -> Answer:
        asked_for.append(asked.path)
        return made

    asked_for: list[str] = []
    answer = site.web.answer
    site.web.answer = lambda path, given: answer(f"/a/1/cache.mdb?{path}", given)  # type: ignore[method-assign]
    with site.twisting(twist), opened(site, f"{name}/1/cache.mdb?version={name}") as ref:
        assert everything(ref.stream()) == wanted
    assert all(path.isascii() and " " not in path for path in asked_for)
    # What was escaped is not, once more.
    assert not any("%25" in path for path in asked_for)


def test_a_password_goes_where_it_belongs_and_nowhere_else(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = stored(site)
    caplog.set_level(logging.DEBUG)
    with _recording() as (port, seen):

        def elsewhere(asked: Asked, _made: Answer) -> Answer:
            where = f"http://localhost:{port}{asked.path}"
            return Answer(302, {"Location": where}, b"")

        with (
            site.twisting(elsewhere),
            pytest.raises(YogadlError) as raised,
        ):
            opened(site, user=f"me:{ESCAPED}@")
        assert seen
        assert not any(b"uthorization" in request for request in seen)
    told = f"{raised.value!r} {raised.value} {caplog.text}"
    with opened(site, user=f"me:{ESCAPED}@") as ref:
        assert everything(ref.stream()) == wanted
        told += repr(ref) + ref.reader.version.name
    for path in site.folder.rglob("*.json"):
        told += path.read_text()
    assert "sesame" not in told


@contextlib.contextmanager
def _recording() -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers 403 with what it was sent, and what it was sent."""
    seen: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        asked = connection.recv(65536)
        seen.append(asked)
        body = asked[:150]
        connection.sendall(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with _answering(answer) as port:
        yield port, seen


@contextlib.contextmanager
def _answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of one connection after the other, each answered once; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_server_that_repeats_the_password(tmp_path: pathlib.Path) -> None:
    def echo(connection: socket.socket) -> None:
        asked = connection.recv(65536)
        start = asked.index(b"Authorization")
        body = asked[start : start + 100] + b"\x1b[31m\r\n"
        connection.sendall(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with _answering(echo) as port, pytest.raises(AccessDeniedError, match="401") as raised:
        yogadl.from_url(f"http://me:{ESCAPED}@127.0.0.1:{port}/a", local_cache_dir=tmp_path)
    assert str(raised.value).isprintable()
    assert "bWU6" not in str(raised.value)


@pytest.mark.parametrize("secret", ["TOP/SECRET+xyz=", "TOPSECRET" * 30])
def test_a_server_that_repeats_what_it_was_asked(tmp_path: pathlib.Path, secret: str) -> None:
    """Any value of a query may be a signature, whatever it is called."""

    def echo(connection: socket.socket) -> None:
        line = connection.recv(65536).partition(b"\r\n")[0]
        body = line + b" is " + urllib.parse.unquote(line.decode()).encode()
        connection.sendall(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with _answering(echo) as port, pytest.raises(AccessDeniedError, match="403: GET") as raised:
        yogadl.from_url(
            f"http://127.0.0.1:{port}/a/cache.mdb?v=2&sig={urllib.parse.quote(secret, safe='')}",
            local_cache_dir=tmp_path,
        )
    assert "SECRET" not in str(raised.value)
    assert "a/cache.mdb?… HTTP" in str(raised.value)


@pytest.mark.parametrize(
    "where",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "http://[::1/",
        "http://127.0.0.1:port/",
        "http://127.0.0.1:99999/",
        "http://a..b/",
        "http://me:secret@127.0.0.1:0/",
    ],
)
def test_redirections_to_nowhere(site: Site, where: str) -> None:
    stored(site)
    started = time.monotonic()
    with (
        site.twisting(lambda *_: Answer(302, {"Location": where}, b"")),
        pytest.raises(StoreError, match="an address that is none of HTTP") as raised,
    ):
        opened(site)
    # Not taken for an outage.
    assert time.monotonic() - started < backoff.LIMITS.patience
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "said"),
    [({"Location": "cache.mdb"}, "in circles"), ({}, "without saying where")],
)
def test_redirections_that_do_not_end(site: Site, headers: dict[str, str], said: str) -> None:
    stored(site)
    with (
        site.twisting(lambda *_: Answer(302, headers, b"")),
        pytest.raises(StoreError, match=f"302: go elsewhere, {said}"),
    ):
        opened(site)


def test_a_password_that_is_refused(site: Site) -> None:
    stored(site)
    with site.twisting(lambda *_: Answer(401, {}, b"No")):
        with pytest.raises(AccessDeniedError, match="Give a user and a password"):
            opened(site)
        with pytest.raises(AccessDeniedError, match="are not what it wants"):
            opened(site, user="me:wrong@")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirections(site: Site, status: int) -> None:
    wanted = stored(site, part_bytes=400_000)

    def moved(asked: Asked, made: Answer) -> Answer:
        if "?moved" in asked.path:
            return made
        # With a user of its own, which is not asked for, and letters that have to be escaped.
        where = f"http://you:there@127.0.0.1:{site.web.port}{asked.path}?moved=ä b"
        return Answer(status, {"Location": where.encode().decode("latin-1")}, b"moved " * 1000)

    with site.twisting(moved), opened(site) as ref:
        assert everything(ref.stream()) == wanted


def test_redirections_without_end(site: Site) -> None:
    stored(site)

    def round_and_round(asked: Asked, _made: Answer) -> Answer:
        return Answer(302, {"Location": f"{asked.path}x"}, b"")

    answer = site.web.answer
    site.web.answer = lambda _path, given: answer("/a/1/cache.mdb", given)  # type: ignore[method-assign]
    with site.twisting(round_and_round), pytest.raises(StoreError, match="302"):
        opened(site)
    assert len(site.web.asked) < 20


def test_a_redirection_with_very_much_to_say(site: Site, impatient: None) -> None:
    """It is not read, let alone into memory."""
    stored(site)
    sent: list[int] = []

    def chatter(connection: socket.socket) -> None:
        connection.recv(65536)
        where = f"http://127.0.0.1:{site.web.port}/a/1/cache.mdb"
        head = f"HTTP/1.1 302 Moved\r\nLocation: {where}\r\nContent-Length: {1 << 40}\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(200):
            connection.sendall(bytes(1 << 20))
            sent.append(1 << 20)

    with _answering(chatter) as port:
        address = f"http://127.0.0.1:{port}/a/1/cache.mdb"
        with yogadl.from_url(address, local_cache_dir=site.folder) as ref:
            assert len(ref) == 100
    assert sum(sent) < 100 << 20


@pytest.mark.parametrize(
    "encoding", ["gzip", "deflate", "br", "GZIP ", "gzip, identity", "aws-chunked,\tGzip"]
)
def test_what_is_compressed_is_told(site: Site, encoding: str) -> None:
    stored(site)

    def pack(_asked: Asked, made: Answer) -> Answer:
        made.body = gzip.compress(made.body)
        made.headers["Content-Encoding"] = encoding
        return made

    with site.twisting(pack), pytest.raises(StoreError, match="is sent compressed"):
        opened(site)


@pytest.mark.parametrize("encoding", ["aws-chunked", "identity", "identity, aws-chunked", ""])
def test_what_only_says_so_is_read(site: Site, encoding: str) -> None:
    wanted = stored(site)

    def call_it_chunked(_asked: Asked, made: Answer) -> Answer:
        made.headers["Content-Encoding"] = encoding
        return made

    with site.twisting(call_it_chunked), opened(site) as ref:
        assert everything(ref.stream()) == wanted


@pytest.mark.parametrize(
    "said",
    [
        "bytes 1000-{last}/{size}",
        "bytes 0-{last}/*",
        "items 0-{last}/{size}",
        "bytes */{size}",
        "",
        None,
    ],
)
def test_beginnings_of_something_else(site: Site, impatient: None, said: str | None) -> None:
    stored(site)

    def twist(asked: Asked, made: Answer) -> Answer:
        del made.headers["Content-Range"]
        if said is not None:
            made.headers["Content-Range"] = said.format(last=asked.stop - 1, size=asked.size)
        return made

    with site.twisting(twist), pytest.raises(NetworkError, match="which bytes it has"):
        opened(site)


def test_an_etag_that_changes_each_time(site: Site) -> None:
    stored(site)

    def tag(asked: Asked, made: Answer) -> Answer:
        made.headers["ETag"] = f'"{asked.number}"'
        return made

    with site.twisting(tag), pytest.raises(CacheReplacedError), opened(site) as ref:
        everything(ref.stream(shuffle=True, shuffle_seed=1))


@pytest.mark.parametrize("tag", ['W/"weak"', "bare", '"with space and ü"', '""', '"a", "b"'])
def test_etags_of_all_kinds(site: Site, tag: str) -> None:
    wanted = stored(site)

    def tagged(_asked: Asked, made: Answer) -> Answer:
        made.headers["ETag"] = tag
        return made

    with site.twisting(tagged), opened(site) as ref:
        assert sorted(everything(ref.stream(shuffle=True, shuffle_seed=1))) == sorted(wanted)


def test_a_table_whose_parts_are_missing(site: Site) -> None:
    stored(site, part_bytes=400_000)
    for path in (site.web.folder / "a" / "yogadl.parts").glob("*.mdb"):
        path.unlink()
    with opened(site) as ref, pytest.raises(CacheReplacedError, match="404"):
        everything(ref.stream())


@pytest.mark.parametrize("becomes", ["a table", "nothing"])
def test_what_became_a_part_is_read_as_that(site: Site, becomes: str) -> None:
    known = stored(site)
    with opened(site) as ref:
        first = everything(ref.stream(shuffle=True, shuffle_seed=1, num_shards=20))
        with site.storage.change("a", "1", version="2") as change:
            change.append(records(1))
        site.path().unlink()
        if becomes == "a table":
            (site.path().parents[1] / "2" / "cache.mdb").rename(site.path())
        assert set(first) < set(known) == set(everything(ref.stream(shuffle=True, shuffle_seed=1)))


@pytest.mark.parametrize("status", [403, 404])
def test_what_was_replaced_and_is_no_part_is_told(site: Site, status: int) -> None:
    stored(site)

    def twist(asked: Asked, answer: Answer) -> Answer:
        return Answer(status, {}, b"") if "yogadl.parts" in asked.path else answer

    with opened(site) as ref, site.twisting(twist):
        with site.storage.change("a", "1", version="2") as change:
            change.append(records(1))
        site.storage.submit(records(7), "a", "1", spec=SPEC)
        with pytest.raises(CacheReplacedError, match=r"a/1/cache\.mdb"):
            everything(ref.stream())


def test_nothing_there(site: Site) -> None:
    with pytest.raises(CacheNotFoundError, match="404"):
        opened(site, "nothing/1/cache.mdb")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\n\r\n",
        b"HTTP/1.1 206 OK\r\nContent-Length: -5\r\nContent-Range: bytes 0-9/10\r\n\r\n",
        b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-1/2\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        b"HTTP/1.1 206 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 206 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 206 OK\r\n\xff\xfe: \x00\r\n\r\n",
        b"HTTP/1.1 302 Moved\r\nLocation: http://\xff\xfe/\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=range(10),
)
def test_answers_that_are_no_http(tmp_path: pathlib.Path, impatient: None, said: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(said)

    with _answering(answer) as port, pytest.raises(StoreError):
        yogadl.from_url(f"http://127.0.0.1:{port}/cache.mdb", local_cache_dir=tmp_path)
