"""A web server that misbehaves as it is told, and versions that are read from it."""

from __future__ import annotations

import contextlib
import http.server
import io
import pathlib
import random
import re
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from yogadl.cache.parts import PARTS_FOLDER
from yogadl.dataref import LMDBDataRef, RemoteDataRef
from yogadl.errors import AccessDeniedError, StoreError
from yogadl.remote._fetching.desk import Desk
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.remote_object import Address
from yogadl.remote._open import OBJECTS_FOLDER, look_at, open_remote
from yogadl.storage import LFSConfigurations, LFSStorage

_LITTLE, _LITTLE_SECONDS = 2048, 0.02
_DROP_SECONDS = 0.05

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass
class Asked:
    """A request for a range.

    Attributes:
        path: of the file.
        start, stop: of the range, as far as the file has it.
        size: of the whole file.
        number: of the request.
    """

    path: str
    start: int
    stop: int
    size: int
    number: int


@dataclass
class Answer:
    """What is sent, and how.

    Attributes:
        status: of HTTP.
        headers: likewise.
        body: likewise.
        stalls: seconds before it.
        cut: bytes of the body after which the connection ends; all of them if ``None``.
        trickles: as long as this says so, the body comes by little and little.
        drips: what comes byte by byte, some a second: the body, and perhaps the headers.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    stalls: float = 0.0
    cut: int | None = None
    trickles: Callable[[], bool] = lambda: False
    drips: Literal["nothing", "body", "headers"] = "nothing"


Twist = Callable[[Asked, Answer], Answer]


class Web:
    """Serves the files below a folder until it is closed.

    Attributes:
        twist: changes answers.
        asked: all requests for ranges.
        most_connections: how many there are at a time; any other is closed at once.
        refused: how many were.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.twist: Twist | None = None
        self.asked: list[Asked] = []
        self.most_connections = 1 << 30
        self.refused = 0
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.web = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, wanted: str) -> Answer:
        try:
            data = (self.folder / path.lstrip("/").partition("?")[0]).read_bytes()
        except FileNotFoundError:
            return Answer(404, {}, b"")
        found = _RANGE.fullmatch(wanted)
        assert found is not None
        start, stop = int(found[1]), min(int(found[2]) + 1, len(data))
        asked = Asked(path, start, stop, len(data), len(self.asked))
        self.asked.append(asked)
        if start >= len(data):
            return Answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
        headers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        made = Answer(206, headers, data[start:stop])
        return made if self.twist is None else self.twist(asked, made)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    web: Web
    _count = 0
    _mutex = threading.Lock()

    def verify_request(self, *_: Any) -> bool:
        with self._mutex:
            is_accepted = self._count < self.web.most_connections
            self._count += is_accepted
        self.web.refused += not is_accepted
        return is_accepted

    def process_request_thread(self, *given: Any) -> None:
        try:
            super().process_request_thread(*given)
        finally:
            with self._mutex:
                self._count -= 1

    def handle_error(self, *_: Any) -> None:
        """Clients that leave are usual here."""


