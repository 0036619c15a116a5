"""What a request asks of a store, told in words that fit both."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from wire import Head

Dialect: TypeAlias = Literal["s3", "gcs"]

_GCS_PATH = re.compile(r"^(/upload|/download)?/storage/v1/b(?:/([^/]+))?(/o)?(?:/(.+))?$")
_GCS_NAME = re.compile(rb'"name"\s*:\s*("(?:[^"\\]|\\.)*")')
_RANGE = re.compile(r"bytes \d+-(\d+)/(\d+)")

_CHANGES = frozenset(("write", "begin", "part", "finish", "delete"))


@dataclass
class Request:
    """A request, and what became of it.

    Attributes:
        number: from 0 on, in the order they came.
        method: such as ``GET``.
        path: with the query.
        headers: lower-case names.
        operation: ``bucket``, ``list``, ``head``, ``read``, ``write`` (whole, in one request),
            ``begin``, ``part``, ``finish``, ``abort`` (of an upload in several; with Google, the
            last piece is ``finish``), ``status`` and ``uploads`` (asking for those), ``delete``, or
            ``other``.
        bucket: its name.
        key: of the object, or empty.
        status: of the answer that was sent, 0 before and if none was.
        sent: bytes of its body that were passed on to the store.
        received: bytes of the answer's body that were passed on to the client.
        fault: the name of what was done to it, or empty.
        is_done: whether it is over.
    """

    number: int
    method: str
    path: str
    headers: dict[str, str]
    operation: str = "other"
    bucket: str = ""
    key: str = ""
    status: int = 0
    sent: int = 0
    received: int = 0
    fault: str = ""
    is_done: bool = False

    @property
    def query(self) -> dict[str, str]:
        parsed = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in parsed.items()}

    @property
    def is_conditional_write(self) -> bool:
        """Whether it is to change something only if that is in a certain state."""
        given = (
            self.headers.keys() & {"if-match", "if-none-match"} or "ifGenerationMatch=" in self.path
        )
        return bool(given) and self.operation in _CHANGES

    @property
    def is_metadata(self) -> bool:
        """Whether it asks for the state of one object, and nothing else."""
        return self.operation == "head"

    def publishes(self, key: str) -> bool:
        """Whether this made the object appear or change."""
        return self.key == key and self.operation in ("write", "finish") and self.status == 200

    def __str__(self) -> str:
        became = f"{self.status} {self.fault}".strip() if self.is_done else "…"
        return f"{self.number} {self.operation} {self.key} ({self.method} {self.path}): {became}"


class Reader:
    """Tells what requests ask for.

    Args:
        dialect: that they are in.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._uploads: dict[str, str] = {}

    def read(self, number: int, head: Head, beginning: bytes) -> Request:
        """Makes a record of a request, given the first bytes of its body."""
        method, path, _ = head.first.split(" ", 2)
        headers = {name.lower(): value for name, value in head.fields}
        request = Request(number, method, path, headers)
        if self._dialect == "s3":
            self._read_s3(request)
        else:
            self._read_gcs(request, beginning)
        return request

    def note_answer(self, request: Request, answer: Head) -> None:
        """Remembers which object an upload is of that an answer names."""
        if self._dialect == "gcs" and request.operation == "begin":
            query = parse_qs(urlsplit(answer.get("Location")).query)
            self._uploads[query.get("upload_id", [""])[0]] = request.key

    def _read_s3(self, request: Request) -> None:
        _, request.bucket, *rest = unquote(urlsplit(request.path).path).split("/", 2)
        request.key = rest[0] if rest else ""
        query = request.query
        in_parts = "uploadId" in query
        if not request.key:
            names = {"GET": "uploads" if "uploads" in query else "list"}
            request.operation = names.get(request.method, "bucket")
            return
        names = {
            "HEAD": "head",
            "GET": "status" if in_parts else "read",
            "PUT": "part" if in_parts else "write",
            "POST": "finish" if in_parts else "begin" if "uploads" in query else "other",
            "DELETE": "abort" if in_parts else "delete",
        }
        request.operation = names.get(request.method, "other")

    def _read_gcs(self, request: Request, beginning: bytes) -> None:
        match = _GCS_PATH.match(urlsplit(request.path).path)
        if not match:
            return
        kind, bucket, objects, key = match.groups()
        request.bucket = unquote(bucket or "")
        request.key = unquote(key or "")
        query = request.query
        if not objects:
            request.operation = "bucket"
        elif kind == "/upload" or "uploadType" in query:
            self._read_gcs_upload(request, query, beginning)
        elif not key:
            request.operation = "list"
        else:
            reads = kind == "/download" or query.get("alt") == "media"
            names = {"GET": "read" if reads else "head", "DELETE": "delete"}
            request.operation = names.get(request.method, "other")

    def _read_gcs_upload(self, request: Request, query: dict[str, str], beginning: bytes) -> None:
        if "upload_id" in query:
            request.key = self._uploads.get(query["upload_id"], "")
            given = request.headers.get("content-range", "")
            if given.startswith("bytes */"):
                request.operation = "status"
            else:
                match = _RANGE.match(given)
                ends = match is None or int(match[1]) + 1 == int(match[2])
                request.operation = "finish" if ends else "part"
            return
        request.operation = "begin" if query.get("uploadType") == "resumable" else "write"
        found = _GCS_NAME.search(beginning)
        request.key = query.get("name", str(json.loads(found[1])) if found else "")
