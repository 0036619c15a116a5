"""Grain data sets. Nothing of Grain is imported here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from yogadl.adapters._base import MapSource, Source
from yogadl.adapters._items import ItemsSource
from yogadl.adapters._iterable import IterableSource
from yogadl.errors import InfiniteDatasetError, InvalidArgumentError


def open_map_dataset(dataset: Any, spec: Any) -> Source:
    """The elements of a ``grain.MapDataset``, read by Grain's threads.

    What a filter left out (``None``) is left out.

    Raises:
        InfiniteDatasetError: it repeats for ever.
    """
    _refuse_infinite(dataset)
    sparse = "FilterMapDataset" in _kinds(dataset)
    # An iterator over it leaves out the holes of filters.
    return IterableSource(
        iter(dataset),
        spec,
        count=None if sparse else len(dataset),
        map_source=lambda: map_dataset_by_position(dataset, spec),
    )


def map_dataset_by_position(dataset: Any, spec: Any) -> MapSource:
    """A ``grain.MapDataset``, to be read by position.

    Raises:
        InfiniteDatasetError: it repeats for ever.
        InvalidArgumentError: on reading, an element that a filter left out.
    """
    _refuse_infinite(dataset)
    return _Elements(dataset, spec)


class _Elements(ItemsSource):
    def items(self, positions: list[int]) -> list[Any]:
        found = super().items(positions)
        for position, element in zip(positions, found, strict=True):
            if element is None:
                raise InvalidArgumentError(
                    f"element {position} was left out by a filter of Grain, and a record cannot be "
                    "read there; submit the data set to a storage, which leaves it out"
                )
        return found


def open_iter_dataset(dataset: Any, spec: Any) -> Source:
    """The elements of a ``grain.IterDataset``.

    Raises:
        InfiniteDatasetError: it is known to repeat for ever.
    """
    for ancestor in _line(dataset):
        if "Limit" in type(ancestor).__name__:
            break
        _refuse_infinite(ancestor)
    return IterableSource(dataset, spec)


def _refuse_infinite(dataset: Any) -> None:
    # The length that Grain gives what has no end.
    if hasattr(dataset, "__len__") and len(dataset) >= sys.maxsize:
        raise InfiniteDatasetError(
            "the data set repeats for ever and cannot be stored; submit it before repeat(), or "
            "give that a number of epochs"
        )


def _line(dataset: Any) -> Iterator[Any]:
    """A data set and what it was made of, as long as that is one data set each time."""
    while True:
        yield dataset
        parents = dataset.parents
        if len(parents) != 1:
            return
        (dataset,) = parents


def _kinds(dataset: Any) -> set[str]:
    """The names of the classes of a data set and of all that it was made of."""
    kinds = {type(dataset).__name__}
    for parent in dataset.parents:
        kinds |= _kinds(parent)
    return kinds
