"""A proxy between a store and its clients, which notes what is asked and makes things go wrong."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterable, Iterator

import flavours
from exchange import Dialect, Reader, Request
from faults import Fault, Faults, Kind, error_body
from flavours import Flavour
from tamper import CutError, tampered
from wire import BrokenOffError, Head, Piece, Stream, has_body

_ON_REQUESTS = frozenset((Kind.CUT_REQUEST, Kind.FLIP_REQUEST))
_ON_ANSWERS = frozenset((Kind.CUT_ANSWER, Kind.TRUNCATE, Kind.FLIP_ANSWER, Kind.SLOW))
_PEEK_BYTES = 64 << 10
_CLOSE_SECONDS = 5.0
_BACKLOG = 256


class SwallowedError(Exception):
    """From here on, nothing is answered any more, and the connection stays."""


class Proxy:
    """Listens on a free port of 127.0.0.1 from when it is made until it is closed.

    Each client's connection has a thread; bodies are passed on as they come.

    Args:
        port: of the server.
        dialect: the server's.
        at_once: to the server, not more requests than these; others wait.

    Attributes:
        port: to connect to.
        faults: what goes wrong; at first nothing.
        flavour: what kind of store this is; at first what the server is.
        log: all requests, in the order they came.
    """

    def __init__(self, port: int, dialect: Dialect, at_once: int = 32) -> None:
        self._server = ("127.0.0.1", port)
        self._dialect: Dialect = dialect
        self._reader = Reader(dialect)
        self._slots = threading.Semaphore(at_once)
        self._mutex = threading.Lock()
        self._numbers = itertools.count()
        self._listening: list[list[Request]] = []
        self._clients: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._idle: list[Stream] = []
        self._closing = threading.Event()
        self._swallowed: list[socket.socket] = []
        self._is_swallowing = False
        self._listens = threading.Event()
        self._listens.set()
        self._is_cut_off = False
        self.faults = Faults(dialect)
        self.flavour: Flavour = "faithful"
        self.log: list[Request] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._accepting.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def counting(self) -> Iterator[list[Request]]:
        """The requests that come meanwhile, in a list that grows."""
        requests: list[Request] = []
        with self._mutex:
            self._listening.append(requests)
        try:
            yield requests
        finally:
            with self._mutex:
                # Not remove(), which goes by contents.
                self._listening = [kept for kept in self._listening if kept is not requests]

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Meanwhile, whoever uses this proxy does not reach the store. Others do."""
        with self._mutex:
            self._is_cut_off = True
        self._end_clients()
        try:
            yield
        finally:
            self._is_cut_off = False

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Meanwhile, nobody listens on the port, and connections that were open have ended."""
        self._listens.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        # So that nobody else gets the port.
        reserved = socket.socket()
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", self.port))
        self._end_clients()
        try:
            yield
        finally:
            reserved.listen(_BACKLOG)
            self._listener = reserved
            self._listens.set()

    @contextlib.contextmanager
    def swallowing(self) -> Iterator[None]:
        """Meanwhile, connections and bytes are taken, and nothing is ever answered."""
        self._is_swallowing = True
        try:
            yield
        finally:
            self._is_swallowing = False

    def close(self) -> None:
        """Ends all connections."""
        self._closing.set()
        self._listens.set()
        with contextlib.suppress(OSError):
            # It is waiting for somebody to connect.
            socket.create_connection(("127.0.0.1", self.port), _CLOSE_SECONDS).close()
        self._accepting.join(_CLOSE_SECONDS)
        with contextlib.suppress(OSError):
            # Also where a forked child has it, too.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_clients()
        with self._mutex:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_CLOSE_SECONDS)
        with self._mutex:
            while self._idle:
                self._idle.pop().close()
            while self._swallowed:
                self._swallowed.pop().close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Connections

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._listens.wait()
                continue
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            with self._mutex:
                # Also one that came just before nobody listened any more: none outlives that.
                refuses = not self._listens.is_set()
                if refuses or self._is_cut_off or self._closing.is_set():
                    Stream(client).abort()
                    continue
                if self._is_swallowing:
                    self._swallowed.append(client)
                    continue
                self._clients.add(client)
                self._threads.add(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        client = Stream(connection)
        is_swallowed = False
        try:
            with contextlib.suppress(OSError):
                while self._exchange(client):
                    pass
        except SwallowedError:
            is_swallowed = True
        finally:
            with self._mutex:
                self._clients.discard(connection)
                self._threads.discard(threading.current_thread())
                if is_swallowed:
                    self._swallowed.append(connection)
            if not is_swallowed:
                client.close()

    def _end_clients(self) -> None:
        with self._mutex:
            for client in self._clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> Stream:
        """A connection to the server, one that was kept if there is one."""
        while True:
            with self._mutex:
                if not self._idle:
                    break
                kept = self._idle.pop()
            if kept.is_quiet:
                return kept
            kept.close()
        return Stream(socket.create_connection(self._server))

    # Requests

    def _exchange(self, client: Stream) -> bool:
        """Passes on one request and its answer; whether more may come."""
        head = client.read_head()
        if head is None:
            return False
        if "100-continue" in head.get("Expect").lower():
            client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces = client.body(head)
        first = next(pieces, None)
        body = pieces if first is None else itertools.chain([first], pieces)
        request = self._note(head, b"" if first is None else bytes(first.data[:_PEEK_BYTES]))
        fault = self.faults.of(request)
        request.fault = str(fault or "")
        try:
            self._swallow()
            return self._carry_out(client, head, request, body, fault)
        except CutError:
            client.abort()
            return False
        finally:
            request.is_done = True

    def _swallow(self) -> None:
        if self._is_swallowing:
            raise SwallowedError

    def _note(self, head: Head, beginning: bytes) -> Request:
        with self._mutex:
            request = self._reader.read(next(self._numbers), head, beginning)
            for log in (self.log, *self._listening):
                log.append(request)
        return request

    def _carry_out(
        self,
        client: Stream,
        head: Head,
        request: Request,
        body: Iterable[Piece],
        fault: Fault | None,
    ) -> bool:
        kind = fault.kind if fault is not None else None
        if kind is Kind.CUT:
            raise CutError
        if fault is not None and kind is Kind.STALL:
            self._closing.wait(fault.seconds)
        if fault is not None and kind is Kind.ERROR:
            _drain(body)
            return self._answer_error(client, head, request, fault.status, fault.code)
        status = flavours.apply(self.flavour, self._dialect, self._server[1], request, head)
        if status:
            _drain(body)
            return self._answer_error(client, head, request, status, "")
        with self._slots:
            server = self._connect()
            is_kept = False
            try:
                answer = self._ask(server, head, request, body, fault)
                follows = server.body(answer, ends_with_connection=True)
                rest = follows if has_body(request.method, answer) else iter(())
                if fault is not None and kind is Kind.LATE_ERROR:
                    _drain(rest)
                    done = self._answer_error(client, head, request, fault.status, fault.code)
                else:
                    done = self._answer(client, head, request, answer, rest, fault)
                is_kept = not answer.closes
                return done
            finally:
                self._put_back(server, is_kept)

    def _put_back(self, server: Stream, is_kept: bool) -> None:
        if not is_kept or self._closing.is_set():
            server.close()
            return
        with self._mutex:
            self._idle.append(server)

    def _ask(
        self,
        server: Stream,
        head: Head,
        request: Request,
        body: Iterable[Piece],
        fault: Fault | None,
    ) -> Head:
        """Sends a request to the server; the head of its answer."""
        passed_on = Head(head.first, list(head.fields))
        passed_on.drop_hop_by_hop()
        server.send(passed_on.encoded())
        for data in self._tampered(head, body, fault, _ON_REQUESTS):
            self._swallow()
            server.send(data)
            request.sent += len(data)
        while (answer := server.read_head()) is not None:
            if answer.status >= 200:
                self._reader.note_answer(request, answer)
                return answer
        raise BrokenOffError("the server closed the connection instead of answering")

    def _answer(
        self,
        client: Stream,
        head: Head,
        request: Request,
        answer: Head,
        rest: Iterable[Piece],
        fault: Fault | None,
    ) -> bool:
        """Sends the server's answer to the client; whether more requests may come."""
        kind = fault.kind if fault is not None else None
        has_content = has_body(request.method, answer) and answer.length != 0
        if kind is Kind.LOSE_ANSWER:
            raise CutError
        if kind in (Kind.CUT_ANSWER, Kind.TRUNCATE) and not has_content:
            raise CutError
        ends = has_content and answer.length is None and not answer.is_chunked
        keeps = not head.closes and not ends
        passed_on = Head(answer.first.replace("HTTP/1.0", "HTTP/1.1", 1), list(answer.fields))
        passed_on.drop_hop_by_hop()
        if not keeps:
            passed_on.fields.append(("Connection", "close"))
        self._swallow()
        request.status = answer.status
        client.send(passed_on.encoded())
        try:
            for data in self._tampered(answer, rest, fault, _ON_ANSWERS):
                self._swallow()
                request.received += len(data)
                client.send(data)
        except CutError:
            if kind is not Kind.TRUNCATE:
                raise
            client.close()
            # The server's connection has more to say; it is not kept.
            raise BrokenOffError("truncated") from None
        return keeps

    def _tampered(
        self, head: Head, body: Iterable[Piece], fault: Fault | None, about: frozenset[Kind]
    ) -> Iterator[bytes | bytearray | memoryview]:
        if fault is None or fault.kind not in about:
            return (piece.data for piece in body)
        content_type = head.get("Content-Type")
        return tampered(iter(body), head.length, fault, content_type, self._closing.wait)

    def _answer_error(
        self, client: Stream, head: Head, request: Request, status: int, code: str
    ) -> bool:
        content_type, body = error_body(self._dialect, status, code, request.path)
        fields = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
        if head.closes:
            fields.append(("Connection", "close"))
        request.status = status
        client.send(Head(f"HTTP/1.1 {status} Made by a test", fields).encoded())
        if request.method != "HEAD":
            request.received += len(body)
            client.send(body)
        return not head.closes


def _drain(body: Iterable[Piece]) -> None:
    for _ in body:
        pass
