"""Readers that read what other readers have: a choice of records, one after the other, or side by
side. Nothing is copied or stored."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.content_id import content_id_of, marked, mixed
from yogadl.cache.joined import JoinedReader, can_be_joined
from yogadl.cache.mapped_reader import MappedReader
from yogadl.cache.mapping import Extents
from yogadl.cache.record_reader import MappedRecords, RecordReader
from yogadl.cache.traffic import Traffic
from yogadl.dataref._positions import Selection, Slice, joined
from yogadl.errors import ClosedError, InvalidArgumentError, SpecMismatchError
from yogadl.format import spec_json

Array = np.ndarray[Any, Any]


class _View(RecordReader):
    """A reader over others."""

    def __init__(self, bases: Sequence[RecordReader]) -> None:
        self._open_bases: tuple[RecordReader, ...] | None = tuple(bases)
        self._known_content_id = ""

    @property
    def bases(self) -> tuple[RecordReader, ...]:
        """The readers that it reads.

        Raises:
            ClosedError: it is closed.
        """
        if self._open_bases is None:
            raise ClosedError("the DataRef is closed; make it again")
        return self._open_bases

    @property
    def content_id(self) -> str:
        if not self._known_content_id:
            self._known_content_id = content_id_of(self.spec, len(self), self.tokens)
        return self._known_content_id

    @property
    def lends_rows(self) -> bool:
        return all(base.lends_rows for base in self.bases)

    @property
    def is_far(self) -> bool:
        return any(base.is_far for base in self.bases)

    def traffic(self) -> list[Traffic]:
        found = [each for base in self.bases for each in base.traffic()]
        return list({id(each): each for each in found}.values())

    def __copy__(self) -> Any:
        made = self._copied_to_observe()
        made._open_bases = tuple(copy.copy(base) for base in self.bases)
        return made

    def _copied_to_observe(self) -> Any:
        # Of the same readers: closing one of these closes all that is made of it.
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    def close(self) -> None:
        self._open_bases = None
        RecordReader.closings += 1

    def check_open(self) -> None:
        for base in self.bases:
            base.check_open()


class SelectedReader(_View):
    """Some records of another reader. One of a selection reads that one's base by one map."""

    def __init__(self, base: RecordReader, positions: Selection) -> None:
        super().__init__([base])
        self._positions = positions
        if isinstance(base, SelectedReader):
            self._positions = base._positions.choose(positions)
        self.spec = base.spec

    @property
    def base(self) -> RecordReader:
        """What has the records, which is no selection."""
        (base,) = self.bases
        # Through all of them, since closing one closes those that are made of it.
        return base.base if isinstance(base, SelectedReader) else base

    def __len__(self) -> int:
        return len(self._positions)

    def tokens(self, positions: Array) -> Array:
        return self.base.tokens(self._positions.of(positions))

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        return self.base.read_columns(self._positions.of(positions), out, spans)

    def _record(self, position: int) -> Any:
        return self.base.read_record(int(self._positions.of(np.array([position]))[0]))

    def _mapped_records(self) -> MappedRecords | None:
        found, of = self.base.mapped_records(), self._positions.of
        if found is None:
            return None
        offsets = found.offsets
        return dataclasses.replace(found, offsets=lambda positions: offsets(of(positions)))

    def extents(self, positions: Array | range) -> list[Extents]:
        if isinstance(positions, range):
            return self.base.extents(self._positions.run(positions))
        return self.base.extents(self._positions.of(positions))

    @property
    def record_bytes(self) -> int:
        return self.base.record_bytes

    @property
    def bytes_in_order(self) -> int:
        # Of those that do not follow on one another, what lies between them may come, too.
        is_run = isinstance(self._positions, Slice) and abs(self._positions.range.step) == 1
        return self.base.bytes_in_order if is_run else self.record_bytes


