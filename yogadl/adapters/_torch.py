"""PyTorch data sets and loaders. Nothing of PyTorch is imported here."""

from __future__ import annotations

from typing import Any

from yogadl.adapters._base import MapSource, Source
from yogadl.adapters._batches import BatchedSource
from yogadl.adapters._columns import ColumnsSource
from yogadl.adapters._convert import class_name, to_record
from yogadl.adapters._items import ItemsSource
from yogadl.adapters._iterable import IterableSource, known_length
from yogadl.spec import map_nest


def open_dataset(dataset: Any, spec: Any) -> MapSource:
    """The items of a map-style ``torch.utils.data.Dataset``; lists in them are tuples."""
    return ItemsSource(dataset, spec, lists_are_tuples=True)


def open_tensor_dataset(dataset: Any, spec: Any) -> MapSource:
    """A ``TensorDataset``, whose tensors are columns; a class derived from it may do otherwise."""
    if class_name(type(dataset)) != "torch.utils.data.dataset.TensorDataset":
        return open_dataset(dataset, spec)
    return ColumnsSource(tuple(dataset.tensors), spec)


def open_iterable(dataset: Any, spec: Any) -> Source:
    """The items of an ``IterableDataset``; lists in them are tuples."""
    return IterableSource(dataset, spec, lists_are_tuples=True)


def open_loader(loader: Any, spec: Any) -> Source:
    """What a ``DataLoader`` gives, in its order, by its workers.

    Its batches are taken apart into records. Without a batch size, its items are the records; lists
    in them are tuples.
    """
    if loader.batch_sampler is None:
        return IterableSource(loader, spec, convert=_to_record)
    return BatchedSource(loader, spec, _record_count(loader))


def _to_record(item: Any) -> Any:
    # A loader makes lists of tuples, as it does in batches.
    return to_record(map_nest(lambda value: value, item))


def _record_count(loader: Any) -> int | None:
    """Records of all batches; only the plain sampler of batches is known to take each once."""
    sampler = loader.batch_sampler
    if class_name(type(sampler)) != "torch.utils.data.sampler.BatchSampler":
        return None
    # An iterable data set has a sampler without end.
    count = known_length(sampler.sampler)
    if count is None or not sampler.drop_last:
        return count
    return count // int(sampler.batch_size) * int(sampler.batch_size)
