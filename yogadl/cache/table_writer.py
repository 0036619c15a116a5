"""Writing the table of the parts that a version's records are in."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.cache.container import Container
from yogadl.cache.content_id import TokenSums, sums_of_slices, sums_of_wholes
from yogadl.cache.file_writer import FileWriter
from yogadl.cache.files import shown
from yogadl.cache.grouped import LeafMap
from yogadl.cache.partial import PartialFile
from yogadl.cache.sections import section
from yogadl.errors import ChecksumError
from yogadl.format import run_columns, spec_json
from yogadl.format import table as tables
from yogadl.format.codec import RecordCodec
from yogadl.format.header import Header
from yogadl.format.index import BLOCK, block_counts
from yogadl.format.layout import WIDE_ALIGNMENT
from yogadl.format.record_keys import MOST_RECORDS

Array = np.ndarray[Any, Any]

TokensOf = Callable[[int, int, int], Array]
"""Gives the tokens, uint64 ``[count]``, of records of the part of a number: of ``count`` from the
one at a position of it on."""

# Tokens that are held at a time.
_STEP = 1 << 20


class PartList:
    """Some parts, in order.

    Attributes:
        entries: what a table says of each, ``PART`` ``[1]`` each.
        checksums: of the blocks of their indexes, uint64, for each.
        alignment: of the contents of all of them.
        value_size: of all their records; 0 if these differ.
        record_count: records of all parts.
    """

    def __init__(self) -> None:
        self.entries: list[Array] = []
        self.checksums: list[Array] = []
        self.alignment = WIDE_ALIGNMENT
        self.value_size = 0
        self.record_count = 0

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def digests(self) -> list[bytes]:
        """Of each, in order."""
        return [entry["digest"].tobytes() for entry in self.entries]

    @property
    def array(self) -> Array:
        """What a table says of them, ``PART`` ``[n]``."""
        return np.concatenate([np.zeros(0, tables.PART), *self.entries])

    def add(self, header: Header, checksums: Array) -> None:
        """Adds a part.

        Args:
            header: of the part.
            checksums: of the blocks of its index, uint64.
        """
        self.alignment = min(self.alignment, header.alignment)
        self.value_size = header.value_size
        self.append(tables.part_of(header), checksums)

    def append(self, entry: Array, checksums: Array) -> None:
        """Adds a part by what a table says of it; its alignment is known."""
        self.entries.append(entry)
        self.checksums.append(checksums)
        self.record_count += int(entry["count"][0])

    def extend(self, others: PartList) -> None:
        """Adds others' parts behind these."""
        self.alignment = min(self.alignment, others.alignment)
        self.value_size = others.value_size if others else self.value_size
        for entry, checksums in zip(others.entries, others.checksums, strict=True):
            self.append(entry, checksums)

    def write(
        self, path: pathlib.Path, spec: bytes, metadata: bytes, created_ns: int
    ) -> PartialFile:
        """The table of all their records, under a partial name beside its path.

        Args:
            path: of the table to be.
            spec: the element spec of all parts, as JSON.
            metadata: JSON.
            created_ns: when it was made, nanoseconds since 1970.
        """
        entries = self.array
        group = tables.Group(entries, None, self.alignment, None, 0)
        counts = entries["count"].astype("i8")
        sums = sums_of_wholes(entries["token_sums"], np.cumsum(counts) - counts)
        return _write(
            path,
            tables.encode([group], None),
            np.concatenate(self.checksums),
            spec,
            metadata,
            {
                "record_count": self.record_count,
                "alignment": self.alignment,
                "value_size": self.value_size,
                "created_ns": created_ns,
                "part_count": len(self.entries),
                "token_sums": sums,
            },
        )


@dataclass(frozen=True)
class ColumnGroup:
    """Some leaves of the records of a version to be, and where these are.

    Attributes:
        spec: the element spec of the parts, as JSON to the byte as they have it.
        parts: of that spec.
        runs: which of their records are those of the version, ``RUN`` ``[n]``; a part by its number
            in ``parts``. One may be used by many runs, or by none, and is then left out.
    """

    spec: bytes
    parts: PartList
    runs: Array


@dataclass(frozen=True)
class ColumnLayout:
    """How the leaves of a version are spread over column groups; parts of versions of the same
    layout can stand in one.

    Attributes:
        specs: the element specs of the groups' parts, as JSON to the byte as they have them.
        leaves: see :func:`write_version`.
    """

    specs: tuple[bytes, ...]
    leaves: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True)
