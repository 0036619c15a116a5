"""Clients of S3: one per process and length of time-outs."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from yogadl.backoff import timeouts
from yogadl.extras import require
from yogadl.redaction import without_password
from yogadl.storage._objects.s3_upload import PARALLEL_PARTS

if TYPE_CHECKING:
    from yogadl.storage._configurations import S3Configurations

# For several transfers at a time.
_CONNECTIONS = 4 * PARALLEL_PARTS


class S3Session:
    """Safe for threads and forks.

    Args:
        configurations: endpoint, region and keys.

    Raises:
        MissingExtraError: boto3 is not installed.
    """

    def __init__(self, configurations: S3Configurations) -> None:
        self._boto3 = require("boto3", "s3")
        self._configurations = configurations
        self._clients = _Clients(self._boto3)

    def client(self, patience: float | None = None) -> Any:
        """A client of boto3, with the time-outs that suit a patience in seconds."""
        # Connections must not be shared with a parent. Threads may make two at first; no matter.
        if self._clients.process != os.getpid():
            self._clients = _Clients(self._boto3)
        return self._clients.of(timeouts(patience), self._configurations)

    @property
    def endpoint(self) -> str:
        """The URL that requests go to."""
        found: str = self.client().meta.endpoint_url
        return found


class _Clients:
    """Those of one process, of one session, which reads what it has to know of S3 but once."""

    def __init__(self, boto3: Any) -> None:
        self.process = os.getpid()
        self._boto3 = boto3
        # A session can make one client at a time.
        self._mutex = threading.Lock()
        self._session: Any = None
        self._made: dict[tuple[float, float], Any] = {}

    def of(self, limits: tuple[float, float], configurations: S3Configurations) -> Any:
        """That of some limits of time."""
        found = self._made.get(limits)
        if found is None:
            with self._mutex:
                self._session = self._session or self._boto3.session.Session()
                found = self._made.get(limits) or _make(self._session, configurations, *limits)
                self._made[limits] = found
        return found


def _make(session: Any, given: S3Configurations, connect: float, answer: float) -> Any:
    from botocore.config import Config

    endpoint = given.endpoint_url
    return session.client(
        "s3",
        aws_access_key_id=given.access_key,
        aws_secret_access_key=given.secret_key,
        aws_session_token=given.session_token,
        # boto3 does nothing with a password there but show it in its errors.
        endpoint_url=None if endpoint is None else without_password(endpoint),
        region_name=given.region,
        config=Config(
            max_pool_connections=_CONNECTIONS,
            connect_timeout=connect,
            read_timeout=answer,
            retries={"mode": "standard", "total_max_attempts": 1},
            # Left to itself, boto3 signs addresses in a way that new regions do not know.
            signature_version="s3v4",
        ),
    )
