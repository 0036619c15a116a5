"""A server that speaks enough of S3 for yogadl, and keeps sizes and digests of what is large.

    python benchmarks/counting_store.py

It writes its port as a first line, and ends with its standard input. ``GET /_log`` answers, as
JSON, how often each key was written, and how many bytes have arrived in all.
"""

from __future__ import annotations

import email.utils
import http.server
import json
import sys
import threading
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

import xxhash

KEPT_BYTES = 4 << 20
"""Of larger objects, the bytes are not kept."""

_READ_BYTES = 1 << 20


@dataclass
class Stored:
    """An object."""

    tag: str
    size: int
    metadata: dict[str, str]
    data: bytes | None
    created: float = field(default_factory=time.time)


@dataclass
class Upload:
    """One in parts that has begun: sizes and digests by their numbers."""

    key: str
    metadata: dict[str, str]
    parts: dict[int, tuple[str, int, bytes | None]] = field(default_factory=dict)


class Bucket:
    """All that the server knows."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, Upload] = {}
        self.writes: dict[str, int] = {}
        self.received = 0

    def put(self, key: str, stored: Stored, if_match: str | None, if_none: str | None) -> bool:
        """Whether the condition held."""
        with self.mutex:
            found = self.objects.get(key)
            if if_none is not None and found is not None:
                return False
            if if_match is not None and (found is None or found.tag != if_match.strip('"')):
                return False
            self.objects[key] = stored
            self.writes[key] = self.writes.get(key, 0) + 1
            return True


bucket = Bucket()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests for ``/<bucket>/<key>``."""

    protocol_version = "HTTP/1.1"

    def _split(self) -> tuple[str, dict[str, str]]:
        parts = urllib.parse.urlsplit(self.path)
        key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")[2]
        return key, dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))

    def _answer(self, status: int, body: bytes = b"", size: int | None = None, **more: str) -> None:
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if size is None else size))
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._answer(status, b"" if self.command == "HEAD" else body.encode())

    def _receive(self) -> tuple[str, int, bytes | None]:
        digest, left = xxhash.xxh3_128(), int(self.headers["Content-Length"])
        size, kept = left, [] if left <= KEPT_BYTES else None
        while left:
            data = self.rfile.read(min(left, _READ_BYTES))
            if not data:
                raise ConnectionError("the client went away")
            digest.update(data)
            left -= len(data)
            if kept is not None:
                kept.append(data)
            with bucket.mutex:
                bucket.received += len(data)
        # No digest that a client would take for an MD5.
        return digest.hexdigest() + "-x", size, None if kept is None else b"".join(kept)

    def _metadata(self) -> dict[str, str]:
        start = "x-amz-meta-"
        return {n: v for n, v in self.headers.items() if n.lower().startswith(start)}

    def do_PUT(self) -> None:
        key, query = self._split()
        if not key:
            self._answer(200)
            return
        tag, size, data = self._receive()
        if "uploadId" in query:
            upload = bucket.uploads.get(query["uploadId"])
            if upload is None:
                self._fail(404, "NoSuchUpload")
                return
            upload.parts[int(query["partNumber"])] = tag, size, data
            self._answer(200, ETag=f'"{tag}"')
            return
        self._publish(key, Stored(tag, size, self._metadata(), data))

    def _publish(self, key: str, stored: Stored, body: str = "") -> None:
        heads = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if bucket.put(key, stored, *heads):
            self._answer(200, body.encode(), ETag=f'"{stored.tag}"')
        else:
            self._fail(412, "PreconditionFailed")

    def do_POST(self) -> None:
        key, query = self._split()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "uploads" in query:
            name = uuid.uuid4().hex
            bucket.uploads[name] = Upload(key, self._metadata())
            found = f"<UploadId>{name}</UploadId>"
            body = f"<InitiateMultipartUploadResult>{found}</InitiateMultipartUploadResult>"
            self._answer(200, body.encode())
            return
        upload = bucket.uploads.pop(query["uploadId"], None)
        if upload is None:
            self._fail(404, "NoSuchUpload")
            return
        parts = [upload.parts[number] for number in sorted(upload.parts)]
        digests = "".join(part[0] for part in parts)
        tag = f"{xxhash.xxh3_128_hexdigest(digests.encode())}-{len(parts)}"
        stored = Stored(tag, sum(part[1] for part in parts), upload.metadata, None)
        body = f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
        self._publish(key, stored, body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        key, query = self._split()
        if self.path == "/_log":
            with bucket.mutex:
                sizes = {key: stored.size for key, stored in bucket.objects.items()}
                found = {"writes": bucket.writes, "received": bucket.received, "sizes": sizes}
                self._answer(200, json.dumps(found).encode())
        elif not key:
            self._list(query)
        else:
            self._get(key)

    def _get(self, key: str) -> None:
        found = bucket.objects.get(key)
        if found is None:
            self._fail(404, "404" if self.command == "HEAD" else "NoSuchKey")
            return
        wanted = self.headers.get("If-Match")
        if wanted is not None and wanted.strip('"') != found.tag:
            self._fail(412, "PreconditionFailed")
            return
        about = {
            "ETag": f'"{found.tag}"',
            "Last_Modified": email.utils.formatdate(found.created, usegmt=True),
            **found.metadata,
        }
        if self.command == "HEAD":
            self._answer(200, size=found.size, **about)
        elif found.data is None:
            self._fail(501, "NotImplemented")
        elif "Range" in self.headers:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            body = found.data[first : last + 1]
            about["Content_Range"] = f"bytes {first}-{first + len(body) - 1}/{found.size}"
            self._answer(206, body, **about)
        else:
            self._answer(200, found.data, **about)

    def _list(self, query: dict[str, str]) -> None:
        prefix = query.get("prefix", "")
        if "uploads" in query:
            body = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
            self._answer(200, f"{body}</ListMultipartUploadsResult>".encode())
            return
        with bucket.mutex:
            found = sorted(item for item in bucket.objects.items() if item[0].startswith(prefix))
        body = "<ListBucketResult><IsTruncated>false</IsTruncated>"
        for key, stored in found:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stored.created))
            body += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified>"
                f"<ETag>&quot;{stored.tag}&quot;</ETag><Size>{stored.size}</Size></Contents>"
            )
        self._answer(200, f"{body}</ListBucketResult>".encode())

    def do_DELETE(self) -> None:
        key, query = self._split()
        with bucket.mutex:
            if "uploadId" in query:
                bucket.uploads.pop(query["uploadId"], None)
            else:
                bucket.objects.pop(key, None)
        self._answer(204)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


class Server(http.server.ThreadingHTTPServer):
    """With a backlog for all parallel uploads, and silent about clients that were killed."""

    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
