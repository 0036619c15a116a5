"""Records to bytes and back, as ``layout`` places them. Native byte order is little-endian.

Values come from callers and are checked against the spec; bytes come from files and are never
trusted: every size is checked before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.errors import ChecksumError, SpecMismatchError, UnsupportedTypeError
from yogadl.format import dtypes
from yogadl.format.layout import (
    STRING_BYTE,
    Component,
    FixedArray,
    Kind,
    RecordLayout,
    align,
    components_of,
    leaf_components,
)

Array = np.ndarray[Any, Any]


def split_record(spec: specs.Structure, record: Any) -> list[Any]:
    """The component values of a record, unchecked but for the nesting.

    Raises:
        SpecMismatchError: the record is nested otherwise, or a leaf is of another class.
    """
    values: list[Any] = []
    for leaf, value in zip(specs.leaves(spec), specs.flatten(spec, record), strict=True):
        values.extend(split_leaf(leaf, value))
    return values


def split_leaf(leaf: specs.Leaf, value: Any) -> list[Any]:
    """The component values of one leaf, unchecked but for its class."""
    if isinstance(leaf, specs.TensorSpec):
        if value is None:
            raise SpecMismatchError(f"a component of {leaf} is None; use OptionalSpec for that")
        return [value]
    if isinstance(leaf, specs.RaggedSpec):
        levels = value.nested_row_splits if isinstance(value, specs.Ragged) else None
        if not isinstance(levels, tuple | list) or len(levels) != leaf.ragged_rank:
            raise SpecMismatchError(
                f"a component of {leaf} must be a yogadl.spec.Ragged with {leaf.ragged_rank} "
                f"row splits, not {type(value).__name__}"
            )
        return _split_ragged(leaf, value)
    if isinstance(leaf, specs.SparseSpec):
        if not isinstance(value, specs.Sparse):
            raise SpecMismatchError(
                f"a component of {leaf} must be a yogadl.spec.Sparse, not {type(value).__name__}"
            )
        return _split_sparse(leaf, value)
    if isinstance(leaf, specs.OptionalSpec):
        if value is None:
            return [False, *[_nothing(part) for part in components_of(leaf.value)]]
        return [True, *split_record(leaf.value, value)]
    if value is not None:
        raise SpecMismatchError(f"a component of NoneSpec must be None, not {value!r:.100}")
    return []


def _split_ragged(leaf: specs.RaggedSpec, value: specs.Ragged) -> list[Any]:
    """Flat values and row splits, which must rise from 0 to the length of the next level."""
    flat = np.asarray(value.flat_values)
    levels = [np.asarray(splits) for splits in value.nested_row_splits]
    if flat.ndim < 1 or any(splits.ndim != 1 or splits.dtype.kind != "i" for splits in levels):
        raise SpecMismatchError(
            f"a Ragged needs 1-D integer row splits over an array: {value!r:.200}"
        )
    ends = [len(splits) - 1 for splits in levels[1:]] + [len(flat)]
    for axis, (splits, end) in enumerate(zip(levels, ends, strict=True)):
        rows = np.diff(splits)
        if len(splits) == 0 or splits[0] != 0 or splits[-1] != end or (rows < 0).any():
            raise SpecMismatchError(f"row splits {splits!r:.200} must rise from 0 to {end}")
        wanted = None if leaf.shape is None else leaf.shape[axis + 1]
        if wanted is not None and (rows != wanted).any():
            raise SpecMismatchError(f"row splits {splits!r:.200} do not fit {leaf}")
    if leaf.shape is not None and leaf.shape[0] not in (None, len(levels[0]) - 1):
        raise SpecMismatchError(f"a Ragged of {len(levels[0]) - 1} rows does not fit {leaf}")
    return [flat, *levels]


def _split_sparse(leaf: specs.SparseSpec, value: specs.Sparse) -> list[Any]:
    """Indices, values and dense shape, which must fit together."""
    indices, values, shape = map(np.asarray, value)
    rank = len(shape) if shape.ndim == 1 else -1
    if values.ndim != 1 or indices.shape != (len(values), rank) or shape.dtype.kind != "i":
        raise SpecMismatchError(
            f"a Sparse needs indices [n, rank], values [n] and an integer dense shape [rank], not "
            f"{indices.shape}, {values.shape} and {shape!r:.100}"
        )
    if (shape < 0).any() or (indices < 0).any() or (indices >= shape).any():
        raise SpecMismatchError(f"a Sparse has indices outside its dense shape {shape.tolist()}")
    _check_shape(specs.TensorSpec(leaf.dtype, leaf.shape), tuple(shape.tolist()))
    return [indices, values, shape]


def _nothing(spec: specs.TensorSpec) -> Any:
    """What stands for a component of an absent optional value: zeros, as few as can be."""
    if spec.shape == () and spec.is_string:
        return b""
    shape = (0,) if spec.shape is None else tuple(dim or 0 for dim in spec.shape)
    if spec.is_string:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, dtypes.to_numpy(spec.dtype))


def join_record(spec: specs.Structure, components: Sequence[Any]) -> Any:
    """The inverse of :func:`split_record`."""
    values: list[Any] = []
    position = 0
    for leaf in specs.leaves(spec):
        count = len(leaf_components(leaf))
        values.append(join_leaf(leaf, components[position : position + count]))
        position += count
    return specs.unflatten(spec, values)


def join_leaf(leaf: specs.Leaf, components: Sequence[Any]) -> Any:
    """The value of one leaf from the values of its components."""
    if isinstance(leaf, specs.TensorSpec):
        return components[0]
    if isinstance(leaf, specs.RaggedSpec):
        return specs.Ragged(components[0], tuple(components[1:]))
    if isinstance(leaf, specs.SparseSpec):
        return specs.Sparse(*components)
    if isinstance(leaf, specs.OptionalSpec):
        return join_record(leaf.value, components[1:]) if components[0] else None
    return None


def as_component(spec: specs.TensorSpec, value: Any) -> Array | bytes:
    """A caller's value as the array (or, for a scalar string, the bytes) of a component.

    Raises:
        SpecMismatchError: dtype or shape do not fit. Python numbers and lists are converted to the
            spec's dtype where that keeps their values; an array must have it.
        UnsupportedTypeError: an object array with something else than strings in it.
    """
    if spec.is_string:
        return _as_strings(spec, value)
    dtype = dtypes.to_numpy(spec.dtype)
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedTypeError("a masked array would lose its mask; fill it first")
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.newbyteorder("=") != dtype:
            raise SpecMismatchError(f"an array of {array.dtype} does not fit {spec}")
        # The file is little-endian whatever the array was.
        array = np.asarray(array, dtype)
    else:
        array = _from_python(spec, value, dtype)
    _check_shape(spec, array.shape)
    return array


_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def _from_python(spec: specs.TensorSpec, value: Any, dtype: np.dtype[Any]) -> Array:
    """Python numbers, or lists of them, as the spec's dtype, if that keeps their values.

    Integers may become floats and floats be rounded to fewer digits; nothing else may change.
    """
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise SpecMismatchError(f"{value!r:.100} does not fit {spec}: {error}") from error
    if given.size == 0:
        return given.astype(dtype)
    wanted = "u" if "int" in spec.dtype else "c" if "complex" in spec.dtype else "f"
    wanted = "b" if spec.dtype == "bool" else wanted
    rank = _RANKS.get(given.dtype.kind, 4)
    if rank > _RANKS[wanted] or (rank == 0) != (wanted == "b"):
        raise SpecMismatchError(f"{value!r:.100} does not fit {spec}")
    with np.errstate(all="ignore"):
        array = given.astype(dtype)
        if rank > 1:
            kept = np.isfinite(array.astype(np.complex128)) == np.isfinite(given)
        else:
            kept = (array if wanted in "bu" else array.astype(np.complex128)) == given
    if not kept.all():
        raise SpecMismatchError(f"{value!r:.100} does not fit {spec}: its value would change")
    return array


def _check_shape(spec: specs.TensorSpec, shape: tuple[int, ...]) -> None:
    if spec.shape is None:
        return
    if len(shape) != len(spec.shape) or any(
        want is not None and want != got for want, got in zip(spec.shape, shape, strict=True)
    ):
        raise SpecMismatchError(f"an array of shape {shape} does not fit {spec}")


def _as_strings(spec: specs.TensorSpec, value: Any) -> Array | bytes:
    if isinstance(value, bytes | str):
        _check_shape(spec, ())
        return _as_bytes(value)
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
    if array is None:
        # Lists go to an object array, lest NumPy make strings of the numbers among them.
        array = np.array(value, dtype=object)
    if array.dtype.kind not in "OSU":
        raise SpecMismatchError(f"an array of {array.dtype} does not fit {spec}")
    _check_shape(spec, array.shape)
    strings = np.empty(array.shape, dtype=object)
    flat = strings.reshape(-1)
    for position, item in enumerate(array.reshape(-1).tolist()):
        flat[position] = _as_bytes(item)
    return bytes(strings[()]) if array.shape == () else strings


def _as_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            raise SpecMismatchError(f"text that is no UTF-8: {error}") from error
    if isinstance(item, bytes):
        return item
    raise UnsupportedTypeError(
        f"an object array may hold only str and bytes, not {type(item).__name__}"
    )


class RecordCodec:
    """Encodes and decodes the records of one spec. Immutable; may be shared by threads."""

    def __init__(self, spec: specs.Structure) -> None:
        self.spec = spec
        self.layout = RecordLayout(spec)

    def components(self, record: Any) -> list[Array | bytes]:
        """The component values of a record, checked: arrays, ``bytes`` for scalar strings.

        Raises:
            SpecMismatchError, UnsupportedTypeError: the record does not fit the spec.
        """
        values = split_record(self.spec, record)
        return [
            as_component(component.spec, value)
            for component, value in zip(self.layout.components, values, strict=True)
        ]

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
            (place,) = component.arrays
            assert isinstance(place, FixedArray)
            array = np.asarray(column)
            if array.dtype != place.dtype:
                raise SpecMismatchError(f"an array of {array.dtype} does not fit {component.spec}")
            _check_shape(component.spec, array.shape[1:])
            if place.nbytes:
                flat = np.ascontiguousarray(array, place.dtype).reshape(len(array), -1)
                out[:, place.offset : place.offset + place.nbytes] = flat.view("u1")

    def decode(self, content: bytes | memoryview) -> Any:
        """The record of a content.

        Raises:
            ChecksumError: the content is not one of this spec.
        """
        return join_record(self.spec, self.decode_components(content))

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
    ends = np.cumsum(lengths.reshape(-1)).tolist()
    if (lengths < 0).any() or (ends[-1] if ends else 0) != len(joined):
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
        _check_shape(spec, shape)
    except SpecMismatchError as error:
        raise ValueError(str(error)) from error
