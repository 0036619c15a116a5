"""Stores whose conditional writes are not what they should be, as some real ones' are."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
from typing import Literal, TypeAlias
from urllib.parse import quote

from exchange import Dialect, Request
from wire import Head

Flavour: TypeAlias = Literal[
    "faithful",  # as the server does it
    "ignore_conditions",  # every conditional write succeeds
    "refuse_conditions",  # none does: 501
    "racy_conditions",  # of writes one after the other, just the right; of racing ones, all
    "ignore_in_parts",  # conditions hold for objects written at once, not for those in parts
    "refuse_matches",  # an object can be created on a condition, but not replaced: 412
    "refuse_quotes",  # likewise, unless its ETag comes without quotes
    "ignore_checksums",  # what arrives altered is taken
]

_RACE_SECONDS = 0.15
_CHECKSUMS = ("Content-MD5", "X-Amz-Checksum-Crc32", "X-Amz-Content-SHA256", "X-Goog-Hash")


def apply(flavour: Flavour, dialect: Dialect, port: int, request: Request, head: Head) -> int:
    """Makes a request into what a store of this flavour would carry out.

    Args:
        flavour: of the store.
        dialect: of the store.
        port: of the server.
        request: the request.
        head: its head, which is changed.

    Returns:
        The status of the error to answer instead, or 0.
    """
    if flavour == "ignore_checksums":
        head.drop(*_CHECKSUMS)
    elif flavour != "faithful" and request.is_conditional_write:
        if flavour == "refuse_conditions":
            return 501
        if flavour == "refuse_matches":
            return 412 if _replaces(request) else 0
        if flavour == "refuse_quotes":
            return _refuse_quotes(request, head)
        if flavour == "ignore_in_parts" and request.operation == "write":
            return 0
        if flavour == "racy_conditions":
            if not _holds(dialect, port, request):
                return 412
            time.sleep(_RACE_SECONDS)  # in which others get as far
        head.drop("If-Match", "If-None-Match")
        head.first = re.sub(r"(?<=[?&])ifGenerationMatch=\d+&?", "", head.first)
    return 0


def _replaces(request: Request) -> bool:
    return "if-match" in request.headers or request.query.get("ifGenerationMatch", "0") != "0"


def _refuse_quotes(request: Request, head: Head) -> int:
    given = request.headers.get("if-match", "")
    if given.startswith('"'):
        return 412
    if given:
        head.drop("If-Match")
        head.fields.append(("If-Match", f'"{given}"'))
    return 0


def _holds(dialect: Dialect, port: int, request: Request) -> bool:
    tag = _tag(dialect, port, request)
    if dialect == "gcs":
        return request.query["ifGenerationMatch"] == (tag or "0")
    if "if-none-match" in request.headers:
        return not tag
    return request.headers["if-match"].strip('"') == tag


def _tag(dialect: Dialect, port: int, request: Request) -> str:
    """The object's ETag or generation; empty if it is not there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        if dialect == "s3":
            signed = {"Authorization": request.headers.get("authorization", "")}
            connection.request("HEAD", request.path.partition("?")[0], headers=signed)
        else:
            name = quote(request.key, safe="")
            connection.request("GET", f"/storage/v1/b/{request.bucket}/o/{name}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 404:
            return ""
        if dialect == "s3":
            return (answer.getheader("ETag") or "").strip('"')
        return str(json.loads(body)["generation"])
