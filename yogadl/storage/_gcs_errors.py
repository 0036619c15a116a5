"""What the errors of Google's libraries mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """Raises the errors of Google's libraries as yogadl's.

    Conditions that do not hold, and objects that are not there, have to be handled inside.

    Args:
        doing: what was being done, for the message.
    """
    import google.auth.exceptions as auth
    import requests.exceptions
    import urllib3.exceptions
    from google.api_core import exceptions as api

    try:
        yield
    except api.RetryError as error:
        cause = error.cause
        raise _translate(cause if cause is not None else error, doing) from error
    except api.GoogleAPICallError as error:
        raise _translate(error, doing) from error
    except auth.TransportError as error:
        raise NetworkError(
            f"{doing}: the connection failed: {error}. Is the network up?"
        ) from error
    except auth.GoogleAuthError as error:
        raise CredentialsError(
            f"{doing}: there are no usable credentials: {error}. Give them as Google's libraries "
            "find them: GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login, or "
            "the machine's service account"
        ) from error
    except (
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        ConnectionError,
    ) as error:
        raise NetworkError(
            f"{doing}: the connection failed: {error}. Is the network up?"
        ) from error
    except _damaged() as error:
        raise NetworkError(f"{doing}: it arrived altered: {error}. Try again") from error


def _damaged() -> type[Exception]:
    try:
        from google.cloud.storage.exceptions import DataCorruption
    except ImportError:
        # Before google-cloud-storage 3, it was another package's.
        from google.resumable_media import DataCorruption
    return DataCorruption  # type: ignore[no-any-return]


def _translate(error: Any, doing: str) -> StoreError:
    from google.api_core import exceptions as api

    answer = getattr(error, "response", None)
    if answer is not None and not isinstance(error, api.GoogleAPICallError):
        # What an upload gives up with is the answer itself.
        error = api.from_http_response(answer)
    said = f"{doing}: the store answered: {error}"
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
    if isinstance(error, api.ServerError):
        return StoreUnavailableError(f"{said}, again and again. Try later")
    if isinstance(error, OSError | api.RetryError):
        return NetworkError(f"{doing}: the connection failed: {error}. Is the network up?")
    return StoreError(said)
