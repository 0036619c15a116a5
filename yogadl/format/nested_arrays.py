"""Checks of the arrays that ragged and sparse values are made of.

Those of many values are checked together: one by one, it would take longer than reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.errors import SpecMismatchError

Array = np.ndarray[Any, Any]


def check_ragged(leaf: specs.RaggedSpec, flat: Array, levels: Sequence[Array]) -> None:
    """Checks that row splits rise from 0 to the length of what they split, and fit the leaf.

    Args:
        leaf: of the value.
        flat: the flat values.
        levels: the row splits, outermost first: 1-D arrays of integers.

    Raises:
        SpecMismatchError: they do not.
    """
    if not _is_ragged(leaf, flat, levels):
        raise SpecMismatchError(
            f"row splits {[splits.tolist() for splits in levels]!r:.200} of an array of shape "
            f"{np.shape(flat)} do not rise from 0 to the length of what they split, or do not fit "
            f"{leaf}"
        )


def _is_ragged(leaf: specs.RaggedSpec, flat: Array, levels: Sequence[Array]) -> bool:
    dims = (None,) * (len(levels) + 1) if leaf.shape is None else leaf.shape
    if np.ndim(flat) < 1:
        return False
    end = len(flat)
    for splits, dim in zip(reversed(levels), dims[len(levels) : 0 : -1], strict=True):
        # Compared before they are subtracted: a difference may wrap around.
        if len(splits) == 0 or splits[0] != 0 or splits[-1] != end:
            return False
        if (splits[1:] < splits[:-1]).any():
            return False
        if dim is not None and (np.diff(splits) != dim).any():
            return False
        end = len(splits) - 1
    return dims[0] in (None, end)


def check_raggeds(
    leaf: specs.RaggedSpec, flats: Sequence[Array], levels: Sequence[Sequence[Array]]
) -> None:
    """:func:`check_ragged` of many values: ``levels`` has a list of row splits for each level."""
    if len(flats) > 1 and _are_ragged(leaf, flats, levels):
        return
    for flat, *splits in zip(flats, *levels, strict=True):
        check_ragged(leaf, flat, splits)


def _are_ragged(
    leaf: specs.RaggedSpec, flats: Sequence[Array], levels: Sequence[Sequence[Array]]
) -> bool:
    """Whether it is easily told that all are right."""
    if leaf.shape is None or any(dim is not None for dim in leaf.shape[: leaf.ragged_rank + 1]):
        return False
    lengths = list(map(len, flats))
    for splits in reversed(levels):
        counts = list(map(len, splits))
        if 0 in counts:
            return False
        joined = np.concatenate(splits)
        last = np.cumsum(counts) - 1
        falls = joined[1:] < joined[:-1]
        falls[last[:-1]] = False
        firsts = joined[last[:-1] + 1]
        if falls.any() or joined[0] or firsts.any() or (joined[last] != lengths).any():
            return False
        lengths = [count - 1 for count in counts]
    return True


def check_sparse(leaf: specs.SparseSpec, indices: Array, values: Array, shape: Array) -> None:
    """Checks that indices lie inside their dense shape, and that all fits together and the leaf.

    Args:
        leaf: of the value.
        indices: integers ``[n, rank]``.
        values: ``[n]``.
        shape: the dense shape, integers ``[rank]``.

    Raises:
        SpecMismatchError: they do not.
    """
    if not _is_sparse(leaf, indices, values, shape):
        raise SpecMismatchError(
            f"indices {indices!r:.200} of values of shape {np.shape(values)} do not lie "
            f"inside a dense shape {shape.tolist()!r:.100}, or do not fit {leaf}"
        )


def _is_sparse(leaf: specs.SparseSpec, indices: Array, values: Array, shape: Array) -> bool:
    if np.ndim(values) != 1 or indices.shape != (len(values), len(shape)):
        return False
    dims = shape.tolist()
    if min(dims, default=0) < 0 or ((indices < 0) | (indices >= shape)).any():
        return False
    wanted = (None,) * len(dims) if leaf.shape is None else leaf.shape
    return len(wanted) == len(dims) and all(
        want in (None, dim) for want, dim in zip(wanted, dims, strict=True)
    )


def check_sparses(
    leaf: specs.SparseSpec,
    indices: Sequence[Array],
    values: Sequence[Array],
    shapes: Sequence[Array],
) -> None:
    """:func:`check_sparse` of many values: a list of each of their parts."""
    if len(values) > 1 and _are_sparse(leaf, indices, values, shapes):
        return
    for parts in zip(indices, values, shapes, strict=True):
        check_sparse(leaf, *parts)


def _are_sparse(
    leaf: specs.SparseSpec,
    indices: Sequence[Array],
    values: Sequence[Array],
    shapes: Sequence[Array],
) -> bool:
    """Whether it is easily told that all are right."""
    counts = list(map(len, values))
    if leaf.shape is None or counts != list(map(len, indices)):
        return False
    dense, cells = np.stack(shapes), np.concatenate(indices)
    limits = np.repeat(dense, counts, axis=0)
    if (dense < 0).any() or ((cells < 0) | (cells >= limits)).any():
        return False
    return all(dim is None or (dense[:, axis] == dim).all() for axis, dim in enumerate(leaf.shape))
