"""An object of Google Cloud Storage as plain HTTP asks for it."""

from __future__ import annotations

import os
import urllib.parse
from typing import Any

import requests.certs

from yogadl.errors import AccessDeniedError, CredentialsError, StoreError
from yogadl.remote._fetching.remote_object import Address
from yogadl.storage._objects.gcs_errors import translate


class GCSObject:
    """See ``RemoteObject``.

    Args:
        client: Google's.
        bucket: its name.
        key: of the object.
        name: see ``RemoteObject``.
        generation: of the object; ``None`` for the current one.
    """

    def __init__(
        self, client: Any, bucket: str, key: str, name: str, generation: str | None
    ) -> None:
        self._client = client
        self.name = name
        self.server = str(client.api_endpoint)
        path = f"b/{urllib.parse.quote(bucket, safe='')}/o/{urllib.parse.quote(key, safe='')}"
        query = "alt=media" if generation is None else f"alt=media&generation={generation}"
        self._url = f"{client.api_endpoint}/download/storage/v1/{path}?{query}"

    def address(self, renew: bool = False) -> Address:
        """See ``RemoteObject.address``."""
        import google.auth.exceptions
        from google.auth.transport.requests import Request

        credentials = self._client._credentials
        headers: dict[str, str] = {}
        try:
            if renew or not credentials.valid:
                credentials.refresh(Request())
            credentials.apply(headers)
        except google.auth.exceptions.InvalidOperation:
            # Of nobody in particular, who has no token: a public bucket, or an emulator.
            headers = {}
        except google.auth.exceptions.GoogleAuthError as error:
            # The server that gives tokens may fail for a while.
            raise translate(error, f"reading {self.name}") or error from error
        cafile = os.environ.get("REQUESTS_CA_BUNDLE") or requests.certs.where()
        return Address(self._url, headers, None, cafile)

    def is_missing(self, said: str) -> bool:
        """See ``RemoteObject.is_missing``. Of a bucket it says something else."""
        return said.startswith("No such object: ")

    def refusal(self, status: int, said: str) -> StoreError:
        """See ``RemoteObject.refusal``."""
        message = f"reading {self.name}: the store answered {status}: {said[:300].strip()}"
        if status == 401:
            return CredentialsError(f"{message}. Renew the credentials, or correct them")
        if status == 403:
            return AccessDeniedError(f"{message}. Allow storage.objects.get")
        return StoreError(message)
