"""What files say of themselves as JSON: the element spec and the metadata, checked."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.errors import ChecksumError, InvalidArgumentError, YogadlError
from yogadl.format import header as headers
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
from yogadl.format.provenance import METADATA_KEY, RECIPE_KEY, Provenance

Array = np.ndarray[Any, Any]


def section(buffer: Array, place: headers.Section, what: str, name: str) -> Array:
    """The bytes of a section of a file where they lie, uint8.

    Raises:
        ChecksumError: they are damaged.
    """
    data = buffer[place.offset : place.offset + place.length]
    if xxhash.xxh3_64_intdigest(data) != place.checksum:
        raise ChecksumError(f"{name} has a damaged {what}; rebuild it")
    return data


def load_metadata(
    buffer: Array, place: headers.Section, name: str
) -> tuple[dict[str, Any], Provenance]:
    """The user's metadata, and how the records came to be.

    Raises:
        ChecksumError: they are damaged.
    """
    metadata = _load_json(buffer, place, "metadata", name)
    provenance = Provenance.from_json(metadata.pop(METADATA_KEY, None))
    document = metadata.pop(RECIPE_KEY, None)
    return metadata, dataclasses.replace(provenance, recipe_document=document)


def load_codec(buffer: Array, place: headers.Section, value_size: int, name: str) -> RecordCodec:
    """What all that reads records goes by: their spec, checked for all of it.

    Args:
        buffer: the file, uint8.
        place: of the spec in it.
        value_size: of every record by the header, 0 where they differ.
        name: of the file, for errors.

    Raises:
        ChecksumError: the spec is damaged, or none that records can have.
    """
    spec = _load_spec(buffer, place, name)
    codec = RecordCodec(spec)
    try:
        codec.layout.check_size()
    except InvalidArgumentError as error:
        raise ChecksumError(f"{name}: {error}; rebuild it") from error
    if (codec.layout.value_size or 0) != value_size:
        raise ChecksumError(f"{name} has a header that contradicts its element spec; rebuild it")
    return codec


def _load_spec(buffer: Array, place: headers.Section, name: str) -> specs.Structure:
    node = _load_json(buffer, place, "element spec", name)
    try:
        return spec_json.from_json(node)
    except YogadlError as error:
        raise ChecksumError(f"{name}: {error}; rebuild it") from error


def _load_json(buffer: Array, place: headers.Section, what: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(section(buffer, place, what, name).tobytes())
    except (ValueError, RecursionError) as error:
        raise ChecksumError(f"{name}: its {what} is no JSON; rebuild it") from error
    if not isinstance(value, dict):
        raise ChecksumError(f"{name}: its {what} is no JSON object; rebuild it")
    return value
