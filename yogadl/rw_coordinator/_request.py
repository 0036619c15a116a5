"""What a client asks for, as the URL it connects to.

::

    <url>/<storage_type>/<bucket>/<cache_path>?read_lock=True|False[&answers_pings=True]

The lock is on the decoded path. ``answers_pings`` is a promise that yogadl 0.1.4 does not make: its
client answers no pings while it holds a lock, so nothing may be concluded from its silence.
"""

from __future__ import annotations

import os
import urllib.parse
from dataclasses import dataclass
from typing import Any

from yogadl.errors import InvalidArgumentError
from yogadl.rw_coordinator import communication_protocol

LONGEST_RESOURCE = 4096
SECRET_VARIABLE = "YOGADL_COORDINATOR_SECRET"  # noqa: S105 # its name
# In the server's answer: for how many seconds a client may be unreachable before it loses its lock.
TIMEOUT_HEADER = "Yogadl-Client-Timeout"

# All that may stand in a path as it is. yogadl 0.1.4 quotes nothing and its server decodes nothing,
# so the less is quoted, the more names mean the same to both.
_SAFE = "/-._~!$&'()*+,;=:@"
_MANY_FIELDS = 20


@dataclass(frozen=True)
class LockRequest:
    """A lock that is asked for.

    Attributes:
        resource: what to lock: storage type, bucket and path, separated by slashes.
        shared: a read lock rather than a write lock.
        answers_pings: whether the client promises to answer pings at all times.
    """

    resource: bytes
    shared: bool
    answers_pings: bool = False

    def __post_init__(self) -> None:
        if not self.resource:
            raise InvalidArgumentError("the path is empty; it must name what to lock")
        if len(self.resource) > LONGEST_RESOURCE:
            raise InvalidArgumentError(
                f"the path has {len(self.resource)} bytes; at most {LONGEST_RESOURCE} are allowed"
            )

    @property
    def kind(self) -> str:
        """``"read"`` or ``"write"``."""
        return "read" if self.shared else "write"

    @property
    def granted(self) -> str:
        """The message that says that the lock is held."""
        if self.shared:
            return communication_protocol.READ_LOCK_GRANTED
        return communication_protocol.WRITE_LOCK_GRANTED

    def __str__(self) -> str:
        """For people: printable, whatever the resource's name is."""
        return f"{self.kind} lock on {urllib.parse.quote_from_bytes(self.resource, _SAFE)}"

    @property
    def target(self) -> str:
        """What to append to the server's URL."""
        query = {"read_lock": self.shared} | ({"answers_pings": True} if self.answers_pings else {})
        path = urllib.parse.quote_from_bytes(self.resource, _SAFE)
        return f"/{path}?{urllib.parse.urlencode(query)}"


def make_request(storage_type: Any, bucket: Any, cache_path: Any, *, shared: bool) -> LockRequest:
    """What yogadl's client asks for.

    Raises:
        InvalidArgumentError: there cannot be such a lock.
    """
    parts = {"storage_type": storage_type, "bucket": bucket, "cache_path": cache_path}
    for name, part in parts.items():
        if not isinstance(part, str):
            raise InvalidArgumentError(f"{name} must be a string, not {part!r:.100}")
        if not part:
            raise InvalidArgumentError(f"{name} must not be empty")
    try:
        resource = "/".join(parts.values()).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"the names of a lock must be text: {error}") from None
    return LockRequest(resource.lstrip(b"/"), shared, answers_pings=True)


def parse_target(target: str) -> LockRequest:
    """What the target of an HTTP request asks for.

    Args:
        target: path and query; bytes that are not ASCII as surrogates.

    Raises:
        InvalidArgumentError: it is no request for a lock; the message tells a client why.
    """
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        raise InvalidArgumentError("the path must begin with a slash")
    resource = urllib.parse.unquote_to_bytes(path.lstrip("/").encode("utf-8", "surrogateescape"))
    try:
        fields = urllib.parse.parse_qs(query, keep_blank_values=True, max_num_fields=_MANY_FIELDS)
    except ValueError:
        raise InvalidArgumentError("the query has too many fields") from None
    read_lock = fields.get("read_lock", [])
    if read_lock not in (["True"], ["False"]):
        raise InvalidArgumentError("the query must have read_lock=True or read_lock=False, once")
    answers_pings = fields.get("answers_pings") == ["True"]
    return LockRequest(resource, read_lock == ["True"], answers_pings)


def find_secret(secret: str | None) -> str | None:
    """The secret that server and clients share, from the environment if none is given.

    Raises:
        InvalidArgumentError: it cannot be sent in a header.
    """
    source = "secret"
    if secret is None:
        secret, source = os.environ.get(SECRET_VARIABLE), SECRET_VARIABLE
    if secret is None:
        return None
    # An empty one is more likely a mistake than a wish to let everybody in.
    if not secret or not all("!" <= character <= "~" for character in secret):
        raise InvalidArgumentError(
            f"{source} must be one or more printable ASCII characters without spaces"
        )
    return secret
