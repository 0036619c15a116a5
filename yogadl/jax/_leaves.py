"""Which leaves of a record JAX can hold, and NumPy arrays as the dtypes that it has."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.dataref._padding import Padding
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.extras import require

jax = require("jax", "jax")

Array = np.ndarray[Any, Any]


def named_leaves(spec: specs.Structure, name: str = "record") -> Iterator[tuple[str, specs.Leaf]]:
    """The leaves of a spec, in the order of ``specs.leaves``, with how to get at them:
    ``record['image']``."""
    if isinstance(spec, specs.LEAVES):
        yield name, spec
        return
    for key in specs.sorted_keys(spec) if isinstance(spec, dict) else range(len(spec)):
        yield from named_leaves(spec[key], f"{name}[{key!r}]")


def check_leaves(spec: specs.Structure, pad: Any) -> None:
    """Checks that batches of a spec are arrays that JAX can hold.

    Args:
        spec: the element spec.
        pad: as for ``IndexedStream.batches``.

    Raises:
        UnsupportedTypeError: they are not; the first leaf of which that is so is named.
        InvalidArgumentError: ``pad`` does not fit the spec.
    """
    named = list(named_leaves(spec))
    values = [None] * len(named) if pad is None else Padding(spec, pad).values
    for (name, leaf), value in zip(named, values, strict=True):
        if not isinstance(leaf, specs.TensorSpec):
            raise UnsupportedTypeError(
                f"{name} is a {type(leaf).__name__}, of which JAX has no array; leave it out of "
                "the data set, or store it as a dense array"
            )
        if leaf.is_string:
            raise UnsupportedTypeError(
                f"{name} is a string, of which JAX has no array; leave it out of the data set, or "
                "store a number instead"
            )
        if leaf.static_shape is None and value is None:
            raise UnsupportedTypeError(
                f"{name} varies in shape, {leaf}, and does not stack; give pad="
            )
        check_dtype(name, dtypes.to_numpy(leaf.dtype))


def check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Checks that JAX has a dtype.

    Raises:
        UnsupportedTypeError: it does not.
    """
    try:
        _put_on_device(dtype)
    except (TypeError, ValueError, jax.errors.JaxRuntimeError) as error:
        raise UnsupportedTypeError(
            f"{name} is of dtype {dtype}, which the installed JAX does not have: {error}"
        ) from error


@functools.cache
def _put_on_device(dtype: np.dtype[Any]) -> None:
    jax.device_put(np.zeros(1, dtype))


def as_jax_holds(name: str, array: Array) -> Array:
    """The array, of 32 bits if it has 64 and JAX is not set to hold these.

    Raises:
        InvalidArgumentError: it has integers that 32 bits do not hold.
    """
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if dtype == array.dtype:
        return array
    if array.size and array.dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        low, high = int(array.min()), int(array.max())
        if low < bounds.min or high > bounds.max:
            raise InvalidArgumentError(
                f"{name} has {low if low < bounds.min else high}, which {dtype} cannot hold, and "
                f"JAX makes {dtype} of {array.dtype}; set jax_enable_x64"
            )
    # A float beyond the range becomes infinite, as in JAX.
    with np.errstate(over="ignore"):
        return array.astype(dtype)
