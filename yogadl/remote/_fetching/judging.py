"""What the status and the headers of an answer say of what was asked for."""

from __future__ import annotations

import http.client
import re

from yogadl.errors import NetworkError, StoreError, StoreUnavailableError, ThrottledError
from yogadl.remote._fetching.remote_object import (
    Address,
    ChangedError,
    GoneError,
    RemoteObject,
)

BROKEN = (OSError, http.client.HTTPException)
"""What ends a connection."""

RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
"""What ``Content-Range`` says: the first byte, the last one, and how many there are."""

REDIRECTED = (301, 302, 303, 307, 308)
"""Status of an answer that names another address."""

SAID_BYTES = 2000
"""What is read of what an answer says that has none of the bytes."""

# Some stores name others, such as aws-chunked, for what they send as it is.
_COMPRESSIONS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")


class NoRangesError(StoreError):
    """All of an object was sent, though some bytes were asked for."""


class DeniedError(Exception):
    """The address is not accepted, or not any more."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(status, said)
        self.status = status
        self.said = said


def is_refusal(error: StoreError) -> bool:
    """Whether a server has too much to do, or too many connections, as far as can be told."""
    return isinstance(error, ThrottledError) or isinstance(error.__cause__, BROKEN)


def raise_refusal(answer: http.client.HTTPResponse, asked: RemoteObject) -> None:
    """Raises what an answer means that has none of the bytes."""
    status = answer.status
    if status in (200, 206):
        for encoding in _encodings(answer):
            if encoding in _COMPRESSIONS:
                raise StoreError(
                    f"{asked.name} is sent compressed ({encoding}), so that its bytes cannot be "
                    "asked for; have the server send it as it is"
                )
        return
    said = answer.read(SAID_BYTES).decode(errors="replace")
    if status in REDIRECTED and not said:
        where = "in circles, it seems" if answer.headers.get("Location") else "without saying where"
        said = f"go elsewhere, {where}"
    # A token of S3's that has expired is answered with 400.
    if status in (400, 401, 403):
        raise DeniedError(status, said)
    if status in (404, 410, 412, 416):
        kind = GoneError if status == 404 and asked.is_missing(said) else ChangedError
        raise kind(f"{asked.name}: the answer was {status}")
    if status in (429, 503):
        raise ThrottledError(f"{asked.name}: the answer was {status}, again and again. Try later")
    if status >= 500 or status == 408:
        raise StoreUnavailableError(f"{asked.name}: the answer was {status}, again and again")
    raise asked.refusal(status, said)


def _encodings(answer: http.client.HTTPResponse) -> list[str]:
    """What was done to the bytes of an answer on their way."""
    said = answer.headers.get_all("Content-Encoding")
    return [each.strip().lower() for each in ",".join(said).split(",")] if said else []


def check_range(
    answer: http.client.HTTPResponse,
    address: Address,
    asked: RemoteObject,
    size: int,
    wanted: tuple[int, int],
) -> None:
    """Sees that an answer is of the right state and has the bytes from the first one wanted on."""
    tag = answer.headers.get("ETag")
    if None not in (address.tag, tag) and _bare(str(tag)) != address.tag:
        raise _changed(answer, asked, "is another one now")
    found = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if found is None or answer.status != 206:
        raise NetworkError(f"{asked.name}: an answer does not say which bytes it has")
    if found[3] not in ("*", str(size)):
        raise _changed(answer, asked, f"has {found[3]} bytes now, and had {size}")
    if int(found[1]) != wanted[0]:
        raise NetworkError(f"{asked.name}: an answer has other bytes than were asked for")


def _changed(answer: http.client.HTTPResponse, asked: RemoteObject, how: str) -> Exception:
    """The error for an answer of another state, unless it broke off within its headers: the last of
    them may then say anything, and no byte follows."""
    if not answer.read(1):
        return NetworkError(f"{asked.name}: the answer broke off before its first byte")
    return ChangedError(f"{asked.name} {how}")


def _bare(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')
