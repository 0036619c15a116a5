"""Data sets made of several others, of which nothing is read or copied until it is asked for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from yogadl import spec as specs
from yogadl.dataref._indexed import DerivedDataRef, IndexedDataRef
from yogadl.dataref._positions import Mixed
from yogadl.dataref._views import SelectedReader, ZippedReader, concatenated
from yogadl.errors import InvalidArgumentError


def concat(datarefs: Sequence[IndexedDataRef]) -> DerivedDataRef:
    """The records of some data sets, one data set after the other.

    They have to agree in nesting and dtypes; dimensions in which they differ are unknown in the
    result. Dicts have their keys in the order of the first.

    Args:
        datarefs: at least one.

    Raises:
        InvalidArgumentError: there is none, or something else.
        SpecMismatchError: their records are nested differently, or of other dtypes.
    """
    return DerivedDataRef(concatenated, _checked(datarefs, "concat"))


def zip(nest: Any) -> DerivedDataRef:  # noqa: A001 # named as in tf.data
    """Records made of one record of each of some data sets: those at the same position.

    Args:
        nest: a nest of dicts and tuples of data sets, which are equally long: ``zip((images,
            labels))`` has records ``(image, label)``.

    Raises:
        InvalidArgumentError: they are not equally long, or something is no such data set.
    """
    parts: list[IndexedDataRef] = []
    numbers = _number(nest, parts)
    return DerivedDataRef(functools.partial(ZippedReader, numbers), _checked(parts, "zip"))


def mix(datarefs: Sequence[IndexedDataRef], weights: Sequence[float]) -> DerivedDataRef:
    """Records of some data sets in turn, as often as their weights say.

    Each is read in its own order, so shuffle the stream. In any run of records, each has its share
    to within one or two. The mix ends where a data set has run out whose turn it would be, so no
    record comes twice; which record stands where is the same in every release.

    Args:
        datarefs: at least one, as for :func:`concat`.
        weights: one for each, above 0; they need not add up to 1.

    Raises:
        InvalidArgumentError: a weight is out of range, or something is no such data set.
        SpecMismatchError: the records are nested differently, or of other dtypes.
    """
    parts = _checked(datarefs, "mix")
    try:
        count = len(weights)
    except TypeError:
        # A number, such as the weight of the first of two.
        count = -1
    if count != len(parts) or isinstance(weights, Mapping):
        raise InvalidArgumentError(
            f"mix takes a list of one weight for each of {len(parts)} data sets, not "
            f"{weights!r:.100}"
        )
    positions = Mixed([len(part) for part in parts], weights)
    whole = DerivedDataRef(concatenated, parts)
    return DerivedDataRef(functools.partial(SelectedReader, positions=positions), [whole])


def _checked(parts: Any, what: str) -> list[IndexedDataRef]:
    if isinstance(parts, Mapping | str) or not isinstance(parts, Sequence) or not parts:
        raise InvalidArgumentError(f"{what} takes a list of DataRefs, not {parts!r:.100}")
    for part in parts:
        if not isinstance(part, IndexedDataRef):
            raise InvalidArgumentError(
                f"{what} takes DataRefs whose records can be read by position, as storages and "
                f"yogadl.from_source return them, not a {type(part).__name__}: {part!r:.100}"
            )
    return list(parts)


def _number(nest: Any, parts: list[IndexedDataRef]) -> Any:
    """The nest with a number for each part, which is appended to ``parts`` in the order in which
    their leaves come in the spec of the whole."""
    if isinstance(nest, dict):
        numbers = {key: _number(nest[key], parts) for key in specs.sorted_keys(nest)}
        return {key: numbers[key] for key in nest}
    if isinstance(nest, tuple | list):
        return tuple(_number(child, parts) for child in nest)
    parts.append(nest)
    return len(parts) - 1
