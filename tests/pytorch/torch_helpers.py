"""What the tests of ``yogadl.torch`` share: small data sets, and how to compare what comes out."""

from __future__ import annotations

import multiprocessing
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec, infer, normalize

# More workers than processors make torch warn, once in every DataLoader.
MANY_WORKERS = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SPEC = {"x": TensorSpec("float32", (3,)), "y": TensorSpec("int64")}
SHUFFLED = {"shuffle": True, "shuffle_seed": 5}


def write(path: pathlib.Path, records: Iterable[Any], spec: Any = None) -> LMDBDataRef:
    """A data set of some records, of the spec of the first unless one is given."""
    records = list(records)
    with CacheWriter(path, infer(records[0]) if spec is None else normalize(spec)) as writer:
        for record in records:
            writer.append(record)
        writer.commit()
    return LMDBDataRef(path)


def write_numbered(path: pathlib.Path, count: int) -> LMDBDataRef:
    """A data set of ``count`` records, which are told apart by ``y``."""
    numbers = range(count)
    return write(path, [{"x": np.full(3, n, "f4"), "y": np.int64(n)} for n in numbers], SPEC)


def numbers(item: Any) -> Any:
    """Which record an item is, or which records of a batch."""
    assert item["x"][..., 0].tolist() == item["y"].tolist()
    return item["y"].tolist()


def epoch(loader: Iterable[Any]) -> list[Any]:
    """The numbers of all items of one iteration."""
    return [numbers(item) for item in loader]


def plain_epochs(
    dataref: LMDBDataRef, batch_size: int | None, count: int, drop: bool = False, **order: Any
) -> list[list[Any]]:
    """The same of the stream itself, for some epochs."""
    stream = dataref.stream(**order)
    items = stream if batch_size is None else stream.batches(batch_size, drop_remainder=drop)
    return [epoch(items) for _ in range(count)]


def children() -> list[Any]:
    """The child processes that are still there."""
    return multiprocessing.active_children()


def rank_epochs(dataset: Any, results: Any) -> None:
    """What a rank of a distributed run does, in a process of its own: two epochs."""
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, batch_size=None, num_workers=1)
    results.put([epoch(loader), epoch(loader)])
