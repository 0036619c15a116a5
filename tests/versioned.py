"""Versions made of runs of the records of parts, in one column group or in several."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl.cache.grouped import sums_of_joined
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import part_path
from yogadl.cache.table_writer import (
    ColumnGroup,
    PartList,
    sums_of_runs,
    write_version,
)
from yogadl.cache.writer import CacheWriter, encoded_spec, metadata_json
from yogadl.dataref import LMDBDataRef
from yogadl.format.header import Header
from yogadl.format.provenance import UNKNOWN
from yogadl.format.run_columns import RUN

Array = np.ndarray[Any, Any]
Run = tuple[int, int, int]


def write_plain(path: pathlib.Path, spec: Any, records: Sequence[Any]) -> LMDBDataRef:
    """A version in one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with CacheWriter(path, spec) as writer:
        for record in records:
            writer.append(record)
        writer.commit()
    return LMDBDataRef(path)


def write_parts(path: pathlib.Path, spec: Any, parts: Sequence[Sequence[Any]]) -> PartList:
    """The files of parts with these records, each of which has some, for a table at a path."""

    def take(part: PartialFile, header: Header) -> None:
        target = part_path(path, header.digest)
        target.parent.mkdir(exist_ok=True)
        part.commit(target)

    found = PartList()
    path.parent.mkdir(parents=True, exist_ok=True)
    for records in parts:
        with CacheWriter(path, spec, part_bytes=1 << 40, take_part=take) as writer:
            for record in records:
                writer.append(record)
            found.extend(writer.finish_parts())
    return found


def as_runs(runs: Sequence[Run]) -> Array:
    """Parts, firsts and counts as a table has them."""
    return np.array([tuple(run) for run in runs], RUN)


def chosen(parts: Sequence[Sequence[Any]], runs: Sequence[Run]) -> list[Any]:
    """The records of some runs."""
    return [record for part, first, count in runs for record in parts[part][first : first + count]]


def part_tokens(path: pathlib.Path, parts: PartList, number: int, first: int, count: int) -> Array:
    """The tokens of some records of a part."""
    with open_cache(part_path(path, parts.entries[number]["digest"][0].tobytes())) as reader:
        return reader.tokens(np.arange(first, first + count))


def write_runs(
    path: pathlib.Path,
    spec: Any,
    parts: PartList,
    runs: Sequence[Run],
    metadata: Any = None,
    created_ns: int = 0,
) -> LMDBDataRef:
    """A version of runs, open."""
    text, wanted = encoded_spec(spec), as_runs(runs)

    def tokens_of(number: int, first: int, count: int) -> Array:
        return part_tokens(path, parts, number, first, count)

    sums = sums_of_runs(parts, wanted, tokens_of)
    with write_version(
        path,
        [ColumnGroup(text, parts, wanted)],
        text,
        None,
        metadata=metadata_json(metadata, UNKNOWN),
        created_ns=created_ns,
        sums=sums,
    ) as file:
        file.commit()
    return LMDBDataRef(path)


Groups = Sequence[tuple[Any, PartList, Sequence[Run]]]
"""The spec, the parts and the runs of each column group."""


def write_groups(
    path: pathlib.Path,
    spec: Any,
    groups: Groups,
    leaves: Sequence[tuple[int, int]],
    metadata: Any = None,
    created_ns: int = 0,
) -> LMDBDataRef:
    """A version of column groups, open."""
    made = [ColumnGroup(encoded_spec(own), parts, as_runs(runs)) for own, parts, runs in groups]
    readers = []
    for own, parts, runs in groups:
        # As a version of its own, it can be read.
        path.parent.mkdir(exist_ok=True)
        readers.append(write_runs(path, own, parts, runs).reader)
    sums = sums_of_joined(spec, leaves, readers)
    for reader in readers:
        reader.close()
    with write_version(
        path,
        made,
        encoded_spec(spec),
        leaves,
        metadata=metadata_json(metadata, UNKNOWN),
        created_ns=created_ns,
        sums=sums,
    ) as file:
        file.commit()
    return LMDBDataRef(path)