def concatenated(*readers: RecordReader) -> RecordReader:
    """The records of some readers, one reader after the other.

    Raises:
        SpecMismatchError: their records have nothing in common.
    """
    texts = {spec_json.canonical(reader.spec) for reader in readers}
    pieces = [_stored(reader) for reader in readers if len(reader)]
    bases = list({id(base): base for base, _ in pieces}.values())
    files = [base for base in bases if isinstance(base, MappedReader)]
    if (
        len(texts) > 1
        or not files
        or len(files) < len(bases)
        or any(reader.observer is not None for reader in (*readers, *files))
        or not can_be_joined(files)
    ):
        return ConcatenatedReader(*readers)
    try:
        whole = JoinedReader(readers[0].spec, files)
    except OSError:
        # No such range of addresses is left.
        return ConcatenatedReader(*readers)
    ends = np.cumsum([len(file) for file in files]).tolist()
    runs = {
        id(file): Slice(range(end - len(file), end)) for file, end in zip(files, ends, strict=True)
    }
    positions = joined([(runs[id(base)], positions) for base, positions in pieces])
    return _JoinedView(whole, positions, readers)


def _stored(reader: RecordReader) -> tuple[RecordReader, Selection]:
    """What has the records of a reader, and which of its records these are."""
    if isinstance(reader, SelectedReader):
        return reader.base, reader._positions
    return reader, Slice(range(len(reader)))


class _JoinedView(SelectedReader):
    """Records of stored data sets in one map, until one of the readers is closed that they are of.

    Args:
        whole: has the records.
        positions: of them in it.
        readers: what the data set was made of.
    """

    def __init__(
        self, whole: JoinedReader, positions: Selection, readers: Sequence[RecordReader]
    ) -> None:
        super().__init__(whole, positions)
        self._readers = tuple(readers)
        self._closings = RecordReader.closings

    @property
    def base(self) -> RecordReader:
        closings = RecordReader.closings
        if closings != self._closings:
            self.check_open()
            self._closings = closings
        return super().base

    @property
    def content_id(self) -> str:
        is_whole = isinstance(self._positions, Slice) and self._positions.range == range(
            len(self.base)
        )
        return self.base.content_id if is_whole else super().content_id

    def __copy__(self) -> Any:
        made = super().__copy__()
        # The copy has a map of its own.
        made._readers = ()
        return made

    def close(self) -> None:
        super().close()
        self._readers = ()

    def check_open(self) -> None:
        super().check_open()
        for reader in self._readers:
            reader.check_open()


