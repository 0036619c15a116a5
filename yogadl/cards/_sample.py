"""What some records of a data set are like."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cards._elements import components

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ComponentSample:
    """What a component is like in some records.

    Attributes:
        name: of the component, as the card calls it.
        least, mean, greatest: of its finite numbers, or of the lengths of its strings in bytes; not
            a number if it has none.
        is_of_strings: whether they are of lengths.
        missing: in how many records it is ``None``.
        not_finite: how many of its numbers are not.
    """

    name: str
    least: float
    mean: float
    greatest: float
    is_of_strings: bool = False
    missing: int = 0
    not_finite: int = 0


class _Numbers:
    """The numbers of a component so far."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._least, self._greatest, self._sum = math.inf, -math.inf, 0.0
        self._count = self._missing = self._not_finite = 0
        self._is_of_strings = False

    def add(self, value: Any) -> None:
        if value is None:
            self._missing += 1
            return
        for array in _arrays(value):
            if array.dtype.kind in "OSU":
                self._is_of_strings = True
                numbers = np.array([_length(it) for it in array.flat], np.float64)
            elif array.dtype.kind == "c":
                return
            else:
                numbers = array.astype(np.float64).ravel()
            finite = numbers[np.isfinite(numbers)]
            self._not_finite += len(numbers) - len(finite)
            if len(finite):
                self._least = min(self._least, float(finite.min()))
                self._greatest = max(self._greatest, float(finite.max()))
                self._sum += float(finite.sum())
                self._count += len(finite)

    def found(self) -> ComponentSample:
        least, greatest = (self._least, self._greatest) if self._count else (math.nan, math.nan)
        mean = self._sum / self._count if self._count else math.nan
        return ComponentSample(
            self._name,
            least,
            mean,
            greatest,
            self._is_of_strings,
            self._missing,
            self._not_finite,
        )


def sample_of(spec: specs.Structure, records: Iterable[Any]) -> tuple[ComponentSample, ...]:
    """What each component is like in some records.

    Args:
        spec: of the records.
        records: which are read once.
    """
    numbers = [_Numbers(name) for name, _, _ in components(spec)]
    for record in records:
        for each, value in zip(numbers, specs.flatten(spec, record), strict=True):
            each.add(value)
    return tuple(each.found() for each in numbers)


def _arrays(value: Any) -> list[Array]:
    """The arrays that have the values of a leaf, of whatever kind."""
    if isinstance(value, specs.Ragged):
        return [np.asarray(value.flat_values)]
    if isinstance(value, specs.Sparse):
        return [np.asarray(value.values)]
    if isinstance(value, dict | tuple | list):
        # What may be missing as a whole.
        return []
    # Else NumPy takes away the zeros at their ends.
    return [np.asarray(value, dtype=object if isinstance(value, bytes | str) else None)]


def _length(value: Any) -> int:
    return len(value.encode() if isinstance(value, str) else value)
