"""Checks of arguments that many take."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from yogadl.errors import InvalidArgumentError

SEEDS = 2**32
"""How many seeds there are; the first is 0."""


def as_index(name: str, value: Any, minimum: int = 0) -> int:
    """A caller's integer (Python's or NumPy's) as an ``int``.

    Raises:
        InvalidArgumentError: it is no integer, or below ``minimum``.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}")
    if value < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, not {value}")
    return int(value)


def as_flag(name: str, value: Any) -> bool:
    """A caller's ``True`` or ``False``, also NumPy's, or 1 or 0.

    Raises:
        InvalidArgumentError: it is something else, such as ``"no"``, which counts as true.
    """
    if not isinstance(value, int | np.bool_) or value not in (0, 1):
        raise InvalidArgumentError(f"{name} must be True or False, not {value!r:.100}")
    return bool(value)


def as_path(name: str, value: Any) -> str:
    """A caller's path on this machine, as text.

    Raises:
        InvalidArgumentError: it is none, or no path can be so.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{name} must be a string or a path, not {value!r:.100}")
    if "\0" in text:
        raise InvalidArgumentError(f"{name} {text!r} has a zero character, as no path has")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} {text!r} has what no path of this machine can have: {error}"
        ) from None
    return text


def check_shard(shard_index: Any, num_shards: Any, name: str = "shard_index") -> tuple[int, int]:
    """Both as ints.

    Raises:
        InvalidArgumentError: not ``0 <= shard_index < num_shards``.
    """
    shards = as_index("num_shards", num_shards, 1)
    shard = as_index(name, shard_index)
    if shard >= shards:
        raise InvalidArgumentError(
            f"{name} must be less than num_shards, and {shard} is not less than {shards}"
        )
    return shard, shards


def check_seed(seed: Any, name: str = "shuffle_seed") -> int:
    """A seed as an int.

    Raises:
        InvalidArgumentError: it is not in ``[0, 2**32)``.
    """
    value = as_index(name, seed)
    if value >= SEEDS:
        raise InvalidArgumentError(f"{name} must be below 2**32, and {value} is not")
    return value
