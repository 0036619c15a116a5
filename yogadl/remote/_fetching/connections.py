"""Asking for ranges of bytes, by plain HTTP.

One thread has one connection to a host, which it keeps. The SDKs of the stores take ten times the
CPU for a range, see ``docs/cloud.md``; they stay for all that is not reading ranges.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import http.client
import re
import socket
import ssl
import sys
import termios
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from yogadl import backoff
from yogadl.cache.memory import private_memory
from yogadl.errors import (
    NetworkError,
    StoreError,
    StoreUnavailableError,
    ThrottledError,
)
from yogadl.remote._fetching.answer import Answer
from yogadl.remote._fetching.remote_object import (
    Address,
    ChangedError,
    GoneError,
    RemoteObject,
    plain_url,
)
from yogadl.remote._fetching.work import EndedError

Result = TypeVar("Result")
OnData: TypeAlias = Callable[[int, memoryview], object]
"""Is given an offset in the object and bytes from there on."""

# What is handed over at a time: at most; at first, and at the beginning of long answers, so that it
# is seen how fast they come; and at least, of what is slow.
_PIECE_BYTES, _FIRST_BYTES, _LEAST_BYTES = 1 << 20, 64 << 10, 16 << 10
_LONG_BYTES = 1 << 20
_QUICK_SECONDS, _SLOW_SECONDS = 0.02, 0.2
_SAID_BYTES = 2000
_REDIRECTED = (301, 302, 303, 307, 308)
_REDIRECTIONS = 5
# Hosts that a thread stays connected to, of the many threads there are.
_MOST_HOSTS = 4
# Some stores name others, such as aws-chunked, for what they send as it is.
_COMPRESSIONS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
_BROKEN = (OSError, http.client.HTTPException)


class NoRangesError(StoreError):
    """All of an object was sent, though some bytes were asked for."""


def is_refusal(error: StoreError) -> bool:
    """Whether a server has too much to do, or too many connections, as far as can be told."""
    return isinstance(error, ThrottledError) or isinstance(error.__cause__, _BROKEN)


class Connections:
    """The connections of one thread, one for each host; and what it reads into.

    Attributes:
        ended: once it is set, nothing is asked for any more.
        refusals: how often, one after the other, it was refused what others had meanwhile.
        longest_wait: seconds that the last answer took to begin, or to go on, whatever was more.
    """

    def __init__(self) -> None:
        self._open: dict[_Host, http.client.HTTPConnection] = {}
        self._last: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        # Which takes memory as far as it is used: most threads read little, at least at first.
        self._buffer = memoryview(private_memory(_PIECE_BYTES))
        self._piece = _FIRST_BYTES
        self.ended = threading.Event()
        self.refusals = 0
        self.longest_wait = 0.0

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._open)

    def close(self) -> None:
        """Closes all of them."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def has_come(self, nbytes: int) -> bool:
        """Whether the next so many bytes of an answer, or as many as tell that it does not come
        slowly, are on this machine already, as far as the system tells."""
        return _unread(self._socket) >= min(nbytes, self._piece, _FIRST_BYTES)

    def read(
        self,
        asked: RemoteObject,
        size: int,
        start: int,
        stop: int,
        take: OnData,
        into: memoryview | None = None,
    ) -> None:
        """Asks once for the bytes ``start … stop-1`` of an object, and hands them over in order.

        Args:
            asked: the object.
            size: that it must have, in bytes.
            start: of the first byte.
            stop: behind the last.
            take: is given what arrives.
            into: where to put it; ``None`` for memory that is overwritten afterwards.

        Raises:
            ChangedError: the object is gone, or another.
            EndedError: nobody wants it any more.
            StoreError: anything else; some bytes may have been handed over.
        """
        self._accepted(asked, lambda at: self._read(at, asked, size, (start, stop), take, into))

    def head(
        self, asked: RemoteObject, most: int, seconds: float
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """The beginning of an object: its size, at most so many bytes of it, and the headers.

        Args:
            asked: the object.
            most: how many bytes.
            seconds: that it may take, from the answer on; a connection may be very slow, and
                another one not.

        Raises:
            ChangedError, StoreError: see :meth:`read`.
            NoRangesError: likewise; a proxy may have answered for once.
        """
        return self._accepted(asked, lambda at: self._head(at, asked, most, seconds))

    def _accepted(self, asked: RemoteObject, ask: Callable[[Address], Result]) -> Result:
        """What is answered at the object's address, or at a new one when that has expired."""
        try:
            return ask(asked.address())
        except _DeniedError:
            pass
        try:
            return ask(asked.address(renew=True))
        except _DeniedError as error:
            raise asked.refusal(error.status, error.said) from None

    def _read(
        self,
        address: Address,
        asked: RemoteObject,
        size: int,
        wanted: tuple[int, int],
        take: OnData,
        into: memoryview | None,
    ) -> None:
        with self._answer(address, asked, f"bytes={wanted[0]}-{wanted[1] - 1}") as answer:
            at = _check(answer, address, asked, size, wanted)
            most = self._piece if wanted[1] - at < _LONG_BYTES else min(self._piece, _FIRST_BYTES)
            while at < wanted[1]:
                piece = self._buffer if into is None else into[at - wanted[0] :]
                piece = piece[: min(most, wanted[1] - at)]
                before = time.monotonic()
                count = answer.readinto(piece)
                seconds = time.monotonic() - before
                self.longest_wait = max(self.longest_wait, seconds)
                if count == most:
                    most = self._piece = _next_piece(most, seconds)
                if not count:
                    raise NetworkError(f"{asked.name}: the answer broke off at byte {at:,}")
                take(at, piece[:count])
                at += count

    def _head(
        self, address: Address, asked: RemoteObject, most: int, seconds: float
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        with self._answer(address, asked, f"bytes=0-{most - 1}") as answer:
            if answer.status == 200:
                raise NoRangesError(
                    f"{asked.name} is sent as a whole by a server that knows no ranges; download "
                    "it, and open the file by yogadl.dataref.LMDBDataRef"
                )
            found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if found is None or found[1] != "0" or found[3] == "*":
                raise NetworkError(f"{asked.name}: an answer does not say which bytes it has")
            wanted, pieces = min(int(found[2]) + 1, most), []
            until = time.monotonic() + seconds
            while wanted > 0 and (data := answer.read1(wanted)):
                pieces.append(data)
                wanted -= len(data)
                if wanted and time.monotonic() > until:
                    raise NetworkError(
                        f"{asked.name}: of the answer, {wanted:,} bytes had not come after "
                        f"{seconds:,.0f} seconds"
                    )
            if wanted:
                raise NetworkError(f"{asked.name}: the answer broke off")
            return int(found[3]), b"".join(pieces), answer.headers

    @contextlib.contextmanager
    def _answer(
        self, address: Address, asked: RemoteObject, wanted: str
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer of status 200 or 206. Its connection is used again if all of it is read."""
        headers = {"Range": wanted, "Accept-Encoding": "identity", **address.headers}
        key = _Host.of(address)
        try:
            answer = self._ask(key, key.target(address.url), headers)
            for _ in range(_REDIRECTIONS):
                where = answer.headers.get("Location")
                if answer.status not in _REDIRECTED or where is None:
                    break
                answer.read(_SAID_BYTES)
                if not answer.isclosed():
                    # Nobody wants to know what else it says.
                    self._drop(key)
                address = _redirected(address, where)
                if _Host.of(address) != key:
                    headers.pop("Authorization", None)
                    key = _Host.of(address)
                answer = self._ask(key, key.target(address.url), headers)
            _raise_refusal(answer, asked)
            yield answer
            if not answer.isclosed():
                # It has more than was asked for, which would be taken for the next answer.
                self._drop(key)
        except _BROKEN as error:
            self._drop(key)
            if isinstance(error, StoreError):
                raise
            if isinstance(error, ssl.SSLCertVerificationError):
                raise StoreError(
                    f"{asked.name}: the certificate of the server is not trusted: {error}"
                ) from error
            raise NetworkError(f"{asked.name}: the connection failed: {error!r:.200}") from error
        except BaseException:
            self._drop(key)
            raise

    def _ask(self, key: _Host, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        # What came before, to be asked elsewhere or again, may have taken very long.
        if self.ended.is_set():
            raise EndedError
        started = time.monotonic()
        connection = self._open.get(key)
        if connection is not None and (connection.sock is None or _unread(connection.sock)):
            # It ended with the last answer: opened by itself, it would not wait for the next as
            # long as others do. Or it has more, which would be taken for the next.
            self._drop(key)
            connection = None
        is_new = connection is None
        try:
            if connection is None:
                while len(self._open) >= _MOST_HOSTS:
                    self._drop(next(iter(self._open)))
                connection = self._open[key] = key.connect()
            connection.request("GET", target, headers=headers)
            self._socket = connection.sock
            answer = self._last = connection.getresponse()
        except _BROKEN as error:
            if is_new or isinstance(error, TimeoutError):
                raise
            # A server may close a connection that was idle.
            self._drop(key)
            return self._ask(key, target, headers)
        self.longest_wait = time.monotonic() - started
        return answer

    def _drop(self, key: _Host) -> None:
        self._socket = None
        connection = self._open.pop(key, None)
        if connection is not None:
            connection.close()
        if self._last is not None:
            # It may have been the last one over that connection, which it then keeps open.
            self._last.close()
            self._last = None


def _unread(connected: socket.socket | None) -> int:
    """How many bytes have come and were not read, as far as the system tells."""
    if connected is None:
        return 0
    try:
        found = fcntl.ioctl(connected, termios.FIONREAD, bytes(4))
    except (OSError, ValueError):
        # Such as that it is closed.
        return 0
    return int.from_bytes(found, sys.byteorder)


def _next_piece(nbytes: int, seconds: float) -> int:
    """How many bytes to hand over at a time after so many, which took so long to come."""
    if seconds < _QUICK_SECONDS:
        return min(4 * nbytes, _PIECE_BYTES)
    if seconds > _SLOW_SECONDS:
        return max(int(nbytes * _SLOW_SECONDS / seconds) >> 10 << 10, _LEAST_BYTES)
    return nbytes


class _DeniedError(Exception):
    """The address is not accepted, or not any more."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(status, said)
        self.status = status
        self.said = said


@dataclass(frozen=True)
class _Host:
    """Whom to connect to.

    Attributes:
        scheme, netloc: of the address.
        cafile: see ``Address``.
        proxy: by which it is reached; empty for none.
    """

    scheme: str
    netloc: str
    cafile: str | None
    proxy: str

    @staticmethod
    def of(address: Address) -> _Host:
        return _host(*urllib.parse.urlsplit(address.url)[:2], address.cafile)

    def target(self, url: str) -> str:
        """What to ask the connection for."""
        parts = urllib.parse.urlsplit(url)
        if self.proxy and self.scheme == "http":
            return urllib.parse.urlunsplit((*parts[:4], ""))
        return urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))

    def connect(self) -> http.client.HTTPConnection:
        """An open connection."""
        limits = backoff.LIMITS
        host = urllib.parse.urlsplit(self.proxy).netloc.rpartition("@")[2] or self.netloc
        made: http.client.HTTPConnection
        if self.scheme == "https":
            context = _ssl_context(self.cafile)
            made = http.client.HTTPSConnection(host, timeout=limits.connect, context=context)
            if self.proxy:
                made.set_tunnel(self.netloc)
        else:
            made = http.client.HTTPConnection(host, timeout=limits.connect)
        made.response_class = Answer
        made.connect()
        made.sock.settimeout(limits.answer)
        return made


@functools.lru_cache(1024)
def _host(scheme: str, netloc: str, cafile: str | None) -> _Host:
    proxy = urllib.request.getproxies().get(scheme, "")
    if proxy and urllib.request.proxy_bypass(netloc.rpartition(":")[0] or netloc):
        proxy = ""
    return _Host(scheme, netloc, cafile, proxy)


@functools.lru_cache(16)
def _ssl_context(cafile: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cafile)


def _redirected(address: Address, where: str) -> Address:
    try:
        return dataclasses.replace(address, url=plain_url(urllib.parse.urljoin(address.url, where)))
    except ValueError:
        raise StoreError(
            "the server sends its clients to an address that is none of HTTP"
        ) from None


def _raise_refusal(answer: http.client.HTTPResponse, asked: RemoteObject) -> None:
    """Raises what an answer means that has none of the bytes."""
    status = answer.status
    if status in (200, 206):
        for encoding in _encodings(answer):
            if encoding in _COMPRESSIONS:
                raise StoreError(
                    f"{asked.name} is sent compressed ({encoding}), so that its bytes cannot be "
                    "asked for; have the server send it as it is"
                )
        return
    said = answer.read(_SAID_BYTES).decode(errors="replace")
    if status in _REDIRECTED and not said:
        where = "in circles, it seems" if answer.headers.get("Location") else "without saying where"
        said = f"go elsewhere, {where}"
    # A token of S3's that has expired is answered with 400.
    if status in (400, 401, 403):
        raise _DeniedError(status, said)
    if status in (404, 410, 412, 416):
        kind = GoneError if status == 404 and asked.is_missing(said) else ChangedError
        raise kind(f"{asked.name}: the answer was {status}")
    if status in (429, 503):
        raise ThrottledError(f"{asked.name}: the answer was {status}, again and again. Try later")
    if status >= 500 or status == 408:
        raise StoreUnavailableError(f"{asked.name}: the answer was {status}, again and again")
    raise asked.refusal(status, said)


def _encodings(answer: http.client.HTTPResponse) -> list[str]:
    """What was done to the bytes of an answer on their way."""
    said = answer.headers.get_all("Content-Encoding")
    return [each.strip().lower() for each in ",".join(said).split(",")] if said else []


def _check(
    answer: http.client.HTTPResponse,
    address: Address,
    asked: RemoteObject,
    size: int,
    wanted: tuple[int, int],
) -> int:
    """Sees that an answer is of the right state and has the bytes from the first one wanted on."""
    tag = answer.headers.get("ETag")
    if None not in (address.tag, tag) and _bare(str(tag)) != address.tag:
        raise _changed(answer, asked, "is another one now")
    found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if found is None or answer.status != 206:
        raise NetworkError(f"{asked.name}: an answer does not say which bytes it has")
    if found[3] not in ("*", str(size)):
        raise _changed(answer, asked, f"has {found[3]} bytes now, and had {size}")
    if int(found[1]) != wanted[0]:
        raise NetworkError(f"{asked.name}: an answer has other bytes than were asked for")
    return wanted[0]


def _changed(answer: http.client.HTTPResponse, asked: RemoteObject, how: str) -> Exception:
    """The error for an answer of another state, unless it broke off within its headers: the last of
    them may then say anything, and no byte follows."""
    if not answer.read(1):
        return NetworkError(f"{asked.name}: the answer broke off before its first byte")
    return ChangedError(f"{asked.name} {how}")


def _bare(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')
