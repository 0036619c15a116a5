"""Records given as columns, as the contents that a cache has of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.content_id import record_tokens
from yogadl.format.codec import RecordCodec
from yogadl.format.layout import RecordLayout
from yogadl.format.rows import are_simple, rows_of

Array = np.ndarray[Any, Any]


def is_fixed(spec: specs.Structure) -> bool:
    """Whether all records of this spec have one size, and their leaves are stacked as columns."""
    return _is_plain(spec) and RecordLayout(spec).content_size is not None


def takes_columns(spec: specs.Structure) -> bool:
    """Whether a writer takes the leaves of many records of this spec as whole columns."""
    return _is_plain(spec) and are_simple(RecordLayout(spec))


def _is_plain(spec: specs.Structure) -> bool:
    return all(isinstance(leaf, specs.TensorSpec) for leaf in specs.leaves(spec))


def encoded_leaves(codec: RecordCodec, columns: Sequence[Column]) -> Iterator[Any]:
    """The contents of records given as one column per leaf: as a cache would have them."""
    if is_fixed(codec.spec):
        rows = np.zeros((len(columns[0]), codec.layout.content_size or 0), "u1")
        codec.encode_columns(columns, rows)
        yield from rows
    elif takes_columns(codec.spec):
        yield from rows_of(codec, columns, len(columns[0])).each()
    else:
        for row in zip(*columns, strict=True):
            yield codec.encode(specs.unflatten(codec.spec, row))


def content_tokens(codec: RecordCodec, columns: Sequence[Column]) -> Array:
    """The tokens of records given as one column per leaf, uint64 ``[n]``."""
    lengths: list[int] = []
    checksums: list[int] = []
    for content in encoded_leaves(codec, columns):
        lengths.append(len(content))
        checksums.append(xxhash.xxh3_64_intdigest(content) & 0xFFFFFFFF)
    return record_tokens(np.array(lengths, "u8"), np.array(checksums, "u8"))
