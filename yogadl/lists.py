"""Lists of Python as arrays, and why some make none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from yogadl.errors import UnsupportedTypeError


def list_array(value: list[Any], name: str) -> np.ndarray[Any, Any]:
    """A list as one array.

    Args:
        value: a list of numbers, bools, strings, arrays, and lists of these.
        name: what errors call it.

    Raises:
        UnsupportedTypeError: it makes no array of one dtype.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UnsupportedTypeError(f"{name} {_why_none(value)}") from error
    # NumPy makes strings of numbers that stand among strings; that is no array of one dtype.
    is_text = array.dtype.kind in "SU"
    if array.dtype.kind == "O" or (is_text and len({type(item) for item in _items(value)}) > 1):
        raise UnsupportedTypeError(f"{name} {_why_none(value)}")
    return array


def _items(value: Any) -> Iterator[Any]:
    """What stands in lists of lists, and in arrays among them."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        for child in value:
            yield from _items(child)
    else:
        yield value


def _why_none(value: list[Any]) -> str:
    """Why a list makes no array, and what to do."""
    items = list(_items(value))
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    if any(isinstance(item, Mapping) for item in items):
        return (
            "is a list of dicts, and a list must make one array; give a list of each of their "
            "fields, {'x': [...], 'y': [...]}, or a tuple of dicts if every record has as many"
        )
    if any(item is None for item in items):
        return "is a list with None in it, which no array has; fill or drop what is missing"
    if any(isinstance(item, int) and not -(2**63) <= item < 2**64 for item in items):
        return f"is {value!r:.100}, which fits no dtype; integers have 64 bits"
    if any(isinstance(item, str | bytes) for item in items) and "," in kinds:
        return (
            f"is a list that mixes {kinds}, and a list must make one array; make all of them "
            "strings, or give a tuple for several components"
        )
    if all(isinstance(item, str | bytes | bool | int | float | complex) for item in items):
        return (
            f"is {value!r:.100}, whose rows differ in shape, so that it makes no array; give it as "
            "yogadl.spec.Ragged(flat_values, (row_splits,)), or as a tuple for several components"
        )
    return f"is a list of {kinds}, which makes no array; give a tuple for several components"
