"""Asking for ranges of bytes, by plain HTTP.

One thread has one connection to a host, which it keeps. The SDKs of the stores take ten times the
CPU for a range, see ``docs/cloud.md``; they stay for all that is not reading ranges.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import http.client
import socket
import ssl
import sys
import termios
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from yogadl.cache.memory import private_memory
from yogadl.errors import NetworkError, StoreError
from yogadl.remote._fetching.host import Host
from yogadl.remote._fetching.judging import (
    BROKEN,
    RANGE,
    REDIRECTED,
    SAID_BYTES,
    DeniedError,
    NoRangesError,
    check_range,
    raise_refusal,
)
from yogadl.remote._fetching.remote_object import Address, RemoteObject, plain_url
from yogadl.remote._fetching.work import EndedError

Result = TypeVar("Result")
OnData: TypeAlias = Callable[[int, memoryview], object]
"""Is given an offset in the object and bytes from there on."""

# What is handed over at a time: at most; at first, and at the beginning of long answers, so that it
# is seen how fast they come; and at least, of what is slow.
_PIECE_BYTES, _FIRST_BYTES, _LEAST_BYTES = 1 << 20, 64 << 10, 16 << 10
_LONG_BYTES = 1 << 20
_QUICK_SECONDS, _SLOW_SECONDS = 0.02, 0.2
_REDIRECTIONS = 5
# Hosts that a thread stays connected to, of the many threads there are.
_MOST_HOSTS = 4


class Connections:
    """The connections of one thread, one for each host; and what it reads into.

    Attributes:
        ended: once it is set, nothing is asked for any more.
        refusals: how often it was refused what others had meanwhile, less what it was not since.
        since: when the last one began.
        longest_wait: seconds that the last answer took to begin, or to go on, whatever was more.
    """

    def __init__(self) -> None:
        self._open: dict[Host, http.client.HTTPConnection] = {}
        self._last: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        # Which takes memory as far as it is used: most threads read little, at least at first.
        self._buffer = memoryview(private_memory(_PIECE_BYTES))
        self._piece = _FIRST_BYTES
        self.ended = threading.Event()
        self.refusals = 0.0
        self.since = self.longest_wait = 0.0
        # For an answer, and for more of it; ``None`` for as long as anybody's.
        self._patience: float | None = None

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
        self, asked: RemoteObject, least: int, most: int, seconds: float
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """The beginning of an object: its size, some bytes of it, and the headers.

        Args:
            asked: the object.
            least: so many bytes are enough, or all that there are, if the answer breaks off or
                takes too long.
            most: how many bytes to ask for.
            seconds: that the answer may take to begin, and it and each piece of it from then on; a
                connection may be very slow, and another one not.

        Raises:
            ChangedError, StoreError: see :meth:`read`.
            NoRangesError: likewise; a proxy may have answered for once.
        """
        self._patience = seconds
        return self._accepted(asked, lambda at: self._head(at, asked, least, most, seconds))

    def _accepted(self, asked: RemoteObject, ask: Callable[[Address], Result]) -> Result:
        """What is answered at the object's address, or at a new one when that has expired."""
        try:
            return ask(asked.address())
        except DeniedError:
            pass
        try:
            return ask(asked.address(renew=True))
        except DeniedError as error:
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
            check_range(answer, address, asked, size, wanted)
            at = wanted[0]
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
        self, address: Address, asked: RemoteObject, least: int, most: int, seconds: float
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        with self._answer(address, asked, f"bytes=0-{most - 1}") as answer:
            if answer.status == 200:
                raise NoRangesError(
                    f"{asked.name} is sent as a whole by a server that knows no ranges; download "
                    "it, and open the file by yogadl.dataref.LMDBDataRef"
                )
            found = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if found is None or found[1] != "0" or found[3] == "*":
                raise NetworkError(f"{asked.name}: an answer does not say which bytes it has")
            wanted = min(int(found[2]) + 1, most)
            data = _beginning(answer, wanted, least, seconds)
            if len(data) < min(least, wanted):
                raise NetworkError(
                    f"{asked.name}: of the answer, no more than {len(data):,} bytes came before it "
                    f"broke off, or within {seconds:,.0f} seconds"
                )
            return int(found[3]), data, answer.headers

    @contextlib.contextmanager
    def _answer(
        self, address: Address, asked: RemoteObject, wanted: str
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer of status 200 or 206. Its connection is used again if all of it is read."""
        headers = {"Range": wanted, "Accept-Encoding": "identity", **address.headers}
        key = Host.of(address)
        try:
            answer = self._ask(key, key.target(address.url), headers)
            for _ in range(_REDIRECTIONS):
                where = answer.headers.get("Location")
                if answer.status not in REDIRECTED or where is None:
                    break
                answer.read(SAID_BYTES)
                if not answer.isclosed():
                    # Nobody wants to know what else it says.
                    self._drop(key)
                address = _redirected(address, where)
                if Host.of(address) != key:
                    headers.pop("Authorization", None)
                    key = Host.of(address)
                answer = self._ask(key, key.target(address.url), headers)
            raise_refusal(answer, asked)
            yield answer
            if not answer.isclosed():
                # It has more than was asked for, which would be taken for the next answer.
                self._drop(key)
        except BROKEN as error:
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

    def _ask(self, key: Host, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
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
                connection = self._open[key] = key.connect(self._patience)
                self.since = started
            connection.request("GET", target, headers=headers)
            self._socket = connection.sock
            answer = self._last = connection.getresponse()
        except BROKEN as error:
            if is_new or isinstance(error, TimeoutError):
                raise
            # A server may close a connection that was idle.
            self._drop(key)
            return self._ask(key, target, headers)
        self.longest_wait = time.monotonic() - started
        return answer

    def _drop(self, key: Host) -> None:
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


def _beginning(answer: http.client.HTTPResponse, most: int, least: int, seconds: float) -> bytes:
    """What comes of an answer in so many seconds, or before it breaks off.

    Raises:
        OSError, http.client.HTTPException: it broke off before so many bytes as are enough.
    """
    data, until = bytearray(), time.monotonic() + seconds
    try:
        while len(data) < most and (more := answer.read1(most - len(data))):
            data += more
            if time.monotonic() > until:
                break
    except BROKEN:
        if len(data) < least:
            raise
    return bytes(data)


def _next_piece(nbytes: int, seconds: float) -> int:
    """How many bytes to hand over at a time after so many, which took so long to come."""
    if seconds < _QUICK_SECONDS:
        return min(4 * nbytes, _PIECE_BYTES)
    if seconds > _SLOW_SECONDS:
        return max(int(nbytes * _SLOW_SECONDS / seconds) >> 10 << 10, _LEAST_BYTES)
    return nbytes


def _redirected(address: Address, where: str) -> Address:
    try:
        return dataclasses.replace(address, url=plain_url(urllib.parse.urljoin(address.url, where)))
    except ValueError:
        raise StoreError(
            "the server sends its clients to an address that is none of HTTP"
        ) from None