class StoredGroups:
    """Of what a version that is stored is made, to make another of it.

    Attributes:
        spec: its element spec, as JSON.
        groups: its column groups. That of a plain file has one part, which is that file.
        leaves: where the leaves of its spec are; see :func:`write_version`.
    """

    spec: bytes
    groups: tuple[ColumnGroup, ...]
    leaves: list[tuple[int, int]] | None

    @property
    def layout(self) -> ColumnLayout:
        """How its leaves are spread over its groups."""
        leaves = None if self.leaves is None else tuple(self.leaves)
        return ColumnLayout(tuple(group.spec for group in self.groups), leaves)


def stored_groups(buffer: Array, header: Header, name: str) -> StoredGroups:
    """Of what a version is made.

    Args:
        buffer: its file, uint8: all of it if it is a table, otherwise the header, the spec and the
            index checksums are enough.
        header: of it.
        name: of it, for errors.

    Raises:
        ChecksumError: it is damaged, as far as that is read.
    """
    spec = section(buffer, header.spec, "element spec", name).tobytes()
    checksums = section(buffer, header.index_checksums, "index", name).view("<u8")
    if not header.part_count:
        parts = PartList()
        if header.record_count:
            parts.add(header, checksums)
        return StoredGroups(spec, (ColumnGroup(spec, parts, whole_runs(parts)),), None)
    place = header.index
    table = tables.load(buffer[place.offset : place.offset + place.length], header, name)
    if len(checksums) != tables.block_total(table.parts):
        raise ChecksumError(f"{name} has checksums of the wrong size; rebuild it")
    groups, first = [], 0
    for group in table.groups:
        text = spec if group.spec is None else group.spec.tobytes()
        parts = PartList()
        parts.alignment, parts.value_size = group.alignment, header.value_size
        for at, blocks in enumerate(block_counts(group.parts["count"].astype("i8")).tolist()):
            parts.append(group.parts[at : at + 1], checksums[first : first + blocks])
            first += blocks
        runs = whole_runs(parts) if group.runs is None else group.runs
        groups.append(ColumnGroup(text, parts, runs))
    leaves = None if table.leaves is None else table.leaves.tolist()
    return StoredGroups(spec, tuple(groups), leaves)


def whole_runs(parts: PartList) -> Array:
    """The runs of all records of some parts, in order."""
    runs = np.zeros(len(parts), run_columns.RUN)
    runs["part"] = np.arange(len(parts))
    runs["count"] = parts.array["count"]
    return runs


def sums_of_runs(parts: PartList, runs: Array, tokens_of: TokensOf) -> TokenSums:
    """The sums over the tokens of the records of some runs.

    Args:
        parts: the parts.
        runs: of them, ``RUN`` ``[n]``.
        tokens_of: is asked for the tokens of a part of which not all records are in one run, and
            for no others.
    """
    counts, firsts = runs["count"].astype("i8"), runs["first"].astype("i8")
    starts = np.cumsum(counts) - counts
    entries = parts.array
    are_whole = counts == entries["count"][runs["part"]].astype("i8")
    sums = entries["token_sums"][runs["part"][are_whole]]
    found = [sums_of_wholes(sums, starts[are_whole])]
    cut = np.flatnonzero(~are_whole)
    for some in _near_each_other(cut, runs["part"].astype("i8"), firsts, counts):
        number, ends = int(runs["part"][some[0]]), firsts[some] + counts[some]
        begin, end = int(firsts[some].min()), int(ends.max())
        for first in range(begin, end, _STEP):
            stop = min(first + _STEP, end)
            begins, stops = firsts[some].clip(first, stop), ends.clip(first, stop)
            here = begins < stops
            tokens = tokens_of(number, first, stop - first)
            at = (starts[some] + begins - firsts[some])[here]
            lengths = (stops - begins)[here]
            found.append(sums_of_slices(tokens, begins[here] - first, lengths, at))
    one, two = (sum(pair) % 2**64 for pair in zip(*found, strict=True))
    return TokenSums(int(counts.sum()), (one, two))


def _near_each_other(chosen: Array, parts: Array, firsts: Array, counts: Array) -> list[Array]:
    """The numbers of some runs, cut where the next are in another part, or far away in theirs.

    Args:
        chosen: the numbers, int64 ``[n]``.
        parts, firsts, counts: of all runs.
    """
    order = chosen[np.lexsort((firsts[chosen], parts[chosen]))]
    # Those of a part behind those of the one before, so that no run ends behind them.
    begins = parts[order] * (2 * MOST_RECORDS) + firsts[order]
    reached = np.maximum.accumulate(begins + counts[order])
    breaks = np.flatnonzero(begins[1:] > reached[:-1] + BLOCK) + 1
    return np.split(order, breaks) if len(order) else []


