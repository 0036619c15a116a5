"""The dtypes a cache can hold: their names on disk and what they are in NumPy.

Names are TensorFlow's (``float32``, ``bfloat16``, ``string``), which NumPy shares for nearly all.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from yogadl.errors import MissingExtraError, UnsupportedTypeError

STRING = "string"

_NUMPY = (
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    + ("float16", "float32", "float64", "complex64", "complex128")
)  # fmt: skip

# Kept by the ml_dtypes package; one byte per value except for bfloat16.
_ML_DTYPES = (
    ("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn")
    + ("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    + ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int2", "int4", "uint2", "uint4")
)  # fmt: skip

# TensorFlow's quantized integers are plain ones in NumPy.
_QUANTIZED = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint16": "int16",
    "quint16": "uint16",
    "qint32": "int32",
}

NAMES = frozenset((*_NUMPY, *_ML_DTYPES, *_QUANTIZED, STRING))


@functools.cache
def to_numpy(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a dtype name; strings are ``object`` (arrays of ``bytes``).

    Raises:
        UnsupportedTypeError: the name is not one of :data:`NAMES`.
        MissingExtraError: the dtype lives in ``ml_dtypes``, which is not installed.
    """
    if name == STRING:
        return np.dtype(object)
    if name in _NUMPY:
        return np.dtype(name)
    if name in _QUANTIZED:
        return np.dtype(_QUANTIZED[name])
    if name not in _ML_DTYPES:
        raise UnsupportedTypeError(f"unknown dtype {name!r}; a cache can hold {sorted(NAMES)}")
    try:
        import ml_dtypes
    except ImportError as error:
        raise MissingExtraError(
            f"dtype {name} needs the package ml_dtypes: pip install 'yogadl[ml-dtypes]'"
        ) from error
    try:
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except AttributeError as error:
        raise UnsupportedTypeError(
            f"dtype {name} needs a newer ml_dtypes than {ml_dtypes.__version__}"
        ) from error
    return found


def from_numpy(dtype: np.dtype[Any]) -> str:
    """The name of a NumPy dtype, byte order aside.

    ``object``, ``S`` and ``U`` are ``string``: whether an object array holds only strings is
    checked where its values are encoded.

    Raises:
        UnsupportedTypeError: a cache cannot hold this dtype.
    """
    if dtype.kind in "OSU":
        return STRING
    if dtype.name in NAMES:
        return str(dtype.name)
    hint = "; convert it to int64 first" if dtype.kind in "mM" else ""
    raise UnsupportedTypeError(
        f"a cache cannot hold NumPy dtype {dtype.name!r}{hint}; it can hold {sorted(NAMES)}"
    )
