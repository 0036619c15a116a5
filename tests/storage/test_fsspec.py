"""What fsspec can read, as storages."""

from __future__ import annotations

import contextlib
import functools
import http.server
import pathlib
import pickle
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from yogadl.errors import (
    CacheNotFoundError,
    ChecksumError,
    InvalidArgumentError,
    NetworkError,
    StoreError,
    UnsafeStoreError,
)
from yogadl.storage import FsspecConfigurations, FsspecStorage, LFSStorage, open_storage

fsspec = pytest.importorskip("fsspec")

LEGACY = pathlib.Path(__file__).parents[1] / "golden" / "yogadl-0.1.4" / "images.mdb"
ROWS = np.arange(3000)


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> LFSStorage:
    """A storage of plain files, tables, tags, and what yogadl 0.1.4 wrote."""
    storage = LFSStorage(tmp_path / "origin")
    storage.submit(ROWS, "plain", "1", metadata={"license": "CC0"})
    storage.submit(ROWS, "a/parts", "1", part_bytes=4000)
    storage.tag("a/parts", "main", "1")
    with storage.change("a/parts", "main", version="2", message="more") as change:
        change.append([-1])
    (tmp_path / "origin/old/1").mkdir(parents=True)
    (tmp_path / "origin/old/1/cache.mdb").write_bytes(LEGACY.read_bytes())
    return storage


@pytest.fixture
def local(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "local"
    folder.mkdir()
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Python's own web server, which lists folders and knows no ranges."""

    def log_message(self, *arguments: Any) -> None:
        pass


class Ranges(Quiet):
    """One that knows ranges, as nearly all do; it fails where it is told to."""

    failing: ClassVar[set[str]] = set()

    def send_head(self) -> Any:
        if self.path in self.failing:
            self.send_error(503)
            return None
        asked = self.headers.get("Range")
        path = pathlib.Path(self.translate_path(self.path))
        if asked is None or not path.is_file():
            return super().send_head()
        data = path.read_bytes()
        first, last = (int(it) for it in asked.removeprefix("bytes=").split("-"))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(len(data[first : last + 1])))
        self.end_headers()
        self.wfile.write(data[first : last + 1])
        return None


