"""What the errors of Google's libraries mean."""

from __future__ import annotations

import http
from typing import Any

from yogadl.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    CredentialsError,
    NetworkError,
    StoreError,
    StoreUnavailableError,
    ThrottledError,
    UnsafeStoreError,
)
from yogadl.storage._objects.failures import BROKEN_CONNECTIONS, is_untrusted


def translate(error: Exception, doing: str) -> StoreError | None:
    """The error of ours for one of Google's libraries; ``None`` if it is none.

    Conditions that do not hold, and objects that are not there, have to be handled before.

    Args:
        error: what was raised.
        doing: what was being done, for the message.
    """
    import google.auth.exceptions as auth
    import requests.exceptions
    import urllib3.exceptions
    from google.api_core import exceptions as api

    if isinstance(error, api.GoogleAPICallError):
        return _translate_answer(error, doing)
    # Tokens are fetched from a server, too, that may fail for a while.
    may_pass = isinstance(error, auth.TransportError) or getattr(error, "retryable", False)
    if isinstance(error, auth.GoogleAuthError) and not may_pass:
        return CredentialsError(
            f"{doing}: there are no usable credentials: {error}. Give them as Google's libraries "
            "find them: GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login, or "
            "the machine's service account"
        )
    wrong = (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)
    if isinstance(error, (*wrong, requests.exceptions.MissingSchema)):
        return StoreError(f"{doing}: the address cannot be right: {error}")
    broken = (
        auth.GoogleAuthError,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
    )
    if isinstance(error, (*broken, *BROKEN_CONNECTIONS)):
        if is_untrusted(error):
            return StoreError(f"{doing}: the certificate of the store is not trusted: {error}")
        return NetworkError(f"{doing}: the connection failed: {error}. Is the network up?")
    if isinstance(error, _damaged()):
        return NetworkError(f"{doing}: it arrived altered: {error}. Try again")
    answer = getattr(error, "response", None)
    if isinstance(answer, requests.Response):
        # What an upload gives up with is the answer itself.
        return _translate_answer(api.from_http_response(answer), doing)
    return None


def _damaged() -> type[Exception]:
    try:
        from google.cloud.storage.exceptions import DataCorruption
    except ImportError:
        # Before google-cloud-storage 3, it was another package's.
        from google.resumable_media import DataCorruption
    return DataCorruption  # type: ignore[no-any-return] # Google's are untyped


def is_altered(error: Exception) -> bool:
    """Whether a store answered that what arrived is not what was sent; of any of the libraries."""
    answer: Any = getattr(error, "response", None)
    return getattr(answer, "status_code", None) == 400 and "match calculated" in answer.text


def _translate_answer(error: Any, doing: str) -> StoreError:
    from google.api_core import exceptions as api

    if error.code is not None and error.code < http.HTTPStatus.BAD_REQUEST:
        # It is no error, but lacks what it is to say.
        return NetworkError(f"{doing}: an answer broke off: {error}. Try again")
    said = f"{doing}: the store answered: {error}"
    if is_altered(error):
        return NetworkError(f"{said}. It arrived altered; try again")
    limited = "rateLimitExceeded" in str(error) or "RateLimitExceeded" in str(error)
    if isinstance(error, api.TooManyRequests) or limited:
        return ThrottledError(f"{said}, again and again. Try later, or with fewer at once")
    if isinstance(error, api.Unauthorized):
        return CredentialsError(f"{said}. Renew the credentials, or give others")
    if isinstance(error, api.Forbidden):
        return AccessDeniedError(
            f"{said}. Allow storage.objects.get, .create, .delete and .list, as the role Storage "
            "Object Admin does"
        )
    if isinstance(error, api.NotFound):
        return BucketNotFoundError(f"{said}. Create the bucket, or correct its name")
    if isinstance(error, api.MethodNotImplemented):
        return UnsafeStoreError(f"{said}. It lacks what was asked for")
    if isinstance(error, api.ServerError) or error.code == http.HTTPStatus.REQUEST_TIMEOUT:
        return StoreUnavailableError(f"{said}, again and again. Try later")
    return StoreError(said)
