"""What requests to S3 say and ask, as ``ObjectStore`` has it."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from yogadl.storage._objects.s3_errors import FAILED_PRECONDITIONS, MISSING, code_of, field
from yogadl.storage._objects.store import ABSENT, ObjectInfo, PreconditionFailedError


@contextlib.contextmanager
def conditional(if_tag: str | None, quote: str = '"') -> Iterator[dict[str, str]]:
    """The arguments for a condition; raises that it does not hold."""
    condition = {}
    if if_tag is not None:
        absent = if_tag == ABSENT
        condition = {"IfNoneMatch": "*"} if absent else {"IfMatch": f"{quote}{if_tag}{quote}"}
    try:
        yield condition
    except ClientError as error:
        # An object that is to be as it was, and is gone, is not as it was either.
        gone = if_tag and code_of(error) in MISSING
        failed = if_tag is not None and code_of(error) in FAILED_PRECONDITIONS
        if gone or failed:
            raise PreconditionFailedError from error
        raise


def info_of(key: str, answer: Mapping[str, Any]) -> ObjectInfo:
    """What is said of an object, by a HEAD or in a list."""
    metadata = {name.lower(): value for name, value in answer.get("Metadata", {}).items()}
    size = int(field(answer, "ContentLength"))
    return ObjectInfo(key, size, tag_of(answer), created_at(answer), metadata)


def created_at(answer: Mapping[str, Any]) -> datetime.datetime:
    """When an object was written, by the store's clock, in UTC."""
    found: datetime.datetime = field(answer, "LastModified").astimezone(datetime.timezone.utc)
    return found


def tag_of(answer: Mapping[str, Any]) -> str:
    """What differs whenever the contents do."""
    return bare_tag(field(answer, "ETag"))


def bare_tag(tag: str) -> str:
    """An ETag without its quotes."""
    return tag.strip('"')
