"""The values that pickles of yogadl 0.1.4 may hold, and how each is made from its parts.

A pickle makes an object by calling something by name. :func:`find_global` knows the few names that
0.1.4's records, shapes and dtypes need, and gives constructors of our own for them: arguments are
checked in Python, and neither TensorFlow nor NumPy's unpickling hooks see them.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import ChecksumError, InvalidArgumentError, UnsafePickleError

Array = np.ndarray[Any, Any]

MAX_DIMENSION = 2**62
MAX_RANK = 64
"""Dimensions of an array, NumPy's own limit."""


@dataclass(frozen=True)
class LegacyShape:
    """A ``tf.TensorShape``."""

    shape: specs.Shape


@dataclass(frozen=True)
class LegacyType:
    """A ``tf.DType``, by its TensorFlow name."""

    name: str


@dataclass(frozen=True)
class Global:
    """A known name in a pickle, and what a call of it makes."""

    name: str
    call: Callable[..., Any] | None


class DTypeStub:
    """A NumPy dtype in the making: its type code comes first, its byte order later."""

    __slots__ = ("_code", "_dtype")

    def __init__(self, code: Any, _align: Any = False, _copy: Any = True) -> None:
        if isinstance(code, Global):
            code = code.name.removeprefix("ml_dtypes.")
        elif not isinstance(code, str) or code not in _CODES:
            shown = code[:20] if isinstance(code, str) else type(code).__name__
            raise UnsafePickleError(f"a pickle has an array of NumPy type {shown!r}")
        self._code: str = code
        self._dtype: np.dtype[Any] | None = None

    def build(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) not in (8, 9):
            raise ValueError("the state of no dtype")
        _version, order, subarray, names, fields, *_sizes = state
        if order not in ("<", ">", "|", "="):
            raise ValueError("an unknown byte order")
        if subarray is not None:
            raise UnsafePickleError("a pickle has an array of arrays")
        if names is not None or fields is not None or self._code.startswith("V"):
            self._dtype = self._quantized(names, fields)
            return
        name = _CODES.get(self._code, self._code)
        self._dtype = dtypes.to_numpy(name).newbyteorder(order if order in "<>" else "<")

    def _quantized(self, names: Any, fields: Any) -> np.dtype[Any]:
        """A quantized dtype: older releases of TensorFlow have one-field structures for them, as
        newer and :mod:`yogadl.dtypes` do not. The bytes are the same."""
        ((name,), (key,)) = (names, fields)
        kind, offset = fields[key][:2]
        if key == name and offset == 0 and isinstance(name, str) and isinstance(kind, DTypeStub):
            if name.startswith(("qint", "quint")) and name in dtypes.NAMES:
                plain = dtypes.to_numpy(name)
                if plain == kind.dtype.newbyteorder("<") and self._code == f"V{plain.itemsize}":
                    return kind.dtype
        raise UnsafePickleError("a pickle has an array of structures")

    @property
    def dtype(self) -> np.dtype[Any]:
        if self._dtype is None:
            raise ValueError("a dtype without a byte order")
        return self._dtype


class ArrayStub:
    """An array in the making: it is made empty, and its content comes later."""

    __slots__ = ("value",)

    def __init__(self, kind: Any, _shape: Any, _code: Any) -> None:
        if kind is not _NDARRAY:
            raise UnsafePickleError("a pickle has an array of a class of its own")
        self.value: Array | None = None

    def build(self, state: Any) -> None:
        _version, shape, kind, fortran, data = state
        self.value = make_array(data, kind, shape, "F" if fortran else "C")


def make_array(data: Any, kind: Any, shape: Any, order: Any, axes: Any = None) -> Array:
    """An array of its own memory, in native byte order."""
    if not isinstance(kind, DTypeStub) or order not in ("C", "F", "K", "A"):
        raise ValueError("an array without dtype or order")
    dtype = kind.dtype
    if not isinstance(shape, tuple) or len(shape) > MAX_RANK or not all(map(_is_dimension, shape)):
        raise ValueError("an array without a shape")
    count = math.prod(shape)
    if dtype.kind == "O":
        flat = _strings(data, count)
    elif not isinstance(data, bytes | bytearray) or len(data) != count * dtype.itemsize:
        raise ValueError("an array of another size than its shape")
    else:
        flat = _numbers(data, dtype)
    array: Array = flat.reshape(shape, order="F" if order == "F" else "C")
    return array.transpose(axes) if order == "K" and axes is not None else array


def _strings(data: Any, count: int) -> Array:
    if not isinstance(data, list) or len(data) != count:
        raise ValueError("an array of another size than its shape")
    flat = np.empty(count, object)
    for position, item in enumerate(data):
        if not isinstance(item, bytes | str):
            raise UnsafePickleError(
                "a pickle has an array of objects that are no strings (of a ragged tensor?)"
            )
        flat[position] = item
    return flat


def _numbers(data: bytes | bytearray, dtype: np.dtype[Any]) -> Array:
    if not data:
        return np.empty(0, dtype.newbyteorder("<"))
    if dtype.kind == "b":
        # NumPy takes for granted that a bool is 0 or 1.
        return np.frombuffer(data, "u1").astype(bool)
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("<"), copy=True)


