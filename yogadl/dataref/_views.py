"""Readers that read what other readers have: a choice of records, one after the other, or side by
side. Nothing is copied or stored."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.content_id import content_id_of, marked, mixed
from yogadl.cache.record_reader import RecordReader
from yogadl.dataref._positions import Selection, Slice
from yogadl.errors import ClosedError, InvalidArgumentError
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

    def __copy__(self) -> Any:
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made._open_bases = tuple(copy.copy(base) for base in self.bases)
        return made

    def close(self) -> None:
        self._open_bases = None


class SelectedReader(_View):
    """Some records of another reader."""

    def __init__(self, base: RecordReader, positions: Selection) -> None:
        super().__init__([base])
        self.positions = positions
        self.spec = base.spec

    @property
    def base(self) -> RecordReader:
        return self.bases[0]

    def __len__(self) -> int:
        return len(self.positions)

    def tokens(self, positions: Array) -> Array:
        return self.base.tokens(self.positions.of(positions))

    def read_columns(
        self, positions: Array, out: Sequence[Array] | None = None, spans: bool = False
    ) -> list[Column]:
        return self.base.read_columns(self.positions.of(positions), out, spans)

    def read_record(self, position: int) -> Any:
        return self.base.read_record(int(self.positions.of(np.array([position]))[0]))

    def are_cached(self, positions: Array) -> bool:
        return self.base.are_cached(self.positions.of(positions))

    def announce(self, positions: Array) -> None:
        self.base.announce(self.positions.of(positions))

    def announce_all(self) -> None:
        if 2 * len(self) > len(self.base):
            self.base.announce_all()
        else:
            self.announce(np.arange(len(self), dtype=np.int64))

    def forget(self, start: int, stop: int) -> None:
        # Of any other choice, what lies between may still be wanted.
        if isinstance(self.positions, Slice) and self.positions.range.step > 0:
            run = self.positions.range[start:stop]
            self.base.forget(run[0], run[-1] + 1)

    @property
    def record_bytes(self) -> int:
        return self.base.record_bytes


def selected_from(reader: RecordReader) -> tuple[RecordReader, list[Selection]]:
    """What a reader selects from, through any number of selections, and these, outermost first."""
    selections = []
    while isinstance(reader, SelectedReader):
        selections.append(reader.positions)
        reader = reader.base
    return reader, selections


class ConcatenatedReader(_View):
    """The records of some readers, one reader after the other.

    Raises:
        SpecMismatchError: their records have nothing in common.
    """

    def __init__(self, *bases: RecordReader) -> None:
        super().__init__(bases)
        self.spec = bases[0].spec
        for base in bases[1:]:
            self.spec = specs.common(self.spec, base.spec)
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

    def read_columns(
        self, positions: Array, out: Sequence[Array] | None = None, spans: bool = False
    ) -> list[Column]:
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

    def read_record(self, position: int) -> Any:
        number = int(np.searchsorted(self._ends, position, side="right"))
        base = self.bases[number]
        record = base.read_record(position - int(self._starts[number]))
        # Its keys may come in another order, and its tuples have other names.
        return specs.unflatten(self.spec, specs.flatten(base.spec, record))

    def are_cached(self, positions: Array) -> bool:
        return all(base.are_cached(local) for base, _, local in self._parts(positions))

    def announce(self, positions: Array) -> None:
        for base, _, local in self._parts(positions):
            base.announce(local)

    def announce_all(self) -> None:
        for base in self.bases:
            base.announce_all()

    def forget(self, start: int, stop: int) -> None:
        for base, first in zip(self.bases, self._starts.tolist(), strict=True):
            begin, end = max(start - first, 0), min(stop - first, len(base))
            if begin < end:
                base.forget(begin, end)

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

    def read_columns(
        self, positions: Array, out: Sequence[Array] | None = None, spans: bool = False
    ) -> list[Column]:
        columns: list[Column] = []
        for base in self.bases:
            width = len(list(specs.leaves(base.spec)))
            target = None if out is None else out[len(columns) : len(columns) + width]
            columns.extend(base.read_columns(positions, target, spans))
        return columns

    def read_record(self, position: int) -> Any:
        return _fill(self._nest, [base.read_record(position) for base in self.bases])

    def are_cached(self, positions: Array) -> bool:
        return all(base.are_cached(positions) for base in self.bases)

    def announce(self, positions: Array) -> None:
        for base in self.bases:
            base.announce(positions)

    def announce_all(self) -> None:
        for base in self.bases:
            base.announce_all()

    def forget(self, start: int, stop: int) -> None:
        for base in self.bases:
            base.forget(start, stop)

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
