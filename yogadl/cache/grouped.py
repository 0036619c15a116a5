"""Records of which the leaves lie in column groups: those of one record are read from each of them
and joined."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.content_id import NO_TOKENS, TokenSums, content_id_of, sums_of_tokens
from yogadl.cache.encoding import content_tokens
from yogadl.cache.file_reader import FileReader
from yogadl.cache.files import shown
from yogadl.cache.mapped_reader import MappedReader
from yogadl.cache.mapping import Extents
from yogadl.cache.open_table import OpenTable
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.sections import spec_codec
from yogadl.errors import ChecksumError, ClosedError
from yogadl.format.codec import RecordCodec
from yogadl.format.table import Table

Array = np.ndarray[Any, Any]

_TOKENS_BYTES = 1 << 20


class LeafMap:
    """Which leaves of column groups are the leaves of a version. Immutable.

    Args:
        spec: of the version.
        groups: the specs of the groups.
        leaves: for each leaf of ``spec`` its group, and its number among the leaves of that.

    Raises:
        ValueError: there are no such leaves, or others than ``spec`` has.
    """

    def __init__(
        self,
        spec: specs.Structure,
        groups: Sequence[specs.Structure],
        leaves: Sequence[tuple[int, int]],
    ) -> None:
        self.spec = spec
        self._groups = tuple(groups)
        self._leaves = tuple(leaves)
        found = [list(specs.leaves(group)) for group in groups]
        wanted = list(specs.leaves(spec))
        if len(wanted) != len(leaves) or len(set(leaves)) != len(leaves):
            raise ValueError("as many leaves as its spec has, each another, have to be in groups")
        for leaf, (group, number) in zip(wanted, leaves, strict=True):
            if number >= len(found[group]) or found[group][number] != leaf:
                raise ValueError(f"leaf {number} of column group {group} is not {leaf}")
        # Of each group, where its leaves are in the version; ``None`` for those that it drops.
        self._places: list[list[int | None]] = [[None] * len(group) for group in found]
        for place, (group, number) in enumerate(leaves):
            self._places[group][number] = place

    def columns(
        self,
        readers: Sequence[RecordReader],
        positions: Array,
        out: Sequence[Array] | None,
        spans: bool,
        wanted: Collection[int] | None = None,
    ) -> list[Column]:
        """See ``RecordReader.read_columns``, and ``read_leaves`` for ``wanted``; ``readers`` are
        those of the groups."""
        columns: list[Column] = [None] * len(self._leaves)
        for reader, places in zip(readers, self._places, strict=True):
            kept = [place for place in places if place is not None]
            if wanted is not None and not any(place in wanted for place in kept):
                continue
            target = None
            if out is not None and len(kept) == len(places):
                target = [out[place] for place in kept]
            found = reader.read_columns(positions, target, spans)
            for place, column in zip(places, found, strict=True):
                if place is not None:
                    columns[place] = column
                    if out is not None and target is None:
                        out[place][...] = column
                        columns[place] = out[place]
        return columns

    def record(self, readers: Sequence[RecordReader], position: int) -> Any:
        """One record; ``readers`` are those of the groups."""
        found = [
            list(specs.flatten(spec, reader.read_record(position)))
            for spec, reader in zip(self._groups, readers, strict=True)
        ]
        return specs.unflatten(self.spec, [found[group][number] for group, number in self._leaves])


def leaf_map(spec: specs.Structure, table: Table, name: str) -> tuple[LeafMap, list[RecordCodec]]:
    """What joins the leaves of the groups of a table, and the codecs of these.

    Args:
        spec: of the version.
        table: which has ``leaves``.
        name: of it, for errors.

    Raises:
        ChecksumError: they cannot be joined.
    """
    assert table.leaves is not None
    codecs = []
    for group in table.groups:
        assert group.spec is not None
        if xxhash.xxh3_64_intdigest(group.spec) != group.spec_checksum:
            raise ChecksumError(f"{name} has a damaged spec of a column group; rebuild it")
        codecs.append(spec_codec(group.spec, name))
    try:
        return LeafMap(spec, [codec.spec for codec in codecs], table.leaves.tolist()), codecs
    except ValueError as error:
        raise ChecksumError(f"{name} has column groups that make no sense: {error}") from error


def joined_tokens(reader: RecordReader, codec: RecordCodec, positions: Array) -> Array:
    """The tokens of some records, which are read for it; see ``RecordReader.tokens``."""
    step = max(1, _TOKENS_BYTES // reader.record_bytes)
    found = [
        content_tokens(codec, reader.read_columns(positions[start : start + step]))
        for start in range(0, len(positions), step)
    ]
    return np.concatenate([np.empty(0, "u8"), *found])


class JoinedLeaves(RecordReader):
    """Records of which the leaves are those of others, which are equally long.

    Args:
        leaves: says which.
        readers: of the groups.
        codec: of the records.
        name: what to call it in errors.
    """

    def __init__(
        self,
        leaves: LeafMap,
        readers: Sequence[RecordReader],
        codec: RecordCodec,
        name: str,
    ) -> None:
        self.spec = leaves.spec
        self._leaf_map = leaves
        self._open_readers: tuple[RecordReader, ...] | None = tuple(readers)
        self._codec = codec
        self._count = len(readers[0])
        self._name = name

    @property
    def _readers(self) -> tuple[RecordReader, ...]:
        if self._open_readers is None:
            raise ClosedError(f"the reader of {self._name} is closed; open it again")
        return self._open_readers

    def __len__(self) -> int:
        return self._count

    def tokens(self, positions: Array) -> Array:
        return joined_tokens(self, self._codec, positions)

    @property
    def content_id(self) -> str:
        return content_id_of(self.spec, len(self), self.tokens)

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        return self._leaf_map.columns(self._readers, positions, out, spans)

    def read_leaves(self, positions: Array, wanted: Collection[int]) -> list[Column]:
        return self._leaf_map.columns(self._readers, positions, None, False, wanted)

    def _record(self, position: int) -> Any:
        return self._leaf_map.record(self._readers, position)

    def extents(self, positions: Array | range) -> list[Extents]:
        return [extents for reader in self._readers for extents in reader.extents(positions)]

    @property
    def record_bytes(self) -> int:
        return sum(reader.record_bytes for reader in self._readers)

    def close(self) -> None:
        # Copies read on.
        self._open_readers = None
        RecordReader.closings += 1

    def check_open(self) -> None:
        for reader in self._readers:
            reader.check_open()


def sums_of_joined(
    spec: specs.Structure, leaves: Sequence[tuple[int, int]], readers: Sequence[RecordReader]
) -> TokenSums:
    """The sums over the tokens of records whose leaves are those of others, for the table of
    them. All records are read for it, once.

    Args:
        spec: of the records.
        leaves: for each leaf of it the number of a reader, and of a leaf in the spec of that.
        readers: equally long ones.

    Raises:
        ValueError: there are no such leaves.
    """
    joining = LeafMap(spec, [reader.spec for reader in readers], leaves)
    joined = JoinedLeaves(joining, readers, RecordCodec(spec), "the records of a version")
    return sums_of_tokens(len(joined), joined.tokens)


class GroupedReader(JoinedLeaves, FileReader):
    """The column groups that a table names.

    Args:
        path: of the table.
        table: the table, which has ``leaves``.
        check_records: compare every record of a group with its checksum whenever it is looked up.

    Raises:
        ChecksumError: the groups make no sense.
    """

    def __init__(self, path: pathlib.Path, table: OpenTable, check_records: bool) -> None:
        self.path = path
        self.info = table.info
        self.header = table.header
        self._table = table
        leaves, codecs = leaf_map(table.codec.spec, table.parts.table, shown(path))
        readers = []
        for number, (group, codec) in enumerate(zip(table.parts.table.groups, codecs, strict=True)):
            space, index = table.map_group(number, codec)
            readers.append(
                MappedReader(
                    space, codec, index, group.alignment, shown(path), NO_TOKENS, check_records
                )
            )
        super().__init__(leaves, readers, table.codec, shown(path))

    @property
    def content_id(self) -> str:
        return self._table.sums.content_id(self.spec)

    def parts_by_digest(self) -> dict[bytes, pathlib.Path]:
        return self._table.parts_by_digest()

    def verify(self) -> None:
        self._table.verify()
        self._table.check_sums(self)

    def pieces(self) -> Iterator[Array]:
        return self._table.pieces()