@contextlib.contextmanager
def web(folder: pathlib.Path, kind: type[Quiet]) -> Iterator[str]:
    handler = functools.partial(kind, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def files(folder: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()


@contextlib.contextmanager
def in_memory(folder: pathlib.Path) -> Iterator[str]:
    name = uuid.uuid4().hex
    system = fsspec.filesystem("memory")
    for path, data in files(folder):
        system.pipe_file(f"/{name}/dir/{path}", data)
    try:
        yield f"memory://{name}/dir"
    finally:
        system.rm(f"/{name}", recursive=True)


@contextlib.contextmanager
def in_zip(folder: pathlib.Path) -> Iterator[str]:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as file:
        for name, data in files(folder):
            file.writestr(f"dir/{name}", data)
    yield f"zip://dir::{path.as_uri()}"


@contextlib.contextmanager
def as_files(folder: pathlib.Path) -> Iterator[str]:
    yield f"local://{folder}"


def served(kind: type[Quiet]) -> Callable[[pathlib.Path], Any]:
    def serve(folder: pathlib.Path) -> Any:
        pytest.importorskip("aiohttp")
        return web(folder, kind)

    return serve


KINDS = {
    "memory": in_memory,
    "zip": in_zip,
    "local": as_files,
    "web": served(Ranges),
    "web without ranges": served(Quiet),
}


@pytest.fixture(params=KINDS)
def url(
    request: pytest.FixtureRequest, origin: LFSStorage, tmp_path: pathlib.Path
) -> Iterator[str]:
    with KINDS[request.param](tmp_path / "origin") as found:
        yield found


ODD = ["a b", "a%20b", "a#b", "a?b", "50%", "a+b", "[x]", "~", "é", "%2e"]


@pytest.fixture
def oddly_named(origin: LFSStorage) -> None:
    """Versions that are there before anything is copied."""
    for name in ODD:
        origin.submit([name.encode()], "odd", name)
    origin.submit([1], "o d/d", "1")
    origin.tag("odd", "main", "a b")


@pytest.mark.usefixtures("oddly_named")
def test_names_may_have_anything_in_them(
    url: str, tmp_path: pathlib.Path, local: pathlib.Path
) -> None:
    """Also what means something in addresses."""
    storage = open_storage(f"{url}?local_cache_dir={local}")
    assert {entry.dataset_version for entry in storage.list("odd")} == set(ODD)
    assert [storage.fetch("odd", name)[0] for name in ODD] == [it.encode() for it in ODD]
    assert len(storage.fetch("o d/d", "1")) == 1
    (tmp_path / "copied").mkdir()
    copied = LFSStorage(tmp_path / "copied")
    storage.sync(copied, "odd")
    assert {entry.dataset_version for entry in copied.list()} == set(ODD)
    assert copied.tags("odd") == {"main": "a b"}


def test_all_is_read(url: str, origin: LFSStorage, local: pathlib.Path) -> None:
    storage = open_storage(f"{url}?local_cache_dir={local}")
    assert isinstance(storage, FsspecStorage)
    for name, version, rows in (
        ("plain", "1", ROWS),
        ("a/parts", "1", ROWS),
        ("a/parts", "main", [*ROWS, -1]),
    ):
        for check in (False, True):
            with storage.fetch(name, version, check_records=check) as ref:
                assert ref.read(range(len(ref))).tolist() == list(rows)
    with storage.fetch("old", "1") as ref, origin.fetch("old", "1") as expected:
        assert len(list(ref.stream())) == len(expected)
    assert storage.tags("a/parts") == {"main": "2"}
    assert storage.exists("plain", "1")
    assert not storage.exists("plain", "2")
    with pytest.raises(CacheNotFoundError):
        storage.fetch("plain", "2")


def test_all_is_listed(url: str, origin: LFSStorage, local: pathlib.Path) -> None:
    storage = open_storage(url, local_cache_dir=local)

    def told(entries: list[Any]) -> list[Any]:
        names = ("dataset_id", "dataset_version", "record_count", "spec", "content_id", "tags")
        names += ("message", "parents")
        return [[getattr(entry, name) for name in names] for entry in entries]

    assert told(storage.list()) == told(origin.list())
    assert told(storage.log("a/parts", "main")) == told(origin.log("a/parts", "main"))
    assert "license | CC0" in storage.card("plain", sample=2).to_markdown()
    assert storage.list("none") == []
    other = LFSStorage(local / "copied")
    storage.sync(other)
    assert told(other.list()) == told(origin.list())
    assert len(storage.diff("a/parts", "1", "2").added) == 1


@pytest.fixture
def remembered(origin: LFSStorage) -> Iterator[str]:
    with in_memory(origin._configurations.storage_dir_path) as found:
        yield found


def test_nothing_is_changed(remembered: str, origin: LFSStorage, local: pathlib.Path) -> None:
    storage = open_storage(remembered, local_cache_dir=local)
    make = storage.cacheable("plain", "1", on_change="ignore")(lambda: pytest.fail("it is there"))
    assert len(make()) == 3000
    for change in (
        lambda: storage.submit([1], "b", "1"),
        lambda: storage.submit(np.arange(9), "b", "1", workers=2),
        storage.cacheable("b", "1")(lambda: [1]),
        lambda: storage.build("b", "1", spec=origin.fetch("plain").spec).__enter__(),
        lambda: storage.change("a/parts", "main").__enter__(),
        lambda: storage.set_metadata("a/parts", "main", {"x": 1}),
        lambda: storage.compact("a/parts", "main"),
        lambda: storage.tag("a/parts", "new", "1"),
        lambda: storage.untag("a/parts", "main"),
        lambda: storage.delete("plain", "1"),
        lambda: storage.delete("plain", "1", force=True),
        lambda: storage.gc(keep_last=1),
        storage.collect_parts,
        lambda: origin.copy("plain", "1", storage, new_version="2"),
    ):
        with pytest.raises(UnsafeStoreError, match="only be read"):
            change()
    assert len(open_storage(remembered, local_cache_dir=local).list()) == 4


def test_what_was_replaced_is_read_anew(origin: LFSStorage, local: pathlib.Path) -> None:
    with in_memory(origin._configurations.storage_dir_path) as url:
        storage = open_storage(url, local_cache_dir=local)
        assert len(storage.fetch("plain", "1")) == 3000
        origin.submit(ROWS[::-1].copy(), "plain", "1")
        data = (origin._configurations.storage_dir_path / "plain/1/cache.mdb").read_bytes()
        fsspec.filesystem("memory").pipe_file(
            f"{url.removeprefix('memory:/')}/plain/1/cache.mdb", data
        )
        with storage.fetch("plain", "1") as ref:
            assert ref.read([0, 2999]).tolist() == [2999, 0]


def test_damage_is_found(origin: LFSStorage, local: pathlib.Path) -> None:
    """The records' own bytes are compared, too, though no metadata tell the digest."""
    folder = origin._configurations.storage_dir_path
    paths = [folder / "plain/1/cache.mdb", *(folder / "a/parts/yogadl.parts").glob("*.mdb")]
    for path in paths:
        data = bytearray(path.read_bytes())
        # Among the records, of which the header says nothing.
        data[16384 + 100] ^= 1
        path.write_bytes(data)
    storage = FsspecStorage(FsspecConfigurations(f"local://{folder}", local_cache_dir=local))
    for name in ("plain", "a/parts"):
        with pytest.raises(ChecksumError):
            storage.fetch(name, "1")


def test_a_failing_server_has_not_nothing(
    origin: LFSStorage, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")
    from yogadl import backoff

    quick = backoff.Limits(patience=0.1, fewest=1, first_pause=0.01, longest_pause=0.01)
    monkeypatch.setattr(backoff, "LIMITS", quick)
    with web(origin._configurations.storage_dir_path, Ranges) as url:
        storage = open_storage(url, local_cache_dir=local)
        monkeypatch.setattr(Ranges, "failing", {"/plain/1/cache.mdb"})
        with pytest.raises(NetworkError, match="503"):
            storage.fetch("plain", "1")
    with pytest.raises(StoreError):
        storage.fetch("plain", "1")


def test_what_cannot_be_opened(remembered: str, local: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no argument color; it can have local_cache"):
        open_storage("memory://a?color=red")
    with pytest.raises(InvalidArgumentError, match="given in the URL and besides"):
        open_storage(f"memory://a?local_cache_dir={local}", local_cache_dir=local)
    with pytest.raises(InvalidArgumentError, match="password") as error:
        open_storage("sftp://me:verysecret@host/a")
    assert "verysecret" not in str(error.value)
    with pytest.raises(InvalidArgumentError, match="not a directory"):
        open_storage("memory://a", local_cache_dir=local / "none")
    with pytest.raises(InvalidArgumentError, match="fsspec cannot open dir://a"):
        open_storage("dir://a")
    with pytest.raises(StoreError, match="fsspec cannot open zip"):
        open_storage(f"zip://a::{local / 'none.zip'}", local_cache_dir=local)
    storage = open_storage(remembered, local_cache_dir=local)
    with pytest.raises(StoreError, match="only be downloaded"):
        storage.fetch("plain", "1", download=False)


def test_secrets_are_neither_shown_nor_pickled(local: pathlib.Path) -> None:
    given = FsspecConfigurations("memory://a", local_cache_dir=local, password="verysecret", x=1)
    assert "verysecret" not in repr(given)
    assert b"verysecret" not in pickle.dumps(given)
    again = pickle.loads(pickle.dumps(given))
    assert (again.options, again.location) == ({"x": 1}, "memory://a")
    assert "never pickled" in again.hint


def test_a_storage_can_be_pickled(origin: LFSStorage, local: pathlib.Path) -> None:
    with as_files(origin._configurations.storage_dir_path) as url:
        storage = pickle.loads(pickle.dumps(open_storage(url, local_cache_dir=local)))
        with storage.fetch("plain") as ref:
            assert ref[7] == 7