def make_scalar(kind: Any, data: Any = b"") -> Any:
    if isinstance(kind, DTypeStub) and kind.dtype.kind == "O":
        raise UnsafePickleError("a pickle has an object for a NumPy scalar")
    return make_array(data, kind, (), "C")[()]


def _ordered_dict() -> collections.OrderedDict[Any, Any]:
    return collections.OrderedDict()


def _bytearray(data: bytes = b"") -> bytearray:
    if not isinstance(data, bytes):
        raise UnsafePickleError("a pickle calls bytearray of something else than bytes")
    return bytearray(data)


def _encode(text: str, encoding: str) -> bytes:
    """How protocols up to 2 store bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise UnsafePickleError("a pickle calls _codecs.encode with another encoding than latin1")
    return text.encode("latin1")


def _is_dimension(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_DIMENSION


def _dimension(value: Any) -> int | None:
    if value is not None and not _is_dimension(value):
        raise ValueError("a dimension that is no number")
    return value if value is None else int(value)


def _tensor_shape(dims: Any) -> LegacyShape:
    if dims is None:
        return LegacyShape(None)
    if not isinstance(dims, list | tuple):
        raise ValueError("a shape that is no list")
    return LegacyShape(tuple(_dimension(dim) for dim in dims))


def _as_dtype(name: Any) -> LegacyType:
    if not isinstance(name, str):
        raise ValueError("a dtype that is no name")
    return LegacyType(name)


_PLAIN = (
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    + ("float16", "float32", "float64", "complex64", "complex128")
)  # fmt: skip

_CODES = {
    **{np.dtype(name).str[1:]: name for name in _PLAIN},
    **dict.fromkeys(("O", "O8"), dtypes.STRING),
    # Of quantized dtypes; their names come with the fields.
    **{code: code for code in ("V1", "V2", "V4")},
}
"""Type codes of NumPy's own dtypes, and which dtype each is."""

_NDARRAY = Global("numpy.ndarray", None)


def _known_globals() -> Iterator[tuple[str, Callable[..., Any] | None]]:
    for core in ("numpy.core", "numpy._core"):
        yield f"{core}.multiarray._reconstruct", ArrayStub
        yield f"{core}.multiarray.scalar", make_scalar
        yield f"{core}.numeric._frombuffer", make_array
    yield "numpy.dtype", DTypeStub
    yield "collections.OrderedDict", _ordered_dict
    yield "builtins.bytearray", _bytearray
    yield "_codecs.encode", _encode
    yield "tensorflow.python.framework.tensor_shape.TensorShape", _tensor_shape
    yield "tensorflow.python.framework.tensor_shape.Dimension", _dimension
    yield "tensorflow.python.framework.dtypes.as_dtype", _as_dtype
    yield "tensorflow.python.framework.none_tensor.NoneTensorSpec", specs.NoneSpec
    yield "tensorflow.python.data.util.structure.NoneTensorSpec", specs.NoneSpec
    for name in sorted(dtypes.NAMES - {dtypes.STRING}):
        if name not in _PLAIN and not name.startswith(("qint", "quint")):
            yield f"ml_dtypes.{name}", None


_GLOBALS = {name: Global(name, call) for name, call in _known_globals()}
_GLOBALS["numpy.ndarray"] = _NDARRAY


def find_global(module: Any, name: Any) -> Global:
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("a name that is no string")
    # A dot inside a name would be a chain of attributes; joined, it must not look like a module.
    found = None if "." in name else _GLOBALS.get(f"{module}.{name}")
    if found is None:
        raise UnsafePickleError(f"a pickle asks for {f'{module}.{name}'[:200]!r}")
    return found


def load_spec(shapes: Any, types: Any) -> specs.Structure:
    """The element spec of the nests of shapes and dtypes that 0.1.4 stored, as loaded.

    Raises:
        ChecksumError: the nests differ, or hold something else than dtypes and shapes of arrays.
    """
    if isinstance(types, specs.NoneSpec) and types == shapes:
        return types
    if isinstance(types, LegacyType) and isinstance(shapes, LegacyShape):
        return _load_leaf(shapes.shape, types.name)
    if isinstance(types, dict) and isinstance(shapes, dict) and types.keys() == shapes.keys():
        return {key: load_spec(shapes[key], child) for key, child in types.items()}
    if isinstance(types, list | tuple) and isinstance(shapes, list | tuple):
        if len(types) == len(shapes):
            return tuple(map(load_spec, shapes, types))
    raise ChecksumError("the shapes and the dtypes of a 0.1.4 cache do not fit each other")


def _load_leaf(shape: specs.Shape, name: str) -> specs.TensorSpec:
    if name not in dtypes.NAMES:
        raise ChecksumError(f"a 0.1.4 cache has {name[:100]!r} for a dtype")
    try:
        return specs.TensorSpec(name, shape)
    except InvalidArgumentError as error:
        raise ChecksumError(f"a 0.1.4 cache has a shape that no array can have: {error}") from error
