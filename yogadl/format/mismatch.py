"""What is wrong with a record that does not fit its spec: where, and what to do about it.

Nothing here is used for records that fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import SpecMismatchError, UnsupportedTypeError, YogadlError
from yogadl.format.components import as_component, check_shape, split_leaf
from yogadl.format.layout import leaf_components

_NESTING = (
    "; every record must have the same keys and be nested alike: what one lacks is None, where the "
    "spec has an OptionalSpec for it"
)


def explained(spec: specs.Structure, record: Any, name: str, error: YogadlError) -> YogadlError:
    """The error of a record that does not fit, in words that name the leaf and what to do.

    Args:
        spec: of the record.
        record: for which ``error`` was raised.
        name: what to call it.
        error: returned if the record is found to be right when it is looked at again.
    """
    try:
        values = specs.flatten(spec, record, name)
    except SpecMismatchError as found:
        return SpecMismatchError(f"{found}{_NESTING}")
    for path, leaf, value in zip(specs.paths(spec), specs.leaves(spec), values, strict=True):
        where = leaf_name(name, path)
        if isinstance(leaf, specs.OptionalSpec) and value is not None:
            inner = explained(leaf.value, value, where, error)
            if inner is not error:
                return inner
            continue
        try:
            for component, part in zip(leaf_components(leaf), split_leaf(leaf, value), strict=True):
                as_component(component, part)
        except (SpecMismatchError, UnsupportedTypeError) as found:
            # A record that is one value needs no name beside its number.
            prefix = "" if where == "record" else f"{where}: "
            return type(found)(f"{prefix}{found}{_advice(leaf, value)}")
    return error


def leaf_name(name: str, path: tuple[Any, ...]) -> str:
    """What to call a leaf, by the keys that lead to it."""
    return name + "".join(f"[{key!r}]" for key in path)


def check_rows(
    spec: specs.TensorSpec, dtype: np.dtype[Any], shape: tuple[int, ...], where: str
) -> None:
    """Checks that arrays of a dtype and shape fit a component.

    Raises:
        SpecMismatchError: they do not; it says ``where``.
    """
    if dtype != dtypes.to_numpy(spec.dtype):
        raise SpecMismatchError(
            f"{where}: an array of {dtype} does not fit {spec}{_cast(spec.dtype)}"
        )
    try:
        check_shape(spec, shape)
    except SpecMismatchError as error:
        raise SpecMismatchError(f"{where}: {error}{_varying(spec, shape)}") from error


def _advice(leaf: specs.Leaf, value: Any) -> str:
    """What to do about a value that does not fit its leaf."""
    if value is None:
        return f"; where a record may lack it, give spec= with {specs.OptionalSpec(leaf)!r} for it"
    if isinstance(value, specs.Ragged | specs.Sparse):
        return ""
    try:
        found = specs.infer(value, "the value")
    except UnsupportedTypeError as error:
        return f": {error}"
    if isinstance(leaf, specs.NoneSpec):
        return f"; where a record may lack it, give spec= with {specs.OptionalSpec(found)!r} for it"
    if isinstance(leaf, specs.RaggedSpec | specs.SparseSpec):
        return ""
    assert isinstance(leaf, specs.TensorSpec)
    if not isinstance(found, specs.TensorSpec):
        return _NESTING
    if isinstance(value, list) and leaf.dtype == "float64" and 0 in (leaf.shape or ()):
        # That was an empty list, of which NumPy makes float64 whatever is meant.
        leaf = specs.TensorSpec(found.dtype, leaf.shape)
    if found.dtype != leaf.dtype and not _is_kept(leaf, value):
        return _dtype_advice(leaf, found, value)
    shape = found.static_shape
    assert shape is not None
    return _varying(leaf, shape)


def _is_kept(leaf: specs.TensorSpec, value: Any) -> bool:
    """Whether Python's numbers or strings are converted to the dtype of the leaf."""
    try:
        as_component(specs.TensorSpec(leaf.dtype, None), value)
    except (SpecMismatchError, UnsupportedTypeError):
        return False
    return True


def _dtype_advice(leaf: specs.TensorSpec, found: specs.TensorSpec, value: Any) -> str:
    if leaf.is_string and isinstance(value, float) and math.isnan(value):
        inner = specs.OptionalSpec(leaf)
        return f"; if it stands for what is missing, make it None, and give spec= with {inner!r}"
    for kind, of_one, of_other in (
        ("string", "strings", "numbers"),
        ("bool", "bools", "numbers"),
    ):
        if kind in (leaf.dtype, found.dtype):
            return f"; make all of them {of_one}, or all of them {of_other}"
    if isinstance(value, np.ndarray | np.generic):
        return _cast(leaf.dtype)
    wider = _wider(leaf, value)
    return f"; give spec= with {wider!r} for it" if wider is not None else ""


def _wider(leaf: specs.TensorSpec, value: Any) -> specs.TensorSpec | None:
    """The leaf with a dtype that holds Python's numbers, too."""
    given = np.asarray(value)
    needed = np.min_scalar_type(value) if given.ndim == 0 else given.dtype
    if needed == np.uint64:
        # With int64 it would make a float64.
        return specs.TensorSpec("uint64", leaf.shape)
    try:
        dtype = np.result_type(dtypes.to_numpy(leaf.dtype), needed)
    except TypeError:
        return None
    return specs.TensorSpec(dtypes.from_numpy(dtype), leaf.shape)


def _cast(dtype: str) -> str:
    if dtype == dtypes.STRING:
        return "; make strings of all of them, or give spec= with the dtype that they have"
    return f"; cast it, astype({dtype!r}), or give spec= with the dtype that all of them have"


def _varying(spec: specs.TensorSpec, shape: tuple[int, ...]) -> str:
    both = specs.common(spec, specs.TensorSpec(spec.dtype, shape))
    if both == spec:
        return ""
    return f"; where shapes differ, give spec= with {both!r} for it"
