"""What Google's SDK says and is asked, as ``ObjectStore`` has it."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

from yogadl.storage._objects.store import ABSENT, ObjectInfo, PreconditionFailedError


def info_of(blob: Any) -> ObjectInfo:
    """What a blob of the SDK says."""
    metadata = {name.lower(): str(value) for name, value in (blob.metadata or {}).items()}
    created = blob.time_created.astimezone(datetime.timezone.utc)
    return ObjectInfo(blob.name, int(blob.size), str(blob.generation), created, metadata)


@contextlib.contextmanager
def conditional(if_tag: str | None) -> Iterator[int | None]:
    """The generation to ask for; raises that the object has another."""
    from google.api_core.exceptions import NotFound, PreconditionFailed

    try:
        yield None if if_tag is None else 0 if if_tag == ABSENT else int(if_tag)
    except PreconditionFailed as error:
        if if_tag is None:
            raise
        raise PreconditionFailedError from error
    except NotFound as error:
        # What is to be as it was, and is gone, is not as it was either.
        if not if_tag:
            raise
        raise PreconditionFailedError from error
