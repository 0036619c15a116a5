"""Keeping secrets out of what is shown, logged and pickled."""

from __future__ import annotations

import re

# Whoever has one of these needs no other credentials: signed addresses, Google's of an upload that
# has begun, tokens.
_PARAMETERS = (
    "upload_id",
    "access_token",
    "refresh_token",
    "id_token",
    "AWSAccessKeyId",
    "Signature",
    "X-(?:Amz|Goog)-(?:Credential|Signature|Security-Token)",
)
_IN_QUERIES = re.compile(rf"\b({'|'.join(_PARAMETERS)})=[^&\s\"'<>)]+", re.IGNORECASE)
# Only from where a word begins, or a long one would be read again from each of its letters.
_SCHEME = r"(?<![a-z0-9+.-])([a-z0-9+.-]+://)"
_BEFORE_HOSTS = re.compile(rf"{_SCHEME}(?:[^/\s@?#]*@)+", re.IGNORECASE)
# A password in which "/", "?" or "#" was not escaped, so that it is no port, but stands for one.
_UNESCAPED = re.compile(rf"{_SCHEME}[^/?#@:\[]*:(?!\d*(?:[/?#]|$))[^/?#@]*[/?#].*@", re.IGNORECASE)
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)


def without_password(url: str) -> str:
    """A URL without the user and password that may stand before its host."""
    return _BEFORE_HOSTS.sub(r"\1", _UNESCAPED.sub(r"\1", url, count=1), count=1)


def without_secrets(text: str) -> str:
    """A text without what stands before hosts of URLs, signatures and tokens."""
    text = _BEFORE_HOSTS.sub(r"\1", text)
    text = _IN_QUERIES.sub(r"\1=…", text)
    return _AUTHORIZATION.sub(r"\1 …", text)
