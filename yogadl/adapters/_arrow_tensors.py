"""Columns of tensors as Ray Data makes them: extension types of Arrow, known by their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.adapters._base import Array
from yogadl.errors import UnsupportedTypeError
from yogadl.extras import require

pa = require("pyarrow", "arrow")

_FIXED = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
_VARIABLE = "ray.data.arrow_variable_shaped_tensor"
_PICKLES = "ray.data.arrow_pickled_object"


def is_tensor(kind: Any) -> bool:
    """Whether an Arrow type is one of Ray's tensors.

    Raises:
        UnsupportedTypeError: it is that of Ray's pickles.
    """
    if not isinstance(kind, pa.BaseExtensionType):
        return False
    name = kind.extension_name
    if name == _PICKLES:
        raise UnsupportedTypeError(
            "Ray has pickled the objects of a column, which a cache cannot hold; make arrays, "
            "numbers or strings of them first, or drop it"
        )
    # A type of this name that was not registered, as where Ray was not imported, has no shape.
    return (name in _FIXED or name == _VARIABLE) and hasattr(kind, "shape")


def tensor_shape(kind: Any) -> tuple[int | None, ...]:
    """The shape of Ray's tensors."""
    return tuple(kind.shape)


def item_type(kind: Any) -> Any:
    """The Arrow type of the items of Ray's tensors."""
    storage = kind.storage_type
    return (storage.field("data").type if kind.extension_name == _VARIABLE else storage).value_type


def tensors(array: Any, where: str) -> Array | list[Array]:
    """The tensors of an Arrow array of them, none of which is null.

    Args:
        array: of Ray's tensors.
        where: what to call it in errors.

    Returns:
        A fresh array ``[n, *shape]``, or a list of arrays where shapes vary.

    Raises:
        UnsupportedTypeError: an item is null.
    """
    kind, storage = array.type, array.storage
    if kind.extension_name != _VARIABLE:
        return _items(storage.flatten(), where).reshape(len(array), *kind.shape)
    data = storage.field("data")
    items = _items(data.flatten(), where)
    ends = np.cumsum(data.value_lengths().to_numpy(zero_copy_only=False), dtype="i8")
    shapes = storage.field("shape").to_pylist()
    parts = np.split(items, ends[:-1]) if len(array) else []
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _items(values: Any, where: str) -> Array:
    if values.null_count:
        raise UnsupportedTypeError(f"{where} has None inside a tensor; fill what is missing")
    if pa.types.is_fixed_size_binary(values.type):
        # Strings as NumPy has them.
        raw = b"".join(values.to_pylist())
        return np.frombuffer(raw, f"<U{values.type.byte_width // 4}").astype(object)
    return np.array(values.to_numpy(zero_copy_only=False))
