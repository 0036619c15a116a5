"""Several stored data sets of one spec in one map, read as one file is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.address_space import AddressSpace
from yogadl.cache.content_id import NO_TOKENS
from yogadl.cache.files import telling
from yogadl.cache.mapped_reader import MappedReader
from yogadl.cache.mapping import MappedFile, ReservedRange, can_map_again
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
from yogadl.format.entries import ENTRY
from yogadl.format.index import Index, IndexedFiles, Runs

Array = np.ndarray[Any, Any]

# Every file takes one of the 65,530 maps that a process may have by default, and has one or two
# already, see ``aligned_places``.
_MOST_FILES = 1 << 14


class JoinedReader(MappedReader):
    """The records of some readers, one reader after the other.

    Each file is mapped once more when it is first needed: the same pages, whatever has become of
    its name. Closing the readers does not close this one.

    Args:
        spec: theirs, which may have the keys of dicts in another order.
        readers: at least one, for which :func:`can_be_joined` holds.

    Raises:
        OSError: the system has no such range of addresses left.
    """

    def __init__(self, spec: specs.Structure, readers: Sequence[MappedReader]) -> None:
        ends = np.cumsum([len(reader) for reader in readers])
        places = [reader._where for reader in readers]
        indexes = [reader._index for reader in readers]
        memories = [reader._memory for reader in readers]
        counts = [len(index.files.counts) for index in indexes]
        first_files = np.cumsum([0, *counts[:-1]])

        def map_file(number: int, place: ReservedRange, offset: int) -> MappedFile:
            at = int(np.searchsorted(first_files, number, side="right")) - 1
            file = memories[at].file(number - int(first_files[at]))
            with telling("map", file.path):
                place.map_again(file.array, offset)
            return file

        def where(position: int) -> tuple[str, int]:
            at = int(np.searchsorted(ends, position, side="right"))
            return places[at](position - int(ends[at - 1] if at else 0))

        names = [index.where for index in indexes]

        def where_in_file(number: int, place: int) -> tuple[str, int]:
            at = int(np.searchsorted(first_files, number, side="right")) - 1
            return names[at](number - int(first_files[at]), place)

        def joined(name: str) -> Array:
            return np.concatenate([getattr(index.files, name) for index in indexes])

        space = AddressSpace(joined("sizes"), map_file)
        codec = RecordCodec(spec)
        alignment = min(reader._alignment for reader in readers)
        index = Index(
            space.array,
            IndexedFiles(
                joined("counts"), space.bases, joined("sizes"), joined("entries"), joined("salts")
            ),
            np.concatenate([index.checksums for index in indexes]),
            layout=codec.layout,
            alignment=alignment,
            where=where_in_file,
            touch=space.touch,
            runs=_joined_runs(indexes),
        )
        sums = NO_TOKENS
        for reader in readers:
            sums = sums.then(reader._sums)
        name = f"{readers[0]._name} and others"
        check_records = any(reader._check_records for reader in readers)
        # No method, which the index would keep alive, and it this reader.
        self._find = where
        super().__init__(space, codec, index, alignment, name, sums, check_records)

    def _where(self, position: int) -> tuple[str, int]:
        return self._find(position)


def _joined_runs(indexes: Sequence[Index]) -> Runs | None:
    """The runs of some indexes, one index after the other; ``None`` if none has any."""
    if all(index.runs is None for index in indexes):
        return None
    found, files = [], 0
    for index in indexes:
        runs = Runs.of_whole(index.files.counts) if index.runs is None else index.runs
        found.append(runs.behind(files))
        files += len(index.files.counts)
    return Runs(
        *[
            np.concatenate([getattr(runs, name) for runs in found])
            for name in ("files", "firsts", "counts")
        ]
    )


def can_be_joined(readers: Sequence[MappedReader]) -> bool:
    """Whether some readers that have records can be read by one :class:`JoinedReader`."""
    files = [reader._index.files for reader in readers]
    return (
        can_map_again()
        and len({spec_json.canonical(reader.spec) for reader in readers}) == 1
        and sum(len(those.counts) for those in files) <= _MOST_FILES
        # Only a table promises it.
        and all((those.entries % ENTRY.itemsize == 0).all() for those in files)
    )
