"""The older entries of a catalogue, in one object that is never changed."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable
from typing import Any

import xxhash

from yogadl.catalogue._entry import Key, key_of
from yogadl.catalogue._state import Raw, SegmentName, State
from yogadl.errors import CatalogueError

LARGEST = 256 << 20
"""Bytes of a segment, and of the root: some millions of versions."""

_LARGEST_RAW = 4 << 30
_FORMAT = 1
# Higher ones take several times as long, for a tenth of the bytes.
_LEVEL = 1

_log = logging.getLogger(__name__)


def encode(entries: Iterable[Raw], change: str) -> tuple[bytes, SegmentName]:
    """A segment of some entries, and how it is referred to.

    Args:
        entries: in the order in which they came.
        change: the id of the change that makes it, so that no two segments have the same name.
    """
    listed = list(entries)
    raw = json.dumps({"format": _FORMAT, "change": change, "entries": listed}).encode()
    data = zlib.compress(raw, _LEVEL)
    name = xxhash.xxh3_128_hexdigest(data)
    return data, SegmentName(name, len(data), len(raw), len(listed))


def decode(data: bytes, segment: SegmentName, name: str) -> dict[Key, Raw]:
    """The entries of a segment, whatever is in it.

    Args:
        data: its bytes.
        segment: what is said of it.
        name: of it, for errors.

    Raises:
        CatalogueError: it is damaged.
    """
    try:
        if xxhash.xxh3_128_hexdigest(data) != segment.name:
            raise ValueError("it is not what its name says")
        if segment.raw_size > _LARGEST_RAW:
            raise ValueError(f"it is to have {segment.raw_size} bytes")
        inflate = zlib.decompressobj()
        raw = inflate.decompress(data, segment.raw_size + 1)
        if len(raw) != segment.raw_size or not inflate.eof:
            raise ValueError("it has another size than it should")
        found: Any = json.loads(raw)
        if found["format"] != _FORMAT:
            raise ValueError(f"it is of format {found['format']!r:.20}")
        return {key_of(entry): entry for entry in found["entries"]}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise CatalogueError(f"{name} is damaged: {error}") from error


def together(state: State, older: dict[Key, Raw]) -> dict[Key, Raw]:
    """All entries of a catalogue, the oldest first.

    Args:
        state: of the root.
        older: those of its segment.
    """
    kept = {
        key: raw
        for key, raw in older.items()
        # Whatever was removed since has no entry, also if this one is of what was replaced before.
        if key not in state.entries and key not in state.removed
    }
    return {**kept, **state.entries}