class _Drops(io.BufferedIOBase):
    """Sends byte by byte, over a connection of which nothing else is asked then."""

    def __init__(self, connection: socket.socket, web: Web) -> None:
        self._connection = connection
        self._web = web

    def write(self, data: Any) -> int:
        for at in range(len(data)):
            if self._web.closing.wait(_DROP_SECONDS):
                break
            self._connection.sendall(data[at : at + 1])
        return len(data)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and bodies are written one by one, of which each would wait for the other's arrival.
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        web = self.server.web
        made = web.answer(self.path, self.headers.get("Range", "bytes=0-0"))
        if made.stalls:
            web.closing.wait(made.stalls)
        if made.drips == "headers":
            self.wfile = _Drops(self.connection, web)
        self.send_response(made.status)
        for name, value in {"Content-Length": str(len(made.body)), **made.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if made.drips == "body":
            self.wfile = _Drops(self.connection, web)
        body = memoryview(made.body)[: made.cut]
        while made.trickles() and len(body) > _LITTLE and not web.closing.wait(_LITTLE_SECONDS):
            self.wfile.write(body[:_LITTLE])
            body = body[_LITTLE:]
        self.wfile.write(body)
        if made.cut is not None or made.drips != "nothing":
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@dataclass
class WebObject:
    """See ``RemoteObject``."""

    url: str
    name: str
    renewed: int = 0

    @property
    def server(self) -> str:
        return urllib.parse.urlsplit(self.url).netloc

    def address(self, renew: bool = False) -> Address:
        self.renewed += renew
        return Address(f"{self.url}?{self.renewed}" if self.renewed else self.url)

    def is_missing(self, said: str) -> bool:
        return False

    def refusal(self, status: int, said: str) -> StoreError:
        kind = AccessDeniedError if status in (401, 403) else StoreError
        return kind(f"{self.name}: the answer was {status}: {said}")


class Never:
    """No room at all; see ``Space``."""

    def take(self, _nbytes: int) -> bool:
        return False

    def written(self, _nbytes: int) -> None:
        """It is not counted."""

    def is_full(self) -> None:
        """It is known."""


class Always:
    """Room for everything."""

    def take(self, _nbytes: int) -> bool:
        return True

    def written(self, _nbytes: int) -> None:
        """It is not counted."""

    def is_full(self) -> None:
        """It is not believed."""


@dataclass
class Opener:
    """Opens a version from a web server; can be pickled, and used in other processes.

    Attributes:
        port: of the server.
        folder: for what is fetched.
        space: in it.
        version: the folder on the server.
    """

    port: int
    folder: pathlib.Path
    space: Any = field(default_factory=Always)
    version: str = "a/1"

    def __call__(self) -> Any:
        parts = f"{self.version.rpartition('/')[0]}/{PARTS_FOLDER}"
        asked = self._object(f"{self.version}/cache.mdb")
        head = look_at(asked)
        return open_remote(
            asked,
            head,
            self._claim,
            lambda digest: self._object(f"{parts}/{digest.hex()}.mdb"),
            self.space,
        )

    def _claim(self) -> pathlib.Path:
        for name in (OBJECTS_FOLDER, PARTS_FOLDER):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        return self.folder

    def _object(self, path: str) -> WebObject:
        return WebObject(f"http://127.0.0.1:{self.port}/{path}", path)

    def ref(self) -> RemoteDataRef:
        return RemoteDataRef(self)


@dataclass
class Site:
    """A storage of files, the server that serves it, and where another machine keeps them."""

    storage: LFSStorage
    web: Web
    folder: pathlib.Path

    def store(self, records: Any, **options: Any) -> LMDBDataRef:
        """Stores a version; the same read from the disk."""
        self.storage.submit(records, "a", "1", **options)
        found = self.storage.fetch("a", "1")
        assert isinstance(found, LMDBDataRef)
        return found

    def opener(self, space: Any = None) -> Opener:
        return Opener(self.web.port, self.folder, space or Always())

    def ref(self, space: Any = None) -> RemoteDataRef:
        return self.opener(space).ref()

    def path(self) -> pathlib.Path:
        """Of the version's file at the server."""
        return self.web.folder / "a" / "1" / "cache.mdb"

    def here(self, suffix: str = "") -> list[pathlib.Path]:
        """The files that are kept."""
        return sorted(self.folder.rglob(f"*.mdb{suffix}"))

    @contextlib.contextmanager
    def twisting(self, twist: Twist) -> Iterator[None]:
        """Answers are changed meanwhile."""
        self.web.twist = twist
        try:
            yield
        finally:
            self.web.twist = None


def desk(ref: RemoteDataRef) -> Desk:
    """Where what is read is fetched."""
    return fetcher().office.desk(ref.reader.files.server)


def make_site(folder: pathlib.Path) -> Site:
    for name in ("stored", "kept"):
        (folder / name).mkdir()
    storage = LFSStorage(LFSConfigurations(folder / "stored"))
    return Site(storage, Web(folder / "stored"), folder / "kept")


@contextlib.contextmanager
def another_site(folder: pathlib.Path) -> Iterator[Site]:
    """One with a server of its own."""
    folder.mkdir()
    site = make_site(folder)
    try:
        yield site
    finally:
        site.web.close()


def random_faults(seed: int, chance: float) -> Twist:
    """Each answer is wrong with this chance, in whatever way."""

    def twist(asked: Asked, made: Answer) -> Answer:
        roll = random.Random(f"{seed} {asked.number}")
        return made if roll.random() >= chance else roll.choice(FAULTS)(roll, asked, made)

    return twist


def _damaged(roll: random.Random, _asked: Asked, made: Answer) -> Answer:
    body = bytearray(made.body)
    body[roll.randrange(len(body))] ^= 1 << roll.randrange(8)
    made.body = bytes(body)
    return made


def _shifted(roll: random.Random, _asked: Asked, made: Answer) -> Answer:
    by = roll.choice([1, 16, 48, 1024, 4096])
    made.body = (made.body[by:] + made.body[:by])[: len(made.body)]
    return made


def _cut(roll: random.Random, _asked: Asked, made: Answer) -> Answer:
    made.cut = roll.randrange(len(made.body))
    return made


def _short(roll: random.Random, _asked: Asked, made: Answer) -> Answer:
    made.body = made.body[: roll.randrange(len(made.body))]
    return made


def _elsewhere(roll: random.Random, asked: Asked, made: Answer) -> Answer:
    made.headers["Content-Range"] = roll.choice(
        [
            f"bytes {asked.start + 1024}-{asked.stop + 1023}/{asked.size}",
            f"bytes {asked.start}-{asked.stop - 1}",
            "bytes",
            f"bytes {'9' * 5000}-{'9' * 5000}/{'9' * 5000}",
        ]
    )
    return made


def _whole(_roll: random.Random, _asked: Asked, made: Answer) -> Answer:
    made.status = 200
    return made


def _refused(roll: random.Random, _asked: Asked, _made: Answer) -> Answer:
    status = roll.choice([408, 429, 500, 502, 503, 504])
    return Answer(status, {}, b"x" * roll.choice([0, 10, 10_000]))


def _stalled(roll: random.Random, _asked: Asked, made: Answer) -> Answer:
    made.stalls = roll.choice([0.05, 0.4])
    return made


def _longer(_roll: random.Random, _asked: Asked, made: Answer) -> Answer:
    made.body += b"HTTP/1.1 206 OK\r\nContent-Length: 10\r\n\r\n0123456789"
    return made


FAULTS = (
    _damaged,
    _shifted,
    _cut,
    _short,
    _elsewhere,
    _whole,
    _refused,
    _stalled,
    _longer,
)
