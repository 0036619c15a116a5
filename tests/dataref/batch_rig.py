"""What the tests of batches share: caches, batches made by hand, threads that read ahead."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from yogadl import chunk_sizes, dtypes
from yogadl import spec as specs
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef, _batches
from yogadl.spec import TensorSpec


def write(path: pathlib.Path, spec: Any, records: Any) -> pathlib.Path:
    with CacheWriter(path, spec) as writer:
        for record in records:
            writer.append(record)
        writer.commit()
    return path


ONE_BATCH = chunk_sizes.ChunkSize(1, 1)


@contextlib.contextmanager
def always_in_a_thread(chunk_bytes: int = 1) -> Iterator[None]:
    """Takes every consumer for a busy one, and reads one batch at a time."""
    with (
        mock.patch.object(_batches, "_BUSY", -1.0),
        mock.patch.object(chunk_sizes, "BATCHES", chunk_sizes.ChunkSize(chunk_bytes, 8192)),
    ):
        yield


def threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("yogadl-read-ahead")}


def ended(before: set[threading.Thread]) -> bool:
    """Whether there are soon no more threads than there were."""
    limit = time.monotonic() + 20
    while threads() - before and time.monotonic() < limit:
        time.sleep(0.01)
    return not threads() - before


def stacked(spec: Any, records: list[Any]) -> Any:
    """A batch as it is documented, made by hand."""
    rows = [specs.flatten(spec, record) for record in records]
    columns = []
    for number, leaf in enumerate(specs.leaves(spec)):
        values = [row[number] for row in rows]
        if not isinstance(leaf, TensorSpec) or leaf.static_shape is None:
            columns.append(values)
            continue
        dtype = object if leaf.is_string else dtypes.to_numpy(leaf.dtype)
        column = np.empty((len(values), *leaf.static_shape), dtype)
        for position, value in enumerate(values):
            column[position] = value
        columns.append(column)
    return specs.unflatten(spec, columns)


def in_batches(spec: Any, records: list[Any], size: int, drop: bool = False) -> list[Any]:
    parts = [records[at : at + size] for at in range(0, len(records), size)]
    return [stacked(spec, part) for part in parts if len(part) == size or not drop]


def memory(dataref: LMDBDataRef, size: int, number: int) -> list[Any]:
    def empty(leaf: Any) -> Any:
        return np.full((size, *leaf.shape), 77, dtypes.to_numpy(leaf.dtype))

    return [specs.map_leaves(empty, dataref.spec) for _ in range(number)]


def padded(spec: Any, batch: Any, values: list[Any]) -> Any:
    """A batch with lists of arrays padded by hand, item by item."""
    columns = []
    for leaf, column, value in zip(
        specs.leaves(spec), specs.flatten(spec, batch), values, strict=True
    ):
        if value is None:
            columns.append(column)
            continue
        assert isinstance(leaf, TensorSpec)
        shape = [max(dims) for dims in zip(*[array.shape for array in column], strict=True)]
        whole = np.empty((len(column), *shape), dtypes.to_numpy(leaf.dtype))
        for position, array in enumerate(column):
            for index in np.ndindex(*shape):
                inside = all(at < dim for at, dim in zip(index, array.shape, strict=True))
                whole[(position, *index)] = array[index] if inside else value
        columns.append(whole)
    return specs.unflatten(spec, columns)
