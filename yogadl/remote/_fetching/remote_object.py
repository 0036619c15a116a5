"""What is asked of whatever the bytes lie in."""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from yogadl.errors import StoreError

# What may stand in an address for itself.
_AS_IT_IS = "%/:=&?~#+!$,;'@()*[]"


class ChangedError(Exception):
    """The object is not there any more, or not in the state in which it was first seen."""


class GoneError(ChangedError):
    """The object is not there, and what should have it is."""


@dataclass(frozen=True)
class Address:
    """Where the bytes of an object are asked for, by HTTP.

    Attributes:
        url: whole, with all that allows to read it.
        headers: to send along, such as a token, or on which state of the object the answer depends.
        tag: the ETag that an answer must have, if it has one; ``None`` for any.
        cafile: certificates to trust instead of the system's.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tag: str | None = None
    cafile: str | None = None


def plain_url(url: str) -> str:
    """An address as it can be asked for: escaped, and without a user, a password or a fragment.

    Raises:
        ValueError: it is none of HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    # A port that is none raises, too, and so do names that are too long.
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("it is no address of HTTP")
    parts.hostname.encode("idna")
    host = parts.netloc.rpartition("@")[2]
    if host.startswith("["):
        # Before Python 3.11, anything may stand there.
        ipaddress.IPv6Address(parts.hostname)
    if not host.isprintable() or " " in host:
        raise ValueError("no host has such a name")
    path, query = (urllib.parse.quote(part, safe=_AS_IT_IS) for part in (parts.path, parts.query))
    return urllib.parse.urlunsplit((parts.scheme, host, path, query, ""))


class RemoteObject(Protocol):
    """One state of one object. Safe for threads; may be used in children after a fork."""

    @property
    def name(self) -> str:
        """What to call it in errors, without secrets."""

    @property
    def server(self) -> str:
        """Who has it; what is late of one says nothing of what others have."""

    def address(self, renew: bool = False) -> Address:
        """Where to ask for it.

        Args:
            renew: the last one is not accepted any more, so make another.

        Raises:
            StoreError: there are no credentials.
        """

    def is_missing(self, said: str) -> bool:
        """Whether "not found" is surely said of the object, and not of what should have it.

        Args:
            said: the beginning of the answer's body.
        """

    def refusal(self, status: int, said: str) -> StoreError:
        """The error for an answer with a status of 400 or more that is no other's fault.

        Args:
            status: of HTTP.
            said: the beginning of the answer's body.
        """
