"""What the errors of all SDKs have in common."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable, Iterator

from yogadl.errors import StoreError
from yogadl.redaction import without_secrets

BROKEN_CONNECTIONS: tuple[type[Exception], ...] = (
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
    socket.gaierror,
)
"""What escapes the SDKs, now and then, when a connection breaks."""

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def is_untrusted(error: Exception) -> bool:
    """Whether a server's certificate was refused, which no other try will change."""
    return _UNTRUSTED in str(error)


@contextlib.contextmanager
def told(translate: Callable[[Exception], StoreError | None]) -> Iterator[None]:
    """Raises an SDK's errors as yogadl's, without secrets.

    Args:
        translate: what an error means; ``None`` if it is not the SDK's.
    """
    try:
        yield
    except Exception as error:
        failure = translate(error)
        if failure is None:
            raise
        failure.args = (without_secrets(str(failure)),)
        raise failure from (None if _has_secrets(error) else error)


def _has_secrets(error: BaseException | None) -> bool:
    """Whether a traceback would show any."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if (said := str(error)) != without_secrets(said):
            return True
        error = error.__cause__ or error.__context__
    return False
