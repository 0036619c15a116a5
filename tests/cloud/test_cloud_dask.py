"""Versions in a bucket of which the tasks of a Dask cluster write the pieces."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pytest
from building import AT_ONCE, SPEC, everything, same_data

from yogadl.storage._buckets import part_collector

pytest.importorskip("distributed")

from dask_building import check_second_makes_what_is_missing  # without it, none


def names(rig: Any, ending: str) -> set[str]:
    found = (pathlib.PurePosixPath(key) for key in rig.raw.list() if key.endswith(ending))
    return {key.name for key in found if key.parent.name == "yogadl.parts" and "a" in key.parts}


def test_tasks_nodes_and_the_driver_are_killed(
    s3: Any, local: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    open_storage = functools.partial(
        s3.remote().make_storage, local, conditional_writes=True, lease_seconds=5
    )
    check_second_makes_what_is_missing(open_storage, made, lambda: names(s3, ".piece"))
    storage = open_storage()
    storage.submit(everything(), "all", "1", spec=SPEC)
    with storage.fetch("a", "1") as ref, storage.fetch("all", "1") as other:
        assert same_data(ref, other)
        # Requests on loopback are over when who sent them has died.
        monkeypatch.setattr(part_collector, "DEAD_SECONDS", 0.0)
        assert not storage.collect_parts(older_than=AT_ONCE).skipped
        needed = {f"{digest.hex()}.mdb" for digest in ref.reader.parts_by_digest()}
        assert names(s3, ".mdb") == needed
