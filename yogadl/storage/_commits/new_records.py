"""Records that a change adds to a version, in parts of their own."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters import Source, open_source
from yogadl.cache.grouped import JoinedLeaves, LeafMap
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import PartList
from yogadl.cache.writer import CacheWriter
from yogadl.dataref._indexed import UnstoredDataRef
from yogadl.errors import SpecMismatchError
from yogadl.format.codec import RecordCodec
from yogadl.format.header import Header
from yogadl.format.spec_text import spec_text
from yogadl.storage._building.submission import Parts
from yogadl.storage._disk.scratch import scratch_folder

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NewRecords:
    """Some records that are stored, in every column group of a version.

    Attributes:
        count: how many.
        groups: their parts, of each group, in order.
        tokens: of them, uint64 ``[count]``.
    """

    count: int
    groups: tuple[PartList, ...]
    tokens: Array


class PartWriter:
    """Writes records as parts of a version that is made.

    Args:
        label: of the version to be.
        path: of the version's file to be, beside which parts are written.
        parts: by which they are stored.
        part_bytes: see ``CacheStorage.submit``.
    """

    def __init__(
        self, label: str, path: pathlib.Path, parts: Parts, part_bytes: int | None
    ) -> None:
        self._label = label
        self._path = path
        self._parts = parts
        self._part_bytes = part_bytes

    def of_larger_parts(self, least: int) -> PartWriter:
        """The same, but of parts of at least so many bytes."""
        size = self._part_bytes
        size = None if size is None else max(size, least)
        return PartWriter(self._label, self._path, self._parts, size)

    def write(
        self,
        data: Any,
        spec: specs.Structure,
        groups: Sequence[specs.Structure],
        leaves: Sequence[tuple[int, int]] | None,
        is_shown: bool = True,
    ) -> NewRecords:
        """Stores some records.

        Args:
            data: what can be submitted, of just this spec.
            spec: of the version.
            groups: the specs of its column groups.
            leaves: see ``StoredGroups``.
            is_shown: otherwise somebody else tells how far it got.

        Raises:
            SpecMismatchError: a record does not fit the spec.
            StoreError: the bucket cannot be written to.
        """
        source = open_source(data, spec)
        if source.spec != spec:
            raise SpecMismatchError(
                f"the records have the spec {spec_text(source.spec)}, and the version has "
                f"{spec_text(spec)}"
            )
        if leaves is None:
            parts, tokens = self._write(source, spec)
            return NewRecords(parts.record_count, (parts,), tokens)
        with scratch_folder(self._path.parent) as folder:
            path = folder / "new.mdb"
            with CacheWriter(
                path,
                spec,
                total=source.count,
                label=self._label,
                is_shown=is_shown,
                first=source.first,
            ) as writer:
                source.feed(writer)
                writer.commit()
            with open_cache(path) as reader:
                found = []
                for number, group in enumerate(groups):
                    found.append(self._write_group(reader, group, places_of(leaves, number, group)))
                tokens = reader.tokens(np.arange(len(reader)))
                return NewRecords(len(reader), tuple(found), tokens)

    def _write_group(
        self, reader: RecordReader, group: specs.Structure, places: Sequence[int | None]
    ) -> PartList:
        """Stores the leaves of a column group; those that nobody can read any more are empty."""
        known = [place for place in places if place is not None]
        if len(known) == len(places):
            return self.write_reader(projected(reader, group, known))
        whole = filled(reader, group, places)
        return self._write(open_source(whole, group), group)[0]

    def write_reader(self, reader: RecordReader, positions: Array | None = None) -> PartList:
        """Stores what a reader reads as one group: all, or the records at some positions."""
        spec, whole = reader.spec, UnstoredDataRef(reader)
        chosen = whole if positions is None else whole.select(positions)
        return self._write(open_source(chosen, spec), spec, keeps_tokens=False)[0]

    def _write(
        self, source: Source, spec: specs.Structure, keeps_tokens: bool = True
    ) -> tuple[PartList, Array]:
        tokens: list[Array] = [np.empty(0, "u8")]

        def take(file: PartialFile, header: Header) -> bool:
            found = tokens[0]
            if keeps_tokens:
                with open_cache(file.path) as reader:
                    found = reader.tokens(np.arange(header.record_count))
            if not self._parts.store(file, header.digest):
                return True
            tokens.append(found)
            return False

        with CacheWriter(
            self._path,
            spec,
            total=source.count,
            part_bytes=self._part_bytes,
            take_part=take,
            is_shown=False,
            first=source.first,
        ) as writer:
            source.feed(writer)
            parts = writer.finish_parts()
        return parts, np.concatenate(tokens)


def projected(reader: RecordReader, spec: specs.Structure, places: Sequence[int]) -> RecordReader:
    """Some leaves of what a reader reads, nested otherwise.

    Args:
        reader: has all leaves.
        spec: of the records to be.
        places: for each leaf of that, its number among the leaves of the reader's spec.
    """
    leaves = LeafMap(spec, [reader.spec], [(0, place) for place in places])
    return JoinedLeaves(leaves, [reader], RecordCodec(spec), "some components of a version")


def filled(
    reader: RecordReader, spec: specs.Structure, places: Sequence[int | None]
) -> Iterator[Any]:
    """Records with some leaves of a reader's, and others that are as small as can be.

    Args:
        reader: has leaves.
        spec: of the records to be.
        places: for each leaf of that, its number among the leaves of the reader's spec; ``None``
            for one that the reader does not have.
    """
    values = [_smallest(leaf) for leaf in specs.leaves(spec)]
    for position in range(len(reader)):
        found = list(specs.flatten(reader.spec, reader.read_record(position)))
        leaves = [
            value if place is None else found[place]
            for place, value in zip(places, values, strict=True)
        ]
        yield specs.unflatten(spec, leaves)


def _smallest(leaf: Any) -> Any:
    """A value of a leaf that takes the fewest bytes."""
    if isinstance(leaf, specs.TensorSpec):
        shape = tuple(dim or 0 for dim in leaf.shape or ())
        if leaf.is_string:
            strings = np.empty(shape, object)
            strings[...] = b""
            return strings
        return np.zeros(shape, dtypes.to_numpy(leaf.dtype))
    if isinstance(leaf, specs.RaggedSpec):
        rows = (leaf.shape[0] or 0) if leaf.shape else 0
        lengths = [rows + 1, *[1] * (leaf.ragged_rank - 1)]
        splits = tuple(np.zeros(length, leaf.row_splits_dtype) for length in lengths)
        inner = leaf.components[0]
        known = dataclasses.replace(inner, shape=inner.shape or (0,))
        return specs.Ragged(_smallest(known), splits)
    if isinstance(leaf, specs.SparseSpec):
        dense = tuple(dim or 0 for dim in leaf.shape or ())
        indices = np.zeros((0, len(dense)), np.int64)
        values = _smallest(leaf.components[1])
        return specs.Sparse(indices, values, np.array(dense, np.int64))
    return None


def places_of(
    leaves: Sequence[tuple[int, int]], number: int, group: specs.Structure
) -> list[int | None]:
    """Where the leaves of a column group are in a version; ``None`` for those that were dropped."""
    known = {leaf: place for place, (found, leaf) in enumerate(leaves) if found == number}
    return [known.get(leaf) for leaf, _ in enumerate(specs.leaves(group))]
