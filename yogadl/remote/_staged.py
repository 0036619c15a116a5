"""Records from afar in memory of their own, as aligned as in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xxhash

from yogadl.cache.memory import returning
from yogadl.format.entries import ENTRY
from yogadl.format.layout import INLINE_LIMIT, LEAD, WIDE_ALIGNMENT
from yogadl.format.pages import PAGE_SIZE
from yogadl.remote._fetching.work import Range

Array = np.ndarray[Any, Any]


class Staged(NamedTuple):
    """Records that were read.

    Attributes:
        buffer, staged: see ``room_for``.
        entries: where they are in their files.
        wrong: which are not what was written, or were found at the wrong places.
    """

    buffer: Array
    staged: Array
    entries: Array
    wrong: list[int]


def room_for(entries: Array) -> tuple[Array, Array]:
    """Memory for some records.

    Returns:
        A buffer, uint8, with a page behind the records; and their entries with offsets in it.
    """
    staged = entries.copy()
    room = (entries["length"].astype("i8") + 2 * WIDE_ALIGNMENT) & -WIDE_ALIGNMENT
    ends = np.cumsum(room)
    staged["offset"] = ends - room + entries["offset"].astype("i8") % WIDE_ALIGNMENT
    size = int(ends[-1]) if len(ends) else 0
    return returning((size + PAGE_SIZE,), np.dtype("u1")), staged


def read_into(
    buffer: Array, ranges: Sequence[Range], staged: Array, chosen: Sequence[int]
) -> list[int]:
    """Reads some records to where their entries say.

    Args:
        buffer: to read into.
        ranges: where the records are, and others.
        staged: their entries, with offsets in the buffer.
        chosen: which of them to read.

    Returns:
        Those that are not what was written.
    """
    view, digest, wrong = memoryview(buffer), xxhash.xxh3_64_intdigest, []
    lengths = staged["length"].astype("i8")
    leads = np.where(lengths > INLINE_LIMIT, LEAD, 0)
    begins = staged["offset"].astype("i8")
    ends = (begins + lengths).tolist()
    places = list(zip((begins + leads).tolist(), ends, leads.tolist(), strict=True))
    checksums = staged["checksum"].tolist()
    for at in chosen:
        file, start, _ = ranges[at]
        begin, end, lead = places[at]
        content = view[begin:end]
        file.pieces.read_into(start + lead, content)
        if digest(content) & 0xFFFFFFFF != checksums[at]:
            wrong.append(at)
    return wrong


def joined(chosen: Sequence[Array], reads: Sequence[Staged]) -> Staged:
    """Records that were read at several times as if they had been read together.

    Args:
        chosen: which records each of ``reads`` has, int64; of one that several have, the last
            counts.
        reads: as they were read.
    """
    count = 1 + max(int(numbers.max()) for numbers in chosen)
    entries = np.empty(count, ENTRY)
    sources: list[tuple[Array, int, int]] = [(entries, 0, 0)] * count
    wrong: set[int] = set()
    for numbers, read in zip(chosen, reads, strict=True):
        entries[numbers] = read.entries
        wrong.difference_update(numbers.tolist())
        wrong.update(numbers[read.wrong].tolist())
        offsets, lengths = read.staged["offset"].tolist(), read.staged["length"].tolist()
        for at, offset, length in zip(numbers.tolist(), offsets, lengths, strict=True):
            sources[at] = read.buffer, offset, length
    buffer, staged = room_for(entries)
    starts = staged["offset"].tolist()
    for start, (source, offset, length) in zip(starts, sources, strict=True):
        buffer[start : start + length] = source[offset : offset + length]
    return Staged(buffer, staged, entries, sorted(wrong))
