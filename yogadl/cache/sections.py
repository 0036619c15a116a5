"""What files say of themselves as JSON: the element spec and the metadata, checked."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import xxhash

from yogadl.errors import ChecksumError, InvalidArgumentError, UnsupportedTypeError
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
    metadata = _json_object(section(buffer, place, "metadata", name), "metadata", name)
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
    codec = spec_codec(section(buffer, place, "element spec", name), name)
    if (codec.layout.value_size or 0) != value_size:
        raise ChecksumError(f"{name} has a header that contradicts its element spec; rebuild it")
    return codec


def spec_codec(text: Array, name: str) -> RecordCodec:
    """What all that reads records of a spec goes by.

    Args:
        text: the spec as JSON, uint8.
        name: of the file that has it, for errors.

    Raises:
        ChecksumError: it is none that records can have.
    """
    try:
        codec = RecordCodec(spec_json.from_json(_json_object(text, "element spec", name)))
        codec.layout.check_size()
    except (InvalidArgumentError, UnsupportedTypeError) as error:
        raise ChecksumError(f"{name}: {error}; rebuild it") from error
    return codec


def _json_object(text: Array, what: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text.tobytes())
    except (ValueError, RecursionError) as error:
        raise ChecksumError(f"{name}: its {what} is no JSON; rebuild it") from error
    if not isinstance(value, dict):
        raise ChecksumError(f"{name}: its {what} is no JSON object; rebuild it")
    return value
