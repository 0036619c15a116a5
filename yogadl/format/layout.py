"""Where the arrays of a record lie inside its bytes.

A record is a flat list of *components*, one ``TensorSpec`` each: a ragged leaf has its flat values
and its row splits, a sparse one indices, values and dense shape, an optional one a presence flag
and the components of its value. A component is stored as one to three *arrays*:

=========================================  =====================================================
component                                  arrays
=========================================  =====================================================
numbers, static shape                      the values, at a fixed place
numbers, one unknown dim, the rest not 0   the values; the dim follows from their number
numbers, otherwise                         the shape (int64), the values
a scalar string                            its bytes
strings, static shape                      lengths (int64) at a fixed place, the bytes joined
strings, otherwise                         the shape (int64), lengths (int64), the bytes joined
=========================================  =====================================================

The *content* of a record is, in this order: the byte size of each variable array (int64), the
fixed arrays by descending alignment, the variable arrays in order, each on a multiple of 8. A fixed
array of 64 bytes or more is aligned to 64, so that it can be read without a copy; a smaller one to
its item size, at most 8.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import InvalidArgumentError

INLINE_LIMIT = 2000
"""Longest content, in bytes, that is kept inside an LMDB leaf page."""

LEAD = 48
"""Zero bytes before a longer content: LMDB puts such a value 16 bytes into a page of its own, and
these bring the content to a multiple of 64."""

ALIGNMENT = 8
WIDE_ALIGNMENT = 64

MAX_VALUE = 2**32 - 1
"""Bytes of an LMDB value."""


def align(size: int, to: int = ALIGNMENT) -> int:
    return -(-size // to) * to


def lead_of(content_size: int) -> int:
    """The padding in front of a content of this size, in bytes."""
    return 0 if content_size <= INLINE_LIMIT else LEAD


class Kind(enum.Enum):
    """How a component is stored."""

    FIXED = "fixed"
    FLAT = "flat"
    SHAPED = "shaped"
    STRING = "string"
    FIXED_STRINGS = "fixed strings"
    SHAPED_STRINGS = "shaped strings"


@dataclass(frozen=True)
class FixedArray:
    """An array of static shape, ``offset`` bytes into the content."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class VariableArray:
    """A flat array whose byte size is entry ``slot`` of the size table."""

    dtype: np.dtype[Any]
    slot: int


@dataclass(frozen=True)
class Component:
    """One component: its spec, how it is stored and in which arrays."""

    spec: specs.TensorSpec
    kind: Kind
    arrays: tuple[FixedArray | VariableArray, ...]

    @property
    def unknown_axis(self) -> int:
        """The axis of the one unknown dimension of a ``FLAT`` component."""
        assert self.spec.shape is not None
        return self.spec.shape.index(None)


def components_of(spec: specs.Structure) -> list[specs.TensorSpec]:
    """The components of a spec, in order."""
    found: list[specs.TensorSpec] = []
    for leaf in specs.leaves(spec):
        found.extend(leaf_components(leaf))
    return found


def leaf_components(leaf: specs.Leaf) -> list[specs.TensorSpec]:
    if isinstance(leaf, specs.TensorSpec):
        return [leaf]
    if isinstance(leaf, specs.RaggedSpec | specs.SparseSpec):
        return list(leaf.components)
    if isinstance(leaf, specs.OptionalSpec):
        return [specs.TensorSpec("bool", ()), *components_of(leaf.value)]
    return []


def _kind(spec: specs.TensorSpec) -> Kind:
    static = spec.static_shape is not None
    if spec.is_string:
        if spec.shape == ():
            return Kind.STRING
        return Kind.FIXED_STRINGS if static else Kind.SHAPED_STRINGS
    if static:
        return Kind.FIXED
    if spec.shape is not None and spec.shape.count(None) == 1 and 0 not in spec.shape:
        return Kind.FLAT
    return Kind.SHAPED


_INT64 = np.dtype("<i8")
STRING_BYTE = np.dtype("V1")
"""The item of an array of joined strings, to tell it from one of uint8 numbers."""


