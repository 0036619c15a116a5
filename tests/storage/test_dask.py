"""Versions of which the tasks of a Dask cluster write the pieces."""

from __future__ import annotations

import functools
import pathlib

import pytest
from building import SPEC, everything, same_data

from yogadl.storage import LFSStorage

pytest.importorskip("distributed")

from dask_building import check_second_makes_what_is_missing  # without it, none


def test_tasks_nodes_and_the_driver_are_killed(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "stored"
    storage = LFSStorage(folder)
    made = tmp_path / "made"
    made.mkdir()
    check_second_makes_what_is_missing(
        functools.partial(LFSStorage, folder),
        made,
        lambda: {path.name for path in folder.rglob("*.piece")},
    )
    storage.submit(everything(), "all", "1", spec=SPEC)
    with storage.fetch("a", "1") as ref, storage.fetch("all", "1") as other:
        assert same_data(ref, other)
    assert not list(folder.rglob("*partial*"))
