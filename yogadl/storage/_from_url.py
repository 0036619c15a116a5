"""Data sets on web servers."""

from __future__ import annotations

import base64
import functools
import pathlib
import re
import urllib.parse
from email.message import Message

from yogadl.arguments import as_index
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.dataref._remote import RemoteDataRef
from yogadl.errors import (
    AccessDeniedError,
    CacheNotFoundError,
    CacheReplacedError,
    InvalidArgumentError,
    StoreError,
)
from yogadl.redaction import without_password, without_secrets
from yogadl.remote._fetching.remote_object import Address, ChangedError, plain_url
from yogadl.remote._open import look_at, open_remote
from yogadl.remote._records import RemoteRecords
from yogadl.storage._configurations import as_directory
from yogadl.storage._disk.folders import LocalFolders

_ATTEMPTS = 5
_QUERY = re.compile(r"\?[^\s\"'<>]+")


def from_url(
    url: str,
    *,
    local_cache_dir: str | pathlib.Path = "/tmp/",  # noqa: S108 - as for the storages
    local_cache_bytes: int | None = None,
) -> RemoteDataRef:
    """A data set that a web server has, read without downloading it first.

    What is needed is fetched, and kept on this machine; see ``RemoteDataRef``. The server has to
    know ranges (``Accept-Ranges: bytes``), as nearly all do for files. The parts of a table are
    asked for where a storage has them, in ``../yogadl.parts/``.

    Args:
        url: of the ``cache.mdb``, ``https://…`` or ``http://…``; may have a user and a password.
        local_cache_dir: an existing directory for what is kept.
        local_cache_bytes: keep no more than that there; see ``BaseCloudConfigurations``.

    Raises:
        InvalidArgumentError: it is no such address, or there is no such directory.
        CacheNotFoundError: it is not there.
        CacheFormatError: it is no cache, or one of yogadl 0.1.4.
        StoreError: it cannot be read.
    """
    try:
        if any(character in "\t\r\n" for character in str(url).strip()):
            # They would be left out, and it be an address of something else.
            raise ValueError("it has a tab or an end of a line")
        plain_url(str(url))
    except ValueError:
        raise InvalidArgumentError(
            "url must be that of a cache.mdb, https://… or http://…, with what is special in a "
            f"password escaped (urllib.parse.quote), not {_shown_if_wrong(str(url))!r}"
        ) from None
    directory = as_directory("local_cache_dir", local_cache_dir)
    if not directory.is_dir():
        raise InvalidArgumentError(f"local_cache_dir {str(directory)!r} does not exist; create it")
    if local_cache_bytes is not None:
        local_cache_bytes = as_index("local_cache_bytes", local_cache_bytes)
    return RemoteDataRef(functools.partial(_open, str(url), directory, local_cache_bytes))


def _open(url: str, directory: pathlib.Path, limit: int | None) -> RemoteRecords:
    name = _shown(url)
    folders = LocalFolders(directory, name, pathlib.PurePosixPath("any"), name)
    for _ in range(_ATTEMPTS):
        asked = _Page(url)
        try:
            head = look_at(asked)
        except ChangedError as error:
            raise CacheNotFoundError(f"there is no {name}: {error}") from error
        folders.claim_pieces()
        try:
            return open_remote(
                _Page(url, head.answer),
                head,
                folders.claim_pieces,
                lambda digest: _Page(_part_of(url, digest)),
                folders.space(limit),
            )
        except CacheReplacedError:
            continue
    raise CacheReplacedError(
        f"{name} was replaced {_ATTEMPTS} times while it was opened; try later"
    )


def _part_of(url: str, digest: bytes) -> str:
    return urllib.parse.urljoin(url, f"../{PARTS_FOLDER}/{digest.hex()}.mdb")


class _Page:
    """See ``RemoteObject``.

    Args:
        url: of it.
        answer: the headers of an answer that had the state of it that is meant.
    """

    def __init__(self, url: str, answer: Message | None = None) -> None:
        self.name = _shown(url)
        parts = urllib.parse.urlsplit(url)
        self.server = parts.netloc.rpartition("@")[2]
        self._secrets = _secrets_of(parts)
        headers = {}
        if parts.username is not None:
            given = (parts.username, parts.password or "")
            user = ":".join(map(urllib.parse.unquote, given)).encode()
            headers["Authorization"] = f"Basic {base64.b64encode(user).decode()}"
        tag = None if answer is None else answer.get("ETag")
        # A weak one does not tell bytes apart.
        if tag is not None and not tag.startswith("W/"):
            headers["If-Match"] = tag
        else:
            tag = None
        self._address = Address(plain_url(url), headers, None if tag is None else tag.strip('"'))

    def address(self, renew: bool = False) -> Address:  # noqa: ARG002 # it lasts
        """See ``RemoteObject.address``."""
        return self._address

    def is_missing(self, said: str) -> bool:  # noqa: ARG002 # no two servers say the same
        """See ``RemoteObject.is_missing``."""
        return False

    def refusal(self, status: int, said: str) -> StoreError:
        """See ``RemoteObject.refusal``."""
        for secret in self._secrets:
            # Servers like to repeat what they were asked, in ways of their own.
            said = re.sub(re.escape(secret), "…", said, flags=re.IGNORECASE)
        # That of another address may be repeated, too, or a part of one.
        said = _QUERY.sub("?…", without_secrets(said))[:200]
        shown = "".join(letter if letter.isprintable() else " " for letter in said).strip()
        message = f"reading {self.name}: the server answered {status}: {shown}"
        if status in (401, 403):
            advice = "Give a user and a password in the address"
            if "Authorization" in self._address.headers:
                advice = "The user and the password in the address are not what it wants"
            return AccessDeniedError(f"{message}. {advice}")
        return StoreError(message)


def _secrets_of(parts: urllib.parse.SplitResult) -> list[str]:
    """What of an address may be secret: passwords and the values of its query, as they are written
    and as they are meant; the longest first, since one may be a part of another."""
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    query = [value if equals else name for name, equals, value in pairs]
    written = [value for value in (parts.password, *query) if value]
    unquoted = urllib.parse.unquote, urllib.parse.unquote_plus
    meant = [read(value) for value in written for read in unquoted]
    # What is short is no secret, and is found everywhere.
    return sorted({it for it in (*written, *meant) if len(it) >= 4}, key=len, reverse=True)


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def _shown_if_wrong(text: str) -> str:
    """The same of what is no address, wherever in it a password may stand."""
    start = without_password(text).partition("?")[0]
    return f"…{start.rpartition('@')[2]}" if "@" in start else start
