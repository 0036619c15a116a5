"""What reading from afar will cost, does cost, and where else it works."""

from __future__ import annotations

import functools
import http.server
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_far import arrays, everything, far, wait_until_counted

import yogadl
from yogadl.errors import (
    AccessDeniedError,
    CacheNotFoundError,
    InvalidArgumentError,
    StoreError,
)
from yogadl.profile import Profile
from yogadl.storage import LFSStorage

COUNT = 400
SIZE = 100_000


@pytest.mark.parametrize("shards", [1, 4])
def test_the_plan_is_what_is_asked_for(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path, shards: int
) -> None:
    s3.make_storage(local).submit(arrays(COUNT, SIZE), "a", "1", part_bytes=8_000_000)
    with far(s3, elsewhere) as ref:
        plan = ref.plan(num_shards=shards, shards_here=1)
        assert plan.records == COUNT // shards
        profile = Profile()
        stream = profile.stream(ref.stream(shuffle=True, shuffle_seed=1, num_shards=shards))
        for _batch in profile.watch(stream.batches(32)):
            pass
        wait_until_counted(ref)
        report = profile.report()
        # Opening came before.
        wanted = plan.index_bytes + plan.record_bytes
        assert report.fetched_bytes == pytest.approx(wanted, rel=0.05)
        if shards > 1:
            assert report.requests == pytest.approx(
                plan.index_requests + plan.record_requests, rel=0.1
            )
        assert "requests" in str(report)
        assert "requests" in str(plan)
        assert plan.later_requests == 0


def test_plans_of_huge_data(s3: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    s3.make_storage(local).submit(arrays(COUNT, SIZE), "a", "1")
    with far(s3, elsewhere) as ref:
        one = ref.plan(num_shards=64, shards_here=1)
        assert one.index_bytes <= 0.03 * one.record_bytes
        assert one.first_batch_seconds >= 3 * 0.03
        half = ref.plan(num_shards=1, local_cache_bytes=COUNT * SIZE // 2)
        assert half.later_bytes == pytest.approx(COUNT * SIZE / 2, rel=0.05)
        far_away = ref.plan(num_shards=64, shards_here=1, latency=0.3)
        assert far_away.epoch_seconds > one.epoch_seconds
        for wrong in (
            {"num_shards": 0},
            {"num_shards": 2, "shards_here": 3},
            {"latency": 0},
            {"local_cache_bytes": -1},
            {"batch_size": 0},
        ):
            with pytest.raises(InvalidArgumentError):
                ref.plan(**wrong)  # type: ignore[arg-type]


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """Files by ranges, after a redirection, to who knows the password."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != "Basic bWU6c2VzYW1l" and "secret" in self.path:
            self._say(401)
        elif self.path.startswith("/moved/"):
            self._say(302, {"Location": self.path.removeprefix("/moved")})
        else:
            self._send_range()

    def _send_range(self) -> None:
        path = pathlib.Path(self.translate_path(self.path))
        given = self.headers.get("Range", "")
        if not path.is_file():
            self._say(404)
        elif not given or "whole" in self.path:
            self._say(200, {}, path.read_bytes())
        else:
            data = path.read_bytes()
            first, _, last = given.removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1]
            end = int(first) + len(part) - 1
            headers = {"Content-Range": f"bytes {first}-{end}/{len(data)}", "ETag": '"one"'}
            self._say(206, headers, part)

    def _say(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None: ...


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Iterator[str]:
    """The address of a server of the folder ``public``."""
    folder = tmp_path / "public"
    storage = LFSStorage(folder)
    for name in ("numbers", "secret", "whole"):
        storage.submit(arrays(), name, "1")
    storage.submit(arrays(), "parts", "1", part_bytes=500_000)
    handler = functools.partial(_Ranges, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("name", ["numbers", "parts", "moved/numbers", "moved/parts"])
def test_web_servers(site: str, local: pathlib.Path, name: str) -> None:
    with yogadl.from_url(f"http://{site}/{name}/1/cache.mdb", local_cache_dir=local) as ref:
        found = everything(ref.stream(shuffle=True, shuffle_seed=1))
        assert sorted(found) == everything(arrays())
        assert np.array_equal(ref[7]["x"], next(r for r in arrays() if r["number"] == 7)["x"])


def test_web_servers_that_refuse(site: str, local: pathlib.Path) -> None:
    open_url = functools.partial(yogadl.from_url, local_cache_dir=local)
    with open_url(f"http://me:sesame@{site}/secret/1/cache.mdb") as ref:
        assert len(everything(ref.stream())) == 500
        assert "sesame" not in repr(ref)
    with pytest.raises(AccessDeniedError, match="401") as denied:
        open_url(f"http://me:wrong-one@{site}/secret/1/cache.mdb")
    assert "wrong-one" not in str(denied.value)
    with pytest.raises(CacheNotFoundError, match="404"):
        open_url(f"http://{site}/nothing/1/cache.mdb")
    with pytest.raises(StoreError, match="knows no ranges"):
        open_url(f"http://{site}/whole/1/cache.mdb")
    for wrong in ("s3://bucket/key", "file:///etc/passwd", "cache.mdb", "http://"):
        with pytest.raises(InvalidArgumentError, match="url must be"):
            open_url(wrong)
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        yogadl.from_url(f"http://{site}/a", local_cache_dir=local / "none")
