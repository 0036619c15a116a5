"""Records to bytes and back, as ``layout`` places them. Native byte order is little-endian.

Bytes come from files and are never trusted: every size is checked before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.errors import ChecksumError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.components import as_component, check_shape, join_record, split_record
from yogadl.format.layout import (
    STRING_BYTE,
    Component,
    FixedArray,
    Kind,
    RecordLayout,
    align,
    leaf_components,
)
from yogadl.format.mismatch import check_rows, explained, leaf_name

Array = np.ndarray[Any, Any]


class RecordCodec:
    """Encodes and decodes the records of one spec. Immutable; may be shared by threads.

    Args:
        spec: of the records.
        name: what errors call a record.
    """

    def __init__(self, spec: specs.Structure, name: str = "record") -> None:
        self.spec = spec
        self._name = name
        self.layout = RecordLayout(spec)

    def components(self, record: Any) -> list[Array | bytes]:
        """The component values of a record, checked: arrays, ``bytes`` for scalar strings.

        Raises:
            SpecMismatchError, UnsupportedTypeError: the record does not fit the spec.
        """
        try:
            values = split_record(self.spec, record)
            return [
                as_component(component.spec, value)
                for component, value in zip(self.layout.components, values, strict=True)
            ]
        except (SpecMismatchError, UnsupportedTypeError) as error:
            raise explained(self.spec, record, self._name, error) from error

    def encode(self, record: Any) -> bytes:
        """The content of a record.

        Raises:
            SpecMismatchError, UnsupportedTypeError: the record does not fit the spec.
        """
        return self.encode_components(self.components(record))

    def encode_components(self, values: Sequence[Array | bytes]) -> bytes:
        """The content of a record whose components were checked."""
        sizes = np.zeros(self.layout.size_slots, "<i8")
        fixed: list[tuple[int, bytes]] = []
        variable: list[bytes] = []
        for component, value in zip(self.layout.components, values, strict=True):
            for place, data in zip(component.arrays, _stored_arrays(component, value), strict=True):
                if isinstance(place, FixedArray):
                    fixed.append((place.offset, data))
                else:
                    sizes[place.slot] = len(data)
                    variable.append(data)
        return self._join(sizes, fixed, variable)

    def _join(self, sizes: Array, fixed: list[tuple[int, bytes]], variable: list[bytes]) -> bytes:
        head = bytearray(self.layout.content_size or align(self.layout.fixed_end))
        head[: sizes.nbytes] = sizes.tobytes()
        for offset, data in fixed:
            head[offset : offset + len(data)] = data
        parts: list[bytes | bytearray] = [head]
        for data in variable:
            parts.append(data)
            parts.append(bytes(-len(data) % 8))
        return b"".join(parts)

    def encode_columns(self, columns: Sequence[Any], out: Array) -> None:
        """Encodes many records of fixed size at once.

        Args:
            columns: per component the values of ``n`` records, shape ``[n, *component shape]``.
            out: zeroed uint8 array ``[n, content_size]``; may be a view with any row stride.

        Raises:
            SpecMismatchError: dtype or shape do not fit the spec.
        """
        assert self.layout.content_size is not None
        for component, column in zip(self.layout.components, columns, strict=True):
            self.encode_column(component, column, out)

    def encode_column(self, component: Component, column: Any, out: Array) -> None:
        """The same for one component that is stored in one fixed array."""
        (place,) = component.arrays
        assert isinstance(place, FixedArray)
        array = np.asarray(column)
        if array.dtype != place.dtype or array.shape[1:] != place.shape:
            self._refuse_column(component, array)
        if place.nbytes:
            flat = np.ascontiguousarray(array, place.dtype).reshape(len(array), -1)
            out[:, place.offset : place.offset + place.nbytes] = flat.view("u1")

    def _refuse_column(self, component: Component, array: Array) -> None:
        at = self.layout.components.index(component)
        paths = [
            path
            for path, leaf in zip(specs.paths(self.spec), specs.leaves(self.spec), strict=True)
            for _ in leaf_components(leaf)
        ]
        check_rows(component.spec, array.dtype, array.shape[1:], leaf_name(self._name, paths[at]))

    def decode(self, content: bytes | memoryview) -> Any:
        """The record of a content.

        Raises:
            ChecksumError: the content is not one of this spec.
        """
        components = self.decode_components(content)
        try:
            return join_record(self.spec, components)
        except SpecMismatchError as error:
            raise ChecksumError(f"a record holds what does not fit: {error}") from error

    def decode_components(self, content: bytes | memoryview) -> list[Any]:
        """The component values of a content: fresh writable arrays, or ``bytes``.

        Raises:
            ChecksumError: the content is not one of this spec.
        """
        layout = self.layout
        try:
            spans = self._variable_spans(content)
            return [_load_component(component, content, spans) for component in layout.components]
        except (ValueError, OverflowError) as error:
            raise ChecksumError(
                f"a record of {len(content)} bytes does not fit the element spec: {error}"
            ) from error

    def _variable_spans(self, content: bytes | memoryview) -> list[tuple[int, int]]:
        """Start and size of every variable array, checked against the content."""
        position = align(self.layout.fixed_end)
        spans: list[tuple[int, int]] = []
        for size in np.frombuffer(content, "<i8", self.layout.size_slots).tolist():
            if size < 0 or position + size > len(content):
                raise ValueError(f"an array of {size} bytes at byte {position}")
            spans.append((position, size))
            position += align(size)
        if spans and position != len(content):
            raise ValueError(f"its arrays end at byte {position}")
        return spans


def _stored_arrays(component: Component, value: Array | bytes) -> list[bytes]:
    """The bytes of the arrays a component is stored in."""
    if isinstance(value, bytes):
        if component.kind is Kind.STRING:
            return [value]
        # A scalar where the rank is not known: no dimensions, one length.
        return [b"", len(value).to_bytes(8, "little"), value]
    arrays: list[bytes] = []
    if component.kind in (Kind.SHAPED, Kind.SHAPED_STRINGS):
        arrays.append(np.asarray(value.shape, "<i8").tobytes())
    if component.spec.is_string:
        strings: list[bytes] = value.reshape(-1).tolist()
        arrays.append(np.asarray([len(string) for string in strings], "<i8").tobytes())
        arrays.append(b"".join(strings))
    else:
        arrays.append(value.tobytes())
    return arrays


def _load_component(
    component: Component, content: bytes | memoryview, spans: list[tuple[int, int]]
) -> Any:
    raw = [_load_array(place, content, spans) for place in component.arrays]
    kind = component.kind
    if kind is Kind.STRING:
        return raw[0]
    if kind is Kind.FIXED:
        # Indexing with () makes a NumPy scalar of a 0-d array, as TensorFlow's iterators do.
        return raw[0][()] if component.spec.shape == () else raw[0]
    if kind is Kind.FLAT:
        assert component.spec.shape is not None
        return raw[0].reshape([-1 if dim is None else dim for dim in component.spec.shape])
    if kind is Kind.FIXED_STRINGS:
        return _load_strings(raw[0], raw[0].shape, raw[1])
    shape = tuple(raw[0].tolist())
    _check_stored_shape(component.spec, shape)
    if kind is Kind.SHAPED:
        array = raw[1].reshape(shape)
        return array[()] if shape == () else array
    return _load_strings(raw[1], shape, raw[2])


def _load_array(place: Any, content: bytes | memoryview, spans: list[tuple[int, int]]) -> Any:
    if isinstance(place, FixedArray):
        count = math.prod(place.shape)
        array = (
            np.frombuffer(content, place.dtype, count, place.offset)
            if count
            else np.empty(0, place.dtype)
        )
        return array.reshape(place.shape).copy()
    start, size = spans[place.slot]
    if place.dtype == STRING_BYTE:
        return bytes(content[start : start + size])
    if size % place.dtype.itemsize:
        raise ValueError(f"{size} bytes are no whole number of {place.dtype}")
    if size == 0:
        return np.empty(0, place.dtype)
    return np.frombuffer(content, place.dtype, size // place.dtype.itemsize, start).copy()


def _load_strings(lengths: Array, shape: tuple[int, ...], joined: bytes) -> Any:
    # One by one, lest they be so large that their sum wraps around.
    if (lengths < 0).any() or (lengths > len(joined)).any():
        raise ValueError("a string has an impossible length")
    ends = np.cumsum(lengths.reshape(-1)).tolist()
    if (ends[-1] if ends else 0) != len(joined):
        raise ValueError("the lengths of its strings do not add up")
    strings = np.empty(len(ends), dtype=object)
    start = 0
    for position, end in enumerate(ends):
        strings[position] = joined[start:end]
        start = end
    array = strings.reshape(shape)
    return array[()] if shape == () else array


def _check_stored_shape(spec: specs.TensorSpec, shape: tuple[int, ...]) -> None:
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    try:
        check_shape(spec, shape)
    except SpecMismatchError as error:
        raise ValueError(str(error)) from error
