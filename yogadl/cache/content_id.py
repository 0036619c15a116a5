"""What tells data sets apart: what their records are, and nothing of how these are stored.

Every record has a *token*, of 64 bits: the length of its content and the checksum of that. The
content id of a data set is a digest of its spec and the tokens of its records in order. So it is
the same for any layout of a file, however the records came into it, and for any slices, selections
and concatenations that make the same records of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.format import spec_json

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 16
_SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def content_id_of(spec: specs.Structure, count: int, tokens: Callable[[Array], Array]) -> str:
    """The content id of a data set: the XXH3-128 of its spec and its records' tokens, in hex.

    Args:
        spec: the element spec; the order of dict keys in it does not matter.
        count: number of records.
        tokens: gives the tokens of the records at some positions.
    """
    digest = xxhash.xxh3_128(spec_json.canonical(spec).encode() + b"\n")
    for start in range(0, count, _CHUNK):
        positions = np.arange(start, min(start + _CHUNK, count))
        digest.update(tokens(positions).astype("<u8", copy=False))
    return digest.hexdigest()


def record_tokens(lengths: Array, checksums: Array) -> Array:
    """The tokens of records whose contents have these lengths and checksums, uint64 ``[n]``."""
    tokens: Array = lengths.astype("u8") << np.uint64(32) | checksums.astype("u8")
    return tokens


def mixed(tokens: Array, others: Array) -> Array:
    """Tokens made of two of each record, uint64 ``[n]``: others for any other two, or the same two
    the other way round, but for one case in 2**64."""
    return _scattered(_scattered(tokens) + others)


def marked(tokens: Array, text: str) -> Array:
    """Tokens mixed with a text that says what they are tokens of, uint64 ``[n]``."""
    return mixed(tokens, np.array([xxhash.xxh3_64_intdigest(text.encode())], "u8"))


def _scattered(words: Array) -> Array:
    """A permutation of the numbers of 64 bits that leaves nothing in place: that of SplitMix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _SHIFTS:
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    found: Array = words ^ words >> np.uint64(31)
    return found