def write_version(
    path: pathlib.Path,
    groups: Sequence[ColumnGroup],
    spec: bytes,
    leaves: Sequence[tuple[int, int]] | None,
    *,
    metadata: bytes,
    created_ns: int,
    sums: TokenSums,
) -> PartialFile:
    """The table of a version, under a partial name beside its path.

    Args:
        path: of the table to be.
        groups: at least one, with as many records each, of which there is one at least.
        spec: the element spec of the version, as JSON.
        leaves: for each leaf of that, the number of a group and of a leaf in its spec; each group
            has one at least. ``None`` if there is one group, of the same spec.
        metadata: JSON; see ``cache.writer.metadata_json``.
        created_ns: when it was made, nanoseconds since 1970.
        sums: over the tokens of the records; see :func:`sums_of_runs` for one group, and
            ``cache.grouped.sums_of_joined`` for others.

    Raises:
        ValueError: there can be no such version.
    """
    structure = spec_json.from_json(json.loads(spec))
    codec = RecordCodec(structure)
    if not sums.count:
        writer = FileWriter(path, codec)
        writer.finish(spec, metadata, created_ns)
        return writer.file
    in_order = [(0, leaf) for leaf, _ in enumerate(specs.leaves(structure))]
    if leaves is not None and groups[0].spec == spec and list(leaves) == in_order:
        leaves = None
    if leaves is not None:
        LeafMap(structure, [spec_json.from_json(json.loads(it.spec)) for it in groups], leaves)
    tidied = [_tidied(group) for group in groups]
    if leaves is None:
        (group,) = tidied
        stored = [tables.Group(group.parts.array, _needed(group), group.parts.alignment, None, 0)]
        where = None
    else:
        stored = [
            tables.Group(
                group.parts.array,
                group.runs,
                group.parts.alignment,
                np.frombuffer(group.spec, "u1"),
                xxhash.xxh3_64_intdigest(group.spec),
            )
            for group in tidied
        ]
        where = np.array(list(leaves), "u4").view(tables.LEAF).reshape(-1)
    return _write(
        path,
        tables.encode(stored, where),
        np.concatenate([each for group in tidied for each in group.parts.checksums]),
        spec,
        metadata,
        {
            "record_count": sums.count,
            "alignment": min(group.alignment for group in stored),
            "value_size": codec.layout.value_size or 0,
            "created_ns": created_ns,
            "part_count": sum(len(group.parts) for group in stored),
            "token_sums": sums.sums,
        },
    )


def _tidied(group: ColumnGroup) -> ColumnGroup:
    """The same with every part that is used once, in the order of use, and the fewest runs."""
    runs = group.runs[group.runs["count"] > 0]
    known: dict[bytes, int] = {}
    digests = [entry["digest"].tobytes() for entry in group.parts.entries]
    same = np.array([known.setdefault(digest, at) for at, digest in enumerate(digests)], "i8")
    numbers = same[runs["part"]]
    used, first_uses = np.unique(numbers, return_index=True)
    order = used[np.argsort(first_uses)]
    renumbered = np.zeros(len(digests), "u4")
    renumbered[order] = np.arange(len(order))
    parts = PartList()
    parts.alignment, parts.value_size = group.parts.alignment, group.parts.value_size
    for number in order.tolist():
        parts.append(group.parts.entries[number], group.parts.checksums[number])
    ends = runs["first"].astype("i8") + runs["count"]
    begins = np.ones(len(runs), bool)
    begins[1:] = (np.diff(numbers) != 0) | (runs["first"][1:] != ends[:-1])
    heads = np.flatnonzero(begins)
    merged = np.zeros(len(heads), run_columns.RUN)
    merged["part"] = renumbered[numbers[heads]]
    merged["first"] = runs["first"][heads]
    merged["count"] = np.add.reduceat(runs["count"], heads)
    return ColumnGroup(group.spec, parts, merged)


def _needed(group: ColumnGroup) -> Array | None:
    """The runs of a group; ``None`` if they are all records of its parts in order."""
    whole = whole_runs(group.parts)
    # NumPy would make a TypeError of a Ctrl-C while it compares them by their fields.
    return None if group.runs.tobytes() == whole.tobytes() else group.runs


def _write(
    path: pathlib.Path,
    index: bytes,
    checksums: Array,
    spec: bytes,
    metadata: bytes,
    fields: Mapping[str, Any],
) -> PartialFile:
    """A table, under a partial name; see ``cache.container``.

    Args:
        index: of the table.
        checksums: of the blocks of the indexes of its parts, uint64.
        fields: of the header.
    """
    container = Container(path)
    sections = {
        "checksums": checksums.tobytes(),
        "metadata": metadata,
        "spec": spec,
        "index": index,
    }
    has_runs = len(index) > fields["part_count"] * tables.PART.itemsize
    try:
        header = container.finish(sections, 0, fields, sums_index=has_runs)
        # Nothing is published that no reader takes.
        tables.load(np.frombuffer(index, "u1"), header, shown(path))
    except BaseException:
        container.file.close()
        raise
    return container.file
