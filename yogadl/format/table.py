"""Tables of parts: which files have the records of a version, and what a reader needs of each.

A table is a cache file without records of its own. Its index has an entry for each part, and its
checksums are those of the blocks of their indexes, one part behind the other. Where the records are
not simply those of all parts in order, *runs* say which they are; where the leaves of a record are
in different parts, there is a *column group* of parts and runs for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl.errors import ChecksumError
from yogadl.format import index as indexes
from yogadl.format import run_columns
from yogadl.format.entries import ENTRY
from yogadl.format.header import BODY_OFFSET, LARGEST_SPEC, Header
from yogadl.format.pages import PAGE_SIZE
from yogadl.format.record_keys import MOST_RECORDS

Array = np.ndarray[Any, Any]

PART = np.dtype(
    [
        ("digest", "V16"),
        ("size", "<u8"),
        ("count", "<u8"),
        ("entries", "<u8"),
        ("token_sums", "<u8", (2,)),
        ("reserved", "<u8"),
    ]
)
"""Of a part: its digest, bytes, and records; where its index begins; its token sums; zero."""

GROUP = np.dtype(
    [
        ("parts", "<u8"),
        ("runs", "<u8"),
        ("alignment", "<u8"),
        ("spec_length", "<u8"),
        ("spec_checksum", "<u8"),
        ("reserved", "<u8"),
    ]
)
"""Of a column group: its parts and runs; the alignment of its contents; its spec; zero."""

LEAF = np.dtype([("group", "<u4"), ("leaf", "<u4")])
"""Where a leaf of the spec of a version is: its group, and its number among the leaves of that."""

_COUNTS = np.dtype([("runs", "<u8"), ("groups", "<u8")])

MOST_BYTES = 2**60
"""Of all parts together: sums of them do not wrap around."""

LARGEST_SPECS = 4 * LARGEST_SPEC
"""Bytes of the specs of all column groups of a table together."""


def part_of(header: Header) -> Array:
    """The entry of a part with this header, of ``PART`` ``[1]``."""
    part = np.zeros(1, PART)
    part["digest"] = np.frombuffer(header.digest, "V16")
    part["size"] = header.file_size
    part["count"] = header.record_count
    part["entries"] = header.index.offset
    part["token_sums"] = header.token_sums
    return part


def is_part(header: Header, part: Array, spec_checksum: int) -> bool:
    """Whether a file is what a table says of a part.

    Args:
        header: of the file.
        part: what the table says, of ``PART`` ``[1]``.
        spec_checksum: of the spec that its records should have, as JSON.
    """
    return bool(
        # NumPy would make a TypeError of a Ctrl-C while it compares them by their fields.
        part_of(header).tobytes() == part.tobytes()
        and header.spec.checksum == spec_checksum
        # The index of a table is none of records.
        and not header.part_count
    )


@dataclass(frozen=True)
class Group:
    """Parts of one spec, and which of their records are those of the version.

    Attributes:
        parts: of ``PART`` ``[n]``, at least one.
        runs: of ``run_columns.RUN`` ``[m]``, their parts by number in ``parts``; ``None`` if the
            records are those of all parts in order.
        alignment: of the contents of the records.
        spec: JSON, uint8; ``None`` if it is that of the table.
        spec_checksum: XXH3-64 of it.
    """

    parts: Array
    runs: Array | None
    alignment: int
    spec: Array | None
    spec_checksum: int

    def indexed_runs(self) -> indexes.Runs | None:
        """The same runs for an index of the parts."""
        if self.runs is None:
            return None
        return indexes.Runs(*[self.runs[name].astype("i8") for name in ("part", "first", "count")])

    @property
    def block_count(self) -> int:
        """Blocks of the indexes of the parts."""
        return block_total(self.parts)


@dataclass(frozen=True)
class Table:
    """What the index of a table says, checked.

    Attributes:
        parts: of all groups, one group behind the other, ``PART`` ``[n]``.
        groups: at least one.
        leaves: for each leaf of the version's spec where it is, ``LEAF`` ``[n]``; ``None`` if
            there is one group, of the version's own spec. Whether there are such leaves, and
            whether they are those of the spec, is not checked.
    """

    parts: Array
    groups: tuple[Group, ...]
    leaves: Array | None

    def group_of(self, number: int) -> Group:
        """The group of the part of a number."""
        for group in self.groups:
            if number < len(group.parts):
                return group
            number -= len(group.parts)
        raise IndexError(number)


def load_parts(section: Array, header: Header, name: str) -> Array:
    """What a table says of its parts, without the records that it has of them.

    Args:
        section: its index, uint8.
        header: of it.
        name: of it, for errors.

    Returns:
        The parts of all groups, ``PART`` ``[n]``, checked as far as their readers rely on it.

    Raises:
        ChecksumError: it is damaged, or there can be no such parts.
    """
    rest = len(section) - header.part_count * PART.itemsize
    # A table without runs is no longer than its parts.
    if rest < 0 or 0 < rest < _COUNTS.itemsize:
        raise ChecksumError(f"{name} has a list of parts of the wrong size; rebuild it")
    if not header.part_count:
        raise ChecksumError(f"{name} is a table without parts; rebuild it")
    parts = section[: len(section) - rest].view(PART)
    _check_parts(parts, name)
    if rest and xxhash.xxh3_64_intdigest(section) != header.index.checksum:
        raise ChecksumError(f"{name} has a damaged list of runs; rebuild it")
    return parts


def load(section: Array, header: Header, name: str) -> Table:
    """What a table says, checked as far as readers of the records rely on it.

    Args:
        section: its index, uint8.
        header: of it.
        name: of it, for errors.

    Raises:
        ChecksumError: it is damaged, or there can be no such parts or records of them.
    """
    parts = load_parts(section, header, name)
    behind = section[parts.nbytes :]
    if not len(behind):
        if int(parts["count"].sum()) != header.record_count:
            raise _impossible(name)
        group = Group(parts, None, header.alignment, None, header.spec.checksum)
        return Table(parts, (group,), None)
    try:
        return _with_runs(parts, behind, header)
    except _ImpossibleError as error:
        raise ChecksumError(f"{name} has {error}; rebuild it") from error


class _ImpossibleError(Exception):
    """What there cannot be in a table."""


def _impossible(name: str) -> ChecksumError:
    return ChecksumError(f"{name} is a table of impossible parts; rebuild it")


def _check_parts(parts: Array, name: str) -> None:
    """Checks what readers of the parts rely on."""
    counts, sizes, entries = parts["count"], parts["size"], parts["entries"]
    # In this order: sums could wrap around where a number is far too large.
    if (
        (counts < 1).any()
        or (counts > MOST_RECORDS).any()
        or (sizes > MOST_BYTES).any()
        or (sizes % PAGE_SIZE != 0).any()
        or (entries < BODY_OFFSET).any()
        or (entries > sizes).any()
        or (entries % np.uint64(ENTRY.itemsize) != 0).any()
        or (entries + counts * np.uint64(ENTRY.itemsize) > sizes).any()
        or float(sizes.sum(dtype="f8")) > MOST_BYTES
    ):
        raise _impossible(name)


def _with_runs(parts: Array, data: Array, header: Header) -> Table:
    """What stands behind the parts.

    Raises:
        _ImpossibleError: there can be no such runs or groups.
    """
    run_count, group_count = data[: _COUNTS.itemsize].view(_COUNTS)[0].tolist()
    rest = data[_COUNTS.itemsize :]
    if group_count:
        return _with_groups(parts, run_count, group_count, rest, header)
    runs, rest = _decoded(rest, run_count)
    if len(rest):
        raise _ImpossibleError("a list of runs of the wrong size")
    group = Group(parts, runs, header.alignment, None, header.spec.checksum)
    _check_runs(group, header.record_count)
    return Table(parts, (group,), None)


def _decoded(data: Array, count: int) -> tuple[Array, Array]:
    """See ``run_columns.decode``."""
    try:
        if not count:
            raise ValueError("none")
        return run_columns.decode(data, count)
    except ValueError as error:
        raise _ImpossibleError(f"a list of impossible runs ({error})") from error


def _with_groups(
    parts: Array, run_count: int, group_count: int, data: Array, header: Header
) -> Table:
    if group_count * GROUP.itemsize > len(data):
        raise _ImpossibleError("column groups that make no sense")
    groups, rest = (
        data[: group_count * GROUP.itemsize].view(GROUP),
        data[group_count * GROUP.itemsize :],
    )
    lengths = [groups[name].tolist() for name in ("parts", "runs", "spec_length")]
    part_counts, run_counts, spec_lengths = lengths
    all_runs = []
    for count in run_counts:
        runs, rest = _decoded(rest, count)
        all_runs.append(runs)
    leaf_bytes = len(rest) - sum(spec_lengths)
    leaf_count = leaf_bytes // LEAF.itemsize
    if (
        sum(part_counts) != len(parts)
        or sum(run_counts) != run_count
        or min(part_counts) < 1
        or sum(spec_lengths) > LARGEST_SPECS
        or leaf_bytes % LEAF.itemsize
        # Every group has a leaf.
        or leaf_count < len(groups)
        or not np.isin(groups["alignment"], (8, 64)).all()
        or groups["reserved"].any()
    ):
        raise _ImpossibleError("column groups that make no sense")
    leaves, texts = rest[:leaf_bytes].view(LEAF), rest[leaf_bytes:]
    is_used = np.zeros(len(groups), bool)
    is_used[leaves["group"][leaves["group"] < len(groups)]] = True
    if (leaves["group"] >= len(groups)).any() or not is_used.all():
        raise _ImpossibleError("column groups that make no sense")
    found = []
    first_part = first_byte = 0
    for part_count, length, runs, alignment, checksum in zip(
        part_counts,
        spec_lengths,
        all_runs,
        groups["alignment"].tolist(),
        groups["spec_checksum"].tolist(),
        strict=True,
    ):
        some = parts[first_part : first_part + part_count]
        text = texts[first_byte : first_byte + length]
        group = Group(some, runs, alignment, text, checksum)
        _check_runs(group, header.record_count)
        found.append(group)
        first_part += part_count
        first_byte += length
    return Table(parts, tuple(found), leaves)


def _check_runs(group: Group, record_count: int) -> None:
    """Sees that there are such records, and as many as there should be."""
    runs = group.runs
    assert runs is not None
    numbers, counts = runs["part"], runs["count"].astype("i8")
    is_used = np.zeros(len(group.parts), bool)
    if (numbers >= len(group.parts)).any():
        raise _ImpossibleError("runs of impossible records")
    is_used[numbers] = True
    limits = group.parts["count"].astype("i8")[numbers]
    if (runs["first"] + counts > limits).any() or int(counts.sum()) != record_count:
        raise _ImpossibleError("runs of impossible records")
    if not is_used.all():
        raise _ImpossibleError("parts of which it has no records")


def encode(groups: Sequence[Group], leaves: Array | None) -> bytes:
    """The section of the index of a table; what :func:`load` reads.

    Args:
        groups: as of :class:`Table`. With ``leaves``, all of them have runs and a spec; without,
            there is one.
        leaves: as of :class:`Table`.
    """
    pieces = [group.parts.tobytes() for group in groups]
    runs = [group.runs for group in groups if group.runs is not None]
    if runs:
        counts = np.zeros(1, _COUNTS)
        counts["runs"] = sum(map(len, runs))
        counts["groups"] = 0 if leaves is None else len(groups)
        pieces.append(counts.tobytes())
    if leaves is not None:
        pieces += [_group_entry(group).tobytes() for group in groups]
    pieces += map(run_columns.encode, runs)
    if leaves is not None:
        pieces.append(leaves.tobytes())
        pieces += [group.spec.tobytes() for group in groups if group.spec is not None]
    return b"".join(pieces)


def _group_entry(group: Group) -> Array:
    assert group.runs is not None
    assert group.spec is not None
    entry = np.zeros(1, GROUP)
    entry["parts"], entry["runs"] = len(group.parts), len(group.runs)
    entry["alignment"] = group.alignment
    entry["spec_length"], entry["spec_checksum"] = len(group.spec), group.spec_checksum
    return entry


def block_total(parts: Array) -> int:
    """Blocks of the indexes of all parts."""
    return int(indexes.block_counts(parts["count"].astype("i8")).sum())
