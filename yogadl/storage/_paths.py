"""Ids and versions as paths below a storage directory."""

from __future__ import annotations

import pathlib
from typing import Any

from yogadl.cache.parts import PARTS_FOLDER
from yogadl.errors import InvalidArgumentError

CACHE_FILE = "cache.mdb"
LOCK_FILE = "yogadl.lock"
LEASE_OBJECT = "yogadl.lease"
WAITING_FILE = "yogadl.waiting"
PIECES_FOLDER = "yogadl.pieces"
METADATA_FILE = "local_metadata.json"
CATALOGUE_FOLDER = "yogadl.catalogue"
SCRATCH_PREFIX = "yogadl.scratch."

_RESERVED = (
    CACHE_FILE,
    LOCK_FILE,
    PARTS_FOLDER,
    CATALOGUE_FOLDER,
    LEASE_OBJECT,
    METADATA_FILE,
    WAITING_FILE,
    PIECES_FOLDER,
)
"""Names of files and folders of a storage's own: on a disk, in a bucket, or on a machine that has
copies of one. Each is reserved everywhere, so that anything can be copied anywhere."""

_LONGEST = 255


def relative_path(
    dataset_id: Any, dataset_version: Any, called: str = "dataset_version"
) -> pathlib.PurePosixPath:
    """The folder of a version below the storage directory.

    Args:
        dataset_id: as users give it.
        dataset_version: likewise.
        called: what errors call the version.

    Raises:
        InvalidArgumentError: an id or version that is empty, leaves the storage, or would share its
            folder with another.
    """
    _check("dataset_id", dataset_id)
    _check(called, dataset_version)
    if "/" in dataset_version:
        raise InvalidArgumentError(
            f"{called} must not contain '/', and {dataset_version!r} does; put the folder "
            "into dataset_id"
        )
    return pathlib.PurePosixPath(dataset_id, dataset_version)


def is_version(dataset_id: str, dataset_version: str) -> bool:
    """Whether a version can be fetched by these names."""
    try:
        relative_path(dataset_id, dataset_version)
    except InvalidArgumentError:
        return False
    return True


def beyond_parts(key: str) -> str:
    """Of the key of a part, one behind those of all parts of its id; of any other, itself."""
    folder, found, _ = f"/{key}".rpartition(f"/{PARTS_FOLDER}/")
    # Names of parts are hexadecimal, and of others there are few.
    return f"{folder}{found}~"[1:] if found else key


def _check(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        instead = f"; give {str(value)!r}" if isinstance(value, int | float) else ""
        raise InvalidArgumentError(f"{name} must be a non-empty string, not {value!r}{instead}")
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
    own = [part for part in parts if part in _RESERVED]
    if own:
        raise InvalidArgumentError(
            f"{name} must not have a part {own[0]!r}, which is a name of yogadl's own: {value!r}"
        )
    if any(part.startswith(SCRATCH_PREFIX) for part in parts):
        raise InvalidArgumentError(
            f"{name} must not have a part that begins with {SCRATCH_PREFIX!r}, as the folders of "
            f"yogadl's that are removed when nobody uses them: {value!r}"
        )
