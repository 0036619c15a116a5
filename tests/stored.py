"""Records in a file, without a storage around it; and whether two files have the same."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from strategies import same

import yogadl
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef, StoredDataRef
from yogadl.errors import ClosedError


def write(path: pathlib.Path, spec: Any, records: Iterable[Any]) -> LMDBDataRef:
    with CacheWriter(path, spec) as writer:
        for record in records:
            writer.append(record)
        writer.commit()
    return LMDBDataRef(path)


def check_alike(
    path: pathlib.Path,
    many: StoredDataRef,
    one: StoredDataRef,
    records: list[Any],
    picked: list[int],
) -> None:
    """Sees that a data set of parts is read as one file is, and closes both.

    Args:
        path: of the table of parts.
        many: that, open.
        one: a file of the same records.
        records: all of them.
        picked: some positions.
    """
    places = np.array(picked, "i8")
    assert (len(many), same(many.spec, one.spec)) == (len(records), True)
    assert many.reader.content_id == one.reader.content_id
    assert np.array_equal(many.reader.tokens(places), one.reader.tokens(places))
    assert all(same(many[at], records[at]) for at in picked)
    for columns in zip(*[ref.reader.read_columns(places) for ref in (one, many)], strict=True):
        assert same(*[list(column) for column in columns])
    reader = many.reader
    reader.announce(range(len(records)))
    reader.forget(0, len(records))
    stream = {"shuffle": True, "shuffle_seed": 3, "start_offset": len(records) // 2}
    for given in ({}, stream):
        assert same(list(many.stream(**given)), list(one.stream(**given)))
    assert same(list(many.stream(**stream).batches(3)), list(one.stream(**stream).batches(3)))
    state = one.stream(**stream).state_dict()
    assert same(list(many.stream(state=state)), list(one.stream(state=state)))
    assert same(list(pickle.loads(pickle.dumps(many)).stream()), records)
    assert same(list(yogadl.concat([many, one, many]).stream()), 3 * records)
    many.verify()
    with LMDBDataRef(path, check_records=True) as checking:
        assert same(list(checking.stream()), records)
    for ref in (one, many):
        ref.close()
    with pytest.raises(ClosedError):
        many.reader.read_record(0)
