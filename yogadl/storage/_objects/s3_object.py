"""An object of S3 as plain HTTP asks for it: by an address that was signed beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from botocore.httpsession import get_cert_path

from yogadl.errors import StoreError
from yogadl.remote._fetching.remote_object import Address
from yogadl.storage._objects.s3_errors import translate

_VALID_SECONDS = 3600
# Clocks differ, and requests take some time.
_USED_SECONDS = 0.75 * _VALID_SECONDS


class S3Object:
    """See ``RemoteObject``.

    A signature does not cover the range, so one address serves all requests until it expires.

    Args:
        sign: makes an address of a key that is valid for so many seconds.
        key: of the object.
        name, server: see ``RemoteObject``.
        hint: more for messages about credentials.
        tag: the ETag of the state that is meant, without its quotes; ``None`` for any.
    """

    def __init__(
        self,
        sign: Callable[[str, int], str],
        key: str,
        name: str,
        server: str,
        hint: str,
        tag: str | None,
    ) -> None:
        self._sign = sign
        self._key = key
        self.name = name
        self.server = server
        self._hint = hint
        self._tag = tag
        self._signed: tuple[float, Address] | None = None

    def address(self, renew: bool = False) -> Address:
        """See ``RemoteObject.address``."""
        now = time.monotonic()
        if self._signed is None or renew or now - self._signed[0] > _USED_SECONDS:
            headers = {} if self._tag is None else {"If-Match": f'"{self._tag}"'}
            url = self._sign(self._key, _VALID_SECONDS)
            self._signed = now, Address(url, headers, self._tag, get_cert_path(True))
        return self._signed[1]

    def is_missing(self, said: str) -> bool:
        """See ``RemoteObject.is_missing``."""
        return _found(said, "Code") == "NoSuchKey"

    def refusal(self, status: int, said: str) -> StoreError:
        """See ``RemoteObject.refusal``."""
        answer: Any = {
            "Error": {
                "Code": _found(said, "Code") or str(status),
                "Message": _found(said, "Message"),
            },
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        doing = f"reading {self.name}"
        error = translate(ClientError(answer, "GetObject"), doing, self._hint)
        return error or StoreError(f"{doing}: the answer was {status}")


def _found(said: str, name: str) -> str:
    """What an XML document says under a name, if it is one and does."""
    start, _, rest = said.partition(f"<{name}>")
    return rest.partition(f"</{name}>")[0] if start != said else ""
