"""What botocore's errors mean."""

from __future__ import annotations

from collections.abc import Mapping
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
    WrongRegionError,
)
from yogadl.storage._objects.failures import BROKEN_CONNECTIONS, is_untrusted
from yogadl.storage._objects.store import AlteredAnswerError

MISSING = frozenset(("404", "NoSuchKey", "NotFound"))
FAILED_PRECONDITIONS = frozenset(("412", "PreconditionFailed", "ConditionalRequestConflict"))

# With status 404. Another code is one of these that was altered on its way.
_NOT_FOUND = MISSING | {"NoSuchBucket", "NoSuchUpload", "NoSuchVersion"}

# What was sent is not what arrived.
_ALTERED = frozenset(
    (
        "BadDigest",
        "IncompleteBody",
        "InvalidDigest",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    )
)
_CREDENTIALS = frozenset(
    (
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "InvalidToken",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    )
)
_REGION = frozenset(
    (
        "301",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "TemporaryRedirect",
    )
)
_THROTTLED = frozenset(
    (
        "429",
        "503",
        "BandwidthLimitExceeded",
        "RequestLimitExceeded",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    )
)


def code_of(error: Any) -> str:
    """The store's own name of an error, or its HTTP status where an answer had no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def field(answer: Mapping[str, Any], name: str) -> Any:
    """What an answer says, which it says whenever it is whole.

    To botocore, an answer that was cut off in its headers or before its body is one that says
    nothing: a list without objects, say.

    Raises:
        NetworkError: it does not.
    """
    try:
        return answer[name]
    except KeyError:
        raise NetworkError(f"an answer of the store broke off before its {name}") from None


def translate(error: Exception, doing: str, hint: str = "") -> StoreError | None:
    """The error of ours for one of botocore's; ``None`` if it is none.

    Args:
        error: what was raised.
        doing: what was being done, for the message.
        hint: more for messages about credentials.
    """
    import botocore.exceptions as aws
    import urllib3.exceptions

    if isinstance(error, aws.ClientError):
        return _translate_answer(error, doing, hint)
    missing = (
        aws.NoCredentialsError,
        aws.PartialCredentialsError,
        aws.CredentialRetrievalError,
        aws.TokenRetrievalError,
        aws.SSOError,
        aws.ProfileNotFound,
    )
    if isinstance(error, missing):
        return CredentialsError(
            f"{doing}: there are no usable credentials: {error}. {hint}Give them as boto3 finds "
            "them, in the environment, a profile or the machine's role, or in the configuration"
        )
    if isinstance(error, aws.FlexibleChecksumError | aws.ChecksumError):
        return AlteredAnswerError(f"{doing}: {error}. Is the network all right?")
    broken = (
        aws.ConnectionError,
        aws.HTTPClientError,
        aws.IncompleteReadError,
        urllib3.exceptions.HTTPError,
    )
    if isinstance(error, (*broken, *BROKEN_CONNECTIONS)):
        if is_untrusted(error):
            return StoreError(f"{doing}: the certificate of the store is not trusted: {error}")
        return NetworkError(
            f"{doing}: the connection failed: {error}. Is the network up, and the endpoint right?"
        )
    if isinstance(error, aws.ParamValidationError | aws.InvalidRegionError | aws.NoRegionError):
        return StoreError(f"{doing}: boto3 refused: {error}")
    if isinstance(error, aws.BotoCoreError):
        return StoreError(f"{doing}: {error}")
    return None


def _translate_answer(error: Any, doing: str, hint: str) -> StoreError:
    code = code_of(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = error.response.get("Error", {}).get("Message", "")
    said = f"{doing}: the store answered {status} {code}: {message}"
    if code == "NoSuchBucket":
        return BucketNotFoundError(f"{said}. Create the bucket, or correct its name")
    if code in _ALTERED or code == "RequestTimeout" or (status == 404 and code not in _NOT_FOUND):
        return NetworkError(f"{said}. Is the network all right?")
    if code in _CREDENTIALS:
        return CredentialsError(f"{said}. {hint}Renew the credentials, or correct them")
    if code in _REGION or status in (301, 307):
        return WrongRegionError(f"{said}. Give the bucket's region as region=, or AWS_REGION")
    if code in _THROTTLED or status in (429, 503):
        return ThrottledError(f"{said}, again and again. Try later, or with fewer at once")
    if status == 401:
        return CredentialsError(f"{said}. {hint}Give other credentials")
    if status == 403:
        return AccessDeniedError(
            f"{said}. Allow s3:GetObject, s3:PutObject, s3:DeleteObject, "
            "s3:AbortMultipartUpload and s3:ListBucket; without the last, S3 says this of "
            "whatever does not exist, too"
        )
    if status == 501 or code == "NotImplemented":
        return UnsafeStoreError(f"{said}. It lacks what was asked for")
    if status >= 500:
        return StoreUnavailableError(f"{said}, again and again. Try later")
    return StoreError(said)
