"""Versions of runs and of column groups in buckets: copied, fetched, read there, collected."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from strategies import same
from versioned import write_groups, write_parts, write_runs

from yogadl.cache.parts import PARTS_FOLDER
from yogadl.dataref import LMDBDataRef, RemoteDataRef
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

X, LABEL = {"x": TensorSpec("uint8", (None,))}, {"label": TensorSpec("int64")}


def rows(count: int) -> list[Any]:
    return [{"x": np.full(n % 700, n % 251, "u1")} for n in range(count)]


def runs(path: pathlib.Path) -> LMDBDataRef:
    records = rows(300)
    parts = write_parts(path, X, [records[:100], records[100:]])
    return write_runs(path, X, parts, [(1, 10, 50), (0, 99, 1), (1, 0, 3), (1, 150, 50)])


def groups(path: pathlib.Path) -> LMDBDataRef:
    records = rows(200)
    parts = write_parts(path, X, [records[:100], records[100:]])
    labels = write_parts(path, LABEL, [[{"label": n} for n in range(200)]])
    both = [(X, parts, [(0, 0, 100), (1, 0, 100)]), (LABEL, labels, [(0, 100, 100), (0, 0, 100)])]
    return write_groups(path, {**X, **LABEL}, both, [(1, 0), (0, 0)])


def stored_parts(rig: Any) -> list[str]:
    return [key for key in rig.raw.list() if f"/{PARTS_FOLDER}/" in key and key.endswith(".mdb")]


@pytest.mark.parametrize("make", [runs, groups])
def test_copied_read_and_collected(
    rig: Any,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    tmp_path: pathlib.Path,
    make: Callable[[pathlib.Path], LMDBDataRef],
) -> None:
    disk = LFSStorage(tmp_path / "disk")
    path = tmp_path / "disk" / "a" / "1" / "cache.mdb"
    path.parent.mkdir(parents=True)
    with make(path) as made:
        wanted, content_id = list(made.stream()), made.reader.content_id
        named = len(made.reader.parts_by_digest())
    bucket = rig.make_storage(local)
    disk.copy("a", "1", bucket)
    assert len(stored_parts(rig)) == named
    there = rig.make_storage(elsewhere)
    with there.fetch("a", "1", download=False) as far:
        assert isinstance(far, RemoteDataRef)
        assert far.reader.content_id == content_id
        assert same(list(far.stream()), wanted)
    with there.fetch("a", "1", check_records=True) as near:
        assert isinstance(near, LMDBDataRef)
        near.verify()
        assert near.reader.content_id == content_id
        assert same(list(near.stream()), wanted)
    # All its parts are needed, until it is deleted.
    nothing_old = datetime.timedelta()
    assert there.collect_parts("a", older_than=nothing_old).removed == ()
    back = LFSStorage(tmp_path / "back")
    there.copy("a", "1", back)
    with back.fetch("a", "1") as ref:
        ref.verify()
        assert same(list(ref.stream()), wanted)
    there.delete("a", "1")
    there.collect_parts("a", older_than=nothing_old)
    assert stored_parts(rig) == []
