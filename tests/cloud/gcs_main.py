"""Runs gcp-storage-emulator on a free port, which it writes to its standard output.

The emulator serves one connection at a time and knows no preconditions; its generations are those
of when an upload began. Here, requests come over kept connections of many threads and are carried
out one at a time; generations are given as objects appear, never twice, and preconditions,
``generation=`` and ``sourceGeneration=`` hold. An upload in pieces behaves as Google documents it
when a piece is sent twice, its state is asked for, or its digest does not fit.
"""

from __future__ import annotations

import functools
import http
import http.server
import io
import json
import logging
import re
import threading
import time
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from gcp_storage_emulator.exceptions import BadRequest, NotFound
from gcp_storage_emulator.server import RequestHandler, Router
from gcp_storage_emulator.storage import Storage
from lifeline import end_with_parent

_LIST_PATH = re.compile(r"/storage/v1/b/([^/]+)/o$")


class RefusedError(Exception):
    """A precondition does not hold."""

    def __init__(self, status: int) -> None:
        self.status = status


class Objects(Storage):
    """The emulator's objects, with what it lacks. Only used by one request at a time.

    Attributes:
        query: that of the request.
        method: likewise.
        read: the object whose contents it reads.
        finished: the objects of uploads in pieces that are complete.
    """

    def __init__(self) -> None:
        super().__init__(use_memory_fs=True, data_dir="/nowhere")
        self.query: dict[str, str] = {}
        self.method = ""
        self.read: dict[str, Any] | None = None
        self.finished: dict[str, dict[str, Any]] = {}
        self._pieces: dict[str, bytearray] = {}
        self._last = 0

    def begin(self, method: str, query: dict[str, str]) -> None:
        """Starts a request."""
        self.method = method
        self.query = query
        self.read = None

    # Conditions

    def _check(self, bucket_name: str, file_name: str) -> None:
        found = self.objects.get(bucket_name, {}).get(file_name, {})
        for name in ("Generation", "Metageneration"):
            is_now = found.get(name.lower(), "0")
            if self.query.get(f"if{name}Match", is_now) != is_now:
                raise RefusedError(412)
            if self.query.get(f"if{name}NotMatch") == is_now:
                raise RefusedError(304 if self.method == "GET" else 412)

    def _check_existing(self, bucket_name: str, file_name: str) -> dict[str, Any]:
        found: dict[str, Any] | None = self.objects.get(bucket_name, {}).get(file_name)
        for name in ("generation", "sourceGeneration"):
            if found is None or self.query.get(name) not in (None, found["generation"]):
                raise NotFound
        assert found is not None
        self._check(bucket_name, file_name)
        return found

    # What the emulator calls

    def _write_config_to_file(self) -> None:
        """Nobody reads it, and it is the whole store's metadata at every change."""

    def _bucket_soft_delete_retention_seconds(self, bucket_name: str) -> int:
        """What is deleted is not kept for a week, in memory."""
        return 0

    def get_file_obj(self, bucket_name: str, file_name: str) -> Any:
        return self._check_existing(bucket_name, file_name)

    def get_file(self, bucket_name: str, file_name: str, show_error: bool = True) -> bytes:
        self.read = self._check_existing(bucket_name, file_name)
        return bytes(super().get_file(bucket_name, file_name, show_error))

    def delete_file(self, bucket_name: str, file_name: str) -> None:
        self._check_existing(bucket_name, file_name)
        super().delete_file(bucket_name, file_name)

    def create_file(
        self, bucket_name: str, file_name: str, content: bytes, file_obj: Any, file_id: Any = None
    ) -> None:
        if bucket_name not in self.buckets:
            raise NotFound
        self._pieces.pop(file_id, None)
        try:
            self._check(bucket_name, file_name)
        except RefusedError:
            self.resumable.pop(file_id, None)
            raise
        self._stamp(file_obj)
        super().create_file(bucket_name, file_name, content, file_obj, file_id)
        if file_id is not None:
            self.finished[file_id] = file_obj

    def _stamp(self, made: dict[str, Any]) -> None:
        """Gives an object its generation and times."""
        self._last = max(self._last + 1, time.time_ns() // 1000)
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        made |= {"generation": str(self._last), "metageneration": "1"}
        made |= {"timeCreated": now, "updated": now, "timeStorageClassUpdated": now}
        made["id"] = f"{made['bucket']}/{made['name']}/{self._last}"
        address = made["mediaLink"].partition("/download/")[0]
        path = f"b/{made['bucket']}/o/{quote(made['name'], safe='')}"
        made["mediaLink"] = (
            f"{address}/download/storage/v1/{path}?generation={self._last}&alt=media"
        )

    # Uploads in pieces

    def create_resumable_upload(self, bucket_name: str, file_name: str, file_obj: Any) -> str:
        if bucket_name not in self.buckets:
            raise NotFound
        self._check(bucket_name, file_name)
        return str(super().create_resumable_upload(bucket_name, file_name, file_obj))

    def get_resumable_byte_count(self, file_id: str) -> int:
        return len(self._pieces.get(file_id, b""))

    def add_to_resumable_upload(
        self, file_id: str, content: Any, total_size: Any = None, expected_start: Any = None
    ) -> bytes | None:
        pieces = self._pieces.setdefault(file_id, bytearray())
        start = len(pieces) if expected_start is None else expected_start
        if start > len(pieces):
            raise BadRequest(f"there are {len(pieces)} bytes, and this piece begins at {start}")
        # What is sent again is not taken twice.
        pieces += (content or b"")[len(pieces) - start :]
        if total_size is None or len(pieces) < total_size:
            return None
        return bytes(pieces[:total_size])

    def note_digests(self, upload_id: str, header: str) -> None:
        """Has the emulator compare the digests of ``X-Goog-Hash`` at the end of an upload."""
        fields = {"crc32c": "crc32c", "md5": "md5Hash"}
        for part in header.split(","):
            name, _, value = part.strip().partition("=")
            if name in fields and upload_id in self.resumable:
                self.resumable[upload_id][fields[name]] = value

    def page(self, bucket_name: str) -> dict[str, Any]:
        """An answer to a request for a list; at most 1000 objects at a time."""
        query = self.query
        files, prefixes = self.get_file_list(
            bucket_name, query.get("prefix"), query.get("delimiter"), query.get("matchGlob")
        )
        files = [made for made in files if made["name"] >= query.get("startOffset", "")]
        rest = [made for made in files if made["name"] > query.get("pageToken", "")]
        most = min(int(query.get("maxResults", 1000)), 1000)
        page = {"kind": "storage#objects", "prefixes": prefixes, "items": rest[:most]}
        if len(rest) > most:
            page["nextPageToken"] = rest[most - 1]["name"]
        return page

    def pending(self) -> list[str]:
        """``bucket/name`` of each upload that has begun and not ended."""
        return sorted(f"{made['bucket']}/{made['name']}" for made in self.resumable.values())


class Handler(RequestHandler):
    """A connection."""

    protocol_version = "HTTP/1.1"
    storage: Objects
    one_at_a_time = threading.Lock()

    def serve(self) -> None:
        body = self._whole_body()
        if body is None:
            self.close_connection = True
            return
        connection = self.rfile, self.wfile
        self.rfile, self.wfile = io.BytesIO(body), io.BytesIO()
        try:
            with self.one_at_a_time:
                self._carry_out()
            answer = self.wfile.getvalue()
        finally:
            self.rfile, self.wfile = connection
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815 - as http.server asks

    def _whole_body(self) -> bytes | None:
        """``None`` if it broke off."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            return body if len(body) == length else None
        pieces = []
        while size := int(self.rfile.readline() or b"-1", 16):
            piece = self.rfile.read(size + 2) if size > 0 else b""
            if len(piece) != size + 2:
                return None
            pieces.append(piece[:-2])
        self.rfile.readline()
        del self.headers["Transfer-Encoding"]
        self.headers["Content-Length"] = str(sum(map(len, pieces)))
        return b"".join(pieces)

    def _carry_out(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        upload_id = query.get("upload_id", "")
        self.storage.begin(self.command, query)
        self.storage.note_digests(upload_id, self.headers.get("X-Goog-Hash", ""))
        try:
            if url.path == "/_pending":
                self._answer(200, self.storage.pending())
            elif upload_id in self.storage.finished:
                self._answer(200, self.storage.finished[upload_id])
            elif self.command == "GET" and (match := _LIST_PATH.match(url.path)):
                self._answer(200, self.storage.page(match[1]))
            else:
                Router(self).handle(self.command)
        except NotFound:
            self._answer_error(404, "notFound", "The specified bucket does not exist.")
        except RefusedError as error:
            said = "At least one of the pre-conditions you specified did not hold."
            self._answer_error(error.status, "conditionNotMet", said)
        except Exception:
            logging.exception("%s %s", self.command, self.path)
            self._answer_error(500, "internalError", "The emulator failed.")

    def _answer_error(self, status: int, reason: str, message: str) -> None:
        error = {"message": message, "domain": "global", "reason": reason}
        self._answer(status, {"error": {"code": status, "message": message, "errors": [error]}})

    def _answer(self, status: int, content: Any) -> None:
        body = b"" if status == 304 else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_header(self, keyword: str, value: str) -> None:
        # The emulator says that one byte is there when there is none.
        count = self.storage.get_resumable_byte_count(self.storage.query.get("upload_id", ""))
        if keyword != "Range" or count:
            super().send_header(keyword, value)

    def end_headers(self) -> None:
        if self.storage.read is not None:
            for name in ("generation", "metageneration"):
                super().send_header(f"X-Goog-{name.title()}", self.storage.read[name])
        super().end_headers()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    end_with_parent()
    server = _Server(("127.0.0.1", 0), functools.partial(Handler, Objects()))
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
