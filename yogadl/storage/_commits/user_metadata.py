"""The user's metadata of versions: whether they are the same, and what two have made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash

MISSING = object()
"""Stands for the value of a key that metadata do not have."""


class BothChangedError(Exception):
    """Two have changed the same key.

    Attributes:
        key: it.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same in a file, where ``1``, ``1.0`` and ``True`` differ."""
    if one is MISSING or other is MISSING:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def metadata_digest(metadata: Mapping[str, Any]) -> str:
    """What tells metadata from others: the XXH3-128 of their JSON with sorted keys, in hex."""
    return xxhash.xxh3_128_hexdigest(json.dumps(metadata, sort_keys=True).encode())


def merged(
    before: Mapping[str, Any], theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> Mapping[str, Any]:
    """What two have made of some metadata, key by key.

    Raises:
        BothChangedError: they have made others of the same.
    """
    if same_json(theirs, before):
        return ours
    found = dict(theirs)
    for key in {*before, *ours}:
        was, our, their = (it.get(key, MISSING) for it in (before, ours, theirs))
        if same_json(our, was) or same_json(our, their):
            continue
        if not same_json(their, was):
            raise BothChangedError(key)
        if our is MISSING:
            del found[key]
        else:
            found[key] = our
    return found
