"""Element specs as TensorFlow's type specs, and back. Importing this module imports TensorFlow."""

from __future__ import annotations

from typing import Any

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import UnsupportedTypeError
from yogadl.extras import require

tf = require("tensorflow", "tensorflow")


def to_tf(spec: specs.Structure) -> Any:
    """The nest of ``tf.TypeSpec`` of an element spec.

    Raises:
        UnsupportedTypeError: TensorFlow lacks a dtype, or has no order for the keys of a dict.
    """
    found = specs.map_leaves(_leaf_to_tf, spec)
    try:
        tf.nest.flatten(found)
    except TypeError as error:
        raise UnsupportedTypeError(
            "TensorFlow sorts the keys of a dict, and cannot if some are strings and some integers "
            f"({error}); store all of them as strings"
        ) from error
    return found


def _tf_dtype(name: str) -> Any:
    try:
        return tf.as_dtype(name)
    except TypeError as error:
        raise UnsupportedTypeError(
            f"TensorFlow {tf.__version__} has no dtype {name}; read the records without it"
        ) from error


def _leaf_to_tf(leaf: specs.Leaf) -> Any:
    if isinstance(leaf, specs.TensorSpec):
        return tf.TensorSpec(leaf.shape, _tf_dtype(leaf.dtype))
    if isinstance(leaf, specs.RaggedSpec):
        return tf.RaggedTensorSpec(
            leaf.shape,
            _tf_dtype(leaf.dtype),
            leaf.ragged_rank,
            _tf_dtype(leaf.row_splits_dtype),
        )
    if isinstance(leaf, specs.SparseSpec):
        return tf.SparseTensorSpec(leaf.shape, _tf_dtype(leaf.dtype))
    if isinstance(leaf, specs.OptionalSpec):
        return tf.OptionalSpec(to_tf(leaf.value))
    return _none_spec()


def _none_spec() -> Any:
    # TensorFlow has no public name for the spec of None.
    return tf.data.Dataset.from_tensors((None, 0)).element_spec[0]


def from_tf(spec: Any) -> specs.Structure:
    """The element spec of a nest of ``tf.TypeSpec``.

    Raises:
        UnsupportedTypeError: it has a component that a cache cannot hold.
    """
    return specs.normalize(_from_tf(spec, "the data set"))


def _from_tf(spec: Any, where: str) -> Any:
    if isinstance(spec, dict):
        return {key: _from_tf(child, f"{where}[{key!r}]") for key, child in spec.items()}
    if isinstance(spec, tuple | list):
        children = [_from_tf(child, f"{where}[{i}]") for i, child in enumerate(spec)]
        return specs.tuple_like(spec, children)
    if isinstance(spec, tf.TensorSpec):
        return specs.TensorSpec(_dtype(spec.dtype, where), _shape(spec.shape))
    if isinstance(spec, tf.RaggedTensorSpec):
        if spec.flat_values_spec is not None:
            raise UnsupportedTypeError(f"{where} is a ragged tensor over {spec.flat_values_spec}")
        dtype, shape = _dtype(spec.dtype, where), _shape(spec.shape)
        if spec.ragged_rank == 0:
            return specs.TensorSpec(dtype, shape)
        return specs.RaggedSpec(dtype, shape, spec.ragged_rank, spec.row_splits_dtype.name)
    if isinstance(spec, tf.SparseTensorSpec):
        return specs.SparseSpec(_dtype(spec.dtype, where), _shape(spec.shape))
    if isinstance(spec, tf.OptionalSpec):
        # The one way to the inner spec that has been the same since TensorFlow 2.16.
        return specs.OptionalSpec(_from_tf(spec._serialize()[0], where))
    if isinstance(spec, type(_none_spec())):
        return specs.NoneSpec()
    raise UnsupportedTypeError(
        f"{where} is a {type(spec).__name__}, which a cache cannot hold; it can hold tensors, "
        "ragged and sparse ones, None, optionals, and dicts and tuples of these"
    )


def _dtype(dtype: Any, where: str) -> str:
    if dtype.name not in dtypes.NAMES:
        raise UnsupportedTypeError(f"{where} has dtype {dtype.name}, which a cache cannot hold")
    return str(dtype.name)


def _shape(shape: Any) -> specs.Shape:
    return None if shape.rank is None else tuple(shape.as_list())


# What tf.data can batch and take apart again.
BATCHABLE = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16")
    + ("float32", "float64", "bfloat16", "complex64", "complex128", "string")
)


def output_types(spec: specs.Structure) -> Any:
    """The nest of ``tf.DType`` of a spec, as ``tf.compat.v1.data.get_output_types`` gives it."""
    return specs.map_leaves(_leaf_dtype, spec)


def output_shapes(spec: specs.Structure) -> Any:
    """The nest of ``tf.TensorShape`` of a spec, likewise."""
    return specs.map_leaves(_leaf_shape, spec)


def _leaf_dtype(leaf: specs.Leaf) -> Any:
    return _tf_dtype(leaf.dtype) if hasattr(leaf, "dtype") else _leaf_to_tf(leaf)


def _leaf_shape(leaf: specs.Leaf) -> Any:
    return tf.TensorShape(leaf.shape) if hasattr(leaf, "shape") else _leaf_to_tf(leaf)
