"""Ids and versions as paths below a storage directory."""

from __future__ import annotations

import pathlib
from typing import Any

from yogadl.errors import InvalidArgumentError

CACHE_FILE = "cache.mdb"
LOCK_FILE = "yogadl.lock"

_LONGEST = 255


def relative_path(dataset_id: Any, dataset_version: Any) -> pathlib.PurePosixPath:
    """The folder of a version below the storage directory.

    Raises:
        InvalidArgumentError: an id or version that is empty, leaves the storage, or would share its
            folder with another.
    """
    _check("dataset_id", dataset_id)
    _check("dataset_version", dataset_version)
    if "/" in dataset_version:
        raise InvalidArgumentError(
            f"dataset_version must not contain '/', and {dataset_version!r} does; put the folder "
            "into dataset_id"
        )
    return pathlib.PurePosixPath(dataset_id, dataset_version)


def _check(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{name} must be a non-empty string, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name} must be text that UTF-8 can hold: {error}") from error
    parts = value.split("/")
    if value.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise InvalidArgumentError(
            f"{name} must stay inside the storage directory, and {value!r} would not; use a "
            "relative name without empty parts, '.' and '..'"
        )
    if "\0" in value or "\\" in value or any(len(part.encode()) > _LONGEST for part in parts):
        raise InvalidArgumentError(
            f"{name} must not contain NUL or backslash, nor a part over {_LONGEST} bytes: {value!r}"
        )
    if any(part in (CACHE_FILE, LOCK_FILE) for part in parts):
        raise InvalidArgumentError(
            f"{name} must not contain {CACHE_FILE!r} or {LOCK_FILE!r}, the names of yogadl's own "
            f"files: {value!r}"
        )