class ConcatenatedReader(_View):
    """The records of some readers, one reader after the other: of any readers, so one by one.

    Raises:
        SpecMismatchError: their records have nothing in common.
    """

    def __init__(self, *bases: RecordReader) -> None:
        super().__init__(bases)
        self.spec = bases[0].spec
        for number, base in enumerate(bases[1:], 1):
            try:
                self.spec = specs.common(self.spec, base.spec)
            except SpecMismatchError as error:
                raise SpecMismatchError(
                    f"data set {number} has records of another kind than those before it: {error}"
                ) from error
        self._leaves = list(specs.leaves(self.spec))
        self._ends = np.cumsum([len(base) for base in bases], dtype=np.int64)
        self._starts = np.array([0, *self._ends[:-1].tolist()], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def tokens(self, positions: Array) -> Array:
        tokens = np.empty(len(positions), "u8")
        whole = spec_json.canonical(self.spec)
        for base, places, local in self._parts(positions):
            own, found = spec_json.canonical(base.spec), base.tokens(local)
            # The contents of records of two specs can be the same.
            tokens[places] = found if own == whole else marked(found, own)
        return tokens

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        parts = self._parts(positions)
        if len(parts) == 1:
            ((base, places, local),) = parts
            if base.spec == self.spec:
                return base.read_columns(local, out, spans)
        columns = [self._empty(leaf, len(positions)) for leaf in self._leaves]
        columns = columns if out is None else list(out)
        for base, places, local in parts:
            for column, found in zip(columns, base.read_columns(local), strict=True):
                if isinstance(column, np.ndarray):
                    column[places] = found
                else:
                    for place, value in zip(places.tolist(), found, strict=True):
                        column[place] = value
        return columns

    def _parts(self, positions: Array) -> list[tuple[RecordReader, Array, Array]]:
        """Per reader that has any of them: where they stand, and their positions in it."""
        numbers = np.searchsorted(self._ends, positions, side="right")
        parts = []
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            parts.append((self.bases[number], places, positions[places] - self._starts[number]))
        return parts

    def _empty(self, leaf: specs.Leaf, count: int) -> Column:
        if not isinstance(leaf, specs.TensorSpec) or leaf.static_shape is None:
            return [None] * count
        dtype = np.dtype(object) if leaf.is_string else dtypes.to_numpy(leaf.dtype)
        return np.empty((count, *leaf.static_shape), dtype)

    def _record(self, position: int) -> Any:
        number = int(np.searchsorted(self._ends, position, side="right"))
        base = self.bases[number]
        record = base.read_record(position - int(self._starts[number]))
        # Its keys may come in another order, and its tuples have other names.
        return specs.unflatten(self.spec, specs.flatten(base.spec, record))

    def extents(self, positions: Array | range) -> list[Extents]:
        return [
            extents for base, local in self._local(positions) for extents in base.extents(local)
        ]

    def _local(self, positions: Array | range) -> Iterator[tuple[RecordReader, Array | range]]:
        """Per reader that has any of some positions, those in it."""
        if not isinstance(positions, range):
            for base, _, local in self._parts(positions):
                yield base, local
            return
        for base, first in zip(self.bases, self._starts.tolist(), strict=True):
            start, stop = max(positions.start - first, 0), min(positions.stop - first, len(base))
            if start < stop:
                yield base, range(start, stop)

    @property
    def record_bytes(self) -> int:
        total = sum(len(base) * base.record_bytes for base in self.bases)
        return max(1, total // max(1, len(self)))


class ZippedReader(_View):
    """Records made of one record of each of some readers, which are equally long.

    Args:
        nest: a nest of numbers of readers, as the records are to be nested; the numbers rise in
            the order in which ``specs.leaves`` visits them.
        bases: the readers.

    Raises:
        InvalidArgumentError: they are not equally long.
        UnsupportedTypeError: a key of a dict is neither an integer nor a string.
    """

    def __init__(self, nest: Any, *bases: RecordReader) -> None:
        super().__init__(bases)
        lengths = sorted({len(base) for base in bases})
        if len(lengths) > 1:
            raise InvalidArgumentError(
                f"only data sets of the same length can be zipped, and these have {lengths}; "
                f"take the first {lengths[0]:,} records of each, dataref[:{lengths[0]}]"
            )
        self._nest = nest
        self.spec = specs.normalize(_fill(nest, [base.spec for base in bases]))

    def __len__(self) -> int:
        return len(self.bases[0])

    def tokens(self, positions: Array) -> Array:
        first, *others = [base.tokens(positions) for base in self.bases]
        return functools.reduce(mixed, others, first)

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        columns: list[Column] = []
        for base in self.bases:
            width = len(list(specs.leaves(base.spec)))
            target = None if out is None else out[len(columns) : len(columns) + width]
            columns.extend(base.read_columns(positions, target, spans))
        return columns

    def _record(self, position: int) -> Any:
        return _fill(self._nest, [base.read_record(position) for base in self.bases])

    def extents(self, positions: Array | range) -> list[Extents]:
        return [extents for base in self.bases for extents in base.extents(positions)]

    @property
    def record_bytes(self) -> int:
        return sum(base.record_bytes for base in self.bases)


def _fill(nest: Any, values: Sequence[Any]) -> Any:
    """A nest of numbers with the values of these numbers."""
    if isinstance(nest, dict):
        return {key: _fill(child, values) for key, child in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_fill(child, values) for child in nest)
    return values[nest]
