"""Values of frameworks as NumPy arrays.

Types are recognised by the names of their classes, so that no framework is imported for it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import UnsupportedTypeError

_PLAIN = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, type(None))
_MEMORY = (bytearray, memoryview)
# An array's shape and dtype tell these from each other, and from no others.
_MODES = ("1", "L", "LA", "RGB", "RGBA", "I", "F")


def to_record(value: Any, *, lists_are_tuples: bool = False, where: str = "record") -> Any:
    """A record with arrays where it has tensors, images or the like.

    Dicts, tuples and named tuples stay what they are; other mappings become dicts. NumPy arrays,
    numbers, strings and ``None`` are not touched. An array may share memory with its tensor.

    Args:
        value: the record.
        lists_are_tuples: a list that has anything but numbers and strings in it is a tuple of
            components, as in frameworks that know no other; else it is one array.
        where: what to call it in errors.

    Raises:
        UnsupportedTypeError: it holds something that is no array, by the name of its type.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {
            key: to_record(child, lists_are_tuples=lists_are_tuples, where=f"{where}[{key!r}]")
            for key, child in value.items()
        }
    if isinstance(value, tuple | list):
        children = [
            to_record(child, lists_are_tuples=lists_are_tuples, where=f"{where}[{position}]")
            for position, child in enumerate(value)
        ]
        if specs.is_namedtuple(value):
            return type(value)(*children)
        if isinstance(value, tuple):
            return tuple(children)
        return tuple(children) if lists_are_tuples and has_components(children) else children
    return to_leaf(value, where)


def has_components(values: list[Any]) -> bool:
    """Whether a list has anything but Python's numbers, strings, and lists of these."""
    return any(
        has_components(value)
        if isinstance(value, list)
        else not isinstance(value, bool | int | float | complex | str | bytes)
        for value in values
    )


def to_leaf(value: Any, where: str = "record") -> Any:
    """One value as a NumPy array, a scalar, ``bytes``, ``Ragged`` or ``Sparse``.

    Raises:
        UnsupportedTypeError: it cannot be any of these.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _MEMORY):
        return bytes(value)
    convert = _converter(_class_of(value))
    if convert is None:
        raise UnsupportedTypeError(
            f"{where} is a {type_name(value)}, which cannot be made an array; a record can hold "
            "NumPy arrays and scalars, tensors, images, numbers, bools, str, bytes, None, and "
            "dicts and tuples of these"
        )
    try:
        return convert(value)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{where}: {error}") from error


def is_array(value: Any) -> bool:
    """Whether a value is an array or tensor with a first axis."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    if isinstance(value, _PLAIN):
        return False
    return _converter(_class_of(value)) in _TENSORS and len(getattr(value, "shape", ())) > 0


def type_name(value: Any) -> str:
    """The dotted name of the class of a value."""
    return class_name(type(value))


