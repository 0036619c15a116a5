"""Runs moto's S3 on a free port, which it writes to its standard output.

What S3 does and moto does not is done here: a body that broke off or does not have the digest that
was sent with it is refused; all requests for a bucket but parts of uploads come one at a time, so
that conditions hold in races and nothing is read while it is replaced; ``If-Match`` holds for
finishing an upload in parts and for deletions, and that of the source for copies, too; a part of an
upload that is no more is answered with 404; and a list of uploads says when they began.
"""

from __future__ import annotations

import base64
import collections
import datetime
import hashlib
import io
import re
import threading
import zlib
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import moto.backends
from lifeline import end_with_parent
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Response
from werkzeug.wsgi import get_input_stream

_UPLOAD_ID = re.compile("<UploadId>(.*?)</UploadId>")
_ALWAYS = "2010-11-10T20:48:33.000Z"


class Careful:
    """moto's application, with what it lacks."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._mutex = threading.Lock()
        self._locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
        self._begun: dict[str, str] = {}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # Raises if fewer bytes come than were announced.
        body = get_input_stream(environ).read()
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        environ.pop("wsgi.input_terminated", None)

        if wrong := _wrong_digest(environ, body):
            said = f"The {wrong} you specified did not match what was received."
            return _error(400, "BadDigest", said)(environ, start_response)
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        upload = query.get("uploadId", [""])[0]
        try:
            if "partNumber" in query:
                return list(self._app(environ, start_response))
            with self._lock(environ["PATH_INFO"].split("/")[1]):
                finishes = environ["REQUEST_METHOD"] == "POST" and upload
                deletes = environ["REQUEST_METHOD"] == "DELETE" and not upload
                if (finishes or deletes) and (refusal := self._refusal(environ)):
                    return refusal(environ, start_response)
                if source := environ.get("HTTP_X_AMZ_COPY_SOURCE"):
                    path = f"/{unquote(source).lstrip('/')}"
                    wanted = environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH")
                    told = {"PATH_INFO": path, "RAW_URI": quote(path), "HTTP_IF_MATCH": wanted}
                    if refusal := self._refusal({**environ, **told}):
                        return refusal(environ, start_response)
                answer = list(self._app(environ, start_response))
                return self._dated(answer) if "uploads" in query else answer
        except KeyError as error:
            if error.args != (upload,):
                raise
            return _error(404, "NoSuchUpload", "There is none.")(environ, start_response)

    def _lock(self, bucket: str) -> threading.Lock:
        with self._mutex:
            return self._locks[bucket]

    def _dated(self, answer: list[bytes]) -> list[bytes]:
        """Notes when an upload begins, and writes it into a list; moto says that all did in 2010.

        The answer is as long as it was.
        """
        body = b"".join(answer)
        now = datetime.datetime.now(datetime.timezone.utc)
        if b"<InitiateMultipartUploadResult" in body:
            for found in _UPLOAD_ID.findall(body.decode()):
                self._begun[found] = now.strftime("%Y-%m-%dT%H:%M:%S.000Z")
            return answer
        uploads = body.decode().split("<Upload>")
        for number, text in enumerate(uploads):
            for found in _UPLOAD_ID.findall(text):
                uploads[number] = text.replace(_ALWAYS, self._begun.get(found, _ALWAYS))
        return ["<Upload>".join(uploads).encode()]

    def _refusal(self, environ: dict[str, Any]) -> Response | None:
        """What to answer to a request whose ``If-Match`` does not hold."""
        wanted = environ.get("HTTP_IF_MATCH")
        if wanted is None:
            return None
        asked = {
            name: value
            for name, value in environ.items()
            if name not in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")
            and not name.startswith("HTTP_X_AMZ_COPY_SOURCE")
        }
        asked |= {"REQUEST_METHOD": "HEAD", "QUERY_STRING": "", "CONTENT_LENGTH": "0"}
        asked["wsgi.input"] = io.BytesIO()
        _, status, headers = run_wsgi_app(self._app, asked)
        if status.startswith("404"):
            return _error(404, "NoSuchKey", "The specified key does not exist.")
        if headers["ETag"].strip('"') != wanted.strip('"'):
            return _error(412, "PreconditionFailed", "A pre-condition did not hold.")
        return None


def _wrong_digest(environ: dict[str, Any], body: bytes) -> str:
    """Which digest is not the body's; empty if none."""
    found = {
        "CONTENT_MD5": lambda: base64.b64encode(hashlib.md5(body).digest()).decode(),
        "X_AMZ_CHECKSUM_CRC32": lambda: base64.b64encode(
            zlib.crc32(body).to_bytes(4, "big")
        ).decode(),
        "X_AMZ_CONTENT_SHA256": lambda: hashlib.sha256(body).hexdigest(),
    }
    for name, digest in found.items():
        given = environ.get(f"HTTP_{name}", "")
        # Of other forms, such as UNSIGNED-PAYLOAD, nothing can be told.
        if given and len(given) == len(is_now := digest()) and given != is_now:
            return name
    return ""


def _error(status: int, code: str, message: str) -> Response:
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    )
    return Response(body, status, content_type="application/xml")


def main() -> None:
    end_with_parent()
    # Looked for in the file system at every request, which is much of what one takes.
    modules = list(moto.backends.list_of_moto_modules())
    moto.backends.list_of_moto_modules = lambda: iter(modules)
    app = Careful(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