class RecordLayout:
    """The places of all components of a spec. Immutable; may be shared by threads.

    Attributes:
        components: one :class:`Component` each, in the order of :func:`components_of`.
        size_slots: number of variable arrays, so of int64 entries in the size table.
        fixed_end: bytes of the size table and the fixed arrays together.
        content_size: bytes of the content where it is the same for every record, else ``None``.
    """

    def __init__(self, spec: specs.Structure) -> None:
        self._shapes: list[tuple[np.dtype[Any], tuple[int, ...]]] = []
        self.size_slots = 0
        plans = [self._plan(component) for component in components_of(spec)]
        offsets, self.fixed_end = self._place_fixed()
        self.components = tuple(
            Component(
                component,
                kind,
                tuple(
                    FixedArray(*self._shapes[number], offsets[number])
                    if isinstance(number, int)
                    else number
                    for number in arrays
                ),
            )
            for component, kind, arrays in plans
        )
        # A record of no bytes has no place of its own, so each has at least one word.
        self.content_size = None if self.size_slots else self.smallest_content

    def _plan(
        self, spec: specs.TensorSpec
    ) -> tuple[specs.TensorSpec, Kind, list[int | VariableArray]]:
        """The arrays of a component: numbers into ``_shapes`` for fixed ones, whose offsets are
        known only when all have been seen."""
        kind = _kind(spec)
        values = STRING_BYTE if spec.is_string else dtypes.to_numpy(spec.dtype)
        arrays: list[int | VariableArray] = []
        if kind is Kind.FIXED:
            assert spec.static_shape is not None
            arrays.append(self._fixed(values, spec.static_shape))
            return spec, kind, arrays
        if kind in (Kind.SHAPED, Kind.SHAPED_STRINGS):
            known_rank = spec.shape is not None
            rank = len(spec.shape) if spec.shape is not None else 0
            arrays.append(self._fixed(_INT64, (rank,)) if known_rank else self._variable(_INT64))
        if kind is Kind.FIXED_STRINGS:
            assert spec.static_shape is not None
            arrays.append(self._fixed(_INT64, spec.static_shape))
        if kind is Kind.SHAPED_STRINGS:
            arrays.append(self._variable(_INT64))
        arrays.append(self._variable(values))
        return spec, kind, arrays

    def _fixed(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
        self._shapes.append((dtype, shape))
        return len(self._shapes) - 1

    def _variable(self, dtype: np.dtype[Any]) -> VariableArray:
        self.size_slots += 1
        return VariableArray(dtype, self.size_slots - 1)

    def _place_fixed(self) -> tuple[dict[int, int], int]:
        def alignment(number: int) -> int:
            dtype, shape = self._shapes[number]
            if math.prod(shape) * dtype.itemsize >= WIDE_ALIGNMENT:
                return WIDE_ALIGNMENT
            return min(dtype.itemsize, ALIGNMENT)

        offsets: dict[int, int] = {}
        end = self.size_slots * 8
        for number in sorted(range(len(self._shapes)), key=alignment, reverse=True):
            dtype, shape = self._shapes[number]
            offsets[number] = align(end, alignment(number))
            end = offsets[number] + math.prod(shape) * dtype.itemsize
        return offsets, end

    def check_size(self) -> None:
        """Checks that a record can be as large as the spec makes it.

        Raises:
            InvalidArgumentError: it would be above the format's limit, whatever is in it.
        """
        smallest = lead_of(self.smallest_content) + self.smallest_content
        if smallest > MAX_VALUE:
            raise InvalidArgumentError(
                f"records of {smallest:,} bytes are above the format's limit of {MAX_VALUE:,}"
            )

    @property
    def smallest_content(self) -> int:
        """Bytes of the shortest content: without what varies."""
        return max(align(self.fixed_end), ALIGNMENT)

    @property
    def value_size(self) -> int | None:
        """Bytes of an LMDB value, padding included, where it is the same for every record."""
        if self.content_size is None:
            return None
        return lead_of(self.content_size) + self.content_size