def class_name(cls: type) -> str:
    """The dotted name of a class, from the module that defines it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _class_of(value: Any) -> Any:
    return type(value)


@functools.cache
def _converter(cls: type) -> Callable[[Any], Any] | None:
    """What makes arrays of the values of a class; ``None`` where nothing does."""
    for base in cls.__mro__:
        known = _CONVERTERS.get(class_name(base))
        if known is not None:
            return known
    if hasattr(cls, "__array__"):
        return _from_array_interface
    return None


def _from_torch(tensor: Any) -> Any:
    try:
        # What most are, without a look at what they might be.
        return tensor.numpy()
    except (RuntimeError, TypeError):
        return _from_other_torch(tensor)


def _from_other_torch(tensor: Any) -> Any:
    """A tensor elsewhere, with gradients, of a dtype that NumPy has not got, or none that can be
    stored."""
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "quantized" if tensor.is_quantized else "sparse or nested"
        raise UnsupportedTypeError(f"a {kind} torch.Tensor; make it dense first")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if hasattr(np, name):
        return tensor.numpy()
    if name not in dtypes.NAMES:
        raise UnsupportedTypeError(f"a torch.Tensor of {name}, which a cache cannot hold")
    # NumPy has not got these; the bits are the same.
    raw = torch.uint8 if tensor.element_size() == 1 else torch.int16
    return tensor.contiguous().view(raw).numpy().view(dtypes.to_numpy(name))


def _from_tensorflow(tensor: Any) -> Any:
    if not hasattr(tensor, "numpy"):
        raise UnsupportedTypeError(
            f"a {type_name(tensor)} of graph mode has no value; submit a tf.data.Dataset instead"
        )
    return tensor.numpy()


def _from_ragged(tensor: Any) -> Any:
    splits = tuple(_from_tensorflow(part) for part in tensor.nested_row_splits)
    return specs.Ragged(_from_tensorflow(tensor.flat_values), splits)


def _from_sparse(tensor: Any) -> Any:
    parts = (tensor.indices, tensor.values, tensor.dense_shape)
    return specs.Sparse(*[_from_tensorflow(part) for part in parts])


def _from_image(image: Any) -> Any:
    if image.mode not in _MODES and not image.mode.startswith("I;16"):
        lost = (
            "the colours of its palette" if image.palette is not None else "what its numbers mean"
        )
        raise UnsupportedTypeError(
            f"a PIL image of mode {image.mode!r}, of which an array would lose {lost}; "
            "convert('RGB') it (in a Hugging Face data set: cast_column(name, "
            "datasets.Image(mode='RGB'))), or give np.asarray(image) if the numbers themselves are "
            "meant, as those of a mask"
        )
    return np.array(image)


def _from_arrow_scalar(scalar: Any) -> Any:
    return to_leaf(scalar.as_py(), type_name(scalar))


def _from_pandas(series: Any) -> Any:
    dtype = series.dtype
    # NaN among plain floats is a value like any other.
    if not (isinstance(dtype, np.dtype) and dtype.kind in "fc") and np.asarray(series.isna()).any():
        raise UnsupportedTypeError(
            f"a {type_name(series)} with missing values, which no array has; fill them by fillna"
        )
    array = np.asarray(series)
    if array.dtype == object:
        kinds = sorted({type(item).__name__ for item in array.tolist()})
        if not set(kinds) <= {"str", "bytes"}:
            raise UnsupportedTypeError(
                f"a {type_name(series)} of {', '.join(kinds)}, which makes no array of one dtype; "
                "if it is a row of a data frame, submit the data frame itself"
            )
    return array


def _from_arrow(column: Any) -> Any:
    """Of an array of Arrow, or a series of polars."""
    nulls = column.null_count
    if nulls() if callable(nulls) else nulls:
        raise UnsupportedTypeError(
            f"a {type_name(column)} with missing values, which no array has; fill or drop them"
        )
    return _from_array_interface(column)


def _from_array_interface(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype == object and array.shape == ():
        raise UnsupportedTypeError(f"a {type_name(value)}, which cannot be made an array")
    return array


def _refuse_table(table: Any) -> Any:
    """One array of all columns would have one dtype, and not their names."""
    raise UnsupportedTypeError(
        f"a {type_name(table)} is a table; a record is a row of it: yield from "
        "frame.to_dict('records') (pandas), table.to_pylist() (Arrow) or "
        "frame.iter_rows(named=True) (Polars), submit the table as a whole, or give its array"
    )


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "torch.Tensor": _from_torch,
    "tensorflow.python.framework.tensor.Tensor": _from_tensorflow,
    "tensorflow.python.framework.ops.Tensor": _from_tensorflow,
    "tensorflow.python.ops.variables.Variable": _from_tensorflow,
    "tensorflow.python.ops.ragged.ragged_tensor.RaggedTensor": _from_ragged,
    "tensorflow.python.framework.sparse_tensor.SparseTensor": _from_sparse,
    "PIL.Image.Image": _from_image,
    "pyarrow.lib.Scalar": _from_arrow_scalar,
    "pandas.Series": _from_pandas,
    "pandas.Index": _from_pandas,
    "pandas.api.extensions.ExtensionArray": _from_pandas,
    # Of pandas 2.
    "pandas.core.series.Series": _from_pandas,
    "pandas.core.indexes.base.Index": _from_pandas,
    "pandas.core.arrays.base.ExtensionArray": _from_pandas,
    "polars.series.series.Series": _from_arrow,
    "pyarrow.lib.Array": _from_arrow,
    "pyarrow.lib.ChunkedArray": _from_arrow,
    "pandas.DataFrame": _refuse_table,
    "pandas.core.frame.DataFrame": _refuse_table,
    "polars.dataframe.frame.DataFrame": _refuse_table,
    "pyarrow.lib.Table": _refuse_table,
    "pyarrow.lib.RecordBatch": _refuse_table,
    "jax.Array": _from_array_interface,
    "jaxlib._jax.ArrayImpl": _from_array_interface,
    "jaxlib.xla_extension.ArrayImpl": _from_array_interface,
}
_TENSORS: tuple[Callable[[Any], Any] | None, ...] = (
    _from_torch,
    _from_tensorflow,
    _from_array_interface,
    # Which who is given one refuses with better advice.
    _refuse_table,
)
