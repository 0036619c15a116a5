"""Storing data and reading it back, and all the ways to read a DataRef against a plain list."""

from __future__ import annotations

import copy
import pathlib
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from strategies import same

import yogadl
from yogadl import spec as specs
from yogadl.dataref import IndexedDataRef
from yogadl.storage import LFSConfigurations, LFSStorage


def stored(path: pathlib.Path, data: Any, spec: Any = None) -> Any:
    """A DataRef of submitted data."""
    storage = LFSStorage(LFSConfigurations(path))
    storage.submit(data, "data", "1", spec=spec)
    return storage.fetch("data", "1")


def assert_same(found: Any, expected: Sequence[Any]) -> None:
    """Records equal to the bit, in their classes too."""
    records = list(found)
    assert len(records) == len(expected)
    for record, wanted in zip(records, expected, strict=True):
        assert same(record, wanted), (record, wanted)


def rows(dataref: IndexedDataRef, batch: Any) -> list[Any]:
    """The records of a batch that ``read`` or ``batches`` gave."""
    columns = specs.flatten(dataref.spec, batch)
    return [specs.unflatten(dataref.spec, row) for row in zip(*columns, strict=True)]


def check(dataref: IndexedDataRef, expected: Sequence[Any], pickles: bool = True) -> None:
    """It has these records, by every way to read them."""
    count = len(expected)
    assert len(dataref) == count
    assert_same([dataref[at] for at in range(-count, count)], [*expected, *expected])
    assert_same(rows(dataref, dataref.read(np.arange(count)[::-1])), list(expected)[::-1])
    clones = [dataref, copy.copy(dataref)]
    if pickles:
        clones.append(pickle.loads(pickle.dumps(dataref)))
    for clone in clones:
        assert_same(clone.stream(), expected)
        assert clone.reader.content_id == dataref.reader.content_id
    for rank in range(3):
        assert_same(dataref.stream(shard_rank=rank, num_shards=3), expected[rank::3])
    order = np.arange(count)
    np.random.RandomState(7).shuffle(order)
    shuffled = [expected[at] for at in order]
    assert_same(dataref.stream(shuffle=True, shuffle_seed=7), shuffled)
    batches = dataref.stream(shuffle=True, shuffle_seed=7).batches(4)
    assert_same([record for batch in batches for record in rows(dataref, batch)], shuffled)
    if count > 2:
        later = dataref.stream(shuffle=True, shuffle_seed=7, start_offset=2)
        assert_same(later, shuffled[2:])
        half = dataref.stream(shuffle=True, shuffle_seed=7)
        iterator = iter(half)
        taken = [next(iterator) for _ in range(2)]
        rest = list(dataref.stream(state=half.state_dict()))
        assert_same(taken + rest, shuffled)
        assert_same(dataref.select([2, 0]).stream(), [expected[2], expected[0]])
        assert_same(yogadl.concat([dataref, dataref[:2]]).stream(), [*expected, *expected[:2]])
    assert_fresh(dataref)


def assert_fresh(dataref: IndexedDataRef) -> None:
    """What is read may be written to without a change of what is read next."""
    if not len(dataref):
        return
    before = pickle.dumps(dataref[0])
    for found in (dataref[0], rows(dataref, dataref.read([0]))[0]):
        _spoil(found)
    assert pickle.dumps(dataref[0]) == before


def _spoil(value: Any) -> None:
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            value.view("u1" if value.ndim else value.dtype)[...] = 1
    elif isinstance(value, dict | tuple):
        for child in value.values() if isinstance(value, dict) else value:
            _spoil(child)
